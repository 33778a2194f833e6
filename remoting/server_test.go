package remoting

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestAnswers(t *testing.T) {
	events := newEventLog()
	s := startServer(t, ServerConfig{}, testMux(nil), events)
	tests := []struct {
		name       string
		code, want int32
		remark     string
		echo       bool
	}{
		{"on the loop", codeEcho, 0, "", true},
		{"from another goroutine", codeLater, 0, "", true},
		{"slow", codeSlow, 0, "", true},
		{"panic", codePanic, 1, "internal error: broken", false},
		{"protocol error", codeError, 17, "no topic", false},
		{"other error", codePlain, 1, "unexpected EOF", false},
		{"unknown", 999, 3, " request type 999 not supported", false},
		{"unknown and large", 77777777, 3, " request type 77777777 not supported", false},
		{"negative", -1, 3, " request type -1 not supported", false},
	}
	w := dialWire(t, s.Addr())
	for _, form := range []protocol.Form{protocol.JSON, protocol.Binary} {
		for i, tt := range tests {
			t.Run(fmt.Sprint(tt.name, form), func(t *testing.T) {
				w.t = t
				opaque := int32(i) - 3
				w.send(request(tt.code, opaque, form, "hello"))
				a := w.answer()
				if a.Code != tt.want || a.Remark != tt.remark || a.Opaque != opaque || a.Flag != protocol.FlagResponse ||
					a.Version != protocol.Version || a.Language != protocol.LangJava {
					t.Fatalf("%+v", a)
				}
				if a.Form != protocol.FrameForm(form, tt.code) {
					t.Fatalf("answered in form %d", a.Form)
				}
				if tt.echo && (string(a.Body) != "hello" || a.Ext["x"] != "y") || !tt.echo && len(a.Body) > 0 {
					t.Fatalf("%+v", a)
				}
				if tt.code == codeError && a.Ext["why"] != "test" {
					t.Fatalf("ext %v", a.Ext)
				}
			})
		}
	}
	if n := s.Stats().Panics; n != 2 {
		t.Errorf("%d panics counted", n)
	}
	w.send(request(codePop, 1, protocol.JSON, ""))
	if a := w.answer(); a.Code != 0 || a.Form != protocol.JSON {
		t.Fatalf("%+v", a)
	}
	_ = w.Close()
	if err := events.until(t, 1, 1); err == nil {
		t.Error("closed without a reason")
	}
}

func TestOnewayIsNeverAnswered(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	w := dialWire(t, s.Addr())
	for _, code := range []int32{codeEcho, codePanic, codeError, codeLater, codeSlow, 999} {
		c := protocol.NewRequest(code, nil, []byte("x"))
		c.Flag = protocol.FlagOneway
		w.send(c.Append(nil))
	}
	w.send(request(codeEcho, 42, protocol.JSON, "last"))
	if a := w.answer(); a.Opaque != 42 {
		t.Fatalf("%+v", a)
	}
}

// Many frames in one write are answered in order by one batch.
func TestPipelining(t *testing.T) {
	var batches, inBatch, most int
	s := NewServer(ServerConfig{BindAddress: "127.0.0.1"}, testMux(nil), nil, quiet)
	s.OnBatchEnd(func(c *Conn) {
		n := c.Local("n", func() any { return new(int) }).(*int)
		*n++
		batches++
		most = max(most, inBatch)
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	w := dialWire(t, s.Addr())
	var b []byte
	const n = 2000
	for i := range n {
		b = append(b, request(codeEcho, int32(i), protocol.Form(i%2), strings.Repeat("x", i%700))...)
	}
	go func() { _, _ = w.Write(b) }()
	for i := range n {
		if a := w.answer(); a.Opaque != int32(i) || len(a.Body) != i%700 {
			t.Fatalf("answer %d: %+v", i, a)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if batches == 0 || batches > n/2 {
		t.Errorf("%d batches for %d frames", batches, n)
	}
}

func TestFramesInPieces(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	w := dialWire(t, s.Addr())
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	sizes := []int{0, 1, 100, 20_000, 70_000, 300_000, 3_000_000, 5}
	for i, n := range sizes {
		b = append(b, request(codeEcho, int32(i), protocol.JSON, strings.Repeat("z", n))...)
	}
	go func() {
		for len(b) > 0 {
			n := min(len(b), 1+r.IntN(60_000))
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
	}()
	for i, n := range sizes {
		if a := w.answer(); a.Opaque != int32(i) || len(a.Body) != n {
			t.Fatalf("answer %d: opaque %d, %d bytes", i, a.Opaque, len(a.Body))
		}
	}
	if n := s.Stats().BytesInWork; n != 0 {
		waitIdle(t, s)
	}
}

func waitIdle(t *testing.T, s *Server) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.Stats().BytesInWork != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes still in work", s.Stats().BytesInWork)
		}
	}
}

// The frames of case SE-15. Those that decode are answered with code 3, the others end the connection, whole or byte by byte,
// and a client beside sees nothing of it.
func TestMalformedFrames(t *testing.T) {
	frames := map[string]struct {
		hex string
		ok  bool
	}{
		"M01":                 {"00000000", false},
		"M02":                 {"00000002 0000", false},
		"M03":                 {"ffffffff", false},
		"M04":                 {"7fffffff 41414141", false},
		"M05":                 {"00000008 00000064 7b7d7b7d", false},
		"M06":                 {"00000006 05000002 7b7d", false},
		"M07":                 {"00000006 00000002 7b7d", true},
		"M08":                 {"00000006 00000002 5b5d", false},
		"M09":                 {"00000008 00000004 6e756c6c", false},
		"M10":                 {"00000019 01000015 0069 00 013d 00000007 00000000 7fffffff 00000000", false},
		"M11":                 {"00000019 01000015 0069 00 013d 00000007 00000000 fffffffe 00000000", false},
		"M12":                 {"00000019 01000015 0069 00 013d 00000007 00000000 00000000 00ffffff", false},
		"M13":                 {"00000025 01000021 0069 00 013d 00000007 00000000 00000000 0000000c ffff 746f706963 00000001 54", false},
		"M14":                 {"00000025 01000021 0069 00 013d 00000007 00000000 00000000 0000000c 0005 746f706963 7ffffff0 54", false},
		"M15":                 {"00000008 01000004 00690001", false},
		"M16":                 {"00000025 01000021 0069 00 ffff 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54", true},
		"M17":                 {"00000025 01000021 0069 c8 013d 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54", true},
		"16 MiB and one byte": {"00fffffd 00000000", false},
	}
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	client := startClient(t, ClientConfig{}, nil)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			a, err := client.Call(context.Background(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, []byte("beside")))
			if err != nil || string(a.Body) != "beside" {
				t.Errorf("the client beside: %v %v", a, err)
				return
			}
		}
	})
	for name, tt := range frames {
		b, err := hex.DecodeString(strings.ReplaceAll(tt.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprint(name, split), func(t *testing.T) {
				w := dialWire(t, s.Addr())
				if split {
					for i := range b {
						if _, err := w.Write(b[i : i+1]); err != nil {
							break // closed already
						}
					}
				} else {
					w.send(b)
				}
				if tt.ok {
					if a := w.answer(); a.Code != 3 {
						t.Fatalf("%+v", a)
					}
					w.send(request(codeEcho, 1, protocol.JSON, "still"))
					if a := w.answer(); string(a.Body) != "still" {
						t.Fatalf("%+v", a)
					}
					return
				}
				if got := w.closed(); len(got) > 0 {
					t.Fatalf("answered %q", got)
				}
			})
		}
	}
	close(stop)
	beside.Wait()
}

// Good frames before a bad one are answered.
func TestAnswersBeforeMalformed(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	w := dialWire(t, s.Addr())
	w.send(append(request(codeEcho, 5, protocol.JSON, "good"), 0, 0, 0, 0))
	if a := w.answer(); a.Opaque != 5 {
		t.Fatalf("%+v", a)
	}
	w.closed()
}

func TestFastPort(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	l, err := s.listen(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ServeVIP(l); err != nil {
		t.Fatal(err)
	}
	w := dialWire(t, s.FastAddr())
	w.send(request(codeNoVIP, 1, protocol.JSON, ""))
	if a := w.answer(); a.Code != 3 {
		t.Fatalf("%+v", a)
	}
	w.send(request(codeEcho, 1, protocol.JSON, ""))
	if a := w.answer(); a.Code != 0 {
		t.Fatalf("%+v", a)
	}
	w = dialWire(t, s.Addr())
	w.send(request(codeNoVIP, 1, protocol.JSON, ""))
	if a := w.answer(); a.Code != 0 {
		t.Fatalf("%+v", a)
	}
}

// Bodies of parts: copied, written from memory, sent from a file, over plain and TLS connections.
func TestParts(t *testing.T) {
	content := make([]byte, 600_000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type piece struct{ from, to int }
	cases := []struct {
		name   string
		pieces []piece
		mem    bool // has bytes
		file   bool // has a file
	}{
		{"none", nil, true, false},
		{"small", []piece{{0, 100}, {500, 900}}, true, true},
		{"small from a file only", []piece{{7, 100}, {500, 900}}, false, true},
		{"empty ones between", []piece{{0, 0}, {0, 50}, {5, 5}, {9, 20_000}}, true, false},
		{"memory", []piece{{0, 30_000}, {50_000, 90_000}, {1, 40_001}}, true, false},
		{"many in memory", manyPieces[piece](300, func(i int) piece { return piece{i * 1000, i*1000 + 900} }), true, false},
		{"large in memory", []piece{{0, 600_000}}, true, false},
		{"large in a file", []piece{{5, 599_000}}, true, true},
		{"files and memory mixed", []piece{{0, 70_000}, {3, 500}, {80_000, 200_000}, {200_000, 210_000}, {100, 600_000}}, true, true},
	}
	var waits sync.WaitGroup
	mux := testMux(nil)
	mux.Handle(codePart, Inline, func(req *Request, resp *Response) error {
		n, _, err := req.Int32("case")
		if err != nil {
			return err
		}
		c := cases[n]
		for _, p := range c.pieces {
			part := &testPart{left: &waits}
			if c.mem {
				part.b = content[p.from:p.to]
			}
			if c.file {
				part.file, part.off, part.n = f, int64(p.from), int64(p.to-p.from)
			}
			waits.Add(1)
			resp.Body.Parts = append(resp.Body.Parts, part)
		}
		return nil
	})
	s := startServer(t, ServerConfig{TLS: TLSOptions{TestMode: true}}, mux, nil)
	for _, secure := range []bool{false, true} {
		var cfg ClientConfig
		if secure {
			cfg.TLS = &TLSOptions{}
		}
		client := startClient(t, cfg, nil)
		for i, tt := range cases {
			t.Run(fmt.Sprint(tt.name, secure), func(t *testing.T) {
				var want []byte
				for _, p := range tt.pieces {
					want = append(want, content[p.from:p.to]...)
				}
				for range 3 {
					a, err := client.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codePart, map[string]string{"case": fmt.Sprint(i)}, nil))
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(a.Body, want) {
						t.Fatalf("%d bytes, want %d", len(a.Body), len(want))
					}
				}
				waitFor(t, "release", &waits)
			})
		}
		c := protocol.NewRequest(codePart, map[string]string{"case": "8"}, nil)
		if err := client.Oneway(t.Context(), s.Addr().String(), c); err != nil {
			t.Fatal(err)
		}
		callOK(t, client, s.Addr().String(), codeEcho, "")
		waitFor(t, "release of a one-way request", &waits)
	}
}

func manyPieces[P any](n int, fn func(i int) P) []P {
	var list []P
	for i := range n {
		list = append(list, fn(i))
	}
	return list
}

// An answer larger than a frame is replaced by an error, and its parts are released.
func TestAnswerTooLarge(t *testing.T) {
	var waits sync.WaitGroup
	big := make([]byte, 1<<20)
	mux := NewMux()
	mux.Handle(codePart, Inline, func(req *Request, resp *Response) error {
		waits.Add(2)
		resp.Body.Parts = []Part{&testPart{b: big, left: &waits}, &testPart{b: big, left: &waits}}
		return nil
	})
	s := startServer(t, ServerConfig{Limits: Limits{MaxFrame: 1 << 20}}, mux, nil)
	w := dialWire(t, s.Addr())
	w.send(request(codePart, 1, protocol.Binary, ""))
	if a := w.answer(); a.Code != 1 || !strings.Contains(a.Remark, "larger than 1048576") {
		t.Fatalf("%+v", a)
	}
	waitFor(t, "release", &waits)
	w.send(request(codeEcho, 1, protocol.Binary, ""))
	w.answer()
}

// A peer that does not read is closed after the write timeout, its parts are released, and others do not notice.
func TestPeerThatDoesNotRead(t *testing.T) {
	var waits sync.WaitGroup
	big := make([]byte, 4<<20)
	mux := testMux(nil)
	mux.Handle(codePart, Inline, func(req *Request, resp *Response) error {
		waits.Add(1)
		resp.Body.Parts = []Part{&testPart{b: big, left: &waits}}
		return nil
	})
	events := newEventLog()
	s := startServer(t, ServerConfig{Limits: Limits{WriteTimeout: 300 * time.Millisecond}}, mux, events)
	w := dialWire(t, s.Addr())
	var b []byte
	for i := range 100 {
		b = append(b, request(codePart, int32(i), protocol.JSON, "")...)
	}
	w.send(b)
	client := startClient(t, ClientConfig{}, nil)
	for range 50 {
		if a := callOK(t, client, s.Addr().String(), codeEcho, "x"); string(a.Body) != "x" {
			t.Fatalf("%+v", a)
		}
	}
	if err := events.until(t, 2, 1); err != errNotReading {
		t.Fatalf("closed because: %v", err)
	}
	waitFor(t, "release", &waits)
	if s.Stats().SlowPeers != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// While too much waits to be written, the connection is not read; when the peer reads on, everything comes.
func TestReaderPausesAtHighWater(t *testing.T) {
	mux := testMux(nil)
	var handled int
	body := make([]byte, 1<<20)
	mux.Handle(codePart, Inline, func(req *Request, resp *Response) error {
		handled++
		resp.Body.Bytes = body
		return nil
	})
	s := startServer(t, ServerConfig{Limits: Limits{HighWater: 4 << 20, LowWater: 1 << 20}}, mux, nil)
	w := dialWire(t, s.Addr())
	const n = 60
	go func() {
		for i := range n { // one frame per write and read
			if _, err := w.Write(request(codePart, int32(i), protocol.JSON, strings.Repeat("p", 20_000))); err != nil {
				return
			}
		}
	}()
	for i := range n {
		if a := w.answer(); a.Opaque != int32(i) || len(a.Body) != len(body) {
			t.Fatalf("answer %d: %d", i, a.Opaque)
		}
	}
}

// Parts are released when the connection goes away, at any point of a write.
func TestReleaseOnClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var waits sync.WaitGroup
	mux := NewMux()
	mux.Handle(codePart, Inline, func(req *Request, resp *Response) error {
		p := req.Defer()
		for i := range 8 {
			waits.Add(1)
			part := &testPart{left: &waits, b: make([]byte, 60_000)}
			if i%2 == 0 {
				part.file, part.n, part.b = f, 8<<20, nil
			}
			resp.Body.Parts = append(resp.Body.Parts, part)
		}
		own := *resp
		*resp = Response{}
		go p.Reply(&own)
		return Later
	})
	for _, secure := range []bool{false, true} {
		s := startServer(t, ServerConfig{TLS: TLSOptions{TestMode: true}}, mux, nil)
		for i := range 20 {
			cfg := ClientConfig{}
			if secure {
				cfg.TLS = &TLSOptions{}
			}
			client := startClient(t, cfg, nil)
			conn, err := client.Conn(t.Context(), s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := conn.Async(time.Time{}, protocol.NewRequest(codePart, nil, nil), func(*protocol.Command, error) {}); err != nil {
					t.Fatal(err)
				}
			}
			if i%2 == 0 {
				_ = callErr(conn)
			}
			conn.Close()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "release", &waits)
	}
}

// callErr makes sure that the requests before were read.
func callErr(c *Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := c.Call(ctx, protocol.NewRequest(999, nil, nil))
	return err
}

func TestShutdownAnswersWhatWaits(t *testing.T) {
	release := make(chan struct{})
	started := make(chan struct{}, 10)
	mux := NewMux()
	mux.Handle(codeSlow, Slow(NewClass("s", 2, 10, 0)), func(req *Request, resp *Response) error {
		started <- struct{}{}
		<-release
		return echo(req, resp)
	})
	s := startServer(t, ServerConfig{GoAway: true}, mux, nil)
	w := dialWire(t, s.Addr())
	for i := range 4 {
		w.send(request(codeSlow, int32(i), protocol.JSON, "x"))
	}
	<-started
	<-started
	for s.Stats().SlowRunning < 4 {
		time.Sleep(time.Millisecond)
	}
	result := make(chan error, 1)
	go func() { result <- s.Shutdown(context.Background()) }()
	for !s.ep.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	w.send(request(codeSlow, 99, protocol.JSON, "late"))
	if a := w.answer(); a.Opaque != 99 || a.Code != protocol.GoAway {
		t.Fatalf("%+v", a)
	}
	close(release)
	for range 4 {
		if a := w.answer(); a.Code != 0 || string(a.Body) != "x" {
			t.Fatalf("%+v", a)
		}
	}
	w.closed()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(); err == nil {
		t.Error("serves after shutdown")
	}
}

func TestDetachedRequest(t *testing.T) {
	req, err := NewRequest(nil, protocol.NewRequest(codeEcho, map[string]string{"x": "1"}, []byte("b")))
	if err != nil {
		t.Fatal(err)
	}
	var waits sync.WaitGroup
	waits.Add(1)
	var resp Response
	if err := echo(req.Clone(), &resp); err != nil || string(resp.Body.Bytes) != "b" {
		t.Fatal(err)
	}
	resp.Body = Body{Parts: []Part{&testPart{b: []byte("x"), left: &waits}}}
	req.Defer().Reply(&resp)
	waits.Wait()
}

package remoting

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// Request codes of the tests' server.
const (
	codeEcho   = 10 // body and ext field x, on the loop
	codePanic  = 11 // panics
	codeError  = 12 // a protocol.Error
	codeLater  = 13 // echo from another goroutine
	codeSlow   = 14 // echo on a class
	codePlain  = 15 // an error of Go
	codePop    = 200050
	codeNoVIP  = 16
	codeMirror = 17 // calls the client with code 40 and answers its answer
	codePart   = 18 // a body of parts
)

// echo copies the body: it may be a view.
func echo(req *Request, resp *Response) error {
	if v, ok := req.Get("x"); ok {
		resp.Ext.AddBytes("x", v)
	}
	resp.Body.Bytes = append([]byte(nil), req.Body...)
	return nil
}

func testMux(class *Class) *Mux {
	m := NewMux()
	m.Handle(codeEcho, Inline, echo)
	m.Handle(codePop, Inline, echo)
	m.Handle(codeNoVIP, Inline, echo, NotOnVIP)
	m.Handle(codePanic, Inline, func(*Request, *Response) error { panic("broken") })
	m.Handle(codeError, Inline, func(_ *Request, resp *Response) error {
		resp.Ext.Add("why", "test")
		return &protocol.Error{Code: 17, Remark: "no topic"}
	})
	m.Handle(codePlain, Inline, func(*Request, *Response) error { return io.ErrUnexpectedEOF })
	m.Handle(codeLater, Inline, func(req *Request, _ *Response) error {
		c, p := req.Clone(), req.Defer()
		go func() {
			var resp Response
			if err := echo(c, &resp); err == nil {
				p.Reply(&resp)
			}
		}()
		return Later
	})
	if class == nil {
		class = NewClass("test", 4, 1000, 0)
	}
	m.Handle(codeSlow, Slow(class), echo)
	m.Handle(codeMirror, Slow(class), func(req *Request, resp *Response) error {
		answer, err := req.Conn().Call(req.Context(), protocol.NewRequest(40, map[string]string{"a": "b"}, req.Body))
		if err != nil {
			return err
		}
		resp.Code, resp.Remark, resp.Body.Bytes = answer.Code, answer.Remark, answer.Body
		return nil
	})
	return m
}

// startServer serves on a free loopback port until the test ends.
func startServer(t testing.TB, cfg ServerConfig, mux *Mux, events Events) *Server {
	t.Helper()
	if cfg.BindAddress == "" {
		cfg.BindAddress = "127.0.0.1"
	}
	s := NewServer(cfg, mux, events, quiet)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func startClient(t testing.TB, cfg ClientConfig, mux *Mux) *Client {
	t.Helper()
	c := NewClient(cfg, mux, quiet)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// wire is a raw connection to a server.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dialWire(t testing.TB, addr net.Addr) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return newWire(t, c)
}

func newWire(t testing.TB, c net.Conn) *wire {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{c, t, bufio.NewReader(c)}
}

func (w *wire) send(b []byte) {
	w.t.Helper()
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read() (*protocol.Command, error) {
	var n [4]byte
	if _, err := io.ReadFull(w.r, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(w.r, b); err != nil {
		return nil, err
	}
	return protocol.DecodeCommand(b)
}

func (w *wire) answer() *protocol.Command {
	w.t.Helper()
	c, err := w.read()
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// closed waits until the server closes the connection and returns what it sent before.
func (w *wire) closed() []byte {
	w.t.Helper()
	b, err := io.ReadAll(w.r)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatal("the connection is still open")
	}
	return b
}

func request(code, opaque int32, form protocol.Form, body string) []byte {
	c := protocol.NewRequest(code, map[string]string{"x": "y"}, []byte(body))
	c.Opaque, c.Form = opaque, form
	return c.Append(nil)
}

// eventLog counts events.
type eventLog struct {
	mu             sync.Mutex
	opened, closed int
	reason         error
	change         chan struct{}
}

func newEventLog() *eventLog { return &eventLog{change: make(chan struct{}, 1000)} }

func (e *eventLog) Opened(*Conn) {
	e.mu.Lock()
	e.opened++
	e.mu.Unlock()
	e.change <- struct{}{}
}

func (e *eventLog) Closed(_ *Conn, reason error) {
	e.mu.Lock()
	e.closed++
	e.reason = reason
	e.mu.Unlock()
	e.change <- struct{}{}
}

// until waits for a state.
func (e *eventLog) until(t testing.TB, opened, closed int) error {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		o, c, r := e.opened, e.closed, e.reason
		e.mu.Unlock()
		if o >= opened && c >= closed {
			return r
		}
		select {
		case <-e.change:
		case <-deadline:
			t.Fatalf("%d opened, %d closed", o, c)
		}
	}
}

// testPart is a part that counts its releases.
type testPart struct {
	b        []byte
	file     *os.File
	off      int64
	n        int64
	released atomic.Int32
	left     *sync.WaitGroup
}

func (p *testPart) Bytes() []byte { return p.b }

func (p *testPart) File() (*os.File, int64, int64, bool) { return p.file, p.off, p.n, p.file != nil }

func (p *testPart) Release() {
	if p.released.Add(1) > 1 {
		panic("released twice")
	}
	p.left.Done()
}

func waitFor(t testing.TB, what string, wg *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: still waiting", what)
	}
}

func callOK(t testing.TB, c *Client, addr string, code int32, body string) *protocol.Command {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, err := c.Call(ctx, addr, protocol.NewRequest(code, map[string]string{"x": "1"}, []byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

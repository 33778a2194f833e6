package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// A buffer that waits for the rest of a frame is no more than a few times as large as what came, and it is counted.
func TestIdleBufferShrinks(t *testing.T) {
	for name, c := range map[string]struct{ size, have, want int }{
		"nearly empty":  {inMostHint, 10, inSmallest},
		"smallest":      {inSmallest, 10, inSmallest},
		"a quarter":     {inMostHint, inMostHint / 4, inMostHint / 2},
		"more than one": {inMostHint, inMostHint/4 + 1, inMostHint},
		"large":         {4 * inMostKept, 100_000, 256 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer b.Close()
			conn := newConn(newEndpoint(Limits{}, nil, quiet), a)
			defer conn.Close()
			in := &conn.in
			in.take(c.size)
			in.w = copy(in.b, bytes.Repeat([]byte("0123456789abcdef"), c.have/16+1)[:c.have])
			before := string(in.data())
			in.idle()
			in.idle()
			if len(in.b) != c.want || string(in.data()) != before {
				t.Errorf("%d bytes of buffer, want %d; data kept: %t", len(in.b), c.want, string(in.data()) == before)
			}
			counted := int64(0)
			if c.want > inUncounted {
				counted = int64(c.want)
			}
			if n := conn.ep.frames.Load(); n != counted {
				t.Errorf("%d bytes are counted, want %d", n, counted)
			}
			if conn.partial.Load() == 0 {
				t.Error("the wait is not noted")
			}
			in.free()
			if n := conn.ep.frames.Load(); n != 0 {
				t.Errorf("%d bytes are counted after the buffer was given back", n)
			}
		})
	}
}

// A peer that sends a byte now and then does not keep its connection for ever, and one that sends whole frames does.
func TestFrameThatNeverEnds(t *testing.T) {
	for _, hold := range []int64{0, 900 << 10} { // what others hold: nothing, or nearly everything
		for idle := 100 * time.Millisecond; ; idle *= 2 {
			err := sendFrameByBytes(t, idle, hold)
			if err == errSlowFrame {
				break
			}
			// On a busy machine the sender itself may be late by more than the limit.
			if err != errIdle || idle > 10*time.Second {
				t.Fatalf("closed because: %v", err)
			}
		}
	}
}

// sendFrameByBytes sends a frame byte by byte, ten within the limits' time, and returns why the server closed.
func sendFrameByBytes(t *testing.T, limit time.Duration, hold int64) error {
	events := newEventLog()
	s := startServer(t, ServerConfig{Limits: Limits{IdleTimeout: limit, WriteTimeout: limit, TotalBytes: 1 << 20}}, testMux(nil), events)
	s.ep.frames.Add(hold)
	defer s.ep.frames.Store(0)
	w := dialWire(t, s.Addr())
	done := make(chan struct{})
	go func() {
		defer close(done)
		frame := request(codeEcho, 1, protocol.Binary, strings.Repeat("x", 1000))
		for _, b := range frame[:len(frame)-1] {
			if _, err := w.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(limit / 10)
		}
	}()
	err := events.until(t, 1, 1)
	w.Close()
	<-done
	return err
}

// Large partial frames leave room for requests in work.
func TestPartialFramesLeaveRoom(t *testing.T) {
	s := startServer(t, ServerConfig{Limits: Limits{TotalBytes: 4 << 20}}, testMux(nil), nil)
	for range 8 {
		w := dialWire(t, s.Addr())
		go func() {
			frame := binary.BigEndian.AppendUint32(nil, 8<<20)
			_, _ = w.Write(append(frame, make([]byte, 2<<20)...)) // the server stops reading and closes in the end
		}()
	}
	for s.Stats().BytesInWork < 2<<20 {
		time.Sleep(time.Millisecond)
	}
	client := startClient(t, ClientConfig{}, nil)
	for range 200 {
		if a := callOK(t, client, s.Addr().String(), codeSlow, "x"); string(a.Body) != "x" {
			t.Fatalf("%+v", a)
		}
	}
}

// When the large answers that nobody reads take much, requests of their connections are not executed any more; when they
// take too much, the connections are closed at once.
func TestAnswersThatNobodyReads(t *testing.T) {
	class := NewClass("big", 2, 1000, 0)
	mux := testMux(nil)
	var executed atomic.Int64
	mux.Handle(codePart, Slow(class), func(_ *Request, resp *Response) error {
		executed.Add(1)
		resp.Body.Bytes = make([]byte, 1<<20)
		return nil
	})
	events := newEventLog()
	s := startServer(t, ServerConfig{Limits: Limits{TotalBytes: 8 << 20, HighWater: 64 << 10, LowWater: 32 << 10, WriteTimeout: time.Hour}}, mux, events)
	var b []byte
	for i := range 100 {
		b = append(b, request(codePart, int32(i), protocol.JSON, "")...)
	}
	for range 10 {
		dialWire(t, s.Addr()).send(b)
	}
	// Whether a connection must be closed depends on how fast the sockets take the first answers; one that is paused has
	// frames which nobody reads.
	for give := time.Now().Add(5 * time.Second); s.Stats().SlowPeers == 0 && time.Now().Before(give) && executed.Load()+s.Stats().Overloads < 10*100; {
		time.Sleep(time.Millisecond)
	}
	for s.Stats().SlowRunning > 0 {
		time.Sleep(time.Millisecond)
	}
	if s.Stats().SlowPeers > 0 {
		if err := events.until(t, 10, 1); !errors.Is(err, errNotReading) {
			t.Fatalf("closed because: %v", err)
		}
	} else if s.Stats().Overloads == 0 {
		t.Error("every request was executed")
	}
	if n := s.ep.answers.Load(); n > 10<<20 {
		t.Errorf("%d bytes of answers", n)
	}
	client := startClient(t, ClientConfig{}, nil)
	if a := callOK(t, client, s.Addr().String(), codePart, ""); len(a.Body) != 1<<20 {
		t.Errorf("%+v", a)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for give := time.Now().Add(10 * time.Second); s.ep.answers.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(give) { // a request's goroutine may still count what it wrote
			t.Fatalf("%d bytes of answers are counted at the end", s.ep.answers.Load())
		}
	}
}

// A remark that quotes a peer's text does not give all of it back.
func TestLongRemarks(t *testing.T) {
	mux := testMux(nil)
	mux.Handle(codePart, Inline, func(req *Request, _ *Response) error {
		return protocol.Errorf(protocol.TopicNotExist, "no topic %s", req.String("x"))
	})
	s := startServer(t, ServerConfig{}, mux, nil)
	client := startClient(t, ClientConfig{}, nil)
	for _, x := range []string{"T", strings.Repeat("é", 1<<19)} {
		a, err := client.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codePart, map[string]string{"x": x}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(a.Remark, "no topic "+x[:1]) || len(a.Remark) > mostRemark+3 || len(x) > 1 && !strings.HasSuffix(a.Remark, "é...") {
			t.Errorf("%d bytes: %.40q", len(a.Remark), a.Remark)
		}
	}
}

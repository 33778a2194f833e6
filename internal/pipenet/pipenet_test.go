package pipenet

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDialAndListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Listen(l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("second listener: %v", err)
		}
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
		c, err := n.Dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().String() != l.Addr().String() {
			t.Fatalf("remote %s", c.RemoteAddr())
		}
		if _, err := c.Write([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi" {
			t.Fatalf("%q %v", b, err)
		}
		if err := errors.Join(c.Close(), l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Dial(t.Context(), "tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial of nobody: %v", err)
		}
	})
}

func TestDialTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.Dial(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dial of a listener that does not accept: %v", err)
		}
	})
}

package remoting

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// pipes runs fn in fake time with a server on a network of pipes and a client of it.
func pipes(t *testing.T, scfg ServerConfig, ccfg ClientConfig, mux, clientMux *Mux, fn func(t *testing.T, s *Server, c *Client, addr string)) {
	synctest.Test(t, func(t *testing.T) {
		n := pipenet.New()
		l, err := n.Listen("127.0.0.1:10911")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(scfg, mux, nil, quiet)
		if err := s.Serve(l); err != nil {
			t.Fatal(err)
		}
		ccfg.Dial = n.Dial
		c := NewClient(ccfg, clientMux, quiet)
		fn(t, s, c, l.Addr().String())
		if err := errors.Join(c.Close(), s.Close(), c.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCallOverPipes(t *testing.T) {
	pipes(t, ServerConfig{}, ClientConfig{}, testMux(nil), nil, func(t *testing.T, s *Server, c *Client, addr string) {
		for _, code := range []int32{codeEcho, codeLater, codeSlow} {
			if a := callOK(t, c, addr, code, strings.Repeat("b", 200_000)); len(a.Body) != 200_000 || a.Ext["x"] != "1" {
				t.Fatalf("%+v", a.Ext)
			}
		}
		if c.Stats().Connections != 1 {
			t.Error("more than one connection")
		}
	})
}

func TestCallTimesOut(t *testing.T) {
	mux := NewMux()
	mux.Handle(codeEcho, Inline, func(req *Request, _ *Response) error {
		p := req.Defer()
		time.AfterFunc(10*time.Second, func() { p.Reply(&Response{}) })
		return Later
	})
	pipes(t, ServerConfig{}, ClientConfig{}, mux, nil, func(t *testing.T, s *Server, c *Client, addr string) {
		start := time.Now()
		_, err := c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil))
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || time.Since(start) != 3*time.Second || timeout.Code != codeEcho || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		start = time.Now()
		if _, err = c.Call(ctx, addr, protocol.NewRequest(codeEcho, nil, nil)); !errors.As(err, &timeout) || time.Since(start) != 7*time.Second {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err = c.Call(ctx, addr, protocol.NewRequest(codeEcho, nil, nil)); err != context.Canceled {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 11*time.Second)
		defer cancel()
		if _, err = c.Call(ctx, addr, protocol.NewRequest(codeEcho, nil, nil)); err != nil { // late answers before it do no harm
			t.Fatal(err)
		}
		done := make(chan error, 1)
		start = time.Now()
		c.Async(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { done <- err })
		if err = <-done; !errors.As(err, &timeout) || time.Since(start) > 4*time.Second {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	pipes(t, ServerConfig{}, ClientConfig{Limits: Limits{IdleTimeout: time.Hour}}, testMux(nil), nil, func(t *testing.T, s *Server, c *Client, addr string) {
		conn, err := c.Conn(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(100 * time.Second)
			callOK(t, c, addr, codeEcho, "alive")
		}
		start := time.Now()
		<-conn.Done()
		if d := time.Since(start); d < 119*time.Second || d > 122*time.Second {
			t.Errorf("closed after %s", d)
		}
		callOK(t, c, addr, codeEcho, "again")
	})
	pipes(t, ServerConfig{Limits: Limits{IdleTimeout: time.Hour}}, ClientConfig{}, testMux(nil), nil, func(t *testing.T, s *Server, c *Client, addr string) {
		conn, err := c.Conn(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		<-conn.Done()
		if conn.Err() != errIdle {
			t.Error(conn.Err())
		}
	})
}

func TestClassLimits(t *testing.T) {
	var block chan struct{}
	class := NewClass("admin", 2, 3, 5*time.Second)
	mux := NewMux()
	var ran atomic.Int32
	mux.Handle(codeSlow, Slow(class), func(req *Request, resp *Response) error {
		ran.Add(1)
		<-block
		return nil
	})
	pipes(t, ServerConfig{}, ClientConfig{}, mux, nil, func(t *testing.T, s *Server, c *Client, addr string) {
		block = make(chan struct{})
		type result struct {
			remark string
			code   int32
			after  time.Duration
		}
		results := make(chan result, 10)
		start := time.Now()
		for range 7 { // two run, three wait, two are refused
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.Async(ctx, addr, protocol.NewRequest(codeSlow, nil, []byte("x")), func(a *protocol.Command, err error) {
				if err != nil {
					t.Error(err)
					return
				}
				results <- result{a.Remark, a.Code, time.Since(start)}
			})
			synctest.Wait()
		}
		for range 2 {
			r := <-results
			if r.code != 2 || r.remark != "[OVERLOAD]system busy, start flow control for a while, admin requests waiting: 3 of at most 3" || r.after != 0 {
				t.Fatalf("%+v", r)
			}
		}
		if class.Waiting() != 3 || class.Capacity() != 3 || s.Stats().SlowRunning != 5 || s.Stats().BytesInWork == 0 {
			t.Fatalf("%d waiting, %+v", class.Waiting(), s.Stats())
		}
		time.Sleep(time.Second)
		if class.HeadWait() != time.Second {
			t.Error(class.HeadWait())
		}
		for range 3 {
			r := <-results
			if r.code != 2 || !strings.HasPrefix(r.remark, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5001ms, size of queue: ") || r.after > 5010*time.Millisecond {
				t.Fatalf("%+v", r)
			}
		}
		close(block)
		for range 2 {
			if r := <-results; r.code != 0 {
				t.Fatalf("%+v", r)
			}
		}
		synctest.Wait()
		if st := s.Stats(); ran.Load() != 2 || st.SlowRunning != 0 || st.BytesInWork != 0 || st.Timeouts != 3 || st.Overloads != 2 {
			t.Errorf("%d ran, %+v", ran.Load(), st)
		}
		if class.HeadWait() != 0 || class.Name() != "admin" {
			t.Error("class not empty")
		}
	})
}

func TestByteLimits(t *testing.T) {
	var block chan struct{}
	mux := NewMux()
	mux.Handle(codeSlow, Slow(NewClass("s", 1, 1000, 0)), func(req *Request, resp *Response) error {
		<-block
		return nil
	})
	cfg := ServerConfig{Limits: Limits{ConnBytes: 10_000, TotalBytes: 20_000}}
	pipes(t, cfg, ClientConfig{}, mux, nil, func(t *testing.T, s *Server, c *Client, addr string) {
		block = make(chan struct{})
		var refused, answered atomic.Int32
		send := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			c.Async(ctx, addr, protocol.NewRequest(codeSlow, nil, make([]byte, 4000)), func(a *protocol.Command, err error) {
				switch {
				case err != nil:
					t.Error(err)
				case a.Code == 2 && strings.Contains(a.Remark, "bytes of requests in work"):
					refused.Add(1)
				default:
					answered.Add(1)
				}
			})
			synctest.Wait()
		}
		for range 10 {
			send()
		}
		if n := s.Stats().SlowRunning; n != 3 { // then the connection is not read any more
			t.Fatalf("%d requests in work", n)
		}
		other := NewClient(c.cfg, nil, quiet)
		c, other = other, c
		for range 5 {
			send()
		}
		if refused.Load() == 0 {
			t.Error("none refused for the total")
		}
		close(block)
		synctest.Wait()
		if refused.Load()+answered.Load() != 15 || s.Stats().BytesInWork != 0 {
			t.Errorf("%d refused, %d answered, %+v", refused.Load(), answered.Load(), s.Stats())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		c = other
	})
}

func TestServerCallsClient(t *testing.T) {
	clientMux := NewMux()
	clientMux.Handle(40, Inline, func(req *Request, resp *Response) error {
		resp.Remark = req.String("a") + " in form " + string('0'+byte(req.Form))
		resp.Body.Bytes = append([]byte("answer to "), req.Body...)
		return nil
	})
	for _, form := range []protocol.Form{protocol.JSON, protocol.Binary} {
		pipes(t, ServerConfig{}, ClientConfig{Form: form}, testMux(nil), clientMux, func(t *testing.T, s *Server, c *Client, addr string) {
			a := callOK(t, c, addr, codeMirror, "q")
			if string(a.Body) != "answer to q" || a.Remark != "b in form "+string('0'+byte(form)) {
				t.Fatalf("%+v %s", a, a.Body)
			}
			conns := s.Conns()
			if len(conns) != 1 || conns[0].Version() != protocol.Version || conns[0].Language() != protocol.LangJava || conns[0].VIP() || conns[0].ID() == 0 {
				t.Fatalf("%v", conns)
			}
			if err := conns[0].Oneway(protocol.NewRequest(40, nil, nil)); err != nil {
				t.Fatal(err)
			}
			_, err := conns[0].Call(t.Context(), protocol.NewRequest(41, nil, nil))
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSingleFlight(t *testing.T) {
	var dials atomic.Int32
	n := pipenet.New()
	synctest.Test(t, func(t *testing.T) {
		n = pipenet.New()
		l, err := n.Listen("127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(ServerConfig{}, testMux(nil), nil, quiet)
		if err := s.Serve(l); err != nil {
			t.Fatal(err)
		}
		fail := errors.New("not yet")
		c := NewClient(ClientConfig{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			k := dials.Add(1)
			time.Sleep(time.Second)
			if k == 1 {
				return nil, fail
			}
			return n.Dial(ctx, network, addr)
		}}, nil, quiet)
		for round := range 2 {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					_, err := c.Call(t.Context(), "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil))
					var ce *ConnectError
					if round == 0 && (!errors.As(err, &ce) || !errors.Is(err, fail)) || round == 1 && err != nil {
						t.Error(round, err)
					}
				})
			}
			wg.Wait()
		}
		if dials.Load() != 2 {
			t.Errorf("%d dials", dials.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := c.Oneway(ctx, "127.0.0.1:2", protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Call(t.Context(), "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil)); err != ErrClosed {
			t.Error(err)
		}
		closed := make(chan error, 1)
		c.Async(t.Context(), "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { closed <- err })
		if err := <-closed; err != ErrClosed {
			t.Error(err)
		}
	})
}

// When the connection breaks, its calls fail at once, and the next call makes a new one.
func TestBrokenConnection(t *testing.T) {
	mux := testMux(nil)
	mux.Handle(codePart, Inline, func(req *Request, _ *Response) error { return Later }) // never
	s := startServer(t, ServerConfig{}, mux, nil)
	c := startClient(t, ClientConfig{Timeout: time.Minute}, nil)
	addr := s.Addr().String()
	for i := range 3 {
		results := make(chan error, 10)
		for range 5 {
			go func() {
				_, err := c.Call(context.Background(), addr, protocol.NewRequest(codePart, nil, nil))
				results <- err
			}()
			c.Async(context.Background(), addr, protocol.NewRequest(codePart, nil, nil), func(_ *protocol.Command, err error) { results <- err })
		}
		conn, err := c.Conn(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		for conn.inFlight() < 10 {
			time.Sleep(time.Millisecond)
		}
		if i == 0 {
			c.CloseAddr(addr)
		} else {
			for _, sc := range s.Conns() {
				sc.Close()
			}
		}
		for range 10 {
			err := <-results
			var ce *ClosedError
			if !errors.Is(err, ErrClosed) || !errors.As(err, &ce) || ce.Addr != addr {
				t.Fatal(err)
			}
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			if _, err = c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil)); err == nil {
				break
			} else if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	_, err := c.Call(t.Context(), "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil))
	var ce *ConnectError
	if !errors.As(err, &ce) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

func TestManyCallers(t *testing.T) {
	s := startServer(t, ServerConfig{}, testMux(nil), nil)
	c := startClient(t, ClientConfig{Sign: func(addr string, cmd *protocol.Command) { cmd.Set("x", "signed") }}, nil)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 300 {
				code := []int32{codeEcho, codeLater, codeSlow}[i%3]
				body := strings.Repeat(string('a'+byte(g)), 1+i*100%40_000)
				a, err := c.Call(context.Background(), s.Addr().String(), protocol.NewRequest(code, nil, []byte(body)))
				if err != nil || string(a.Body) != body || a.Ext["x"] != "signed" {
					t.Error(g, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := s.Stats().Accepted; n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestGoAwayIsFollowed(t *testing.T) {
	var n atomic.Int32
	mux := NewMux()
	mux.Handle(codeEcho, Inline, func(req *Request, resp *Response) error {
		if n.Add(1) == 1 {
			return protocol.Errorf(protocol.GoAway, "please go away")
		}
		return nil
	})
	pipes(t, ServerConfig{}, ClientConfig{}, mux, nil, func(t *testing.T, s *Server, c *Client, addr string) {
		if a := callOK(t, c, addr, codeEcho, ""); a.Code != 0 || s.Stats().Accepted != 2 {
			t.Fatalf("%+v", a)
		}
		time.Sleep(time.Second)
		if c.Stats().Connections != 1 {
			t.Error("the old connection is still there")
		}
	})
}

func TestOwnLimits(t *testing.T) {
	pipes(t, ServerConfig{}, ClientConfig{Limits: Limits{MaxFrame: 1 << 20, MaxQueued: 1 << 20}}, testMux(nil), nil, func(t *testing.T, s *Server, c *Client, addr string) {
		_, err := c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, make([]byte, 1<<20)))
		var large *TooLargeError
		if !errors.As(err, &large) {
			t.Fatal(err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a peer that reads nothing
		n := pipenet.New()
		l, err := n.Listen("127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				<-t.Context().Done()
				_ = c.Close()
			}
		}()
		c := NewClient(ClientConfig{Dial: n.Dial, Limits: Limits{MaxQueued: 1 << 20}}, nil, quiet)
		var busy *BusyError
		for range 100 {
			if err = c.Oneway(t.Context(), "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, make([]byte, 100_000))); err != nil {
				break
			}
		}
		if !errors.As(err, &busy) {
			t.Fatal(err)
		}
		conn, err := c.Conn(t.Context(), "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-conn.Done()
		if conn.Err() != errNotReading || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %s", conn.Err(), time.Since(start))
		}
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestChooseAddr(t *testing.T) {
	ip := netip.MustParseAddr
	nic := func(name string, addrs ...string) Interface {
		f := Interface{Name: name, Up: true}
		for _, a := range addrs {
			f.Addrs = append(f.Addrs, ip(a))
		}
		return f
	}
	down := nic("eth1", "10.9.9.9")
	down.Up = false
	ptp := nic("ppp0", "10.8.0.2")
	ptp.PointToPoint = true
	lo := nic("lo", "127.0.0.1", "::1")
	tests := []struct {
		name string
		list []Interface
		want string
		warn string
	}{
		{"one", []Interface{lo, nic("eth0", "10.0.0.5", "fe80::1")}, "10.0.0.5", ""},
		{"container network first in the list", []Interface{lo, nic("docker0", "172.17.0.1"), nic("eth0", "10.0.0.5")}, "10.0.0.5", ""},
		{"192.168 last", []Interface{nic("eth0", "192.168.1.2"), nic("eth1", "10.0.0.5")}, "10.0.0.5", ""},
		{"192.168 before containers", []Interface{nic("br-12ab", "172.18.0.1"), nic("eth0", "192.168.1.2")}, "192.168.1.2", ""},
		{"tunnel", []Interface{ptp, nic("eth0", "192.168.1.2")}, "192.168.1.2", ""},
		{"down", []Interface{lo, down}, "127.0.0.1", "loopback"},
		{"two alike", []Interface{nic("eth0", "10.0.0.5"), nic("eth1", "10.1.0.5")}, "10.0.0.5", "set brokerIP1"},
		{"v4 before v6", []Interface{nic("eth0", "2001:db8::5", "10.0.0.5")}, "10.0.0.5", ""},
		{"v6 only", []Interface{lo, nic("eth0", "fe80::1", "2001:db8::5")}, "2001:db8::5", ""},
		{"global v6 before private", []Interface{nic("eth0", "fd00::1", "2001:db8::5")}, "2001:db8::5", ""},
		{"machine's v6 before a container's v4", []Interface{nic("docker0", "172.17.0.1"), nic("eth0", "2001:db8::5")}, "2001:db8::5", ""},
		{"container only", []Interface{lo, nic("docker0", "172.17.0.1")}, "172.17.0.1", ""},
		{"link-local only", []Interface{lo, nic("eth0", "fe80::1")}, "fe80::1", "link-local"},
		{"loopback only", []Interface{lo}, "127.0.0.1", "loopback"},
		{"nothing", nil, "127.0.0.1", "no network address"},
	}
	for _, tt := range tests {
		got, warn := ChooseAddr(tt.list)
		if got.String() != tt.want || (warn == "") != (tt.warn == "") || !strings.Contains(warn, tt.warn) {
			t.Errorf("%s: %s, %q", tt.name, got, warn)
		}
	}
	if list, err := LocalInterfaces(); err != nil || len(list) == 0 {
		t.Error(list, err)
	}
	for addr, want := range map[string]string{"10.0.0.5": "10.0.0.5:10911", "2001:db8::5": "[2001:db8::5]:10911", "::ffff:10.0.0.5": "10.0.0.5:10911"} {
		if got := HostPort(ip(addr), 10911); got != want {
			t.Error(got)
		}
	}
}

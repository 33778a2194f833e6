package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"
)

// ServerConfig says where and how a server listens. Zero fields take their defaults.
type ServerConfig struct {
	BindAddress string // an address or name; empty for all of both families
	Port        int    // 0 takes a free one
	FastPort    int    // the VIP port, 0 for none
	SendBuffer  int    // of a socket, in bytes; 0 leaves it to the system
	ReadBuffer  int
	Limits      Limits

	TLS           TLSOptions
	ProxyProtocol bool // believe PROXY headers; without it they are a foreign protocol
	GoAway        bool // answer requests of newer clients with GO_AWAY while draining

	// MapError gives errors of handlers their code and remark; MapError of this package when nil.
	MapError func(error) (code int32, remark string)
}

// Events tells of connections. Both methods are called on the connection's loop: Opened before the first request, Closed
// after the last, once each. They may block that connection only.
type Events interface {
	Opened(c *Conn)
	Closed(c *Conn, reason error)
}

// Server listens and answers. It owns its listeners, connections and their goroutines; Close or Shutdown ends them.
type Server struct {
	ep     *endpoint
	cfg    ServerConfig
	events Events
	tls    *tlsSource

	mu        sync.Mutex
	listeners []net.Listener     // guarded by mu
	conns     map[*Conn]struct{} // guarded by mu, also those that have not begun
	prefixes  []*prefixListener  // guarded by mu
	addr      net.Addr           // guarded by mu, of the first listener
	fastAddr  net.Addr           // guarded by mu
	stopped   bool               // guarded by mu: no more listeners
	closed    bool               // guarded by mu
	running   bool               // guarded by mu: sweeper and certificate watch run

	stop context.CancelFunc // of sweeper and certificate watch
	ctx  context.Context
	wg   sync.WaitGroup // of accept loops, sweeper, certificate watch
}

// NewServer makes a server; nothing runs before Start or Serve. events and log may be nil.
func NewServer(cfg ServerConfig, mux *Mux, events Events, log *slog.Logger) *Server {
	s := &Server{ep: newEndpoint(cfg.Limits, mux, log), cfg: cfg, events: events, conns: make(map[*Conn]struct{})}
	s.ep.heaviest = s.heaviest
	s.ep.server, s.ep.goAway = true, cfg.GoAway
	if cfg.MapError != nil {
		s.ep.mapError = cfg.MapError
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// OnBatchEnd adds a callback that runs on a connection's loop after every frame of one read was handled and before their
// answers are written. It is set before Start.
func (s *Server) OnBatchEnd(fn func(c *Conn)) { s.ep.batchEnd = append(s.ep.batchEnd, fn) }

// Start listens on the configured ports and returns.
func (s *Server) Start() error {
	main, err := s.listen(s.cfg.Port)
	if err != nil {
		return err
	}
	if s.cfg.FastPort > 0 {
		fast, err := s.listen(s.cfg.FastPort)
		if err != nil {
			return errors.Join(err, main.Close())
		}
		if err := s.ServeVIP(fast); err != nil {
			return errors.Join(err, fast.Close(), main.Close())
		}
	}
	if err := s.Serve(main); err != nil {
		return errors.Join(err, main.Close())
	}
	return nil
}

func (s *Server) listen(port int) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1} // idle connections are closed by us
	l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(s.cfg.BindAddress, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// Serve accepts connections of listeners, which it owns from now on, and returns at once.
func (s *Server) Serve(listeners ...net.Listener) error { return s.serve(listeners, false) }

// ServeVIP is Serve for listeners of the fast port.
func (s *Server) ServeVIP(listeners ...net.Listener) error { return s.serve(listeners, true) }

func (s *Server) serve(listeners []net.Listener, vip bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrClosed
	}
	if !s.running {
		if err := s.startLocked(); err != nil {
			return err
		}
	}
	for _, l := range listeners {
		s.listeners = append(s.listeners, l)
		switch {
		case vip && s.fastAddr == nil:
			s.fastAddr = l.Addr()
		case !vip && s.addr == nil:
			s.addr = l.Addr()
		}
		s.wg.Go(func() { s.accept(l, vip) })
	}
	return nil
}

func (s *Server) startLocked() error {
	src, err := newTLSSource(s.cfg.TLS)
	if err != nil {
		return err
	}
	s.tls = src
	s.running = true
	s.wg.Go(s.sweep)
	s.wg.Go(func() { src.watch(s.ctx, s.ep.log) })
	return nil
}

// Addr is where the first listener listens; nil before Start or Serve.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// FastAddr is where the fast port listens, nil when there is none.
func (s *Server) FastAddr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fastAddr
}

// Stats are the counters now.
func (s *Server) Stats() Stats {
	st := s.ep.snapshot()
	s.mu.Lock()
	st.Connections = int64(len(s.conns))
	s.mu.Unlock()
	return st
}

// Conns are the connections that are open now.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

// heaviest is the connection with the most bytes that its peer has not read, nil when there is none.
func (s *Server) heaviest() (worst *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := int64(0)
	for c := range s.conns {
		if n := c.queued.Load(); n > most {
			most, worst = n, c
		}
	}
	return worst
}

func (s *Server) accept(l net.Listener, vip bool) {
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil || s.isStopped() {
				return
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second) // too many open files, most likely
			s.ep.quiet.warn(s.ep.log, "accept a connection", "addr", l.Addr(), "err", err)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		pause = 0
		s.open(nc, vip)
	}
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *Server) open(nc net.Conn, vip bool) {
	if tc, ok := nc.(*net.TCPConn); ok {
		s.tune(tc)
	}
	c := newConn(s.ep, nc)
	c.vip = vip
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		c.fail(errShutdown)
		return
	}
	s.conns[c] = struct{}{}
	s.ep.wg.Add(1)
	s.mu.Unlock()
	s.ep.stats.accepted.Add(1)
	go s.run(c)
}

func (s *Server) tune(tc *net.TCPConn) {
	var errs []error
	if s.cfg.SendBuffer > 0 {
		errs = append(errs, tc.SetWriteBuffer(s.cfg.SendBuffer))
	}
	if s.cfg.ReadBuffer > 0 {
		errs = append(errs, tc.SetReadBuffer(s.cfg.ReadBuffer))
	}
	if err := errors.Join(errs...); err != nil {
		s.ep.quiet.warn(s.ep.log, "set buffers of a socket", "err", err)
	}
}

// run is the goroutine of a connection.
func (s *Server) run(c *Conn) {
	defer s.ep.wg.Done()
	if s.begin(c) {
		if s.events != nil {
			c.onClosed = s.events.Closed
			s.events.Opened(c)
		}
		c.loop()
	}
	s.forget(c)
	s.explain(c)
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// explain logs why a connection ended, loudly only when an operator may want to do something.
func (s *Server) explain(c *Conn) {
	err := c.Err()
	var foreign *ForeignError
	switch {
	case err == nil || errors.Is(err, errHandedOff):
	case errors.As(err, &foreign):
		s.ep.stats.foreign.Add(1)
		s.ep.quiet.warn(s.ep.log, "closed a connection that does not speak RocketMQ's protocol", "addr", c.name, "local", c.LocalAddr(), "hint", foreign.What)
	case isMalformed(err):
		s.ep.quiet.warn(s.ep.log, "closed a connection after a malformed frame", "addr", c.name, "err", err)
	case errors.Is(err, errSlowFrame):
		s.ep.quiet.warn(s.ep.log, "closed a connection that takes too long for a frame", "addr", c.name)
	case errors.Is(err, errNotReading):
		s.ep.quiet.warn(s.ep.log, "closed a connection that does not read", "addr", c.name)
	default:
		s.ep.log.Debug("connection closed", "addr", c.name, "reason", err)
	}
}

// sweep closes idle connections and ends calls whose time is over.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepInterval(s.ep.limits.IdleTimeout))
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range s.Conns() {
				c.sweep(now)
			}
		}
	}
}

func sweepInterval(idle time.Duration) time.Duration {
	return min(max(idle/8, 10*time.Millisecond), time.Second)
}

// StopAccept closes the listeners; open connections go on.
func (s *Server) StopAccept() error {
	s.mu.Lock()
	s.stopped = true
	listeners, prefixes := s.listeners, s.prefixes
	s.listeners = nil
	s.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, p := range prefixes {
		_ = p.Close() // never fails
	}
	return errors.Join(errs...)
}

// Drain waits until the slow requests that were read are answered and what waits was written, or until ctx ends. Requests
// are still answered; newer clients are sent away when GoAway is configured. Answers that others owe (parked pulls) are
// theirs to give before.
func (s *Server) Drain(ctx context.Context) error {
	s.ep.draining.Store(true)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !s.drained() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) drained() bool {
	if s.ep.slow.Load() > 0 {
		return false
	}
	for _, c := range s.Conns() {
		if c.queued.Load() > 0 {
			return false
		}
	}
	return true
}

// Close closes everything at once and waits for the goroutines. Twice is fine.
func (s *Server) Close() error {
	err := s.StopAccept()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	for _, c := range s.Conns() {
		c.fail(errShutdown)
	}
	s.wg.Wait()
	s.ep.wg.Wait()
	return err
}

// Shutdown is StopAccept, Drain and Close. The error of an unfinished Drain is returned, but everything is closed.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.StopAccept(), s.Drain(ctx), s.Close())
}

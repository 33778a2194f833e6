package ha

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxConns is how many replication connections a Server holds at a time.
const DefaultMaxConns = 64

// Master is what a Server hands connections to: a ClassicMaster or an AutoMaster.
type Master interface {
	// Serve owns the connection until it returns, and has then closed it.
	Serve(c net.Conn)
}

// ServerConfig describes a Server.
type ServerConfig struct {
	Addr     string                                  // host:port, as for net.Listen
	Listen   func(addr string) (net.Listener, error) // nil: TCP
	Allow    func(peer net.Addr) bool                // nil: everybody
	MaxConns int                                     // in all; a quarter of them, but at least 4, of one address
	Logger   *slog.Logger
}

// Server accepts replication connections on one address for whichever master there is. It outlives masters: a broker that
// is not one listens as well and closes what comes.
type Server struct {
	cfg    ServerConfig
	lis    net.Listener
	master atomic.Pointer[Master]
	wg     sync.WaitGroup
	done   chan struct{}

	mu      sync.Mutex
	started bool
	closed  bool
	conns   map[net.Conn]string // with the peer's host
	hosts   map[string]int
}

// NewServer listens; Start accepts.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Listen == nil {
		cfg.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	lis, err := cfg.Listen(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for replicas: %w", err)
	}
	return &Server{cfg: cfg, lis: lis, done: make(chan struct{}), conns: make(map[net.Conn]string), hosts: make(map[string]int)}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// SetMaster says who takes connections from now on; nil: nobody. Connections of the master before are that one's to close.
func (s *Server) SetMaster(m Master) {
	if m == nil {
		s.master.Store(nil)
		return
	}
	s.master.Store(&m)
}

// Start begins to accept. It does nothing the second time, or after Close.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.closed {
		return
	}
	s.started = true
	s.wg.Add(1)
	go s.accept()
}

// Close stops accepting, closes all connections and waits for their goroutines. Twice is fine.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	for c := range s.conns {
		c.Close() //nolint:errcheck // it only has to end
	}
	s.mu.Unlock()
	var err error
	if first {
		close(s.done)
		err = s.lis.Close()
	}
	s.wg.Wait()
	return err
}

func (s *Server) accept() {
	defer s.wg.Done()
	pause := time.Duration(0)
	for {
		c, err := s.lis.Accept()
		if err == nil {
			pause = 0
			s.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Usually there is no descriptor left; the listener stays usable.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.cfg.Logger.Warn("accept replica", "err", err, "pause", pause)
		select {
		case <-s.done:
			return
		case <-time.After(pause):
		}
	}
}

// admit gives a connection to the master, or closes it.
func (s *Server) admit(c net.Conn) {
	m := s.master.Load()
	switch {
	case s.cfg.Allow != nil && !s.cfg.Allow(c.RemoteAddr()):
		s.cfg.Logger.Warn("replication connection refused, the address is not allowed", "peer", c.RemoteAddr())
	case m == nil:
	case !s.enter(c):
		s.cfg.Logger.Warn("replication connection refused, there are too many", "peer", c.RemoteAddr())
	default:
		go s.serve(*m, c)
		return
	}
	c.Close() //nolint:errcheck // nothing was said on it
}

func (s *Server) enter(c net.Conn) bool {
	h := host(c.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.cfg.MaxConns || s.hosts[h] >= max(4, s.cfg.MaxConns/4) {
		return false
	}
	s.conns[c] = h
	s.hosts[h]++
	s.wg.Add(1)
	return true
}

func (s *Server) serve(m Master, c net.Conn) {
	defer s.wg.Done()
	m.Serve(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.conns[c]
	delete(s.conns, c)
	if s.hosts[h]--; s.hosts[h] == 0 {
		delete(s.hosts, h)
	}
}

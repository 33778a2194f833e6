package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// ClientConfig says how a client connects. Zero fields take their defaults.
type ClientConfig struct {
	ConnectTimeout time.Duration // 3 s
	Timeout        time.Duration // of calls whose context has no deadline, 3 s
	Limits         Limits
	TLS            *TLSOptions // nil for plain connections
	LocalAddr      string      // address that connections come from, without a port; empty for any
	Form           protocol.Form

	// Sign, when not nil, is called with every request before it is sent, such as to add credentials.
	Sign func(addr string, cmd *protocol.Command)
	// Dial replaces the network, for tests.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Closed, when not nil, is called after a connection ended, on its loop.
	Closed func(c *Conn, reason error)
}

// Client calls servers, over one connection per address that is made when it is needed. It owns the connections and their
// goroutines; Close ends them. All methods are safe for concurrent use.
type Client struct {
	ep  *endpoint
	cfg ClientConfig

	mu     sync.Mutex
	peers  map[string]*peer   // guarded by mu
	conns  map[*Conn]struct{} // guarded by mu, also those that are no longer in peers
	closed bool               // guarded by mu
	swept  bool               // guarded by mu: the sweeper runs

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup // of dials, sweeper, asynchronous calls that wait for a dial
}

// peer is a connection that is there or being made.
type peer struct {
	ready chan struct{} // closed when conn or err is set
	conn  *Conn
	err   error
}

// NewClient makes a client. mux answers requests of the servers; nil answers code 3. log may be nil.
func NewClient(cfg ClientConfig, mux *Mux, log *slog.Logger) *Client {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = 3 * time.Second
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 3 * time.Second
	}
	c := &Client{ep: newEndpoint(cfg.Limits, mux, log), cfg: cfg, peers: make(map[string]*peer), conns: make(map[*Conn]struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if cfg.Dial == nil {
		d := &net.Dialer{KeepAlive: -1}
		if cfg.LocalAddr != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(cfg.LocalAddr)}
		}
		c.cfg.Dial = d.DialContext
	}
	return c
}

// Call sends cmd to addr and waits for the answer, whatever its code is. It sets Opaque, Flag and Form of cmd, whose body
// must not change any more. A server that says GO_AWAY is called again once, over a new connection. Errors: *ConnectError
// (not sent), *BusyError and *TooLargeError (not sent), *TimeoutError and *ClosedError (perhaps executed), ErrClosed after
// Close, or ctx's own when it is cancelled.
func (c *Client) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	c.prepare(addr, cmd)
	for again := false; ; again = true {
		conn, err := c.Conn(ctx, addr)
		if err != nil {
			return nil, err
		}
		answer, err := conn.call2(ctx, cmd, c.cfg.Timeout)
		switch {
		case again, err != nil && !notSent(err), err == nil && answer.Code != protocol.GoAway:
			return answer, err
		case err == nil:
			c.retire(addr, conn)
		}
	}
}

// Async is Call with a callback: fn gets the answer or the error exactly once. It may run before Async returns, on a
// connection's loop, or on another goroutine of the client, and must not block. Of ctx only the deadline counts.
func (c *Client) Async(ctx context.Context, addr string, cmd *protocol.Command, fn func(*protocol.Command, error)) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.cfg.Timeout)
	}
	c.prepare(addr, cmd)
	if conn := c.ready(addr); conn != nil {
		if err := conn.Async(deadline, cmd, fn); err == nil {
			return
		} else if !notSent(err) {
			fn(nil, err)
			return
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		fn(nil, ErrClosed)
		return
	}
	c.wg.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.wg.Done()
		ctx, cancel := context.WithDeadline(c.ctx, deadline)
		defer cancel()
		conn, err := c.Conn(ctx, addr)
		if err == nil {
			err = conn.Async(deadline, cmd, fn)
		}
		if err != nil {
			fn(nil, err)
		}
	}()
}

// notSent says that the connection had been closed before, so that the request may go over another one.
func notSent(err error) bool {
	var closed *ClosedError
	return errors.As(err, &closed) && !closed.Sent
}

// Oneway sends cmd to addr; no answer will come. An error says that it was not sent.
func (c *Client) Oneway(ctx context.Context, addr string, cmd *protocol.Command) error {
	c.prepare(addr, cmd)
	for again := false; ; again = true {
		conn, err := c.Conn(ctx, addr)
		if err != nil {
			return err
		}
		if err = conn.Oneway(cmd); again || !notSent(err) {
			return err
		}
	}
}

func (c *Client) prepare(addr string, cmd *protocol.Command) {
	if c.cfg.Form != protocol.JSON {
		cmd.Form = c.cfg.Form
	}
	if c.cfg.Sign != nil {
		c.cfg.Sign(addr, cmd)
	}
}

// ready is the connection to addr if there is an open one.
func (c *Client) ready(addr string) *Conn {
	c.mu.Lock()
	p := c.peers[addr]
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	select {
	case <-p.ready:
		if p.conn != nil && p.conn.ctx.Err() == nil {
			return p.conn
		}
	default:
	}
	return nil
}

// Conn is the connection to addr, made if there is none. Callers at the same time share one attempt; a failed one is not
// remembered.
func (c *Client) Conn(ctx context.Context, addr string) (*Conn, error) {
	if conn := c.ready(addr); conn != nil {
		return conn, nil
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	p := c.peers[addr]
	if p != nil && p.dead() {
		p = nil
	}
	if p == nil {
		p = &peer{ready: make(chan struct{})}
		c.peers[addr] = p
		c.wg.Add(1)
		go c.connect(addr, p)
	}
	c.mu.Unlock()
	select {
	case <-p.ready:
		return p.conn, p.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) && c.ctx.Err() == nil {
			return nil, ctx.Err()
		}
		return nil, &ConnectError{addr, ctx.Err()}
	}
}

// dead says that the attempt is over and gave nothing that still lives.
func (p *peer) dead() bool {
	select {
	case <-p.ready:
		return p.conn == nil || p.conn.ctx.Err() != nil
	default:
		return false
	}
}

// connect is the goroutine of one attempt.
func (c *Client) connect(addr string, p *peer) {
	defer c.wg.Done()
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ConnectTimeout)
	defer cancel()
	nc, secure, err := c.dial(ctx, addr)
	if err != nil {
		c.mu.Lock()
		if c.peers[addr] == p {
			delete(c.peers, addr)
		}
		closed := c.closed
		c.mu.Unlock()
		if p.err = error(&ConnectError{addr, err}); closed {
			p.err = ErrClosed
		}
		close(p.ready)
		return
	}
	conn := newConn(c.ep, nc)
	if secure != nil {
		conn.setStream(secure)
	}
	conn.onClosed = func(conn *Conn, reason error) { c.forget(addr, p, conn, reason) }
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		conn.fail(errShutdown)
		p.err = ErrClosed
		close(p.ready)
		return
	}
	c.conns[conn] = struct{}{}
	c.ep.wg.Add(1)
	if !c.swept {
		c.swept = true
		c.wg.Add(1)
		go c.sweep()
	}
	p.conn = conn
	c.mu.Unlock()
	go func() {
		defer c.ep.wg.Done()
		conn.loop()
	}()
	close(p.ready)
}

func (c *Client) dial(ctx context.Context, addr string) (nc net.Conn, secure net.Conn, err error) {
	nc, err = c.cfg.Dial(ctx, "tcp", addr)
	if err != nil || c.cfg.TLS == nil {
		return nc, nil, err
	}
	cfg, err := c.cfg.TLS.ClientConfig()
	if err == nil {
		t := tls.Client(nc, cfg)
		if err = t.HandshakeContext(ctx); err == nil {
			return nc, t, nil
		}
	}
	return nil, nil, errors.Join(err, nc.Close())
}

func (c *Client) forget(addr string, p *peer, conn *Conn, reason error) {
	c.mu.Lock()
	delete(c.conns, conn)
	if c.peers[addr] == p {
		delete(c.peers, addr)
	}
	c.mu.Unlock()
	c.ep.log.Debug("connection closed", "addr", addr, "reason", reason)
	if c.cfg.Closed != nil {
		c.cfg.Closed(conn, reason)
	}
}

// retire lets the calls of conn end and makes new calls use another connection.
func (c *Client) retire(addr string, conn *Conn) {
	c.mu.Lock()
	if p := c.peers[addr]; p != nil && p.conn == conn {
		delete(c.peers, addr)
	}
	c.mu.Unlock()
	conn.retired.Store(true)
}

// sweep closes connections that are idle or retired and ends calls whose time is over.
func (c *Client) sweep() {
	defer c.wg.Done()
	tick := time.NewTicker(min(sweepInterval(c.ep.limits.IdleTimeout), 250*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			for _, conn := range c.list() {
				if conn.retired.Load() && conn.inFlight() == 0 {
					conn.fail(errRetired)
				}
				conn.sweep(now)
			}
		}
	}
}

func (c *Client) list() []*Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Conn, 0, len(c.conns))
	for conn := range c.conns {
		list = append(list, conn)
	}
	return list
}

// CloseAddr closes the connection to addr, if there is one. Its calls fail with a *ClosedError.
func (c *Client) CloseAddr(addr string) {
	if conn := c.ready(addr); conn != nil {
		conn.Close()
	}
}

// Stats are the counters now.
func (c *Client) Stats() Stats {
	st := c.ep.snapshot()
	st.Connections = int64(len(c.list()))
	return st
}

// Close closes all connections and waits for the goroutines. Waiting calls fail. Twice is fine. It must not be called by a
// callback.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	for _, conn := range c.list() {
		conn.fail(errShutdown)
	}
	c.wg.Wait()
	c.ep.wg.Wait()
	return nil
}

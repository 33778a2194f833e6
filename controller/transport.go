package controller

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// raftPreface begins Raft's connections on the port: nothing of RocketMQ begins like that. Its last byte is a version; 16
// bytes that tell the group follow.
const (
	raftPreface = "\xC7RAF\x01"
	groupSize   = 16
)

// prefaceTimeout bounds the time in which a peer must tell its group.
const prefaceTimeout = 5 * time.Second

// groupHash tells groups apart, so that a controller of another cluster is cut off.
func groupHash(group string) (h [groupSize]byte) {
	sum := sha256.Sum256([]byte(group))
	copy(h[:], sum[:])
	return h
}

// dialFunc opens a connection to a peer.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// layer carries Raft over the controller's port. Connections that come in are checked at their first read:
// the peer's address must be that of a controller of the group, and the group the same.
type layer struct {
	net.Listener
	preface string
	group   [groupSize]byte
	dial    dialFunc
	tls     func() (*tls.Config, error) // nil for plain connections
	trusted func(net.Addr) error
	addr    string // of this controller, as the others call it
	done    chan struct{}
	log     *slog.Logger

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu: accepted and open
	closed bool                  // guarded by mu
}

// Dial connects to a controller and writes preface and group. It implements raft.StreamLayer.
func (l *layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.DialContext(ctx, string(to))
}

// DialContext is Dial under a context.
func (l *layer) DialContext(ctx context.Context, to string) (net.Conn, error) {
	c, err := l.dial(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	if l.tls != nil {
		cfg, err := l.tls()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		secure := tls.Client(c, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS with controller %s: %w", to, err), c.Close())
		}
		c = secure
	}
	deadline := time.Now().Add(prefaceTimeout)
	if d, ok := ctx.Deadline(); ok {
		deadline = d
	}
	err = c.SetWriteDeadline(deadline)
	if err == nil {
		_, err = c.Write(append([]byte(l.preface), l.group[:]...))
	}
	if err == nil {
		err = c.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greet controller %s: %w", to, err), c.Close())
	}
	return c, nil
}

// Addr is the address of this controller in the group.
func (l *layer) Addr() net.Addr { return textAddr(l.addr) }

type textAddr string

func (a textAddr) Network() string { return "tcp" }
func (a textAddr) String() string  { return string(a) }

// Accept gives the next connection.
func (l *layer) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.done // the server takes no more connections; the transport is closed a moment later and would complain until then
		return nil, err
	}
	g := &greeted{Conn: c, layer: l}
	l.mu.Lock()
	shut := l.closed
	if !shut {
		l.conns[g] = struct{}{}
	}
	l.mu.Unlock()
	if shut {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	return g, nil
}

// Close ends accepting and every accepted connection. Twice is fine.
func (l *layer) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	list := make([]net.Conn, 0, len(l.conns))
	for c := range l.conns {
		list = append(list, c)
	}
	l.mu.Unlock()
	err := l.Listener.Close()
	for _, c := range list {
		_ = c.Close() // nobody is left who needs it
	}
	return err
}

// greeted is an accepted connection; its first read checks the peer.
type greeted struct {
	net.Conn
	layer *layer
	once  sync.Once
	err   error
}

// Read reads what follows the group.
func (g *greeted) Read(b []byte) (int, error) {
	g.once.Do(func() { g.err = g.check() })
	if g.err != nil {
		return 0, g.err
	}
	return g.Conn.Read(b)
}

func (g *greeted) check() error {
	if err := g.layer.trusted(g.RemoteAddr()); err != nil {
		g.layer.log.Warn("a connection of Raft is refused", "error", err)
		return err
	}
	if err := g.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
		return err
	}
	var got [groupSize]byte
	for n := 0; n < groupSize; {
		k, err := g.Conn.Read(got[n:])
		if n += k; err != nil && n < groupSize {
			return fmt.Errorf("read the group of %s: %w", g.RemoteAddr(), err)
		}
	}
	if got != g.layer.group {
		err := fmt.Errorf("%s belongs to another controller group", g.RemoteAddr())
		g.layer.log.Warn("a connection of Raft is refused", "error", err)
		return err
	}
	return g.SetReadDeadline(time.Time{})
}

// Close closes and forgets the connection.
func (g *greeted) Close() error {
	g.layer.mu.Lock()
	delete(g.layer.conns, g)
	g.layer.mu.Unlock()
	return g.Conn.Close()
}

// doorman knows the addresses that controllers of the group may call from. Names are looked up again now and then.
type doorman struct {
	hosts func() []string // of the group
	look  func(ctx context.Context, host string) ([]net.IPAddr, error)

	mu    sync.Mutex
	ips   map[string]bool // guarded by mu
	asked time.Time       // guarded by mu
}

// lookupEvery is how long looked-up names are believed when an unknown address calls.
const lookupEvery = 5 * time.Second

// trusted refuses an address that no controller of the group has.
func (d *doorman) trusted(a net.Addr) error {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return fmt.Errorf("address of a caller: %w", err)
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return fmt.Errorf("address of a caller is %q", host)
	}
	if d.knows(ip.String(), false) || d.knows(ip.String(), true) {
		return nil
	}
	return fmt.Errorf("%s is no controller of this group: its address is not among the configured peers", a)
}

func (d *doorman) knows(ip string, refresh bool) bool {
	d.mu.Lock()
	known := d.ips[ip]
	stale := time.Since(d.asked) >= lookupEvery || d.ips == nil
	d.mu.Unlock()
	if known || !refresh || !stale {
		return known
	}
	ctx, cancel := context.WithTimeout(context.Background(), prefaceTimeout)
	defer cancel()
	ips := map[string]bool{}
	for _, host := range d.hosts() {
		if lit := net.ParseIP(host); lit != nil {
			ips[lit.String()] = true
			continue
		}
		list, err := d.look(ctx, host)
		if err != nil {
			continue // an unreachable name server must not cut off the others
		}
		for _, a := range list {
			ips[a.IP.String()] = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = time.Now()
	if d.ips == nil {
		d.ips = map[string]bool{}
	}
	for a := range ips {
		d.ips[a] = true
	}
	return d.ips[ip]
}

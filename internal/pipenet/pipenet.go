// Package pipenet is a network inside the process: listeners and dialers over net.Pipe, for tests in fake time
// (testing/synctest), where real sockets would block. Network is its main type. Tests use it; nothing else does.
//
// A pipe has no buffer: a write ends when the other side has read it.
package pipenet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Network is a set of listeners by address. All methods are safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener // guarded by mu
	port      uint16               // guarded by mu, last one given away
}

// New is an empty network.
func New() *Network { return &Network{listeners: make(map[string]*listener), port: 40000} }

// Listen listens on addr, an IP and a port as in 127.0.0.1:10911; port 0 takes a free one.
func (n *Network) Listen(addr string) (net.Listener, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen on pipe %s: %w", addr, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ap.Port() == 0 {
		n.port++
		ap = netip.AddrPortFrom(ap.Addr(), n.port)
	}
	if n.listeners[ap.String()] != nil {
		return nil, fmt.Errorf("listen on pipe %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &listener{network: n, addr: ap, conns: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[ap.String()] = l
	return l, nil
}

// Dial connects to a listener. It has the form of a net.Dialer's DialContext.
func (n *Network) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.port++
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), n.port)
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial pipe %s: %w", addr, syscall.ECONNREFUSED)
	}
	a, b := net.Pipe()
	select {
	case l.conns <- conn{b, l.addr, from}:
		return conn{a, from, l.addr}, nil
	case <-l.done:
		return nil, fmt.Errorf("dial pipe %s: %w", addr, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, fmt.Errorf("dial pipe %s: %w", addr, ctx.Err())
	}
}

type listener struct {
	network *Network
	addr    netip.AddrPort
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr.String())
		l.network.mu.Unlock()
	})
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

// conn is one end of a pipe with addresses as a socket has them.
type conn struct {
	net.Conn
	local, remote netip.AddrPort
}

func (c conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

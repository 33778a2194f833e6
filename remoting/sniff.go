package remoting

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// The first bytes of a connection say what it speaks: a PROXY header, a TLS handshake, a registered prefix, or frames. The
// length word of a frame within the limit begins with a byte that none of the others begins with.

const (
	handshakeTimeout = 10 * time.Second // from the first byte to the first frame
	tlsHandshake     = 0x16
)

var errHandedOff = errors.New("handed to another protocol")

// tlsRefused is a fatal alert, handshake_failure: a TLS client reports it instead of a lost connection.
var tlsRefused = []byte{0x15, 3, 1, 0, 2, 2, 40}

// begin reads the start of a connection. It reports false when there are no frames to come; the connection is then closed
// or belongs to somebody else.
func (s *Server) begin(c *Conn) bool {
	err := s.sniff(c)
	if err == nil {
		err = c.socket.SetReadDeadline(time.Time{})
	}
	if err == nil {
		return true
	}
	if !errors.Is(err, errHandedOff) {
		c.fail(err)
	}
	c.in.free()
	return false
}

// sniff leaves the bytes that it does not need in the buffer.
func (s *Server) sniff(c *Conn) error {
	secure, proxied := false, false
	for first := true; ; first = false {
		b := c.in.data()
		if len(b) == 0 {
			if err := c.in.fill(); err != nil { // as long as an idle connection may live
				return err
			}
			if first {
				if err := c.socket.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
					return err
				}
			}
			continue
		}
		if more, l := s.prefix(b); l != nil {
			return s.handOff(c, l)
		} else if more {
			if err := c.in.fill(); err != nil {
				return err
			}
			continue
		}
		switch {
		case b[0] == tlsHandshake && !secure:
			if err := s.startTLS(c); err != nil {
				return err
			}
			secure = true
		case s.cfg.ProxyProtocol && !proxied && !secure && mayBeProxy(b):
			n, info, err := parseProxy(b)
			if err != nil {
				return err
			}
			if n == 0 {
				if err := c.in.fill(); err != nil {
					return err
				}
				continue
			}
			c.in.r += n
			proxied = true
			c.proxied(info)
		case s.foreign(b):
			return &ForeignError{foreignHint(b, s.cfg.ProxyProtocol)}
		case s.tls.mode == TLSEnforcing && !secure:
			return &ForeignError{"plain connection, but tls.server.mode is enforcing: use TLS"}
		default:
			return nil
		}
	}
}

// foreign says that b cannot begin a frame within the limit.
func (s *Server) foreign(b []byte) bool {
	var least [protocol.LengthSize]byte // the smallest length that begins so
	copy(least[:], b)
	n := int64(least[0])<<24 | int64(least[1])<<16 | int64(least[2])<<8 | int64(least[3])
	return n+protocol.LengthSize > int64(s.ep.limits.MaxFrame)
}

func foreignHint(b []byte, proxy bool) string {
	starts := func(list ...string) bool {
		for _, p := range list {
			if len(b) >= 3 && strings.HasPrefix(p, string(b[:min(len(b), len(p))])) {
				return true
			}
		}
		return false
	}
	switch {
	case starts("PRI * HTTP/2"):
		return "HTTP/2: gRPC clients need the proxy's port"
	case starts("GET ", "POST ", "HEAD ", "PUT ", "OPTIONS ", "DELETE ", "CONNECT "):
		return "HTTP request on the remoting port"
	case starts("SSH-"):
		return "SSH client"
	case !proxy && (starts("PROXY ") || starts(proxyV2)):
		return "PROXY header, but the proxy protocol is not switched on"
	case len(b) > 0 && b[0] == tlsHandshake:
		return "TLS inside of TLS"
	}
	return "first bytes are no frame"
}

// startTLS puts TLS over the connection. The handshake has its time from handshakeTimeout.
func (s *Server) startTLS(c *Conn) error {
	cfg := s.tls.server()
	if cfg == nil {
		if err := c.socket.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
			_, _ = c.socket.Write(tlsRefused) // the connection is closed in any case
		}
		return &ForeignError{"TLS client, but tls.server.mode is disabled"}
	}
	under := &prefixConn{Conn: c.socket, first: bytes.Clone(c.in.data())}
	secure := tls.Server(under, cfg)
	if err := c.socket.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := secure.HandshakeContext(c.ctx); err != nil {
		return &ForeignError{"TLS handshake: " + err.Error()}
	}
	if err := c.socket.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.setStream(secure)
	return nil
}

// prefixConn reads first before it reads the connection.
type prefixConn struct {
	net.Conn
	first []byte
}

func (p *prefixConn) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		if p.first = p.first[n:]; len(p.first) == 0 {
			p.first = nil
		}
		return n, nil
	}
	return p.Conn.Read(b)
}

// prefixListener gets the connections that begin with its prefix.
type prefixListener struct {
	prefix string
	server *Server
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
}

// ListenPrefix is a listener for the connections of this server that begin with prefix, before or inside of TLS. The
// prefix itself is taken off. It must not begin with a zero byte, as frames do. Closing the server closes the listener.
func (s *Server) ListenPrefix(prefix string) net.Listener {
	if prefix == "" || prefix[0] == 0 || prefix[0] == tlsHandshake {
		panic("prefix of a protocol cannot be told from frames or TLS")
	}
	l := &prefixListener{prefix: prefix, server: s, conns: make(chan net.Conn), done: make(chan struct{})}
	s.mu.Lock()
	stopped := s.stopped
	s.prefixes = append(s.prefixes, l)
	s.mu.Unlock()
	if stopped {
		_ = l.Close() // never fails
	}
	return l
}

// prefix finds the listener for a connection that begins with b. more says that further bytes may tell.
func (s *Server) prefix(b []byte) (more bool, l *prefixListener) {
	if b[0] == 0 {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.prefixes {
		if len(b) >= len(p.prefix) && string(b[:len(p.prefix)]) == p.prefix {
			return false, p
		}
		if len(b) < len(p.prefix) && strings.HasPrefix(p.prefix, string(b)) {
			more = true
		}
	}
	return more, nil
}

// handOff gives the connection away.
func (s *Server) handOff(c *Conn, l *prefixListener) error {
	if s.tls.mode == TLSEnforcing && c.stream == c.socket {
		return &ForeignError{"plain connection, but tls.server.mode is enforcing: use TLS"}
	}
	if err := c.socket.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	nc := &prefixConn{Conn: c.stream, first: bytes.Clone(c.in.data()[len(l.prefix):])}
	s.forget(c)
	select {
	case l.conns <- nc:
		return errHandedOff
	case <-l.done:
		return errShutdown
	case <-c.ctx.Done():
		return errLocalClose
	}
}

func (l *prefixListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *prefixListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *prefixListener) Addr() net.Addr { return l.server.Addr() }

func isMalformed(err error) bool {
	var format *protocol.FormatError
	var large *TooLargeError
	return errors.As(err, &format) || errors.As(err, &large)
}

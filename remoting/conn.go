package remoting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Conn is one connection, of a server or of a client. Its loop reads and handles frames; all methods but Local may be
// called on any goroutine.
type Conn struct {
	id     uint64
	ep     *endpoint
	socket net.Conn        // closing it ends everything
	stream net.Conn        // what is read and written: socket, or TLS over it
	raw    syscall.RawConn // of socket when stream is socket and it has one; nil otherwise
	addr   netip.AddrPort
	name   string // peer, the client's behind a proxy
	vip    bool
	attrs  map[string]string // set before the first frame
	ctx    context.Context
	cancel context.CancelFunc

	peer      atomic.Uint64 // of the last request: version, language, form
	active    atomic.Int64  // clock of the last byte either way, see wroteSome
	wroteSome atomic.Bool   // something was written since the last sweep: cheaper than looking at the clock
	queued    atomic.Int64  // bytes that wait to be written
	inWork    atomic.Int64  // bytes of slow requests
	partial   atomic.Int64  // clock at which a frame began to wait for its rest; 0: none does
	paused    atomic.Bool   // the loop waits for resume
	retired   atomic.Bool   // a client closes it when its calls have ended
	resume    chan struct{}
	onClosed  func(c *Conn, reason error) // called on the loop at its end

	// Of the loop.
	in       inBuffer
	req      Request
	resp     Response
	received time.Time
	locals   []local

	mu      sync.Mutex
	queue   outQueue // guarded by mu: what waits behind sending
	writing bool     // guarded by mu: somebody owns sending
	corks   int      // guarded by mu: answers are collected while above 0
	closed  bool     // guarded by mu
	reason  error    // guarded by mu
	calls   map[int32]*call
	opaque  int32 // guarded by mu, of the last own request

	sending outQueue // of whoever set writing
	writer  rawWriter
}

type local struct{ key, value any }

func newConn(ep *endpoint, nc net.Conn) *Conn {
	c := &Conn{id: ep.nextConn.Add(1), ep: ep, resume: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.socket = nc
	c.setStream(nc)
	c.addr = addrPort(nc.RemoteAddr())
	c.name = nc.RemoteAddr().String()
	if c.addr.IsValid() {
		c.name = c.addr.String()
	}
	c.active.Store(ep.clock())
	return c
}

// setStream sets what is read and written, before the first write.
func (c *Conn) setStream(nc net.Conn) {
	c.stream, c.raw = nc, nil
	if rawWrites {
		if sc, ok := nc.(*net.TCPConn); ok {
			if raw, err := sc.SyscallConn(); err == nil {
				c.raw = raw
			}
		}
	}
	c.in.init(c)
	c.writer.init(c)
}

func addrPort(a net.Addr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return ap
}

// ID is a number that no other connection of the same server or client has.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the peer as host:port; behind a PROXY header it is the client that the header names.
func (c *Conn) RemoteAddr() string { return c.name }

// RemoteAddrPort is the socket's peer; the zero value when it has none.
func (c *Conn) RemoteAddrPort() netip.AddrPort { return c.addr }

// LocalAddr is this side of the socket.
func (c *Conn) LocalAddr() net.Addr { return c.socket.LocalAddr() }

// Attr is a text of the connection's start, such as proxy_protocol_addr.
func (c *Conn) Attr(name string) string { return c.attrs[name] }

// VIP says that the connection came in on the fast port.
func (c *Conn) VIP() bool { return c.vip }

// Version is that of the last request.
func (c *Conn) Version() int32 { return int32(uint32(c.peer.Load())) }

// Language is that of the last request.
func (c *Conn) Language() byte { return byte(c.peer.Load() >> 32) }

func (c *Conn) form() protocol.Form { return protocol.Form(c.peer.Load() >> 40) }

func (c *Conn) notePeer(h *protocol.Header) {
	v := uint64(uint32(h.Version)) | uint64(h.Language)<<32 | uint64(h.Form)<<40
	if c.peer.Load() != v {
		c.peer.Store(v)
	}
}

// Done is closed when the connection is.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Context ends when the connection is closed.
func (c *Conn) Context() context.Context { return c.ctx }

// Err says why the connection was closed; nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Close closes the connection at once. What waits to be written is dropped.
func (c *Conn) Close() { c.fail(errLocalClose) }

// Local is the value that the connection keeps for key, made when it is asked for the first time. Only handlers that run
// Inline and OnBatchEnd callbacks may call it.
func (c *Conn) Local(key any, make func() any) any {
	for i := range c.locals {
		if c.locals[i].key == key {
			return c.locals[i].value
		}
	}
	v := make()
	c.locals = append(c.locals, local{key, v})
	return v
}

// fail closes the connection for reason; the first reason stays. It runs callbacks of calls and releases bodies, so it is
// never called under a lock.
func (c *Conn) fail(reason error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.reason = true, reason
	calls, queue := c.calls, c.queue
	c.calls, c.queue = nil, outQueue{}
	c.mu.Unlock()
	c.cancel()
	_ = c.socket.Close() // nothing is left to be done about an error
	queue.drop(c)
	lost := &ClosedError{Addr: c.name, Err: reason, Sent: true}
	for _, ca := range calls {
		ca.deliver(nil, lost)
	}
}

// loop reads and handles frames until the connection ends.
func (c *Conn) loop() {
	err := c.frames()
	if isMalformed(err) {
		c.ep.stats.malformed.Add(1)
	}
	c.fail(err)
	c.in.free()
	if c.onClosed != nil {
		c.onClosed(c, c.Err())
	}
}

func (c *Conn) frames() error {
	for {
		ready, err := c.in.ready()
		if err != nil {
			return err
		}
		if !ready {
			if err := c.in.fill(); err != nil {
				return err
			}
			continue
		}
		if err := c.batch(); err != nil {
			return err
		}
		if err := c.pause(); err != nil {
			return err
		}
	}
}

// batch handles the complete frames of the buffer.
func (c *Conn) batch() error {
	if c.partial.Load() != 0 {
		c.partial.Store(0)
	}
	c.Cork()
	defer c.Uncork()
	var failed error
	for {
		frame, err := c.in.next()
		if err == nil && frame != nil {
			err = c.handle(frame)
		}
		if frame == nil || err != nil {
			failed = err
			break
		}
	}
	for _, fn := range c.ep.batchEnd {
		if err := c.guard(func() { fn(c) }); err != nil {
			return err
		}
	}
	return failed
}

// guard turns a panic into an error that ends this connection only: after a panic at the end of a batch nobody knows which
// answers are due.
func (c *Conn) guard(fn func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.ep.stats.panics.Add(1)
			c.ep.log.Error("panic at the end of a batch", "addr", c.name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	fn()
	return nil
}

func (c *Conn) handle(frame []byte) error {
	h := &c.req.Header
	body, err := protocol.Decode(frame, h)
	if err != nil {
		return err
	}
	if h.Response() {
		c.answered(h, body)
		return nil
	}
	c.notePeer(h)
	c.req.Body, c.req.conn, c.req.received = body, c, c.received
	c.dispatch(&c.req)
	return nil
}

func (c *Conn) dispatch(req *Request) {
	r := c.ep.mux.find(req.Code, c.vip)
	switch {
	case r == nil:
		c.refuse(req, protocol.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
	case c.ep.goAway && c.ep.draining.Load() && req.Version > protocol.V5_3_1:
		c.refuse(req, protocol.GoAway, "please go away")
	case r.mode.class == nil:
		c.resp.Reset()
		c.run(r, req, &c.resp)
	default:
		c.submit(r, req)
	}
}

// run calls a handler and answers what it returned.
func (c *Conn) run(r *route, req *Request, resp *Response) {
	err := c.call(r.handler, req, resp)
	if errors.Is(err, Later) {
		return
	}
	if err != nil {
		resp.Body.release()
		resp.Code, resp.Remark = c.ep.mapError(err)
	}
	if req.Oneway() {
		resp.Body.release()
		return
	}
	c.reply(req.Form, req.Opaque, resp)
}

func (c *Conn) call(h Handler, req *Request, resp *Response) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.ep.stats.panics.Add(1)
			c.ep.log.Error("panic in a handler", "request", protocol.RequestName(req.Code), "addr", c.name, "panic", p,
				"stack", string(debug.Stack()))
			err = &protocol.Error{Code: protocol.SystemError, Remark: fmt.Sprintf("internal error: %v", p)}
		}
	}()
	return h(req, resp)
}

func (c *Conn) refuse(req *Request, code int32, remark string) {
	if req.Oneway() {
		return
	}
	c.resp.Reset()
	c.resp.Code, c.resp.Remark = code, remark
	c.reply(req.Form, req.Opaque, &c.resp)
}

// submit hands a copy of req to the goroutines of a class.
func (c *Conn) submit(r *route, req *Request) {
	size := int64(req.HeaderSize() + len(req.Body))
	most := c.ep.limits.TotalBytes
	if size > inUncounted {
		most -= most / 8 // the rest is for small ones, such as heartbeats
	}
	if have := c.ep.bytes.Load(); have+size > most {
		c.ep.stats.overloads.Add(1)
		c.refuse(req, protocol.SystemBusy, overloadRemark("bytes of requests in work", have+size, most))
		return
	}
	t := &task{req: req.Clone(), route: r, size: size}
	c.inWork.Add(size)
	c.ep.bytes.Add(size)
	c.ep.slow.Add(1)
	if ok, n := r.mode.class.submit(t); !ok {
		c.finished(t)
		c.ep.stats.overloads.Add(1)
		class := r.mode.class
		c.ep.quiet.warn(c.ep.log, "requests refused: too many wait", "class", class.name, "waiting", n)
		c.refuse(req, protocol.SystemBusy, overloadRemark(class.name+" requests waiting", int64(n), int64(class.queue)))
	}
}

// finished ends the accounting of a slow request, after it was answered.
func (c *Conn) finished(t *task) {
	c.inWork.Add(-t.size)
	c.ep.bytes.Add(-t.size)
	c.ep.slow.Add(-1)
	c.wake()
}

// pause waits while the connection holds too much.
func (c *Conn) pause() error {
	if !c.tooMuch(c.ep.limits.HighWater, c.ep.limits.ConnBytes) {
		return nil
	}
	c.paused.Store(true)
	defer c.paused.Store(false)
	for c.tooMuch(c.ep.limits.LowWater, c.ep.limits.ConnBytes/2) {
		select {
		case <-c.resume:
		case <-c.ctx.Done():
			return io.EOF
		}
	}
	return nil
}

// tooMuch leaves out a client's own requests: two peers that wait for each other's reading would wait for ever.
func (c *Conn) tooMuch(queued, inWork int64) bool {
	return c.ep.server && c.queued.Load() > queued || c.inWork.Load() > inWork
}

func (c *Conn) wake() {
	if c.paused.Load() {
		select {
		case c.resume <- struct{}{}:
		default:
		}
	}
}

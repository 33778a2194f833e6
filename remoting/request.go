package remoting

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Request is a received request. Its texts and Body are views of the connection's buffer and valid until the handler
// returns; Clone makes a copy that lasts.
type Request struct {
	protocol.Header
	Body []byte

	conn     *Conn
	received time.Time
}

// NewRequest is a request as c would have received it, for handlers that pass work to another and for tests. c may be nil:
// then nobody gets the answer.
func NewRequest(c *Conn, cmd *protocol.Command) (*Request, error) {
	r := &Request{conn: c, received: time.Now()}
	frame := cmd.Append(nil)
	body, err := protocol.Decode(frame[protocol.LengthSize:], &r.Header)
	r.Body = body
	return r, err
}

// Conn is the connection that the request came from.
func (r *Request) Conn() *Conn { return r.conn }

// Received is when the frame was read, with a monotonic clock.
func (r *Request) Received() time.Time { return r.received }

// Oneway says that nobody waits for an answer.
func (r *Request) Oneway() bool { return r.OnewayFlag() }

// Context ends when the connection is closed.
func (r *Request) Context() context.Context {
	if r.conn == nil {
		return context.Background()
	}
	return r.conn.ctx
}

// Defer takes the duty to answer away from the handler, which then returns Later.
func (r *Request) Defer() Pending {
	return Pending{conn: r.conn, opaque: r.Opaque, form: r.Form, oneway: r.Oneway()}
}

// Clone is a copy that does not depend on the connection's buffer.
func (r *Request) Clone() *Request {
	n := &Request{conn: r.conn, received: r.received}
	buf := make([]byte, 0, r.HeaderSize()+len(r.Body))
	buf = r.Header.CloneInto(&n.Header, buf)
	buf = append(buf, r.Body...)
	n.Body = buf[r.HeaderSize():]
	return n
}

// Pending is an answer that is still due. It is a small value and may be copied, but only one answer may be given. Both
// methods may be called on any goroutine, never block, and do nothing more for a one-way request or a closed connection
// than to release the body.
type Pending struct {
	conn   *Conn
	opaque int32
	form   protocol.Form
	oneway bool
}

// Conn is the connection that the answer goes to.
func (p Pending) Conn() *Conn { return p.conn }

// Reply answers. resp may be reused at once; its Body belongs to the connection from now on.
func (p Pending) Reply(resp *Response) {
	if p.oneway || p.conn == nil {
		resp.Body.release()
		return
	}
	p.conn.reply(p.form, p.opaque, resp)
}

// Error answers with the code and remark that the server's error mapping gives to err.
func (p Pending) Error(err error) {
	if p.oneway || p.conn == nil {
		return
	}
	var resp Response
	resp.Code, resp.Remark = p.conn.ep.mapError(err)
	p.conn.reply(p.form, p.opaque, &resp)
}

// Response is an answer. The zero value is an empty success.
type Response struct {
	Code   int32
	Remark string
	Ext    protocol.Ext
	Body   Body
}

// Reset empties the response and keeps its memory.
func (r *Response) Reset() {
	r.Code, r.Remark, r.Body = 0, "", Body{}
	r.Ext.Reset()
}

// Body is what follows a header: Bytes, or Parts, not both. Bytes belong to the connection once the answer was given: they
// must not change any more and must be no view of a request. Parts is copied by the connection.
type Body struct {
	Bytes []byte
	Parts []Part
}

// Part is a piece of a body that is held until it was written, such as a view of a mapped file.
type Part interface {
	// Bytes is the piece in memory; empty when it can only be read from its file.
	Bytes() []byte
	// File is the piece in a file, for pieces that are better sent from there. The connection does not close f.
	File() (f *os.File, off, n int64, ok bool)
	// Release is called exactly once, after the piece was written or given up, on any goroutine, outside of locks. It must
	// not block.
	Release()
}

func (b *Body) release() {
	for _, p := range b.Parts {
		p.Release()
	}
	*b = Body{}
}

// Handler answers a request. It fills resp and returns nil, or returns Later after Defer; any other error is answered with
// the code and remark of the server's error mapping, with the fields that it put into resp.Ext and without a body. resp is
// reused after the call. A handler that panics is answered with code 1.
type Handler func(req *Request, resp *Response) error

// MapError gives a *protocol.Error its own code and remark and every other error code 1 with its text.
func MapError(err error) (code int32, remark string) {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Code, e.Remark
	}
	return protocol.SystemError, err.Error()
}

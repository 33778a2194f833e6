package remoting

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Writing: who appends to the queue of a connection and finds nobody writing becomes its writer. It writes without waiting
// and hands what the socket does not take to a goroutine, which ends when nothing is left. sending belongs to the writer,
// queue is guarded by mu.

const (
	maxRounds  = 16      // that a goroutine writes for others before it hands over
	mostRemark = 8 << 10 // bytes
	mostHeader = 2 << 20 // bytes of ext fields and remark; six times as much with escapes is still a header
)

// reply writes an answer. It takes over resp.Body.
func (c *Conn) reply(form protocol.Form, opaque int32, resp *Response) {
	body := resp.Body
	resp.Body = Body{}
	if len(resp.Remark) > mostRemark { // remarks quote what a peer sent
		resp.Remark = strings.ToValidUTF8(resp.Remark[:mostRemark], "") + "..."
	}
	var few [8]extra
	extras, size := few[:0], int64(len(body.Bytes))
	if len(body.Parts) > len(few) {
		many := extraLists.Get().(*[]extra)
		defer func() { // the queue has copies
			clear(*many)
			extraLists.Put(many)
		}()
		*many = slices.Grow((*many)[:0], len(body.Parts))[:len(body.Parts)]
		extras = (*many)[:0]
	}
	if len(body.Parts) > 0 {
		extras, size = partsOf(body.Parts, extras)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		releaseAll(extras)
		return
	}
	out := c.queue.buffer()
	before := len(out.b)
	fits := resp.Ext.Size()+len(resp.Remark) <= mostHeader
	if fits {
		out.b = protocol.AppendFrame(out.b, form, resp.Code, protocol.FlagResponse, opaque, resp.Remark, &resp.Ext, int(size))
		fits = int64(len(out.b)-before)+size <= int64(c.ep.limits.MaxFrame)
	}
	var refused []extra
	if !fits {
		e := TooLargeError{size, int64(c.ep.limits.MaxFrame)}
		out.b = protocol.AppendFrame(out.b[:before], form, protocol.SystemError, protocol.FlagResponse, opaque,
			"answer not sent: "+e.Error(), nil, 0)
		refused, extras, body, size = extras, nil, Body{}, 0
	}
	copied := size < copyBelow && !inFiles(extras)
	if copied {
		out.b = append(out.b, body.Bytes...)
		for i := range extras {
			out.b = append(out.b, extras[i].b...)
		}
	}
	c.queue.size += int64(len(out.b) - before)
	c.queued.Add(int64(len(out.b) - before))
	if !copied {
		if len(body.Bytes) > 0 {
			c.ep.answers.Add(size)
			c.queue.add(extra{b: body.Bytes, n: size, mem: &c.ep.answers})
		}
		for i := range extras {
			c.queue.add(extras[i])
		}
		c.queued.Add(size)
	}
	c.unlockAndWrite()
	if copied {
		releaseAll(extras)
	}
	releaseAll(refused)
	switch queued := c.queued.Load(); {
	case queued > c.ep.limits.MaxQueued:
		c.dropSlow()
	case c.hoards(queued, c.ep.limits.TotalBytes):
		c.ep.heaviest().dropSlow() // c may have come last and read well
	}
}

// dropSlow closes the connection because its peer does not read.
func (c *Conn) dropSlow() {
	if c != nil && c.Err() == nil {
		c.ep.stats.slowPeers.Add(1)
		c.fail(errNotReading)
	}
}

// hoards says that large answers of all connections take more than most bytes, and that this is one of those that do not
// read theirs.
func (c *Conn) hoards(queued, most int64) bool {
	return queued > c.ep.limits.HighWater && c.ep.server && c.ep.answers.Load() > most
}

// extraLists holds lists for bodies of many pieces.
var extraLists = sync.Pool{New: func() any { return new([]extra) }}

// partsOf appends the pieces of a body to list; empty ones are released.
func partsOf(parts []Part, list []extra) ([]extra, int64) {
	var total int64
	for _, p := range parts {
		e := extra{b: p.Bytes(), part: p}
		e.n = int64(len(e.b))
		if e.n == 0 || e.n >= sendFileFrom {
			if f, off, n, ok := p.File(); ok {
				e.f, e.off, e.n = f, off, n
			}
		}
		if e.n <= 0 {
			p.Release()
			continue
		}
		total += e.n
		list = append(list, e)
	}
	return list, total
}

func inFiles(list []extra) bool {
	for i := range list {
		if list[i].f != nil {
			return true
		}
	}
	return false
}

func releaseAll(list []extra) {
	for i := range list {
		if p := list[i].part; p != nil {
			p.Release()
		}
	}
}

// Cork collects answers until the matching Uncork, which writes them at once: for goroutines that answer many requests of
// one connection.
func (c *Conn) Cork() {
	c.mu.Lock()
	c.corks++
	c.mu.Unlock()
}

// Uncork ends a Cork.
func (c *Conn) Uncork() {
	c.mu.Lock()
	c.corks--
	c.unlockAndWrite()
}

// unlockAndWrite unlocks mu and writes what waits, if nobody else does.
func (c *Conn) unlockAndWrite() {
	write := !c.writing && c.corks == 0 && !c.closed && !c.queue.empty()
	if write {
		c.writing = true
	}
	c.mu.Unlock()
	if write {
		c.flush()
	}
}

// flush writes what can be written without waiting. The caller has set writing.
func (c *Conn) flush() {
	for round := 0; c.nextSending(); round++ {
		if c.raw == nil || round == maxRounds {
			c.handOver()
			return
		}
		again, err := c.writer.try()
		if err != nil {
			c.fail(err)
		} else if again {
			c.handOver()
			return
		}
	}
}

// nextSending moves what waits to sending. It reports false when nothing waits, and the caller is no longer the writer.
func (c *Conn) nextSending() bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock() // writing stays set: there is no next writer
		c.sending.drop(c)
		return false
	}
	if !c.sending.empty() {
		c.mu.Unlock()
		return true
	}
	c.sending.reset()
	if c.queue.empty() || c.corks > 0 {
		c.writing = false
		c.mu.Unlock()
		return false
	}
	c.sending, c.queue = c.queue, c.sending
	c.mu.Unlock()
	return true
}

// handOver gives the role of the writer to a goroutine.
func (c *Conn) handOver() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.sending.drop(c)
		return
	}
	c.ep.wg.Add(1) // the loop still counts: it ends after closed was set
	c.mu.Unlock()
	go c.drain()
}

// drain writes until nothing is left.
func (c *Conn) drain() {
	defer c.ep.wg.Done()
	for c.nextSending() {
		if err := c.writer.finish(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.ep.stats.slowPeers.Add(1)
				err = errNotReading
			}
			c.fail(err)
		}
	}
}

// wrote accounts for n written bytes. It is called by the writer, outside of the socket's own locks.
func (c *Conn) wrote(n int64) {
	c.sending.advance(n)
	c.sending.release()
	c.queued.Add(-n)
	if !c.wroteSome.Load() {
		c.wroteSome.Store(true)
	}
	c.wake()
}

// streamFinish writes sending through the stream, for TLS and pipes.
func (c *Conn) streamFinish() error {
	defer func() { _ = c.stream.SetWriteDeadline(time.Time{}) }() // fails on closed connections only
	var list [1][]byte
	for !c.sending.empty() {
		slices, e := c.sending.gather(list[:0])
		if e == nil {
			if err := c.streamWrite(slices[0]); err != nil {
				return err
			}
			continue
		}
		if err := c.streamFile(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) streamWrite(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), streamChunk)
		if err := c.stream.SetWriteDeadline(time.Now().Add(c.ep.limits.WriteTimeout)); err != nil {
			return err
		}
		if _, err := c.stream.Write(b[:n]); err != nil {
			return err
		}
		c.wrote(int64(n))
		b = b[n:]
	}
	return nil
}

const streamChunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([streamChunk]byte) }}

// streamFile reads the next chunk of an extra from its file and writes it.
func (c *Conn) streamFile(e *extra) error {
	chunk := chunks.Get().(*[streamChunk]byte)
	defer chunks.Put(chunk)
	b := chunk[:min(e.n-c.sending.some, streamChunk)]
	if n, err := e.f.ReadAt(b, e.off+c.sending.some); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return c.streamWrite(b)
}

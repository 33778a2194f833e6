package remoting

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// call is a request of ours that waits for its answer.
type call struct {
	done     chan struct{} // nil for an asynchronous call
	fn       func(*protocol.Command, error)
	answer   *protocol.Command
	err      error
	code     int32
	started  time.Time
	deadline time.Time // of asynchronous calls
}

// deliver is called once, by whoever took the call out of the table, outside of locks.
func (ca *call) deliver(answer *protocol.Command, err error) {
	if ca.fn != nil {
		defer func() {
			if p := recover(); p != nil {
				slog.Error("panic in the callback of a call", "request", protocol.RequestName(ca.code), "panic", p, "stack", string(debug.Stack()))
			}
		}()
		ca.fn(answer, err)
		return
	}
	ca.answer, ca.err = answer, err
	ca.done <- struct{}{}
}

// Call sends a request and waits for the answer, whatever its code is; it must not be called on a connection's loop, where
// answers are read. It sets cmd's Opaque and Flag. Without a deadline in ctx it waits as long as the connection lives.
// Errors: *TimeoutError, *ClosedError, *BusyError, *TooLargeError, or ctx's own when it is cancelled.
func (c *Conn) Call(ctx context.Context, cmd *protocol.Command) (*protocol.Command, error) {
	return c.call2(ctx, cmd, 0)
}

// call2 is Call with a timeout for a ctx that has none.
func (c *Conn) call2(ctx context.Context, cmd *protocol.Command, timeout time.Duration) (*protocol.Command, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ca := &call{done: make(chan struct{}, 1), code: cmd.Code, started: time.Now()}
	if err := c.start(cmd, ca); err != nil {
		return nil, err
	}
	var expired <-chan time.Time
	if timeout > 0 {
		if _, has := ctx.Deadline(); !has {
			t := time.NewTimer(timeout)
			defer t.Stop()
			expired = t.C
		}
	}
	var err error
	select {
	case <-ca.done:
	case <-ctx.Done():
		err = c.giveUp(ctx, cmd.Opaque, ca)
	case <-expired:
		err = c.giveUp(ctx, cmd.Opaque, ca)
	}
	if err == nil {
		err = ca.err
	}
	if err != nil {
		return nil, err
	}
	return ca.answer, nil
}

// giveUp takes the call out of the table. It returns nil when an answer came just before.
func (c *Conn) giveUp(ctx context.Context, opaque int32, ca *call) error {
	c.mu.Lock()
	mine := c.calls[opaque] == ca
	if mine {
		delete(c.calls, opaque)
	}
	c.mu.Unlock()
	if !mine {
		<-ca.done // it is being delivered
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &TimeoutError{Addr: c.name, Code: ca.code, After: time.Since(ca.started)}
}

// Async sends a request; fn gets the answer or the error, exactly once, unless Async returns an error. fn runs on the
// connection's loop or on that of whoever notices the end of time or of the connection: it must not block. Times are
// checked a few times a second; a zero deadline waits as long as the connection lives.
func (c *Conn) Async(deadline time.Time, cmd *protocol.Command, fn func(*protocol.Command, error)) error {
	return c.start(cmd, &call{fn: fn, code: cmd.Code, started: time.Now(), deadline: deadline})
}

// Oneway sends a request that is not answered. It never blocks: when too much waits to be written it returns a *BusyError.
func (c *Conn) Oneway(cmd *protocol.Command) error { return c.start(cmd, nil) }

// start writes cmd and, when ca is not nil, waits for its answer. Bodies of 16 KiB and more are not copied and must not
// change any more.
func (c *Conn) start(cmd *protocol.Command, ca *call) error {
	c.mu.Lock()
	for c.opaque++; c.calls[c.opaque] != nil; c.opaque++ { // wraps around
	}
	cmd.Opaque = c.opaque
	c.mu.Unlock()
	cmd.Flag = cmd.Flag &^ (protocol.FlagResponse | protocol.FlagOneway)
	if ca == nil {
		cmd.Flag |= protocol.FlagOneway
	}
	if !fits(cmd, c.ep.limits.MaxFrame) {
		return &TooLargeError{int64(len(cmd.Body)), int64(c.ep.limits.MaxFrame)}
	}
	if c.ep.server && cmd.Form == protocol.JSON {
		cmd.Form = c.form() // what the peer speaks itself
	}
	head := outBufs.Get().(*outBuf)
	defer freeOutBuf(head)
	head.b = cmd.AppendHead(head.b)
	size := int64(len(head.b) + len(cmd.Body))

	c.mu.Lock()
	if c.closed {
		reason := c.reason
		c.mu.Unlock()
		return &ClosedError{Addr: c.name, Err: reason}
	}
	if have := c.queued.Load(); have > 0 && have+size > c.ep.limits.MaxQueued {
		c.mu.Unlock()
		return &BusyError{"bytes waiting to be written to " + c.name, have + size, c.ep.limits.MaxQueued}
	}
	if ca != nil {
		if c.calls == nil {
			c.calls = make(map[int32]*call)
		}
		c.calls[cmd.Opaque] = ca
	}
	out := c.queue.buffer()
	out.b = append(out.b, head.b...)
	if len(cmd.Body) < copyBelow {
		out.b = append(out.b, cmd.Body...)
		c.queue.size += size
	} else {
		c.queue.size += int64(len(head.b))
		c.queue.add(extra{b: cmd.Body, n: int64(len(cmd.Body))})
	}
	c.queued.Add(size)
	c.unlockAndWrite()
	return nil
}

// fits says that cmd is a frame within the limit, even if every byte of its header needs an escape.
func fits(cmd *protocol.Command, most int) bool {
	n := len(cmd.Remark)
	for k, v := range cmd.Ext {
		n += len(k) + len(v) + 8
	}
	if cmd.Fields != nil {
		n += cmd.Fields.Size() + 64*cmd.Fields.Len()
	}
	return len(cmd.Body)+6*n+512 <= most || len(cmd.Body)+n+512 <= most && n < 64<<10
}

// answered hands an answer to its call.
func (c *Conn) answered(h *protocol.Header, body []byte) {
	c.mu.Lock()
	ca := c.calls[h.Opaque]
	delete(c.calls, h.Opaque)
	c.mu.Unlock()
	if ca == nil {
		c.ep.log.Debug("answer that nobody waits for", "addr", c.name, "opaque", h.Opaque)
		return
	}
	var own []byte
	if len(body) > 0 {
		own = append(make([]byte, 0, len(body)), body...)
	}
	ca.deliver(h.Command(own), nil)
}

// inFlight is how many calls wait.
func (c *Conn) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// sweep closes an idle connection and ends asynchronous calls whose time is over.
func (c *Conn) sweep(now time.Time) {
	clock := c.ep.clock()
	if c.wroteSome.Swap(false) {
		c.active.Store(clock)
	}
	if clock-c.active.Load() > int64(c.ep.limits.IdleTimeout) {
		c.fail(errIdle)
		return
	}
	if since := c.partial.Load(); since != 0 && clock-since > int64(c.ep.patience()) {
		c.ep.stats.slowPeers.Add(1)
		c.fail(errSlowFrame)
		return
	}
	var late []*call
	c.mu.Lock()
	for opaque, ca := range c.calls {
		if ca.fn != nil && !ca.deadline.IsZero() && now.After(ca.deadline) {
			delete(c.calls, opaque)
			late = append(late, ca)
		}
	}
	c.mu.Unlock()
	for _, ca := range late {
		ca.deliver(nil, &TimeoutError{Addr: c.name, Code: ca.code, After: now.Sub(ca.started)})
	}
}

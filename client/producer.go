package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// ProducerConfig is what a Producer needs. Only Group must be set.
type ProducerConfig struct {
	Group string
	// Timeout limits one attempt (3 s); DeliveryTimeout all attempts of a message when the context has no deadline (10 s).
	Timeout, DeliveryTimeout time.Duration
	// Retries is how often a message is sent again after a refusal or an attempt without an answer (2; -1 for none). Attempts that
	// certainly stored nothing, because a broker could not be reached or said that it does not serve, are repeated until the time is over.
	Retries int
	// MaxMessageSize limits a body in bytes (4 MiB, as brokers do).
	MaxMessageSize int
	// Compression of bodies of CompressAbove bytes and more (zlib, 4096), at CompressLevel 1 to 9 (5).
	Compression   Compression
	CompressAbove int
	CompressLevel int
	// MaxInFlight and MaxInFlightBytes bound what was sent and not answered yet (4096 requests, 32 MiB); sends wait above it.
	MaxInFlight      int
	MaxInFlightBytes int64
	// AvoidSlow keeps away from brokers that answered slowly, for up to 30 s.
	AvoidSlow bool
	// Selector picks the queue of messages that name none; round robin when nil.
	Selector Selector
}

func (cfg ProducerConfig) withDefaults() (ProducerConfig, error) {
	if err := message.ValidateGroup(cfg.Group); err != nil {
		return cfg, fmt.Errorf("client: producer group %q: %w", cfg.Group, err)
	}
	setDefault(&cfg.Timeout, 3*time.Second)
	setDefault(&cfg.DeliveryTimeout, 10*time.Second)
	setDefault(&cfg.Retries, 2)
	cfg.Retries = max(cfg.Retries, 0)
	setDefault(&cfg.MaxMessageSize, 4<<20)
	setDefault(&cfg.CompressAbove, 4096)
	setDefault(&cfg.CompressLevel, 5)
	setDefault(&cfg.MaxInFlight, 4096)
	setDefault(&cfg.MaxInFlightBytes, 32<<20)
	return cfg, nil
}

// Producer sends messages. It is safe for concurrent use. All sends share one connection per broker, on which requests do not wait for
// each other.
type Producer struct {
	c      *Client
	cfg    ProducerConfig
	queues queueing
	count  *semaphore.Weighted
	bytes  *semaphore.Weighted

	mu     sync.Mutex
	closed bool
}

// NewProducer makes a producer on c and registers its group there.
func NewProducer(c *Client, cfg ProducerConfig) (*Producer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := c.addProducer(cfg.Group); err != nil {
		return nil, err
	}
	return &Producer{c: c, cfg: cfg, queues: queueing{avoidSlow: cfg.AvoidSlow}, count: semaphore.NewWeighted(int64(cfg.MaxInFlight)),
		bytes: semaphore.NewWeighted(cfg.MaxInFlightBytes)}, nil
}

// Close lets no new message in, waits until all that were sent are answered or ctx ends, and leaves the group. Twice is fine.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	err := p.count.Acquire(ctx, int64(p.cfg.MaxInFlight))
	if err != nil {
		err = fmt.Errorf("close producer %s: messages are still in flight: %w", p.cfg.Group, err)
	} else {
		p.count.Release(int64(p.cfg.MaxInFlight)) // whoever waits for room finds the producer closed
	}
	if p.c.dropProducer(p.cfg.Group) {
		p.c.unregister(context.WithoutCancel(ctx), p.cfg.Group, "")
	}
	return err
}

func (p *Producer) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Send sends a message and waits for the broker's answer. Errors: *MessageError when it cannot be sent at all, *RouteError, *SendError,
// ErrClosed. When ctx ends first the message may still be stored.
func (p *Producer) Send(ctx context.Context, m *Message) (Result, error) {
	o, err := p.encode(m)
	if err != nil {
		return Result{}, err
	}
	return p.wait(ctx, o, m)
}

// SendBatch sends messages of one topic as one; they are stored side by side in one queue, or none is. The queue is chosen by the first.
func (p *Producer) SendBatch(ctx context.Context, ms []*Message) (Result, error) {
	o, ids, err := p.encodeBatch(ms)
	if err != nil {
		return Result{}, err
	}
	r, err := p.wait(ctx, o, ms[0])
	r.IDs = ids
	return r, err
}

// SendAsync sends a message and calls done with the outcome, once, unless it returns an error. It waits only while too much is in flight or
// a connection is being made. done runs on a connection's loop, or within the call when no broker could be reached: it must not block, send or
// take a lock that is held around the call. Messages for one queue arrive in the order of the calls, as long as none has to be repeated.
func (p *Producer) SendAsync(ctx context.Context, m *Message, done func(Result, error)) error {
	o, err := p.encode(m)
	if err != nil {
		return err
	}
	return p.launch(ctx, o, m, done)
}

// SendBatchAsync is SendAsync for a batch.
func (p *Producer) SendBatchAsync(ctx context.Context, ms []*Message, done func(Result, error)) error {
	o, ids, err := p.encodeBatch(ms)
	if err != nil {
		return err
	}
	return p.launch(ctx, o, ms[0], func(r Result, err error) {
		r.IDs = ids
		done(r, err)
	})
}

// SendOneway sends a message and does not learn what became of it. It returns the id.
func (p *Producer) SendOneway(ctx context.Context, m *Message) (string, error) {
	o, err := p.encode(m)
	if err != nil {
		return "", err
	}
	if p.isClosed() {
		return "", ErrClosed
	}
	s := p.newSend(ctx, o, m, nil)
	q, addr, err := s.choose()
	if err != nil {
		return "", err
	}
	cmd := o.request(q, &protocol.Ext{})
	p.c.dress(addr, cmd)
	if err := p.c.rpc.Oneway(ctx, addr, cmd); err != nil {
		p.queues.report(q.Broker, 0, err)
		return "", &SendError{o.topic, []Attempt{{q, err}}, err}
	}
	return o.id, nil
}

type outcome struct {
	r   Result
	err error
}

func (p *Producer) wait(ctx context.Context, o *outgoing, m *Message) (Result, error) {
	ch := make(chan outcome, 1)
	if err := p.launch(ctx, o, m, func(r Result, err error) { ch <- outcome{r, err} }); err != nil {
		return Result{}, err
	}
	select {
	case out := <-ch:
		return out.r, out.err
	case <-ctx.Done():
		select {
		case out := <-ch:
			return out.r, out.err
		default:
		}
		return Result{ID: o.id}, &SendError{o.topic, []Attempt{{Queue{Topic: o.topic}, ctx.Err()}}, ctx.Err()}
	}
}

// launch takes room in the window and makes the first attempt.
func (p *Producer) launch(ctx context.Context, o *outgoing, m *Message, done func(Result, error)) error {
	if p.isClosed() {
		return ErrClosed
	}
	s := p.newSend(ctx, o, m, done)
	if err := p.count.Acquire(ctx, 1); err != nil {
		return &SendError{Topic: o.topic, Err: err}
	}
	if err := p.bytes.Acquire(ctx, s.weight); err != nil {
		p.count.Release(1)
		return &SendError{Topic: o.topic, Err: err}
	}
	if p.isClosed() { // Close may have had the window in between
		p.bytes.Release(s.weight)
		p.count.Release(1)
		return ErrClosed
	}
	s.run()
	return nil
}

// send is one message on its way: attempts follow each other, never side by side.
type send struct {
	p        *Producer
	ctx      context.Context
	o        *outgoing
	m        *Message
	done     func(Result, error)
	weight   int64
	begun    time.Time
	end      time.Time // of all attempts
	tries    int       // attempts that count against Retries
	attempts []Attempt
	avoid    string    // broker that failed last
	stale    time.Time // routes older than this are asked for again
}

func (p *Producer) newSend(ctx context.Context, o *outgoing, m *Message, done func(Result, error)) *send {
	s := &send{p: p, ctx: ctx, o: o, m: m, done: done, begun: time.Now()}
	s.weight = min(int64(len(o.body)+len(o.props)), p.cfg.MaxInFlightBytes)
	s.end = s.begun.Add(p.cfg.DeliveryTimeout)
	if d, ok := ctx.Deadline(); ok {
		s.end = d
	}
	return s
}

// pinned says that the message belongs to a queue and must not take another.
func (s *send) pinned() bool {
	return s.m.Queue != nil || s.m.ShardKey != "" || s.p.cfg.Selector != nil
}

// choose returns the queue for the next attempt and its master.
func (s *send) choose() (Queue, string, error) {
	r, err := s.p.c.publishRoute(s.ctx, s.o.topic, s.stale)
	if err != nil {
		return Queue{Topic: s.o.topic}, "", err
	}
	s.stale = time.Time{}
	var q Queue
	switch {
	case s.m.Queue != nil:
		q = *s.m.Queue
	case s.m.ShardKey != "":
		q = r.Write[hashQueue(s.m.ShardKey, len(r.Write))]
	case s.p.cfg.Selector != nil:
		i := s.p.cfg.Selector(s.m, r.Write)
		if i < 0 || i >= len(r.Write) {
			return Queue{Topic: s.o.topic}, "", s.m.refuse("the selector chose queue %d of %d", i, len(r.Write))
		}
		q = r.Write[i]
	default:
		q = s.p.queues.pick(r, s.avoid)
	}
	addr := r.Master(q.Broker)
	if addr == "" {
		return q, "", &RouteError{s.o.topic, fmt.Errorf("broker %s has no master", q.Broker)}
	}
	return q, addr, nil
}

// run makes attempts until one is on its way to a broker or the send is over.
func (s *send) run() {
	for {
		q, addr, err := s.choose()
		if err == nil {
			at := time.Now().Add(s.p.cfg.Timeout)
			if s.end.Before(at) {
				at = s.end
			}
			if err = s.attempt(q, addr, at); err == nil {
				return
			}
			s.p.queues.report(q.Broker, 0, err)
		}
		if !s.failed(q, err) {
			return
		}
		if !s.pause() {
			return
		}
	}
}

// attempt writes the request. The connection is made first, on this goroutine, so that requests are written in the order of the calls.
func (s *send) attempt(q Queue, addr string, at time.Time) error {
	conn, err := s.p.c.rpc.Conn(deadline{s.ctx, at}, addr)
	if err != nil {
		return err
	}
	fields := fieldsPool.Get().(*protocol.Ext)
	defer fieldsPool.Put(fields)
	cmd := s.o.request(q, fields)
	s.p.c.dress(addr, cmd)
	started := time.Now()
	return conn.Async(at, cmd, func(answer *protocol.Command, err error) { s.answered(q, addr, started, answer, err) })
}

// fieldsPool keeps the header fields of requests, which are written before Async returns.
var fieldsPool = sync.Pool{New: func() any { return &protocol.Ext{} }}

// answered runs on a connection's loop.
func (s *send) answered(q Queue, addr string, started time.Time, answer *protocol.Command, err error) {
	var r Result
	if err == nil {
		r, err = s.o.result(q, addr, answer)
	} else if s.p.c.ctx.Err() != nil && errors.Is(err, remoting.ErrClosed) {
		err = errors.Join(ErrClosed, err)
	}
	s.p.queues.report(q.Broker, time.Since(started), err)
	if err == nil {
		s.finish(r, nil)
		return
	}
	if !s.failed(q, err) {
		return
	}
	if !s.p.c.spawn(func() {
		if s.pause() {
			s.run()
		}
	}) {
		s.finish(Result{}, ErrClosed)
	}
}

// failed notes an attempt and reports whether there will be another; if not, it has ended the send.
func (s *send) failed(q Queue, err error) bool {
	s.attempts = append(s.attempts, Attempt{q, err})
	if s.again(err) {
		s.avoid = q.Broker
		if unreachable(err) || notServing(err) {
			s.stale = time.Now()
		}
		return true
	}
	if len(s.attempts) == 1 && !unreachable(err) {
		var route *RouteError
		var wrong *MessageError
		if errors.As(err, &route) || errors.As(err, &wrong) {
			s.finish(Result{ID: s.o.id}, err)
			return false
		}
	}
	s.finish(Result{ID: s.o.id}, &SendError{s.o.topic, s.attempts, err})
	return false
}

// again decides about another attempt.
func (s *send) again(err error) bool {
	var large *remoting.TooLargeError
	var wrong *MessageError
	if s.ctx.Err() != nil || s.p.c.ctx.Err() != nil || !time.Now().Before(s.end) || len(s.attempts) >= 1000 ||
		errors.As(err, &large) || errors.As(err, &wrong) {
		return false
	}
	switch c := code(err); {
	case outcomeUnknown(err):
		s.tries++
		return !s.pinned() && s.tries <= s.p.cfg.Retries
	case c < 0, c == protocol.ServiceNotAvailable, c == protocol.SystemBusy, c == protocol.GoAway, c == protocol.NotLeaderForQueue:
		return s.p.cfg.Retries > 0 // nothing was stored: worth trying until the time is over
	case c == protocol.TopicNotExist, c == protocol.SystemError, c == protocol.NoPermission, c == protocol.NoBuyerID, c == protocol.NotInCurrentUnit:
		s.tries++
		return s.tries <= s.p.cfg.Retries
	}
	return false
}

// pause waits before the next attempt: not at all for the first repetition, which mostly goes elsewhere. False when the send is over.
func (s *send) pause() bool {
	n := len(s.attempts) - 1
	if n == 0 {
		return true
	}
	t := time.NewTimer(min(10*time.Millisecond<<min(n, 6), 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		s.finish(Result{ID: s.o.id}, &SendError{s.o.topic, s.attempts, s.ctx.Err()})
	case <-s.p.c.ctx.Done():
		s.finish(Result{ID: s.o.id}, ErrClosed)
	}
	return false
}

func (s *send) finish(r Result, err error) {
	r.Attempts = len(s.attempts)
	if err == nil {
		r.Attempts++
	}
	s.p.bytes.Release(s.weight)
	s.p.count.Release(1)
	if hook := s.p.c.cfg.Hooks.Sent; hook != nil {
		hook(SentEvent{s.o.topic, s.o.messages, len(s.o.body), r.Attempts, time.Since(s.begun), err})
	}
	s.done(r, err)
}

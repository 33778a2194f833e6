package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// PullerConfig is what a Puller needs: a group, and either Subscriptions, whose queues are shared out among the members of the group, or
// Queues, which are read as they are given.
type PullerConfig struct {
	Group         string
	Subscriptions map[string]string
	Queues        []Queue
	// Expr filters what is read from Queues.
	Expr      string
	From      StartFrom
	StartTime time.Time
	Strategy  Strategy
	// ManualCommit keeps messages unconsumed until Commit is called; otherwise a Poll counts what the Poll before it returned as consumed.
	ManualCommit bool
	// As in ConsumerConfig.
	PullBatch                         int
	MaxQueued                         int
	MaxQueuedBytes                    int64
	CommitInterval, RebalanceInterval time.Duration
}

// Puller reads messages when it is asked to. Fetching goes on in the background, within the limits of the configuration. It is safe for
// concurrent use, but a Commit covers all Polls.
type Puller struct {
	cfg PullerConfig
	g   *group

	mu   sync.Mutex
	held map[*source][]*item // returned by Poll, not consumed yet
}

// NewPuller makes a puller. Start begins.
func NewPuller(c *Client, cfg PullerConfig) (*Puller, error) {
	setDefault(&cfg.PullBatch, 32)
	setDefault(&cfg.MaxQueued, 1000)
	setDefault(&cfg.MaxQueuedBytes, 100<<20)
	setDefault(&cfg.CommitInterval, 5*time.Second)
	setDefault(&cfg.RebalanceInterval, 20*time.Second)
	if cfg.Strategy == nil {
		cfg.Strategy = Average()
	}
	manual := len(cfg.Queues) > 0
	if manual == (len(cfg.Subscriptions) > 0) {
		return nil, fmt.Errorf("client: puller %s needs either subscriptions or queues", cfg.Group)
	}
	g, err := newGroup(c, groupConfig{name: cfg.Group, lite: true, manual: manual, from: cfg.From, fromTime: cfg.StartTime,
		strategy: cfg.Strategy, pullBatch: cfg.PullBatch, maxCount: cfg.MaxQueued, maxBytes: cfg.MaxQueuedBytes, hold: 15 * time.Second,
		commit: cfg.CommitInterval, rebalance: cfg.RebalanceInterval})
	if err != nil {
		return nil, err
	}
	for topic, expr := range cfg.Subscriptions {
		if err := g.subscribe(topic, expr); err != nil {
			return nil, err
		}
	}
	p := &Puller{cfg: cfg, g: g, held: map[*source][]*item{}}
	return p, p.assign(cfg.Queues)
}

func (p *Puller) assign(queues []Queue) error {
	for _, q := range queues {
		if !p.g.wants(q.Topic) {
			if err := p.g.subscribe(q.Topic, p.cfg.Expr); err != nil {
				return err
			}
		}
	}
	p.g.mu.Lock()
	p.g.assigned = append([]Queue(nil), queues...)
	p.g.mu.Unlock()
	return nil
}

// Start begins to fetch.
func (p *Puller) Start(ctx context.Context) error { return p.g.start(ctx) }

// Assign replaces the queues of a puller that was made with Queues.
func (p *Puller) Assign(queues ...Queue) error {
	if !p.g.cfg.manual {
		return errors.New("client: the queues of a puller with subscriptions are shared out by its group")
	}
	if err := p.assign(queues); err != nil {
		return err
	}
	p.g.wake()
	return nil
}

// Queues lists the queues that are read now.
func (p *Puller) Queues() []Queue { return p.g.queues() }

// Poll returns up to limit messages of one queue, waiting for at least one. Errors: the context's, ErrClosed.
func (p *Puller) Poll(ctx context.Context, limit int) ([]*Received, error) {
	if !p.cfg.ManualCommit {
		p.consumed()
	}
	for {
		s := p.g.sched.next(ctx)
		if s == nil {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return nil, ErrClosed
		}
		items := s.take(max(limit, 1))
		if s.hasReady() {
			p.g.sched.push(s)
		}
		if len(items) == 0 {
			continue
		}
		p.mu.Lock()
		p.held[s] = append(p.held[s], items...)
		p.mu.Unlock()
		out := make([]*Received, len(items))
		for i, it := range items {
			out[i] = &it.Received
		}
		return out, nil
	}
}

// consumed finishes all that Poll returned.
func (p *Puller) consumed() {
	p.mu.Lock()
	held := p.held
	p.held = map[*source][]*item{}
	p.mu.Unlock()
	for s, items := range held {
		s.done(items)
	}
}

// Commit counts all that Poll returned as consumed and stores the offsets.
func (p *Puller) Commit(ctx context.Context) error {
	p.consumed()
	return p.g.commitAll(ctx)
}

// ErrNotAssigned says that a queue is not read by this member now.
var ErrNotAssigned = errors.New("client: queue is not assigned to this member")

// Seek goes on at an offset of a queue that is read now; messages of it that Poll has not returned are dropped, and those that it returned
// no longer count.
func (p *Puller) Seek(q Queue, offset int64) error {
	s := p.g.source(q)
	if s == nil {
		return fmt.Errorf("%w: %s", ErrNotAssigned, q)
	}
	s.seek(offset)
	return nil
}

// SeekToTime goes on at the first message of a queue stored at t or later.
func (p *Puller) SeekToTime(ctx context.Context, q Queue, t time.Time) error {
	off, err := p.g.c.OffsetForTime(ctx, q, t.UnixMilli())
	if err != nil {
		return err
	}
	return p.Seek(q, off)
}

// SeekToBegin goes on at the first message of a queue, SeekToEnd behind the last.
func (p *Puller) SeekToBegin(ctx context.Context, q Queue) error {
	off, err := p.g.c.MinOffset(ctx, q)
	if err != nil {
		return err
	}
	return p.Seek(q, off)
}

// SeekToEnd goes on behind the last message of a queue.
func (p *Puller) SeekToEnd(ctx context.Context, q Queue) error {
	off, err := p.g.c.MaxOffset(ctx, q)
	if err != nil {
		return err
	}
	return p.Seek(q, off)
}

// Pause stops fetching and returning messages of queues; Resume goes on. Queues that are not read are passed over.
func (p *Puller) Pause(queues ...Queue) { p.pause(true, queues) }

// Resume ends Pause.
func (p *Puller) Resume(queues ...Queue) { p.pause(false, queues) }

func (p *Puller) pause(on bool, queues []Queue) {
	for _, q := range queues {
		if s := p.g.source(q); s != nil {
			s.pause(on)
		}
	}
}

// Position returns the offset of the first message of a queue that does not count as consumed.
func (p *Puller) Position(q Queue) (int64, error) {
	s := p.g.source(q)
	if s == nil {
		return 0, fmt.Errorf("%w: %s", ErrNotAssigned, q)
	}
	at, _, known := s.position()
	if !known {
		return 0, fmt.Errorf("client: position of %s is not known yet", q)
	}
	return at, nil
}

// Committed returns the offset that is stored for a queue; found is false when there is none.
func (p *Puller) Committed(ctx context.Context, q Queue) (offset int64, found bool, err error) {
	return p.g.offsets.read(ctx, q)
}

// Close stores the offsets of what counts as consumed and leaves the group. Twice is fine.
func (p *Puller) Close(ctx context.Context) error {
	return p.g.close(ctx, func(context.Context) error { return nil })
}

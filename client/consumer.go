package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/epochmq/epochmq/message"
)

// Handler consumes messages. nil means that all are consumed; an error, that all come back later: after a growing delay through the
// group's retry topic, or, for an ordered consumer, after SuspendTime in their place. Retry and DeadLetter choose otherwise. msgs has one element
// unless BatchSize is larger. ctx ends with ConsumeTimeout or when Close has waited long enough. A panic counts as an error.
type Handler func(ctx context.Context, msgs []*Received) error

// RetryError lets a message come back in a chosen way.
type RetryError struct {
	Level int // delay level 1 to 18; 0 lets the broker choose; below 0 sends to the dead letter topic at once
	Err   error
}

func (e *RetryError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry at delay level %d", e.Level)
	}
	return e.Err.Error()
}

func (e *RetryError) Unwrap() error { return e.Err }

// Retry is an error that lets a message come back after the delay of a level, 1 to 18.
func Retry(level int, err error) error { return &RetryError{level, err} }

// DeadLetter is an error that moves a message to the group's dead letter topic.
func DeadLetter(err error) error { return &RetryError{-1, err} }

// ConsumerConfig is what a Consumer needs. Group and at least one subscription must be set.
type ConsumerConfig struct {
	Group string
	// Subscriptions are topics with tags: "" or "*" for all, "TagA || TagB", or SQL(...).
	Subscriptions map[string]string
	Model         Model
	// Ordered hands out the messages of a queue one after the other, and holds the queue's lock meanwhile.
	Ordered bool
	// From tells where a group without an offset begins; StartTime belongs to FromTime.
	From      StartFrom
	StartTime time.Time
	// Strategy shares out the queues (Average).
	Strategy Strategy
	// Workers is how many calls of the handler may run at once (20), BatchSize how many messages each gets at most (1).
	Workers, BatchSize int
	// MaxRetries limits how often a message comes back before it goes to the dead letter topic: 0 leaves it to the group's setting at the
	// broker (16), and is no limit for an ordered consumer.
	MaxRetries int
	// ConsumeTimeout ends the context of a handler (15 min). SuspendTime is the pause of an ordered queue after an error (1 s).
	ConsumeTimeout, SuspendTime time.Duration
	// PullBatch is how many messages one pull asks for (32). MaxQueued, MaxQueuedBytes and MaxSpan bound what is held per queue: messages
	// (1000), bytes (100 MiB) and, unless ordered, the distance from the oldest unfinished message (2000).
	PullBatch      int
	MaxQueued      int
	MaxQueuedBytes int64
	MaxSpan        int64
	// CommitInterval is how often offsets are stored (5 s), RebalanceInterval how often queues are shared out without a reason (20 s).
	CommitInterval, RebalanceInterval time.Duration
	// DrainTime is how long a queue that goes to another member waits for its handlers (5 s).
	DrainTime time.Duration
	// OffsetDir holds the offsets of broadcasting members (~/.rocketmq_offsets).
	OffsetDir string
}

func (cfg ConsumerConfig) withDefaults() (ConsumerConfig, error) {
	setDefault(&cfg.Workers, 20)
	setDefault(&cfg.BatchSize, 1)
	setDefault(&cfg.ConsumeTimeout, 15*time.Minute)
	setDefault(&cfg.SuspendTime, time.Second)
	setDefault(&cfg.PullBatch, 32)
	setDefault(&cfg.MaxQueued, 1000)
	setDefault(&cfg.MaxQueuedBytes, 100<<20)
	setDefault(&cfg.MaxSpan, 2000)
	setDefault(&cfg.CommitInterval, 5*time.Second)
	setDefault(&cfg.RebalanceInterval, 20*time.Second)
	setDefault(&cfg.DrainTime, 5*time.Second)
	if cfg.Strategy == nil {
		cfg.Strategy = Average()
	}
	var err error
	cfg.OffsetDir, err = offsetDir(cfg.Model, cfg.OffsetDir)
	if cfg.Workers < 1 || cfg.BatchSize < 1 || cfg.PullBatch < 1 || cfg.MaxQueued < 1 || cfg.MaxRetries < 0 {
		return cfg, fmt.Errorf("client: consumer %s: a number in its configuration is out of range", cfg.Group)
	}
	return cfg, err
}

func offsetDir(m Model, dir string) (string, error) {
	if m != Broadcasting || dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("client: folder for offsets of broadcasting consumers: %w", err)
	}
	return filepath.Join(home, ".rocketmq_offsets"), nil
}

// Consumer hands the messages of its group's queues to a Handler. Delivery is at least once.
type Consumer struct {
	c       *Client
	cfg     ConsumerConfig
	g       *group
	handler Handler

	ctx    context.Context // of the handlers
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	started bool
}

// NewConsumer makes a consumer. Start begins.
func NewConsumer(c *Client, cfg ConsumerConfig, h Handler) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errors.New("client: consumer without a handler")
	}
	g, err := newGroup(c, groupConfig{name: cfg.Group, model: cfg.Model, ordered: cfg.Ordered, from: cfg.From, fromTime: cfg.StartTime,
		strategy: cfg.Strategy, pullBatch: cfg.PullBatch, maxCount: cfg.MaxQueued, maxBytes: cfg.MaxQueuedBytes, maxSpan: cfg.MaxSpan,
		hold: 15 * time.Second, commit: cfg.CommitInterval, rebalance: cfg.RebalanceInterval, drain: cfg.DrainTime, offsetDir: cfg.OffsetDir})
	if err != nil {
		return nil, err
	}
	for topic, expr := range cfg.Subscriptions {
		if err := g.subscribe(topic, expr); err != nil {
			return nil, err
		}
	}
	if cfg.Model == Clustering {
		if err := g.subscribe(message.RetryTopic(cfg.Group), "*"); err != nil {
			return nil, err
		}
	}
	n := &Consumer{c: c, cfg: cfg, g: g, handler: h}
	g.direct = n.direct
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// Subscribe adds a topic, or changes its tags; at any time.
func (n *Consumer) Subscribe(topic, expr string) error { return n.g.subscribe(topic, expr) }

// Unsubscribe removes a topic; at any time.
func (n *Consumer) Unsubscribe(topic string) { n.g.unsubscribe(topic) }

// Start joins the group and begins. It fails when no name server can be asked; topics that do not exist yet are waited for.
func (n *Consumer) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started {
		return fmt.Errorf("client: consumer %s was started before", n.cfg.Group)
	}
	if err := n.g.start(ctx); err != nil {
		return err
	}
	n.started = true
	for range n.cfg.Workers {
		n.wg.Add(1)
		go func() {
			defer n.wg.Done()
			n.work()
		}()
	}
	return nil
}

// Close stops fetching, waits for the handlers that run until ctx ends, stores the offsets and leaves the group. Messages that were not
// handed out are delivered to another member. Twice is fine.
func (n *Consumer) Close(ctx context.Context) error {
	defer n.cancel()
	return n.g.close(ctx, func(ctx context.Context) error {
		ended := make(chan struct{})
		go func() {
			n.wg.Wait()
			close(ended)
		}()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			n.cancel()
			return fmt.Errorf("close consumer %s: handlers still run: %w", n.cfg.Group, ctx.Err())
		}
	})
}

// Queues lists the queues that this member reads now.
func (n *Consumer) Queues() []Queue { return n.g.queues() }

// Pause stops fetching and handing out of all queues; handlers that run end. Resume goes on.
func (n *Consumer) Pause() { n.g.pauseAll(true) }

// Resume ends Pause.
func (n *Consumer) Resume() { n.g.pauseAll(false) }

func (g *group) pauseAll(on bool) {
	for _, s := range g.list() {
		s.pause(on)
	}
}

// work is one worker's goroutine.
func (n *Consumer) work() {
	for {
		s := n.g.sched.next(n.ctx)
		if s == nil {
			return
		}
		items := s.take(n.cfg.BatchSize)
		if len(items) == 0 {
			continue
		}
		if !n.cfg.Ordered && s.hasReady() {
			n.g.sched.push(s)
		}
		err := n.handle(s, items)
		n.settle(s, items, err)
		if n.cfg.Ordered && s.hasReady() {
			n.g.sched.push(s)
		}
	}
}

// handle calls the application.
func (n *Consumer) handle(s *source, items []*item) error {
	msgs := make([]*Received, len(items))
	for i, it := range items {
		msgs[i] = &it.Received
	}
	started := time.Now()
	err := n.call(msgs)
	if hook := n.c.cfg.Hooks.Handled; hook != nil {
		hook(HandledEvent{n.cfg.Group, s.q, len(items), time.Since(started), err})
	}
	return err
}

func (n *Consumer) call(msgs []*Received) (err error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.ConsumeTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("handler panicked: %v", r)
			n.g.log.Error("handler panicked", "message", msgs[0].String(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return n.handler(ctx, msgs)
}

// settle does what the handler's result asks for.
func (n *Consumer) settle(s *source, items []*item, err error) {
	if err == nil {
		s.done(items)
		return
	}
	n.g.log.Info("message not consumed", "message", items[0].String(), "id", items[0].ID(), "times", items[0].ReconsumeTimes, "error", err)
	if n.cfg.Ordered {
		n.settleOrdered(s, items, err)
		return
	}
	if n.cfg.Model == Broadcasting {
		s.done(items) // there is no retry topic that only we would read
		return
	}
	level := 0
	var retry *RetryError
	if errors.As(err, &retry) {
		level = retry.Level
	}
	var back, stuck []*item
	for _, it := range items {
		if err := n.g.sendBack(n.ctx, &it.Received, level, n.cfg.MaxRetries); err != nil {
			n.g.log.Warn("send message back; it is kept here and tried again", "message", it.String(), "error", err)
			it.ReconsumeTimes++
			stuck = append(stuck, it)
			continue
		}
		back = append(back, it)
	}
	s.done(back)
	if len(stuck) > 0 {
		n.g.after(keepTime, func() {
			s.giveBack(stuck)
			n.g.sched.push(s)
		})
	}
}

// keepTime is how long a message that could not be sent back waits here.
const keepTime = 5 * time.Second

// settleOrdered keeps failed messages in their place, except those that have used up their tries.
func (n *Consumer) settleOrdered(s *source, items []*item, err error) {
	var retry *RetryError
	dead := errors.As(err, &retry) && retry.Level < 0
	var gone, kept []*item
	for _, it := range items {
		if dead || n.cfg.MaxRetries > 0 && it.ReconsumeTimes >= n.cfg.MaxRetries {
			switch err := n.giveUp(&it.Received); {
			case err == nil:
				gone = append(gone, it)
				continue
			default:
				n.g.log.Warn("move message to the dead letter topic", "message", it.String(), "error", err)
			}
		}
		it.ReconsumeTimes++
		kept = append(kept, it)
	}
	s.done(gone)
	if len(kept) > 0 {
		s.suspend(kept, n.cfg.SuspendTime)
	}
}

func (n *Consumer) giveUp(r *Received) error {
	if n.cfg.Model == Broadcasting {
		return nil
	}
	return n.g.sendBack(n.ctx, r, -1, n.cfg.MaxRetries)
}

// direct hands one message to the handler, for a tool that asked for it.
func (n *Consumer) direct(r *Received) error { return n.call([]*Received{r}) }

package client

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Model tells whether the members of a group share the messages or each gets all.
type Model int

// Values of Model.
const (
	Clustering Model = iota
	Broadcasting
)

// StartFrom tells where a group begins that has no offset yet. RocketMQ's brokers begin at 0 whatever it says while the first message of the
// queue is still in memory.
type StartFrom int

// Values of StartFrom.
const (
	FromLast StartFrom = iota
	FromFirst
	FromTime // the first message stored at StartTime or later
)

// groupConfig is what Consumer and Puller have in common, with all defaults in place.
type groupConfig struct {
	name      string
	model     Model
	ordered   bool
	lite      bool // pulls with LITE_PULL_MESSAGE and is listed as active
	manual    bool // queues are assigned, not shared out
	from      StartFrom
	fromTime  time.Time
	strategy  Strategy
	pullBatch int
	maxCount  int   // messages held per queue
	maxBytes  int64 // bytes held per queue
	maxSpan   int64 // from the first message not done to the last one held
	hold      time.Duration
	commit    time.Duration
	rebalance time.Duration
	drain     time.Duration
	offsetDir string
}

// group is this client's membership in a consumer group: what it subscribed to and the queues it has now. One goroutine shares queues out
// and commits offsets; each queue's source has one that fetches.
type group struct {
	c       *Client
	cfg     groupConfig
	log     *slog.Logger
	offsets offsetStore
	sched   *scheduler
	direct  func(*Received) error // hands a message to the application; nil for pullers
	started time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kicks  chan struct{}

	mu       sync.Mutex
	subs     map[string]*subscription
	sources  map[Queue]*source // those we read
	leaving  map[Queue]*source // dropped, their handlers still run
	assigned []Queue           // of a manual group
	running  bool
	closed   bool
	timers   map[*time.Timer]struct{}
}

func newGroup(c *Client, cfg groupConfig) (*group, error) {
	if err := message.ValidateGroup(cfg.name); err != nil {
		return nil, fmt.Errorf("client: consumer group %q: %w", cfg.name, err)
	}
	g := &group{c: c, cfg: cfg, log: c.log.With("group", cfg.name), kicks: make(chan struct{}, 1), subs: map[string]*subscription{},
		sources: map[Queue]*source{}, leaving: map[Queue]*source{}, timers: map[*time.Timer]struct{}{}}
	g.ctx, g.cancel = context.WithCancel(c.ctx)
	g.sched = newScheduler()
	g.started = time.Now()
	if cfg.model == Broadcasting {
		g.offsets = newFileOffsets(c, cfg)
	} else {
		g.offsets = &brokerOffsets{c: c, group: cfg.name}
	}
	return g, nil
}

// subscribe adds or replaces a subscription.
func (g *group) subscribe(topic, expr string) error {
	if err := message.ValidateTopic(topic); err != nil && !message.IsRetryTopic(topic) {
		return &MessageError{topic, err.Error()}
	}
	s, err := parseSubscription(topic, expr)
	if err != nil {
		return err
	}
	g.mu.Lock()
	if old := g.subs[topic]; old != nil && s.version <= old.version {
		s.version = old.version + 1 // brokers take only newer ones
	}
	g.subs[topic] = s
	for q, src := range g.sources {
		if q.Topic == topic {
			src.setSubscription(s)
		}
	}
	running := g.running
	g.mu.Unlock()
	if running {
		g.c.askBeat()
		g.wake()
	}
	return nil
}

func (g *group) unsubscribe(topic string) {
	g.mu.Lock()
	delete(g.subs, topic)
	g.mu.Unlock()
	g.c.askBeat()
	g.wake()
}

func (g *group) wants(topic string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.subs[topic] != nil
}

func (g *group) topics() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]string, 0, len(g.subs))
	for t := range g.subs {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// describe is the group's part of a heartbeat. Manual groups are no members and have none.
func (g *group) describe() (protocol.ConsumerData, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := protocol.ConsumerData{GroupName: g.cfg.name, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
		ConsumeFromWhere: protocol.FromLastOffset, SubscriptionDataSet: []protocol.SubscriptionData{}}
	if g.cfg.lite {
		d.ConsumeType = protocol.ConsumeActively
	}
	if g.cfg.model == Broadcasting {
		d.MessageModel = protocol.Broadcasting
	}
	switch g.cfg.from {
	case FromFirst:
		d.ConsumeFromWhere = protocol.FromFirstOffset
	case FromTime:
		d.ConsumeFromWhere = protocol.FromTimestamp
	}
	for _, s := range g.subs {
		d.SubscriptionDataSet = append(d.SubscriptionDataSet, s.wire())
	}
	return d, !g.cfg.manual && !g.closed
}

// wake asks for the queues to be shared out again, soon.
func (g *group) wake() {
	select {
	case g.kicks <- struct{}{}:
	default:
	}
}

// start joins the group. It fails when no name server can be asked; a topic that is missing is waited for.
func (g *group) start(ctx context.Context) error {
	for _, topic := range g.topics() {
		if _, err := g.c.Route(ctx, topic); err != nil && code(err) < 0 {
			return err
		}
	}
	if err := g.c.addGroup(g); err != nil {
		return err
	}
	g.mu.Lock()
	g.running = true
	g.mu.Unlock()
	if !g.cfg.manual {
		g.c.beatAll(ctx)
	}
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		g.loop()
	}()
	return nil
}

// again is how soon a distribution is repeated that could not be made completely, the first time.
const again = 500 * time.Millisecond

func (g *group) loop() {
	tick := time.NewTicker(g.cfg.rebalance)
	defer tick.Stop()
	commit := time.NewTicker(g.cfg.commit)
	defer commit.Stop()
	relock := time.NewTicker(lockInterval)
	defer relock.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	incomplete := 0
	share := func() {
		if g.shareOut(g.ctx) {
			incomplete = 0
			return
		}
		soon.Reset(backoff(incomplete, again, g.cfg.rebalance))
		incomplete++
	}
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.kicks:
			share()
		case <-soon.C:
			share()
		case <-tick.C:
			share()
		case <-commit.C:
			if err := g.commitAll(g.ctx); err != nil && g.ctx.Err() == nil {
				g.log.Warn("commit offsets", "error", err)
			}
		case <-relock.C:
			if g.cfg.ordered {
				g.relock(g.ctx)
			}
		}
	}
}

// list returns the sources that are read now.
func (g *group) list() []*source {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*source, 0, len(g.sources))
	for _, s := range g.sources {
		out = append(out, s)
	}
	return out
}

func (g *group) source(q Queue) *source {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[q]
}

// queues lists the queues that are read now, sorted.
func (g *group) queues() []Queue {
	var out []Queue
	for _, s := range g.list() {
		out = append(out, s.q)
	}
	slices.SortFunc(out, compareQueues)
	return out
}

// commitAll stores the offsets that moved.
func (g *group) commitAll(ctx context.Context) error { return g.commitSources(ctx, g.list()) }

func (g *group) commitSources(ctx context.Context, list []*source) error {
	moved := map[Queue]int64{}
	by := map[Queue]*source{}
	for _, s := range list {
		if off, ok := s.uncommitted(); ok {
			moved[s.q], by[s.q] = off, s
		}
	}
	if len(moved) == 0 {
		return nil
	}
	done, err := g.offsets.commit(ctx, moved)
	for _, q := range done {
		by[q].committedTo(moved[q])
	}
	return err
}

// sourceEnded is called by a source's goroutine as its last act.
func (g *group) sourceEnded(s *source) {
	g.mu.Lock()
	if g.leaving[s.q] == s {
		delete(g.leaving, s.q)
	}
	if g.sources[s.q] == s {
		delete(g.sources, s.q)
	}
	closed := g.closed
	g.mu.Unlock()
	if !closed {
		g.wake()
	}
}

// after calls fn later, unless the group is closed before. fn must not block.
func (g *group) after(d time.Duration, fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		g.mu.Lock()
		_, mine := g.timers[t]
		delete(g.timers, t)
		g.mu.Unlock()
		if mine {
			fn()
		}
	})
	g.timers[t] = struct{}{}
}

// close leaves the group: fetching stops, what is in the application's hands may end until ctx does, offsets are stored, brokers told.
// stop is called when no more messages are handed out and must return when the application's functions have.
func (g *group) close(ctx context.Context, stop func(context.Context) error) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	for t := range g.timers {
		t.Stop()
	}
	clear(g.timers)
	list := make([]*source, 0, len(g.sources))
	for _, s := range g.sources {
		list = append(list, s)
	}
	running := g.running
	g.mu.Unlock()

	for _, s := range list {
		s.halt()
	}
	g.sched.close()
	err := stop(ctx)
	if running {
		if cerr := g.commitSources(ctx, list); cerr != nil && err == nil {
			err = fmt.Errorf("close consumer %s: %w", g.cfg.name, cerr)
		}
		if g.cfg.ordered {
			g.unlock(ctx, list)
		}
	}
	g.cancel()
	for _, s := range list {
		s.cancel()
	}
	g.wg.Wait()
	g.c.dropGroup(g)
	if running && !g.cfg.manual {
		g.c.unregister(context.WithoutCancel(ctx), "", g.cfg.name)
	}
	return err
}

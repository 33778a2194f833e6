package client

import (
	"context"
	"strconv"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Bits of a pull's sysFlag.
const (
	pullCommits   = 1
	pullSuspends  = 2
	pullSubscribe = 4
	pullLite      = 16
)

// PullRequest asks for messages of one queue.
type PullRequest struct {
	Group  string // must be allowed to consume; it need not have members
	Queue  Queue
	Offset int64
	Max    int           // messages, 32 when 0
	Bytes  int           // of the answer, 0 for the broker's limit
	Expr   string        // tags or SQL(...); empty for all
	Hold   time.Duration // how long the broker may wait for messages; 0 for not at all
}

// PullStatus is what became of a pull.
type PullStatus int

// Values of PullStatus.
const (
	PullFound   PullStatus = iota
	PullNone               // nothing there yet
	PullNoMatch            // there were messages, none matched
	PullMoved              // the offset is outside the queue; Next is inside
)

// PullResult is the answer to a pull.
type PullResult struct {
	Status   PullStatus
	Messages []Received
	Next     int64 // where the next pull should begin
	Min, Max int64 // bounds of the queue
	Suggest  int64 // broker id to ask next time
}

// Pull asks once. The route is read again when the broker cannot be reached, for the next call. Errors: *RouteError, *ServerError, the
// transport's.
func (c *Client) Pull(ctx context.Context, req PullRequest) (PullResult, error) {
	sub, err := parseSubscription(req.Queue.Topic, req.Expr)
	if err != nil {
		return PullResult{}, err
	}
	r, err := c.Route(ctx, req.Queue.Topic)
	if err != nil {
		return PullResult{}, err
	}
	addr, _ := r.Any(req.Queue.Broker, 0)
	if addr == "" {
		return PullResult{}, &RouteError{Topic: req.Queue.Topic}
	}
	p := pull{group: req.Group, q: req.Queue, offset: req.Offset, max: req.Max, bytes: req.Bytes, hold: req.Hold, sub: sub, flags: pullSubscribe,
		commit: -1}
	setDefault(&p.max, 32)
	res, err := c.pull(ctx, addr, &p)
	if err == nil {
		kept := res.Messages[:0]
		for _, m := range res.Messages {
			if tags, _ := message.Property(m.props, message.PropTags); sub.matches(tags) {
				kept = append(kept, m)
			}
		}
		res.Messages = kept
	} else if unreachable(err) || notServing(err) {
		c.staleRoute(req.Queue.Topic)
	}
	return res, err
}

// staleRoute asks for a route in the background.
func (c *Client) staleRoute(topic string) {
	c.spawn(func() {
		if _, err := c.RefreshRoute(c.ctx, topic, time.Now()); err != nil && c.ctx.Err() == nil {
			c.log.Debug("refresh route", "topic", topic, "error", err)
		}
	})
}

type pull struct {
	group  string
	q      Queue
	offset int64
	max    int
	bytes  int
	hold   time.Duration
	sub    *subscription
	flags  int64
	commit int64 // offset to store on the way, -1 for none
	lite   bool
}

// pullMargin is how much longer than the broker may hold a pull its answer is waited for.
const pullMargin = 10 * time.Second

func (c *Client) pull(ctx context.Context, addr string, p *pull) (PullResult, error) {
	f := &protocol.Ext{}
	f.Add("consumerGroup", p.group)
	f.Add("topic", p.q.Topic)
	f.AddInt("queueId", int64(p.q.ID))
	f.AddInt("queueOffset", p.offset)
	f.AddInt("maxMsgNums", int64(p.max))
	flags := p.flags
	if p.hold > 0 {
		flags |= pullSuspends
	}
	if p.commit >= 0 {
		flags |= pullCommits
	}
	code := protocol.ReqPullMessage
	if p.lite {
		code, flags = protocol.ReqLitePullMessage, flags|pullLite
	}
	f.AddInt("sysFlag", flags)
	f.AddInt("commitOffset", max(p.commit, 0))
	f.AddInt("suspendTimeoutMillis", p.hold.Milliseconds())
	if flags&pullSubscribe != 0 {
		f.Add("subscription", p.sub.expr)
	}
	f.AddInt("subVersion", p.sub.version)
	f.Add("expressionType", p.sub.kind)
	if p.bytes > 0 {
		f.AddInt("maxMsgBytes", int64(p.bytes))
	}
	f.Add("bname", p.q.Broker)
	cmd := &protocol.Command{Code: code, Version: protocol.Version, Fields: f}
	ctx, cancel := context.WithTimeout(ctx, p.hold+pullMargin)
	defer cancel()
	c.dress(addr, cmd)
	answer, err := c.rpc.Call(ctx, addr, cmd)
	if err != nil {
		return PullResult{}, c.wrap(addr, answer, err)
	}
	res := PullResult{}
	switch answer.Code {
	case protocol.Success:
	case protocol.PullNotFound:
		res.Status = PullNone
	case protocol.PullRetryImmediately:
		res.Status = PullNoMatch
	case protocol.PullOffsetMoved:
		res.Status = PullMoved
	default:
		return res, &ServerError{addr, answer.Code, answer.Remark}
	}
	for name, to := range map[string]*int64{"nextBeginOffset": &res.Next, "minOffset": &res.Min, "maxOffset": &res.Max,
		"suggestWhichBrokerId": &res.Suggest} {
		if *to, err = strconv.ParseInt(answer.Ext[name], 10, 64); err != nil {
			return res, &ServerError{addr, answer.Code, "pull answer without a valid " + name}
		}
	}
	if res.Status == PullFound {
		res.Messages, err = ParseRecords(answer.Body, p.q)
	}
	return res, err
}

// fetchAll fetches until the source is halted.
func (s *source) fetchAll() {
	fails := 0
	var failed time.Time // of the last pull; zero when it succeeded
	for s.ctx.Err() == nil {
		if !s.hasRoom() {
			select {
			case <-s.room:
			case <-s.ctx.Done():
			}
			continue
		}
		if s.g.cfg.ordered && !s.lockFresh() {
			if !s.sleep(time.Second) {
				return
			}
			continue
		}
		err := s.fetch(failed)
		if err == nil {
			fails, failed = 0, time.Time{}
			continue
		}
		failed = time.Now()
		if s.ctx.Err() != nil {
			return
		}
		if !s.sleep(s.recover(err, fails)) {
			return
		}
		fails++
	}
}

// recover reacts to a failed fetch and tells how long to wait.
func (s *source) recover(err error, fails int) time.Duration {
	if fails == 0 {
		s.g.log.Info("pull failed", "queue", s.q, "error", err)
	} else {
		s.g.log.Debug("pull failed", "queue", s.q, "error", err)
	}
	switch code(err) {
	case protocol.FlowControl:
		return 20 * time.Millisecond
	case protocol.SubscriptionNotExist, protocol.SubscriptionNotLatest:
		return backoff(fails, 50*time.Millisecond, 3*time.Second) // the next attempt introduces us first
	case protocol.SystemBusy:
		return backoff(fails, 50*time.Millisecond, time.Second)
	}
	if unreachable(err) || notServing(err) || code(err) < 0 {
		s.refreshRoute()
		return backoff(fails, 50*time.Millisecond, 2*time.Second)
	}
	return backoff(fails, 200*time.Millisecond, 3*time.Second)
}

// fetch makes one pull. After a failure, at failed, it introduces us first: a broker that was restarted knows no group.
func (s *source) fetch(failed time.Time) error {
	c := s.g.c
	s.mu.Lock()
	p := pull{group: s.g.cfg.name, q: s.q, offset: s.next, max: s.g.cfg.pullBatch, hold: s.g.cfg.hold, sub: s.sub, commit: -1, lite: s.g.cfg.lite}
	gen, prefer := s.gen, s.prefer
	at := s.positionLocked()
	if s.g.cfg.model == Clustering && at > 0 && !s.lost && !s.g.cfg.lite {
		p.commit = at
	}
	s.mu.Unlock()
	if s.g.cfg.lite || p.sub.kind == typeTag && s.g.cfg.model == Broadcasting {
		p.flags = pullSubscribe
	}
	r, err := c.Route(s.ctx, s.q.Topic)
	if err != nil {
		return err
	}
	addr, id := r.Any(s.q.Broker, prefer)
	if addr == "" {
		return &RouteError{Topic: s.q.Topic}
	}
	if id != 0 {
		p.commit = -1 // replicas keep no offsets of their own
	}
	if !failed.IsZero() && !s.g.cfg.manual {
		if err := c.introduce(s.ctx, addr, failed); err != nil {
			return err
		}
		if err := s.reclaim(); err != nil || s.ctx.Err() != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.mu.Lock()
	s.abort = cancel
	if s.gen != gen { // a seek came in between
		cancel()
	}
	s.mu.Unlock()
	started := time.Now()
	res, err := c.pull(ctx, addr, &p)
	if err != nil && ctx.Err() != nil && s.ctx.Err() == nil {
		return nil // interrupted
	}
	if hook := c.cfg.Hooks.Pulled; hook != nil && s.ctx.Err() == nil {
		size := 0
		for i := range res.Messages {
			size += len(res.Messages[i].Body)
		}
		hook(PulledEvent{s.g.cfg.name, s.q, len(res.Messages), size, time.Since(started), err})
	}
	if err != nil {
		return err
	}
	if p.commit >= 0 {
		s.mu.Lock()
		if s.gen == gen && res.Status != PullMoved {
			s.saved = p.commit
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.prefer = res.Suggest
	s.mu.Unlock()
	if res.Status == PullMoved {
		return s.moved(gen, p.offset, res)
	}
	items := s.keep(res.Messages, p.offset)
	if s.add(gen, items, max(res.Next, p.offset)) {
		s.g.sched.push(s)
	}
	return nil
}

// moved follows a broker that says that the offset is outside the queue, or was reset.
func (s *source) moved(gen uint32, offset int64, res PullResult) error {
	s.mu.Lock()
	current := s.gen == gen
	s.mu.Unlock()
	if !current {
		return nil
	}
	s.g.log.Warn("offset moved by the broker", "queue", s.q, "from", offset, "to", res.Next, "min", res.Min, "max", res.Max)
	s.seek(res.Next)
	if err := s.g.commitSources(s.ctx, []*source{s}); err != nil {
		return err
	}
	if res.Next == offset { // a broker that repeats itself must not be asked in a circle
		s.sleep(time.Second)
	}
	return nil
}

// keep drops what the subscription does not want, what is below the offset asked for, and gives retried messages their own topic back.
func (s *source) keep(list []Received, offset int64) []*item {
	items := make([]*item, 0, len(list))
	s.mu.Lock()
	sub := s.sub
	s.mu.Unlock()
	block := make([]item, len(list))
	retry := message.IsRetryTopic(s.q.Topic)
	for i := range list {
		m := &list[i]
		if m.QueueOffset < offset {
			continue
		}
		if tags, _ := message.Property(m.props, message.PropTags); !sub.matches(tags) {
			continue
		}
		if retry {
			if topic := m.Property(message.PropRetryTopic); topic != "" {
				m.Topic = topic
			}
		}
		block[i].Received = *m
		items = append(items, &block[i])
	}
	return items
}

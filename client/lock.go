package client

import (
	"context"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// An ordered member reads a queue only while it holds the queue's lock at the broker, which lasts 60 s there.
const (
	lockInterval = 20 * time.Second // how often locks are confirmed
	lockLife     = 30 * time.Second // how long one counts after it was confirmed
)

func (g *group) needsLocks() bool { return g.cfg.ordered && g.cfg.model == Clustering }

// lock asks for queues and returns those that are ours now. Brokers that cannot be asked lock nothing.
func (g *group) lock(ctx context.Context, queues []Queue) (locked []Queue) {
	for broker, list := range byBroker(queues) {
		ours, err := g.lockAt(ctx, broker, list)
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("lock queues", "broker", broker, "error", err)
			}
			continue
		}
		for _, q := range list {
			if ours[q] {
				locked = append(locked, q)
			}
		}
	}
	return locked
}

func byBroker(queues []Queue) map[string][]Queue {
	m := map[string][]Queue{}
	for _, q := range queues {
		m[q.Broker] = append(m[q.Broker], q)
	}
	return m
}

func (g *group) lockAt(ctx context.Context, broker string, queues []Queue) (map[Queue]bool, error) {
	answer, err := g.lockCall(ctx, protocol.ReqLockBatchMQ, broker, queues)
	if err != nil {
		return nil, err
	}
	var body protocol.LockBatchResponseBody
	if err := fastjson.Unmarshal(answer.Body, &body); err != nil {
		return nil, err
	}
	ours := map[Queue]bool{}
	for _, m := range body.LockOKMQSet {
		ours[queueOf(m)] = true
	}
	return ours, nil
}

func (g *group) lockCall(ctx context.Context, request int32, broker string, queues []Queue) (*protocol.Command, error) {
	var addr string
	for _, q := range queues {
		if r := g.c.routes.known(q.Topic); r != nil && r.Master(broker) != "" {
			addr = r.Master(broker)
			break
		}
	}
	if addr == "" {
		return nil, &RouteError{Topic: queues[0].Topic}
	}
	req := protocol.LockBatchRequestBody{ClientID: g.c.id, ConsumerGroup: g.cfg.name, MQSet: []protocol.MessageQueue{}}
	for _, q := range queues {
		req.MQSet = append(req.MQSet, q.wire())
	}
	body, err := fastjson.Marshal(&req)
	if err != nil {
		return nil, err
	}
	answer, err := g.c.Call(ctx, addr, protocol.NewRequest(request, nil, body))
	if unreachable(err) {
		g.c.staleRoute(queues[0].Topic)
	}
	return answer, err
}

// relock confirms all locks. A queue that is no longer ours, or was not for too long, is given up: someone else may have read on.
func (g *group) relock(ctx context.Context) {
	if !g.needsLocks() {
		return
	}
	byQueue := map[Queue]*source{}
	var queues []Queue
	for _, s := range g.list() {
		byQueue[s.q] = s
		queues = append(queues, s.q)
	}
	for broker, list := range byBroker(queues) {
		ours, err := g.lockAt(ctx, broker, list)
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("confirm locks", "broker", broker, "error", err)
			}
			continue
		}
		for _, q := range list {
			s := byQueue[q]
			if !ours[q] || !s.lockFresh() {
				g.log.Warn("lock of a queue is lost", "queue", q)
				g.giveUp(s)
				g.wake()
				continue
			}
			s.confirmLock()
		}
	}
}

// reclaim locks the source's queue again after its broker was lost: one that was restarted remembers no locks, and another member may have been
// faster. Then the source is given up, which ends its context.
func (s *source) reclaim() error {
	if !s.g.needsLocks() {
		return nil
	}
	ours, err := s.g.lockAt(s.ctx, s.q.Broker, []Queue{s.q})
	if err != nil {
		return err
	}
	if !ours[s.q] || !s.lockFresh() {
		s.g.log.Warn("lock of a queue is lost", "queue", s.q)
		s.g.giveUp(s)
		s.g.wake()
		return nil
	}
	s.confirmLock()
	return nil
}

// unlock gives queues back. Best effort: a lock ends by itself.
func (g *group) unlock(ctx context.Context, list []*source) {
	if !g.needsLocks() {
		return
	}
	var queues []Queue
	for _, s := range list {
		if !s.isLost() {
			queues = append(queues, s.q)
		}
	}
	for broker, qs := range byBroker(queues) {
		if _, err := g.lockCall(ctx, protocol.ReqUnlockBatchMQ, broker, qs); err != nil && ctx.Err() == nil {
			g.log.Debug("unlock queues", "broker", broker, "error", err)
		}
	}
}

func (s *source) confirmLock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedAt = time.Now()
}

func (s *source) lockFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lockFreshLocked()
}

func (s *source) lockFreshLocked() bool {
	return !s.g.needsLocks() || time.Since(s.lockedAt) <= lockLife
}

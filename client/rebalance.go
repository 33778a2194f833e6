package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// shareOut brings the queues that are read in line with those that are ours: it asks who is in the group and applies the strategy. What
// cannot be found out leaves a topic as it is; the result is then false.
func (g *group) shareOut(ctx context.Context) (complete bool) {
	complete = true
	g.mu.Lock()
	subs := make([]*subscription, 0, len(g.subs))
	for _, s := range g.subs {
		subs = append(subs, s)
	}
	assigned := slices.Clone(g.assigned)
	g.mu.Unlock()

	want := map[Queue]*subscription{}
	unknown := map[string]bool{} // topics to leave as they are
	if g.cfg.manual {
		byTopic := map[string]*subscription{}
		for _, s := range subs {
			byTopic[s.topic] = s
		}
		for _, q := range assigned {
			sub := byTopic[q.Topic]
			if sub == nil {
				sub = &subscription{topic: q.Topic, expr: "*", kind: typeTag}
				byTopic[q.Topic] = sub
			}
			want[q] = sub
		}
	} else {
		for _, s := range subs {
			queues, err := g.share(ctx, s.topic)
			if err != nil {
				if ctx.Err() != nil {
					return true
				}
				g.log.Debug("share out queues", "topic", s.topic, "error", err)
				unknown[s.topic] = true
				complete = false
				continue
			}
			for _, q := range queues {
				want[q] = s
			}
		}
	}
	return g.apply(ctx, want, unknown) && complete
}

// share returns our queues of a topic.
func (g *group) share(ctx context.Context, topic string) ([]Queue, error) {
	r, err := g.c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	if g.cfg.model == Broadcasting {
		return r.Read, nil
	}
	members, err := g.members(ctx, r)
	if err != nil {
		return nil, err
	}
	strategy := g.cfg.strategy
	if message.IsRetryTopic(topic) {
		if _, ok := strategy.(fixed); ok {
			strategy = Average()
		}
	}
	return strategy.Allocate(g.c.id, r.Read, members), nil
}

// members asks a broker who is in the group. A list without us is an error: the broker forgot us, and is told again.
func (g *group) members(ctx context.Context, r *Route) ([]string, error) {
	brokers := r.Brokers()
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	var errs []error
	for _, broker := range brokers {
		addr, _ := r.Any(broker, 0)
		answer, err := g.c.Call(ctx, addr, protocol.NewRequest(protocol.ReqGetConsumerListByGroup, map[string]string{"consumerGroup": g.cfg.name}, nil))
		if err != nil {
			if code(err) == protocol.SystemError { // nobody there
				g.introduce(ctx, addr)
			} else if unreachable(err) {
				g.c.staleRoute(r.Topic)
			}
			errs = append(errs, err)
			continue
		}
		var list protocol.ConsumerList
		if err := fastjson.Unmarshal(answer.Body, &list); err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.Contains(list.ConsumerIDList, g.c.id) {
			g.introduce(ctx, addr)
			errs = append(errs, fmt.Errorf("%s does not list us in group %s yet", addr, g.cfg.name))
			continue
		}
		slices.Sort(list.ConsumerIDList)
		return slices.Compact(list.ConsumerIDList), nil
	}
	return nil, errors.Join(errs...)
}

func (g *group) introduce(ctx context.Context, addr string) {
	if err := g.c.introduce(ctx, addr, time.Now()); err != nil && ctx.Err() == nil {
		g.log.Debug("heartbeat", "addr", addr, "error", err)
	}
}

// apply gives up what is not wanted and begins what is new. A queue that was given up and is wanted back waits until its handlers have ended.
func (g *group) apply(ctx context.Context, want map[Queue]*subscription, unknown map[string]bool) (complete bool) {
	complete = true
	var event RebalancedEvent
	var drop []*source
	var fresh []Queue
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return true
	}
	for q, s := range g.sources {
		if want[q] == nil && !unknown[q.Topic] {
			delete(g.sources, q)
			g.leaving[q] = s
			drop = append(drop, s)
			event.Removed = append(event.Removed, q)
		}
	}
	for q := range want {
		switch {
		case g.sources[q] != nil:
		case g.leaving[q] != nil: // sourceEnded wakes us
		default:
			fresh = append(fresh, q)
		}
	}
	g.mu.Unlock()
	for _, s := range drop {
		s.halt()
	}
	slices.SortFunc(fresh, compareQueues)
	if g.needsLocks() && len(fresh) > 0 {
		locked := g.lock(ctx, fresh)
		if len(locked) < len(fresh) {
			complete = false // another member holds them still
		}
		fresh = locked
	}
	for _, q := range fresh {
		if g.begin(q, want[q]) {
			event.Added = append(event.Added, q)
		}
	}
	if hook := g.c.cfg.Hooks.Rebalanced; hook != nil && len(event.Added)+len(event.Removed) > 0 {
		event.Group = g.cfg.name
		hook(event)
	}
	return complete
}

// begin starts the source of a queue.
func (g *group) begin(q Queue, sub *subscription) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.sources[q] != nil || g.leaving[q] != nil {
		return false
	}
	s := newSource(g, q, sub)
	s.confirmLock()
	g.sources[q] = s
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		s.run()
	}()
	return true
}

// give up takes a source out at once, such as one whose lock is gone; it may come back with the next distribution.
func (g *group) giveUp(s *source) {
	g.mu.Lock()
	if g.sources[s.q] == s {
		delete(g.sources, s.q)
		g.leaving[s.q] = s
	}
	g.mu.Unlock()
	s.forfeit()
}

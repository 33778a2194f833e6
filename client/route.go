package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Route is where a topic is: which queues may be written and read, and the addresses of their brokers. It never changes; a newer one replaces it.
type Route struct {
	Topic string
	Write []Queue                     // sorted by broker and number
	Read  []Queue                     // sorted likewise
	Addrs map[string]map[int64]string // by broker name and broker id; 0 is the master
	// Created says that the topic does not exist yet: the queues are those that the brokers will create on the first message.
	Created bool

	at time.Time
}

// Master returns the address that writes to a broker go to, or "".
func (r *Route) Master(broker string) string { return r.Addrs[broker][0] }

// Any returns the address of a broker with a preferred id, else of the master, else of any replica, or "".
func (r *Route) Any(broker string, prefer int64) (addr string, id int64) {
	ids := r.Addrs[broker]
	for _, id := range []int64{prefer, 0} {
		if a := ids[id]; a != "" {
			return a, id
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		return ids[id], id
	}
	return "", 0
}

// Brokers returns the names of the topic's brokers, sorted.
func (r *Route) Brokers() []string { return slices.Sorted(maps.Keys(r.Addrs)) }

func (r *Route) same(o *Route) bool {
	return o != nil && r.Created == o.Created && slices.Equal(r.Write, o.Write) && slices.Equal(r.Read, o.Read) &&
		reflect.DeepEqual(r.Addrs, o.Addrs)
}

const (
	permRead  = 4
	permWrite = 2
)

// maxQueues bounds the queues of one broker's part of a route, whatever the answer says.
const maxQueues = 1 << 16

func newRoute(topic string, data *protocol.TopicRouteData) *Route {
	r := &Route{Topic: topic, Addrs: map[string]map[int64]string{}, at: time.Now()}
	for _, b := range data.BrokerDatas {
		if len(b.BrokerAddrs) > 0 {
			r.Addrs[b.BrokerName] = b.BrokerAddrs
		}
	}
	for _, q := range data.QueueDatas {
		ids := r.Addrs[q.BrokerName]
		if len(ids) == 0 {
			continue
		}
		if q.Perm&permWrite != 0 && ids[0] != "" {
			r.Write = appendQueues(r.Write, topic, q.BrokerName, q.WriteQueueNums)
		}
		if q.Perm&permRead != 0 {
			r.Read = appendQueues(r.Read, topic, q.BrokerName, q.ReadQueueNums)
		}
	}
	if data.OrderTopicConf != nil && *data.OrderTopicConf != "" {
		if ordered := orderQueues(topic, *data.OrderTopicConf); ordered != nil {
			r.Write = slices.DeleteFunc(ordered, func(q Queue) bool { return r.Master(q.Broker) == "" })
		}
	}
	slices.SortFunc(r.Write, compareQueues)
	slices.SortFunc(r.Read, compareQueues)
	return r
}

func appendQueues(dst []Queue, topic, broker string, n int32) []Queue {
	for id := range min(max(n, 0), maxQueues) {
		dst = append(dst, Queue{topic, broker, id})
	}
	return dst
}

// orderQueues reads broker-a:4;broker-b:4; nil when it is something else.
func orderQueues(topic, conf string) (out []Queue) {
	for part := range strings.SplitSeq(conf, ";") {
		broker, count, ok := strings.Cut(part, ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if !ok || err != nil {
			return nil
		}
		out = appendQueues(out, topic, broker, int32(n))
	}
	return out
}

// fetch is one question for a route that several may wait for.
type fetch struct {
	begun  time.Time
	urgent bool // a broker failed: every name server is asked at once
	done   chan struct{}
	route  *Route
	err    error
}

type topicState struct {
	route  *Route // nil: none known
	flight *fetch
	missed map[string]time.Time // brokers that went away, until when they are looked for more often
}

// missTime is how long a broker that went out of a route is looked for every second.
const missTime = 2 * time.Minute

// noteMissed compares a fresh route with the one before.
func (s *topicState) noteMissed(fresh *Route) {
	if s.route != nil {
		for broker := range s.route.Addrs {
			if fresh.Addrs[broker] == nil {
				if s.missed == nil {
					s.missed = map[string]time.Time{}
				}
				s.missed[broker] = time.Now().Add(missTime)
			}
		}
	}
	for broker, until := range s.missed {
		if fresh.Addrs[broker] != nil || time.Now().After(until) {
			delete(s.missed, broker)
		}
	}
}

// routeTable holds the routes of topics in use.
type routeTable struct {
	mu     sync.Mutex
	topics map[string]*topicState
}

func (t *routeTable) state(topic string) *topicState {
	s := t.topics[topic]
	if s == nil {
		s = &topicState{}
		t.topics[topic] = s
	}
	return s
}

// known returns the route at hand, or nil.
func (t *routeTable) known(topic string) *Route {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.topics[topic]; s != nil {
		return s.route
	}
	return nil
}

// missing lists the topics of which a broker is being looked for.
func (t *routeTable) missing() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, s := range t.topics {
		if len(s.missed) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (t *routeTable) all() (names []string, routes []*Route) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, s := range t.topics {
		names = append(names, name)
		if s.route != nil {
			routes = append(routes, s.route)
		}
	}
	return names, routes
}

// Route returns where a topic is, from memory if it was asked for before. A topic that does not exist is a *RouteError, as is one that no
// name server could be asked for.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	if r := c.routes.known(topic); r != nil && !r.Created {
		return r, nil
	}
	return c.RefreshRoute(ctx, topic, time.Time{})
}

// RefreshRoute asks a name server for a route unless the one at hand is younger than since (zero: ask in any case). Callers at the same time
// share one question. When the name servers cannot be asked, the route at hand is returned, if there is one.
func (c *Client) RefreshRoute(ctx context.Context, topic string, since time.Time) (*Route, error) {
	c.routes.mu.Lock()
	s := c.routes.state(topic)
	if !since.IsZero() && s.route != nil && s.route.at.After(since) {
		r := s.route
		c.routes.mu.Unlock()
		return r, nil
	}
	f := s.flight
	if f == nil {
		f = &fetch{begun: time.Now(), urgent: !since.IsZero(), done: make(chan struct{})}
		if !c.spawn(func() { c.fly(topic, f) }) {
			c.routes.mu.Unlock()
			return nil, ErrClosed
		}
		s.flight = f
	}
	c.routes.mu.Unlock()
	select {
	case <-f.done:
		return f.route, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fly asks, puts the answer in place and wakes those who wait.
func (c *Client) fly(topic string, f *fetch) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.RequestTimeout)
	defer cancel()
	fresh, err := c.askRoute(ctx, topic, f.urgent)
	c.routes.mu.Lock()
	s := c.routes.state(topic)
	old := s.route
	s.flight = nil
	if err == nil {
		s.noteMissed(fresh)
	}
	switch {
	case err == nil && fresh.same(old):
		renewed := *old
		renewed.at = fresh.at
		s.route = &renewed
	case err == nil:
		s.route = fresh
	}
	f.route = s.route
	if f.route == nil {
		f.err = &RouteError{topic, err}
	}
	c.routes.mu.Unlock()
	close(f.done)
	if err == nil && !fresh.same(old) {
		c.routeChanged(fresh)
	}
}

func (c *Client) askRoute(ctx context.Context, topic string, urgent bool) (*Route, error) {
	cmd := protocol.NewRequest(protocol.ReqGetRouteInfoByTopic, map[string]string{"topic": topic}, nil)
	if urgent && len(c.ns.addrs) > 1 {
		return c.newestRoute(ctx, topic, cmd)
	}
	answer, err := c.CallNameServer(ctx, cmd)
	if err != nil {
		return nil, err
	}
	data, err := parseRoute(topic, answer)
	if err != nil {
		return nil, err
	}
	return newRoute(topic, data), nil
}

func parseRoute(topic string, answer *protocol.Command) (*protocol.TopicRouteData, error) {
	var data protocol.TopicRouteData
	if err := fastjson.Unmarshal(answer.Body, &data); err != nil {
		return nil, fmt.Errorf("read route of %s: %w", topic, err)
	}
	return &data, nil
}

// lateAnswers is how long the other name servers may take after the first has answered.
const lateAnswers = 100 * time.Millisecond

// newestRoute asks every name server at once, since each learns of a new master on its own. Of each broker the answer with
// the highest epoch of its master counts; without epochs, that of the name server in use.
func (c *Client) newestRoute(ctx context.Context, topic string, cmd *protocol.Command) (*Route, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		n    int
		data *protocol.TopicRouteData
		err  error
	}
	current := int(c.ns.current.Load()) % len(c.ns.addrs)
	results := make(chan result, len(c.ns.addrs))
	for n, addr := range c.ns.addrs {
		try := *cmd
		if !c.spawn(func() {
			answer, err := c.Call(ctx, addr, &try)
			var data *protocol.TopicRouteData
			if err == nil {
				data, err = parseRoute(topic, answer)
			}
			results <- result{n, data, err}
		}) {
			return nil, ErrClosed
		}
	}
	var base *protocol.TopicRouteData
	var refused error
	var errs []error
	brokers := map[string]protocol.BrokerData{}
	var late <-chan time.Time
	for open := len(c.ns.addrs); open > 0; open-- {
		var r result
		select {
		case r = <-results:
		case <-late:
			open = 1
			continue
		}
		if late == nil && (r.err == nil || code(r.err) >= 0) {
			timer := time.NewTimer(lateAnswers)
			defer timer.Stop()
			late = timer.C
		}
		if r.err != nil {
			if code(r.err) >= 0 {
				refused = r.err // it does not know the topic
			}
			errs = append(errs, r.err)
			continue
		}
		if base == nil || r.n == current {
			base = r.data
		}
		for _, b := range r.data.BrokerDatas {
			if have, ok := brokers[b.BrokerName]; !ok || b.MasterEpoch > have.MasterEpoch || b.MasterEpoch == have.MasterEpoch && r.n == current {
				brokers[b.BrokerName] = b
			}
		}
	}
	switch {
	case base != nil:
	case refused != nil:
		return nil, refused
	default:
		return nil, errors.Join(errs...)
	}
	merged := *base
	merged.BrokerDatas = slices.Clone(base.BrokerDatas)
	for i, b := range merged.BrokerDatas {
		merged.BrokerDatas[i] = brokers[b.BrokerName]
	}
	return newRoute(topic, &merged), nil
}

// autoCreateQueues is how many queues a producer wishes for a topic that brokers create.
const autoCreateQueues = 4

// publishRoute is Route for a producer: a topic that does not exist yet gets the brokers that would create it.
func (c *Client) publishRoute(ctx context.Context, topic string, since time.Time) (*Route, error) {
	var r *Route
	var err error
	if known := c.routes.known(topic); since.IsZero() && known != nil {
		r = known
	} else {
		r, err = c.RefreshRoute(ctx, topic, since)
	}
	if err == nil {
		if len(r.Write) == 0 {
			return nil, &RouteError{topic, errors.New("no broker lets it be written")}
		}
		return r, nil
	}
	if code(err) != protocol.TopicNotExist {
		return nil, err
	}
	base, err2 := c.Route(ctx, message.TopicDefault)
	if err2 != nil {
		return nil, err // the topic is missing; whether topics are created by themselves does not matter to the caller
	}
	r = &Route{Topic: topic, Addrs: base.Addrs, Created: true, at: time.Now()}
	for _, q := range base.Read {
		if q.ID < autoCreateQueues && base.Master(q.Broker) != "" {
			r.Write = append(r.Write, Queue{topic, q.Broker, q.ID})
		}
	}
	if len(r.Write) == 0 {
		return nil, err
	}
	return r, nil
}

// Package stats counts what a broker puts and hands out, by topic, queue and group, and turns the counts into the sums
// and rates of a minute, an hour and a day that RocketMQ's admin tools ask for (request 315).
//
// The main type is Set. produce, pull and the send-back handler count into it, a few atomic additions for a request
// and no allocation once a topic is known; admin reads it. It never decides anything.
package stats

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Names of the item sets.
const (
	TopicPutNums     = "TOPIC_PUT_NUMS"                       // key topic
	TopicPutSize     = "TOPIC_PUT_SIZE"                       // key topic
	QueuePutNums     = "QUEUE_PUT_NUMS"                       // key topic@queue
	QueuePutSize     = "QUEUE_PUT_SIZE"                       // key topic@queue
	GroupGetNums     = "GROUP_GET_NUMS"                       // key topic@group
	GroupGetSize     = "GROUP_GET_SIZE"                       // key topic@group
	QueueGetNums     = "QUEUE_GET_NUMS"                       // key topic@queue@group
	QueueGetSize     = "QUEUE_GET_SIZE"                       // key topic@queue@group
	SendBackPutNums  = "SNDBCK_PUT_NUMS"                      // key topic@group
	DLQPutNums       = "DLQ_PUT_NUMS"                         // key topic@group
	BrokerPutNums    = "BROKER_PUT_NUMS"                      // key cluster
	BrokerGetNums    = "BROKER_GET_NUMS"                      // key cluster
	BrokerPutNumsOwn = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC" // key cluster
	BrokerGetNumsOwn = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC" // key cluster
)

// Set is all counters of one broker.
type Set struct {
	cluster string
	system  func(topic string) bool
	detail  func() bool

	brokerPut, brokerGet, brokerPutOwn, brokerGetOwn *Item

	topics atomic.Pointer[map[string]*topicStats] // read without mu, replaced under mu

	mu    sync.Mutex
	items map[itemKey]*Item // guarded by mu

	mornings mornings

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

type itemKey struct{ name, key string }

// topicStats are the counters of one topic; the maps are replaced under Set.mu.
type topicStats struct {
	system     bool
	nums, size *Item
	queues     atomic.Pointer[map[int32]pairOf]
	groups     atomic.Pointer[map[string]*groupStats]
}

type groupStats struct {
	nums, size *Item
	queues     atomic.Pointer[map[int32]pairOf]
}

type pairOf struct{ nums, size *Item }

// New makes an empty set. system says which topics the broker itself uses, detail whether queues are counted too.
func New(cluster string, system func(topic string) bool, detail func() bool) *Set {
	s := &Set{cluster: cluster, system: system, detail: detail, items: map[itemKey]*Item{}, stop: make(chan struct{})}
	s.topics.Store(&map[string]*topicStats{})
	s.brokerPut, s.brokerGet = s.item(BrokerPutNums, cluster), s.item(BrokerGetNums, cluster)
	s.brokerPutOwn, s.brokerGetOwn = s.item(BrokerPutNumsOwn, cluster), s.item(BrokerGetNumsOwn, cluster)
	return s
}

// Start starts the goroutine that takes the samples.
func (s *Set) Start() { s.done.Go(s.run) }

// Close ends it. Twice is fine.
func (s *Set) Close() {
	s.once.Do(func() { close(s.stop) })
	s.done.Wait()
}

func (s *Set) run() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			s.sample(now)
		}
	}
}

// sample takes a snapshot of every item.
func (s *Set) sample(now time.Time) {
	s.mu.Lock()
	all := make([]*Item, 0, len(s.items))
	for _, it := range s.items {
		all = append(all, it)
	}
	s.mu.Unlock()
	for _, it := range all {
		it.sample(now)
	}
	s.mornings.roll(now, s.brokerPutOwn.value.Load(), s.brokerGetOwn.value.Load())
}

// Put counts messages that were accepted, in so many sends.
func (s *Set) Put(topic []byte, queue int32, sends, msgs, bytes int) {
	t := s.topic(topic)
	times, n, b := int64(sends), int64(msgs), int64(bytes)
	t.nums.add(n, times)
	t.size.add(b, times)
	s.brokerPut.add(n, times)
	if !t.system {
		s.brokerPutOwn.add(n, times)
	}
	if s.detail() {
		p := s.queueOf(&t.queues, queue, func() pairOf {
			key := t.nums.key + "@" + strconv.Itoa(int(queue))
			return pairOf{s.item(QueuePutNums, key), s.item(QueuePutSize, key)}
		})
		p.nums.add(n, times)
		p.size.add(b, times)
	}
}

// Got counts messages that were handed to a group.
func (s *Set) Got(group, topic []byte, queue int32, msgs, bytes int) {
	t := s.topic(topic)
	g := s.group(t, group)
	n, b := int64(msgs), int64(bytes)
	g.nums.add(n, 1)
	g.size.add(b, 1)
	s.brokerGet.add(n, 1)
	if !t.system {
		s.brokerGetOwn.add(n, 1)
	}
	if s.detail() {
		p := s.queueOf(&g.queues, queue, func() pairOf {
			name, group, _ := strings.Cut(g.nums.key, "@")
			key := name + "@" + strconv.Itoa(int(queue)) + "@" + group
			return pairOf{s.item(QueueGetNums, key), s.item(QueueGetSize, key)}
		})
		p.nums.add(n, 1)
		p.size.add(b, 1)
	}
}

// SendBack counts a message that a consumer returned.
func (s *Set) SendBack(group, topic string) { s.item(SendBackPutNums, topic+"@"+group).add(1, 1) }

// DeadLetter counts a message that went into the group's dead letters.
func (s *Set) DeadLetter(group, topic string) { s.item(DLQPutNums, topic+"@"+group).add(1, 1) }

// Item returns a counter, nil when nothing was counted yet.
func (s *Set) Item(name, key string) *Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[itemKey{name, key}]
	if it == nil || it.times.Load() == 0 {
		return nil
	}
	return it
}

// MinuteTPS is the rate of a counter over the last minute, 0 when there is none.
func (s *Set) MinuteTPS(name, key string) float64 {
	if it := s.Item(name, key); it != nil {
		return it.Minute().TPS
	}
	return 0
}

// Totals are the messages put and got so far without system topics, and what they were at the last two midnights.
func (s *Set) Totals() (put, got, putToday, gotToday, putYesterday, gotYesterday int64) {
	m := &s.mornings
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.brokerPutOwn.value.Load(), s.brokerGetOwn.value.Load(), m.putToday, m.gotToday, m.putYesterday, m.gotYesterday
}

// DropTopic forgets the counters of a topic.
func (s *Set) DropTopic(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*topicStats)
	for name, t := range *s.topics.Load() {
		if name != topic {
			next[name] = t
		}
	}
	s.topics.Store(&next)
	for k := range s.items {
		if k.key == topic || strings.HasPrefix(k.key, topic+"@") {
			delete(s.items, k)
		}
	}
}

// DropGroup forgets the counters of a group.
func (s *Set) DropGroup(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range *s.topics.Load() {
		if old := *t.groups.Load(); old[group] != nil {
			next := make(map[string]*groupStats, len(old))
			for name, g := range old {
				if name != group {
					next[name] = g
				}
			}
			t.groups.Store(&next)
		}
	}
	for k := range s.items {
		if strings.HasSuffix(k.key, "@"+group) && !strings.HasPrefix(k.name, "QUEUE_PUT") {
			delete(s.items, k)
		}
	}
}

func (s *Set) item(name, key string) *Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.itemLocked(name, key)
}

func (s *Set) itemLocked(name, key string) *Item {
	it := s.items[itemKey{name, key}]
	if it == nil {
		it = &Item{key: key}
		s.items[itemKey{name, key}] = it
	}
	return it
}

func (s *Set) topic(name []byte) *topicStats {
	if t := (*s.topics.Load())[string(name)]; t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.topics.Load()
	if t := old[string(name)]; t != nil {
		return t
	}
	key := string(name)
	t := &topicStats{system: s.system(key), nums: s.itemLocked(TopicPutNums, key), size: s.itemLocked(TopicPutSize, key)}
	t.queues.Store(&map[int32]pairOf{})
	t.groups.Store(&map[string]*groupStats{})
	next := make(map[string]*topicStats, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[key] = t
	s.topics.Store(&next)
	return t
}

func (s *Set) group(t *topicStats, name []byte) *groupStats {
	if g := (*t.groups.Load())[string(name)]; g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *t.groups.Load()
	if g := old[string(name)]; g != nil {
		return g
	}
	key := t.nums.key + "@" + string(name)
	g := &groupStats{nums: s.itemLocked(GroupGetNums, key), size: s.itemLocked(GroupGetSize, key)}
	g.queues.Store(&map[int32]pairOf{})
	next := make(map[string]*groupStats, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[string(name)] = g
	t.groups.Store(&next)
	return g
}

func (s *Set) queueOf(p *atomic.Pointer[map[int32]pairOf], queue int32, make1 func() pairOf) pairOf {
	if q, ok := (*p.Load())[queue]; ok {
		return q
	}
	q := make1()
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *p.Load()
	next := make(map[int32]pairOf, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[queue] = q
	p.Store(&next)
	return q
}

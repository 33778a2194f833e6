package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/message"
)

// Selector picks one of a topic's queues for a message; queues is sorted by broker and number and never empty. The result must be an index.
type Selector func(m *Message, queues []Queue) int

// health is what is known of one broker's recent answers.
type health struct {
	badUntil atomic.Int64 // unix ms; 0 when well
}

// queueing chooses queues: round robin for each topic, around brokers that failed or, if asked for, answer slowly.
type queueing struct {
	avoidSlow bool
	turns     sync.Map // topic -> *atomic.Uint32
	brokers   sync.Map // broker -> *health
}

func (s *queueing) turn(topic string) uint32 {
	t, ok := s.turns.Load(topic)
	if !ok {
		t, _ = s.turns.LoadOrStore(topic, &atomic.Uint32{})
	}
	return t.(*atomic.Uint32).Add(1) - 1
}

func (s *queueing) health(broker string) *health {
	h, ok := s.brokers.Load(broker)
	if !ok {
		h, _ = s.brokers.LoadOrStore(broker, &health{})
	}
	return h.(*health)
}

// pick returns the next queue of a route. avoid is the broker that just failed for this message, or "". When all are to be avoided the next
// in turn is as good as any.
func (s *queueing) pick(r *Route, avoid string) Queue {
	start := s.turn(r.Topic)
	n := uint32(len(r.Write))
	now := time.Now().UnixMilli()
	second := -1
	for i := range n {
		at := int((start + i) % n)
		b := r.Write[at].Broker
		if b == avoid {
			continue
		}
		if s.health(b).badUntil.Load() <= now {
			return r.Write[at]
		}
		if second < 0 {
			second = at
		}
	}
	if second >= 0 {
		return r.Write[second]
	}
	return r.Write[start%n]
}

// slow maps an answer's time to how long its broker is avoided, as RocketMQ does.
var slow = []struct{ took, avoid time.Duration }{
	{15 * time.Second, 30 * time.Second}, {5 * time.Second, 10 * time.Second}, {3 * time.Second, 6 * time.Second},
	{1800 * time.Millisecond, 5 * time.Second}, {550 * time.Millisecond, 2 * time.Second},
}

// report notes how a broker answered. One that could not be reached is avoided for a moment in any case.
func (s *queueing) report(broker string, took time.Duration, err error) {
	h := s.health(broker)
	if err == nil && !s.avoidSlow {
		if h.badUntil.Load() != 0 {
			h.badUntil.Store(0)
		}
		return
	}
	var avoid time.Duration
	switch {
	case err != nil && (unreachable(err) || notServing(err)):
		avoid = time.Second
		if s.avoidSlow {
			avoid = 10 * time.Second
		}
	case s.avoidSlow:
		for _, step := range slow {
			if took >= step.took {
				avoid = step.avoid
				break
			}
		}
	}
	switch {
	case avoid > 0:
		h.badUntil.Store(time.Now().Add(avoid).UnixMilli())
	case err == nil && h.badUntil.Load() != 0:
		h.badUntil.Store(0)
	}
}

// hashQueue is the queue for a key: the same one as long as the list of queues stays.
func hashQueue(key string, n int) int {
	h := int64(message.HashString(key))
	if h < 0 {
		h = -h
	}
	return int(h % int64(n))
}

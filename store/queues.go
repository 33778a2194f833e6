package store

import (
	"strings"
	"sync"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

// queueState is what the store knows of one queue beside its append end; it is the Owner of that.
type queueState struct {
	cq      *consumequeue.Queue
	pending []consumequeue.Entry // of the dispatch round that runs; only the dispatcher uses it
	last    int                  // index of the newest entry of the round in the dispatcher's buffer
}

// handles maps topic and queue id to the one append end of each queue. Queues that exist on disk get theirs at first use.
type handles struct {
	mu     sync.RWMutex
	topics map[string]map[int32]*Queue // guarded by mu
	going  map[string]*deletion        // guarded by mu: topics that are being deleted
}

func (h *handles) get(topic []byte, id int32) *Queue {
	h.mu.RLock()
	q := h.topics[string(topic)][id]
	h.mu.RUnlock()
	return q
}

// create returns the append end of topic/id and makes it when there is none. Until then nothing was appended to the queue
// in this run, so its next offset is where its entries end. While the topic is being deleted it waits for that, but not
// when late is set: then it is for messages that were appended before.
func (h *handles) create(t *consumequeue.Table, topic string, id int32, late bool) (*Queue, error) {
	for {
		q, wait, err := h.tryCreate(t, topic, id, late)
		if wait == nil {
			return q, err
		}
		<-wait
	}
}

func (h *handles) tryCreate(t *consumequeue.Table, topic string, id int32, late bool) (q *Queue, wait chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.topics[topic]
	if d := h.going[topic]; d != nil {
		if !late {
			return nil, d.done, nil
		}
		ids = d.ids
	}
	if q := ids[id]; q != nil {
		return q, nil, nil
	}
	cq, err := t.GetOrCreate(topic, id)
	if err != nil {
		return nil, nil, err
	}
	q = commitlog.NewQueue(strings.Clone(topic), id, cq.Max())
	q.Owner = &queueState{cq: cq}
	if ids == nil {
		ids = make(map[int32]*Queue)
		if h.topics == nil {
			h.topics = make(map[string]map[int32]*Queue)
		}
		h.topics[q.Topic] = ids
	}
	ids[id] = q
	return q, nil, nil
}

// remove starts a deletion; first is false when one is under way.
func (h *handles) remove(topic string) (d *deletion, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.going[topic]; d != nil {
		return d, false
	}
	d = &deletion{ids: h.topics[topic], done: make(chan struct{})}
	if d.ids == nil {
		d.ids = make(map[int32]*Queue)
	}
	delete(h.topics, topic)
	if h.going == nil {
		h.going = make(map[string]*deletion)
	}
	h.going[topic] = d
	return d, true
}

// removed ends a deletion.
func (h *handles) removed(topic string, d *deletion) {
	h.mu.Lock()
	delete(h.going, topic)
	h.mu.Unlock()
	close(d.done)
}

// each calls fn for every append end.
func (h *handles) each(fn func(*Queue)) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, ids := range h.topics {
		for _, q := range ids {
			fn(q)
		}
	}
	for _, d := range h.going {
		for _, q := range d.ids {
			fn(q)
		}
	}
}

// clear forgets all; only before the store is shared.
func (h *handles) clear() { h.topics = nil }

// Queue returns the append end of a queue and creates it when there is none; its files come with the first message. The
// handle is good until DeleteTopic, so ask for it per message; a known one is found without allocating. ErrIllegal: the
// topic cannot be a folder.
func (s *Store) Queue(topic []byte, id int32) (*Queue, error) {
	if q := s.handles.get(topic, id); q != nil {
		return q, nil
	}
	q, err := s.handles.create(s.queues, string(topic), id, false)
	return q, illegal(err)
}

// lateQueue is Queue for messages that stand in the log already.
func (s *Store) lateQueue(topic []byte, id int32) (*Queue, error) {
	if q := s.handles.get(topic, id); q != nil {
		return q, nil
	}
	q, err := s.handles.create(s.queues, string(topic), id, true)
	return q, illegal(err)
}

func state(q *Queue) *queueState { return q.Owner.(*queueState) }

// Bounds returns the range of offsets that can be read; known is false when there is no such queue.
func (s *Store) Bounds(topic []byte, id int32) (low, high message.QueueOffset, known bool) {
	q := s.queues.Get(topic, id)
	if q == nil {
		return 0, 0, false
	}
	return q.Min(), q.Max(), true
}

// MaxOffset returns the offset behind the newest message, 0 for an unknown queue. With committed it counts what consumers
// may see, otherwise also what was appended and is not dispatched yet.
func (s *Store) MaxOffset(topic []byte, id int32, committed bool) message.QueueOffset {
	if !committed {
		if q := s.handles.get(topic, id); q != nil {
			return q.Next()
		}
	}
	if q := s.queues.Get(topic, id); q != nil {
		return q.Max()
	}
	return 0
}

// EachQueue calls fn for every queue that exists now, in no order, until fn returns false.
func (s *Store) EachQueue(fn func(QueueInfo) bool) {
	s.queues.Each(func(q *consumequeue.Queue) bool {
		return fn(QueueInfo{Topic: q.Topic(), ID: q.ID(), Min: q.Min(), Max: q.Max()})
	})
}

// Topics returns the names of all topics that have a queue, sorted.
func (s *Store) Topics() []string { return s.queues.Topics() }

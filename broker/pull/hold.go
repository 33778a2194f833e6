package pull

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/store"
)

// parked is a pull that found nothing and waits: for a message past its offset that its filter wants, or for its time.
// It is in exactly one place: in the table, or with whoever took it out; the one who takes it out answers it.
type parked struct {
	req    *remoting.Request // a clone, owned
	reply  remoting.Pending
	at     queueID
	offset message.QueueOffset
	filter *TagFilter
	timer  *time.Timer // pushes the pull out of the table when its time has come
	cold   bool        // not parked but waiting for a slow read
	size   int64       // in Handler.heldBytes while it is counted; 0 when it is not
	place  int         // in its queue's list, guarded by the shard's lock
	owner  *ofConn     // nil in tests of the table
}

// ofConn is the pulls of one connection that are parked, so that they go with it.
type ofConn struct {
	mu    sync.Mutex
	pulls map[*parked]struct{} // guarded by mu
}

func (o *ofConn) add(p *parked) {
	o.mu.Lock()
	o.pulls[p] = struct{}{}
	o.mu.Unlock()
}

func (o *ofConn) remove(p *parked) {
	if o == nil {
		return
	}
	o.mu.Lock()
	delete(o.pulls, p)
	o.mu.Unlock()
}

// all empties it and returns what was in it.
func (o *ofConn) all() []*parked {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := slices.Collect(maps.Keys(o.pulls))
	clear(o.pulls)
	return list
}

type queueID struct {
	topic string
	id    int32
}

const shards = 64

// table holds parked pulls by queue. A queue's pulls are under the lock of its shard; an arrival looks at one shard.
type table struct {
	seed   maphash.Seed
	shards [shards]shard
}

type shard struct {
	mu     sync.Mutex
	queues map[queueID][]*parked // guarded by mu; no empty lists
	n      int                   // guarded by mu
	closed bool                  // guarded by mu
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].queues = make(map[queueID][]*parked)
	}
	return t
}

func (t *table) shard(q queueID) *shard {
	return &t.shards[(maphash.String(t.seed, q.topic)+uint64(uint32(q.id)))%shards]
}

// add parks p and reports false when the table is closed. The caller then asks the store once more: a message that
// arrived before add was seen by nobody.
func (t *table) add(p *parked) bool {
	s := t.shard(p.at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	list := s.queues[p.at]
	p.place = len(list)
	s.queues[p.at] = append(list, p)
	s.n++
	return true
}

// remove takes p out and reports whether it was there; the caller that hears true answers it.
func (t *table) remove(p *parked) bool {
	s := t.shard(p.at)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.queues[p.at]
	if p.place >= len(list) || list[p.place] != p {
		return false
	}
	last := len(list) - 1
	list[p.place] = list[last]
	list[p.place].place = p.place
	s.put(p.at, list[:last], list)
	s.n--
	return true
}

// put stores a shortened list over the same array and clears the places that became free.
func (s *shard) put(q queueID, list, before []*parked) {
	clear(before[len(list):])
	if len(list) == 0 {
		delete(s.queues, q)
		return
	}
	s.queues[q] = list
}

// arrived takes out the pulls of the queue that want the message, and hands each to wake after the lock is free.
func (t *table) arrived(a *store.Arrival, wake func(*parked)) {
	q := queueID{a.Topic, a.QueueID}
	s := t.shard(q)
	s.mu.Lock()
	list := s.queues[q]
	if len(list) == 0 {
		s.mu.Unlock()
		return
	}
	var first *parked
	var more []*parked
	kept := list[:0]
	for _, p := range list {
		switch {
		case a.Offset <= p.offset || a.Count == 1 && !p.filter.MatchTags(a.TagsCode): // of several, only the newest tag is known
			p.place = len(kept)
			kept = append(kept, p)
		case first == nil:
			first = p
		default:
			more = append(more, p)
		}
	}
	if first != nil {
		s.n -= 1 + len(more)
		s.put(q, kept, list)
	}
	s.mu.Unlock()
	if first != nil {
		wake(first)
	}
	for _, p := range more {
		wake(p)
	}
}

// take takes out the pulls of a queue.
func (t *table) take(q queueID) []*parked {
	s := t.shard(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.queues[q]
	delete(s.queues, q)
	s.n -= len(list)
	return list
}

// close empties the table for good and returns what was parked.
func (t *table) close() []*parked {
	var all []*parked
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.closed = true
		for _, list := range s.queues {
			all = append(all, list...)
		}
		clear(s.queues)
		s.n = 0
		s.mu.Unlock()
	}
	return all
}

// len is the number of parked pulls.
func (t *table) len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += s.n
		s.mu.Unlock()
	}
	return n
}

// Package lock says which client of a consumer group holds which queue (requests 41 and 42).
//
// The main types are Table, a pure table that is told the time, and Handler, the two requests over it. broker registers
// the handler; produce asks the table whether a group consumes in order. It never replicates a lock: a lease ends by
// itself, and strict mode will put its round of peers between Handler's decoding and Table.Lock.
package lock

import (
	"sync"
	"time"
)

// DefaultLease is how long a lock lives without being taken again.
const DefaultLease = 60 * time.Second

// Queue is one queue of one broker, as clients name it.
type Queue struct {
	Broker string
	Topic  string
	ID     int32
}

// Table maps (group, queue) to the client that holds it until its lease ends. All methods are safe for concurrent use.
//
// Invariant: at any time at most one client holds an unexpired entry of a queue.
type Table struct {
	lease time.Duration

	mu     sync.Mutex
	groups map[string]map[Queue]holder
	swept  time.Time
}

type holder struct {
	client  string
	expires time.Time
}

// NewTable makes an empty table whose locks live for lease; zero or less means DefaultLease.
func NewTable(lease time.Duration) *Table {
	if lease <= 0 {
		lease = DefaultLease
	}
	return &Table{lease: lease, groups: make(map[string]map[Queue]holder)}
}

// Lock takes the queues that are free, expired or already held by client, and returns those in the order asked.
// Taking a held queue again renews its lease.
func (t *Table) Lock(group, client string, queues []Queue, now time.Time) []Queue {
	held := make([]Queue, 0, len(queues))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweepLocked(now)
	g := t.groups[group]
	if g == nil && len(queues) > 0 {
		g = make(map[Queue]holder)
		t.groups[group] = g
	}
	for _, q := range queues {
		if h, ok := g[q]; ok && h.client != client && now.Before(h.expires) {
			continue
		}
		g[q] = holder{client: client, expires: now.Add(t.lease)}
		held = append(held, q)
	}
	return held
}

// Unlock gives back the queues that client holds; those of others stay.
func (t *Table) Unlock(group, client string, queues []Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[group]
	for _, q := range queues {
		if h, ok := g[q]; ok && h.client == client {
			delete(g, q)
		}
	}
	if len(g) == 0 {
		delete(t.groups, group)
	}
}

// Held reports whether any client of group holds an unexpired lock: the group consumes in order.
func (t *Table) Held(group []byte, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.groups[string(group)] {
		if now.Before(h.expires) {
			return true
		}
	}
	return false
}

// sweepLocked drops expired entries once per lease, so that groups that have gone take no memory for ever.
func (t *Table) sweepLocked(now time.Time) {
	if now.Sub(t.swept) < t.lease {
		return
	}
	t.swept = now
	for name, g := range t.groups {
		for q, h := range g {
			if !now.Before(h.expires) {
				delete(g, q)
			}
		}
		if len(g) == 0 {
			delete(t.groups, name)
		}
	}
}

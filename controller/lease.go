package controller

import (
	"sync"
	"time"
)

// Bounds of a lease.
const (
	minLease = 500 * time.Millisecond
	maxLease = 4 * time.Second
)

// leaseOf is the time for which a master may go on acknowledging after it sent a heartbeat that was answered. It is below
// the time after which its silence counts as death, so that a silent host has stopped when it is replaced.
func leaseOf(silence time.Duration) time.Duration { return min(max(silence/2, minLease), maxLease) }

// leases are what a leader granted in its term. While an election of a set is under way no lease of it is granted.
type leases struct {
	mu      sync.Mutex
	blocked map[string]int          // guarded by mu, elections under way by set
	until   map[brokerKey]time.Time // guarded by mu
}

func newLeases() *leases { return &leases{blocked: map[string]int{}, until: map[brokerKey]time.Time{}} }

// grant notes a lease and reports whether it may be given.
func (l *leases) grant(k brokerKey, d time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked[k.set] > 0 {
		return false
	}
	l.until[k] = now.Add(d)
	return true
}

// block stops leases of a set until the returned function is called.
func (l *leases) block(set string) (unblock func()) {
	l.mu.Lock()
	l.blocked[set]++
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.blocked[set]--; l.blocked[set] == 0 {
			delete(l.blocked, set)
		}
	}
}

// end is when the last lease of a broker runs out.
func (l *leases) end(k brokerKey) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until[k]
}

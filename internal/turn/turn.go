// Package turn combines concurrent changes of one thing into rounds.
//
// The main type is Rounds: callers hand in a change, one of them leads, applies every change that has gathered to one
// draft, and commits the draft once (one file write, one snapshot swap). broker/topic, broker/group and broker/offset
// use it for their files. It holds no lock while a change or a commit runs, and it starts no goroutine.
package turn

import "sync"

// Rounds serialises changes of a draft D. Begin makes a draft from the present state, Commit makes it the present
// state (after it is on disk, when there is a disk). Both run on the goroutine of a caller of Do, never two at a time.
type Rounds[D any] struct {
	Begin  func() D
	Commit func(D) error

	mu      sync.Mutex
	waiting []*entry[D] // guarded by mu
	led     bool        // guarded by mu: some caller leads or has been told to
}

type entry[D any] struct {
	change func(D) error
	err    error
	wake   chan bool // true: done; false: lead the next round
}

// Do applies change in some round and returns after the round was committed. An error of the change leaves the draft
// as the change left it (a change that fails must not have touched it) and is returned alone; an error of the commit
// is returned to every change of the round.
func (r *Rounds[D]) Do(change func(D) error) error {
	e := &entry[D]{change: change, wake: make(chan bool, 1)}
	r.mu.Lock()
	r.waiting = append(r.waiting, e)
	lead := !r.led
	r.led = true
	r.mu.Unlock()
	if !lead {
		if done := <-e.wake; done {
			return e.err
		}
	}
	r.round(e)
	return e.err
}

// round serves everything that waits now, then hands the lead to the first that has come since.
func (r *Rounds[D]) round(self *entry[D]) {
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	r.mu.Unlock()

	draft := r.Begin()
	applied := false
	for _, e := range batch {
		e.err = e.change(draft)
		applied = applied || e.err == nil
	}
	if applied {
		if err := r.Commit(draft); err != nil {
			for _, e := range batch {
				if e.err == nil {
					e.err = err
				}
			}
		}
	}

	r.mu.Lock()
	var next *entry[D]
	if len(r.waiting) > 0 {
		next = r.waiting[0]
	} else {
		r.led = false
	}
	r.mu.Unlock()
	for _, e := range batch {
		if e != self {
			e.wake <- true
		}
	}
	if next != nil {
		next.wake <- false
	}
}

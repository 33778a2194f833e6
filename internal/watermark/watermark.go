// Package watermark holds Mark, an offset that only grows and that others wait for.
//
// Flush, replication, dispatch and the confirm offset are marks. A mark knows nothing of files or sockets and starts no goroutine.
package watermark

import (
	"context"
	"sync"
	"sync/atomic"
)

// Waiter is one wait for a mark, embedded in the object that waits so that waiting allocates nothing. A waiter may be added again after
// Done was called, not before.
type Waiter struct {
	At   int64           // answered when the mark is >= At
	Done func(err error) // nil: passed; otherwise the error of Fail. Called once, outside of every lock; must not block

	next *Waiter
}

// Mark is an offset that only grows. The zero value starts at 0. All methods are safe for concurrent use.
type Mark struct {
	at atomic.Int64

	mu   sync.Mutex
	head *Waiter // in order of At, first come first among equals
	last *Waiter
	err  error
}

// New returns a mark at start.
func New(start int64) *Mark {
	m := &Mark{}
	m.at.Store(start)
	return m
}

// Load returns the offset that has been passed.
func (m *Mark) Load() int64 { return m.at.Load() }

// Advance moves the mark to an offset and answers the waiters that it passes, on the caller's goroutine. An offset at or below the mark
// changes nothing; neither does any offset once the mark has failed.
func (m *Mark) Advance(to int64) {
	if to <= m.at.Load() {
		return
	}
	m.mu.Lock()
	if m.err != nil || to <= m.at.Load() {
		m.mu.Unlock()
		return
	}
	m.at.Store(to)
	first := m.cutLocked(to)
	m.mu.Unlock()
	answer(first, nil)
}

// cutLocked takes the waiters at or below an offset out of the list.
func (m *Mark) cutLocked(to int64) *Waiter {
	if m.head == nil || m.head.At > to {
		return nil
	}
	first, w := m.head, m.head
	for w.next != nil && w.next.At <= to {
		w = w.next
	}
	m.head = w.next
	if m.head == nil {
		m.last = nil
	}
	w.next = nil
	return first
}

// answer calls Done of a list of waiters. A waiter may be reused from within Done, so its successor is read first.
func answer(w *Waiter, err error) {
	for w != nil {
		next := w.next
		w.next = nil
		w.Done(err)
		w = next
	}
}

// Reset puts the mark to an offset, back if need be. It is for the owner after a cut, when no waiter stands above the offset.
func (m *Mark) Reset(to int64) {
	m.mu.Lock()
	m.at.Store(to)
	first := m.cutLocked(to)
	m.mu.Unlock()
	answer(first, nil)
}

// Fail is final: every present and later waiter above the mark gets err, which must not be nil. A second call changes nothing.
func (m *Mark) Fail(err error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = err
	first := m.head
	m.head, m.last = nil, nil
	m.mu.Unlock()
	answer(first, err)
}

// Err returns the error of Fail, or nil.
func (m *Mark) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Add waits for w.At: Done is called at once when the mark has passed it or has failed, else later.
func (m *Mark) Add(w *Waiter) {
	if w.At <= m.at.Load() {
		w.Done(nil)
		return
	}
	m.mu.Lock()
	if w.At <= m.at.Load() {
		m.mu.Unlock()
		w.Done(nil)
		return
	}
	if err := m.err; err != nil {
		m.mu.Unlock()
		w.Done(err)
		return
	}
	m.insertLocked(w)
	m.mu.Unlock()
}

// insertLocked keeps the list in order; waiters mostly come in order, so the end is tried first.
func (m *Mark) insertLocked(w *Waiter) {
	w.next = nil
	switch {
	case m.head == nil:
		m.head, m.last = w, w
	case m.last.At <= w.At:
		m.last.next = w
		m.last = w
	case w.At < m.head.At:
		w.next = m.head
		m.head = w
	default:
		p := m.head
		for p.next.At <= w.At {
			p = p.next
		}
		w.next = p.next
		p.next = w
	}
}

// Remove takes a waiter out of the list and reports whether it was still there; if not, Done was or will be called.
func (m *Mark) Remove(w *Waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var prev *Waiter
	for p := m.head; p != nil; prev, p = p, p.next {
		if p != w {
			continue
		}
		if prev == nil {
			m.head = p.next
		} else {
			prev.next = p.next
		}
		if m.last == p {
			m.last = prev
		}
		p.next = nil
		return true
	}
	return false
}

// Wait blocks until the mark has passed an offset, has failed, or the context ends.
func (m *Mark) Wait(ctx context.Context, at int64) error {
	if at <= m.at.Load() {
		return nil
	}
	done := make(chan error, 1)
	w := &Waiter{At: at, Done: func(err error) { done <- err }}
	m.Add(w)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if m.Remove(w) {
			return ctx.Err()
		}
		return <-done
	}
}

package client

import (
	"context"
	"sync"
	"time"
)

// item is a fetched message until it is done.
type item struct {
	Received
	gen  uint32
	done bool
}

// source is one queue that this member reads: where fetching is, what waits to be handed out, what is in the application's hands. Its
// goroutine fetches; others take and finish.
type source struct {
	g      *group
	q      Queue
	ctx    context.Context
	cancel context.CancelFunc
	room   chan struct{} // wakes the goroutine: room, resume, seek
	idle   chan struct{} // closed when nothing is in hand any more after halt

	inLine bool // guarded by the scheduler's mutex

	mu       sync.Mutex
	sub      *subscription
	known    bool    // next is set
	next     int64   // where the next fetch begins
	window   []*item // fetched and not done, or done above one that is not; in order of offsets
	ready    []*item // of these, not handed out
	bytes    int64   // bodies in window
	gen      uint32  // grows with every seek: items of before no longer count
	inHand   int
	saved    int64 // what was committed last, -1 for nothing
	paused   bool
	halted   bool
	heldTill time.Time // an ordered source is not handed out before
	lost     bool      // an ordered source without its lock
	lockedAt time.Time // when the lock was last confirmed
	prefer   int64     // broker id that the broker suggested to read from
	fetched  time.Time // of the last answer
	abort    func()    // ends the pull that is under way
}

func newSource(g *group, q Queue, sub *subscription) *source {
	s := &source{g: g, q: q, sub: sub, saved: -1, room: make(chan struct{}, 1), idle: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(g.ctx)
	return s
}

func (s *source) setSubscription(sub *subscription) {
	s.mu.Lock()
	s.sub = sub
	s.mu.Unlock()
	s.interrupt()
}

// interrupt ends the pull that is under way, which may wait at the broker for long; the next one begins at once.
func (s *source) interrupt() {
	s.mu.Lock()
	abort := s.abort
	s.mu.Unlock()
	if abort != nil {
		abort()
	}
}

func (s *source) signal() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// halt stops fetching and handing out; what is in hand may still be finished.
func (s *source) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.halted {
		return
	}
	s.halted = true
	s.ready = nil
	if s.inHand == 0 {
		close(s.idle)
	}
	s.cancel()
}

// forfeit is halt for a source whose lock is gone: its offset is no longer ours to store.
func (s *source) forfeit() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	s.halt()
}

// hasRoom tells whether more may be fetched.
func (s *source) hasRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := &s.g.cfg
	switch {
	case s.paused, len(s.window) >= cfg.maxCount, s.bytes >= cfg.maxBytes:
		return false
	case len(s.window) == 0 || cfg.ordered || cfg.maxSpan <= 0:
		return true
	}
	return s.next-s.window[0].QueueOffset < cfg.maxSpan
}

// add takes the messages of an answer that was asked for at generation gen. It reports whether there is something to hand out.
func (s *source) add(gen uint32, items []*item, next int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gen != gen || s.halted {
		return false
	}
	for _, it := range items {
		it.gen = gen
		s.bytes += int64(len(it.Body))
	}
	s.window = append(s.window, items...)
	s.ready = append(s.ready, items...)
	s.next = next
	s.fetched = time.Now()
	return len(s.ready) > 0
}

// seek lets fetching go on at an offset; everything fetched before is forgotten.
func (s *source) seek(offset int64) {
	s.mu.Lock()
	s.gen++
	s.window, s.ready, s.bytes = nil, nil, 0
	s.next, s.known = offset, true
	s.saved = -1
	s.mu.Unlock()
	s.interrupt()
	s.signal()
}

func (s *source) pause(on bool) {
	s.mu.Lock()
	s.paused = on
	some := len(s.ready) > 0
	s.mu.Unlock()
	s.signal()
	if !on && some {
		s.g.sched.push(s)
	}
}

// take hands out up to n messages; of an ordered source only when nothing is in hand and the lock is fresh.
func (s *source) take(n int) []*item {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused || s.halted || len(s.ready) == 0 {
		return nil
	}
	if s.g.cfg.ordered && (s.inHand > 0 || time.Now().Before(s.heldTill) || !s.lockFreshLocked()) {
		return nil
	}
	n = min(n, len(s.ready))
	out := s.ready[:n:n]
	s.ready = s.ready[n:]
	s.inHand += n
	return out
}

func (s *source) hasReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready) > 0 && !s.paused && !s.halted
}

// done finishes messages that were taken: they count as consumed.
func (s *source) done(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range items {
		it.done = true
		if it.gen == s.gen {
			s.bytes -= int64(len(it.Body))
		}
	}
	n := 0
	for n < len(s.window) && s.window[n].done {
		s.window[n] = nil
		n++
	}
	s.window = s.window[n:]
	if len(s.window) == 0 {
		s.window = nil
	}
	s.handedBack(len(items))
}

// giveBack puts messages that were taken in front of those that wait, unless a seek has overtaken them.
func (s *source) giveBack(items []*item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keep []*item
	for _, it := range items {
		if it.gen == s.gen && !s.halted {
			keep = append(keep, it)
		}
	}
	if len(keep) > 0 {
		s.ready = append(keep, s.ready...)
	}
	s.handedBack(len(items))
}

// suspend gives messages of an ordered source back and holds the source for a while.
func (s *source) suspend(items []*item, d time.Duration) {
	s.mu.Lock()
	s.heldTill = time.Now().Add(d)
	s.mu.Unlock()
	s.giveBack(items)
	s.g.after(d, func() { s.g.sched.push(s) })
}

func (s *source) handedBack(n int) {
	s.inHand -= n
	if s.halted && s.inHand == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
	s.signal()
}

// position is the offset up to which everything is done.
func (s *source) positionLocked() int64 {
	if len(s.window) > 0 {
		return s.window[0].QueueOffset
	}
	return s.next
}

// uncommitted returns the position if it was not stored yet.
func (s *source) uncommitted() (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.positionLocked()
	return at, s.known && !s.lost && at != s.saved && at >= 0
}

func (s *source) committedTo(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = offset
}

// position returns where consuming is, and where fetching is.
func (s *source) position() (consumed, fetch int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.positionLocked(), s.next, s.known
}

// run is the source's goroutine.
func (s *source) run() {
	defer s.g.sourceEnded(s)
	defer s.cancel()
	if s.begin() {
		s.fetchAll()
	}
	s.settle()
}

// settle waits for what is in hand, stores the offset and gives the lock back.
func (s *source) settle() {
	s.halt()
	t := time.NewTimer(s.g.cfg.drain)
	defer t.Stop()
	select {
	case <-s.idle:
	case <-t.C:
	case <-s.g.ctx.Done():
		return // close does the rest
	}
	s.g.mu.Lock()
	closed := s.g.closed
	s.g.mu.Unlock()
	if closed {
		return
	}
	ctx, cancel := context.WithTimeout(s.g.ctx, s.g.c.cfg.RequestTimeout)
	defer cancel()
	if err := s.g.commitSources(ctx, []*source{s}); err != nil && s.g.ctx.Err() == nil {
		s.g.log.Warn("commit offset of a queue that was given up", "queue", s.q, "error", err)
	}
	if s.g.cfg.ordered && s.g.cfg.model == Clustering && !s.isLost() {
		s.g.unlock(ctx, []*source{s})
	}
}

func (s *source) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// sleep waits, or less when the source is halted; false then.
func (s *source) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

func backoff(n int, first, most time.Duration) time.Duration {
	return min(first<<min(n, 10), most)
}

// begin finds the first offset; it tries until it knows. False when the source was halted.
func (s *source) begin() bool {
	for n := 0; ; n++ {
		s.mu.Lock()
		known := s.known
		s.mu.Unlock()
		if known {
			return true
		}
		off, err := s.g.firstOffset(s.ctx, s.q)
		if err == nil {
			s.mu.Lock()
			if !s.known { // a seek may have come before
				s.next, s.known = off, true
			}
			s.mu.Unlock()
			return true
		}
		if s.ctx.Err() != nil {
			return false
		}
		s.g.log.Warn("find first offset", "queue", s.q, "error", err)
		if unreachable(err) || notServing(err) {
			s.refreshRoute()
		}
		if !s.sleep(backoff(n, 100*time.Millisecond, 3*time.Second)) {
			return false
		}
	}
}

func (s *source) refreshRoute() {
	if _, err := s.g.c.RefreshRoute(s.ctx, s.q.Topic, time.Now()); err != nil && s.ctx.Err() == nil {
		s.g.log.Debug("refresh route", "topic", s.q.Topic, "error", err)
	}
}

package client

import (
	"context"
	"sync"
)

// scheduler is the line of sources that have messages to hand out: each stands in it once, and who takes one puts it back at the end, so
// that busy queues do not starve others.
type scheduler struct {
	mu     sync.Mutex
	cond   *sync.Cond
	line   []*source
	closed bool
}

func newScheduler() *scheduler {
	s := &scheduler{}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *scheduler) push(src *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src.inLine || s.closed {
		return
	}
	src.inLine = true
	s.line = append(s.line, src)
	s.cond.Signal()
}

// next waits for a source; nil when ctx ends or the scheduler is closed.
func (s *scheduler) next(ctx context.Context) *source {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.line) == 0 && !s.closed && ctx.Err() == nil {
		s.cond.Wait()
	}
	if s.closed || ctx.Err() != nil {
		return nil
	}
	src := s.line[0]
	s.line[0] = nil
	s.line = s.line[1:]
	if len(s.line) == 0 {
		s.line = nil
	}
	src.inLine = false
	return src
}

func (s *scheduler) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cond.Broadcast()
}

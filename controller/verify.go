package controller

import (
	"sync"

	"github.com/hashicorp/raft"
)

// verifier asks a majority whether this controller still leads, once for everybody who asks at the same time.
type verifier struct {
	use func() (r *raft.Raft, done func()) // see Controller.use

	mu      sync.Mutex
	waiting []func(error) // guarded by mu
	running bool          // guarded by mu
	closed  bool          // guarded by mu
	wg      sync.WaitGroup
}

// ask calls fn, on another goroutine, after a majority has confirmed that this controller led when ask was called, or with
// an error. fn must not block.
func (v *verifier) ask(fn func(error)) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		fn(errNotLeader)
		return
	}
	v.waiting = append(v.waiting, fn)
	if !v.running {
		v.running = true
		v.wg.Go(v.run)
	}
	v.mu.Unlock()
}

func (v *verifier) run() {
	for {
		v.mu.Lock()
		list := v.waiting
		v.waiting = nil
		if len(list) == 0 {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		var err error = errNotLeader
		r, done := v.use()
		if r != nil && r.VerifyLeader().Error() == nil {
			err = nil
		}
		done()
		for _, fn := range list {
			fn(err)
		}
	}
}

// close answers what waits and ends the goroutine. Raft is shut down before.
func (v *verifier) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.wg.Wait()
}

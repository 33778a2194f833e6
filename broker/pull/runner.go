package pull

import "sync"

// runner works off pulls on a few goroutines of its own: those that an arrival or a timer woke, which must not run on
// the dispatcher's goroutine, and those that read from the disk. push never blocks; what waits is bounded by limit, or,
// when limit is 0, by the number of parked pulls.
type runner struct {
	run   func(*parked)
	limit int

	mu     sync.Mutex
	list   []*parked // guarded by mu, oldest first from head
	head   int       // guarded by mu
	closed bool      // guarded by mu

	kick chan struct{}
	wg   sync.WaitGroup
}

func newRunner(limit int, run func(*parked)) *runner {
	return &runner{run: run, limit: limit, kick: make(chan struct{}, 1)}
}

// start starts n goroutines; close ends them.
func (r *runner) start(n int) {
	for range n {
		r.wg.Go(r.loop)
	}
}

// push takes p over and reports false when the runner is full or closed.
func (r *runner) push(p *parked) bool {
	r.mu.Lock()
	if r.closed || r.limit > 0 && len(r.list)-r.head >= r.limit {
		r.mu.Unlock()
		return false
	}
	r.list = append(r.list, p)
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return true
}

// pop returns the oldest waiting pull, whether more wait behind it, and whether the runner is closed.
func (r *runner) pop() (p *parked, more, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.head == len(r.list) {
		return nil, false, r.closed
	}
	p = r.list[r.head]
	r.list[r.head] = nil
	if r.head++; r.head == len(r.list) || r.head >= 256 && 2*r.head >= len(r.list) {
		n := copy(r.list, r.list[r.head:])
		clear(r.list[n:])
		r.list, r.head = r.list[:n], 0
	}
	return p, r.head < len(r.list), r.closed
}

// loop ends when the runner is closed and nothing waits. A goroutine that leaves work behind wakes the next one.
func (r *runner) loop() {
	for {
		p, more, closed := r.pop()
		if more || closed {
			select {
			case r.kick <- struct{}{}:
			default:
			}
		}
		if p != nil {
			r.run(p)
			continue
		}
		if closed {
			return
		}
		<-r.kick
	}
}

// close lets the goroutines finish what waits and waits for them. Twice is fine.
func (r *runner) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	r.wg.Wait()
}

package ha

import (
	"sync"
	"time"
)

// flow counts what a connection moves per second and says how much more it may. (haFlowControlEnable)
type flow struct {
	limit int64 // bytes per second, 0: none

	mu    sync.Mutex
	start time.Time // of the present second
	sent  int64     // in it
	last  int64     // in the second before
}

func (f *flow) rollLocked(now time.Time) {
	switch d := now.Sub(f.start); {
	case d < time.Second:
	case d < 2*time.Second:
		f.start, f.last, f.sent = f.start.Add(time.Second), f.sent, 0
	default:
		f.start, f.last, f.sent = now, 0, 0
	}
}

// allow returns how many of n bytes may be sent now, and when none, how long to wait.
func (f *flow) allow(n int, now time.Time) (int, time.Duration) {
	if f.limit <= 0 {
		return n, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rollLocked(now)
	if left := f.limit - f.sent; left > 0 {
		return int(min(int64(n), left)), 0
	}
	return 0, f.start.Add(time.Second).Sub(now)
}

func (f *flow) add(n int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rollLocked(now)
	f.sent += int64(n)
}

// rate is what moved in the last full second.
func (f *flow) rate(now time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rollLocked(now)
	return f.last
}

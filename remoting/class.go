package remoting

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Class is a kind of slow requests and its limits: how many run at once, how many wait, and for how long. Its goroutines
// are started by requests and end with the last one that waits.
type Class struct {
	name    string
	workers int
	queue   int
	maxWait time.Duration

	mu      sync.Mutex
	waiting []*task // guarded by mu, oldest first from head
	head    int     // guarded by mu
	running int     // guarded by mu
	timer   *time.Timer
	armed   bool // guarded by mu: the timer is set
}

// task is a request on its way through a class.
type task struct {
	req   *Request
	route *route
	size  int64
}

// NewClass makes a class. With workers 0 eight more than there are processors run at once; queue is at least 1; maxWait 0
// is no limit of the waiting time, which counts from the reading of the frame.
func NewClass(name string, workers, queue int, maxWait time.Duration) *Class {
	if workers <= 0 {
		workers = 8 + runtime.GOMAXPROCS(0)
	}
	return &Class{name: name, workers: workers, queue: max(queue, 1), maxWait: maxWait}
}

// Name is the name of the class in busy answers.
func (c *Class) Name() string { return c.name }

// Capacity is how many requests may wait.
func (c *Class) Capacity() int { return c.queue }

// Waiting is how many requests wait.
func (c *Class) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) - c.head
}

// HeadWait is how long the oldest waiting request has waited.
func (c *Class) HeadWait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == len(c.waiting) {
		return 0
	}
	return time.Since(c.waiting[c.head].req.received)
}

// submit takes t over and reports true, or answers nothing and reports false when too many wait.
func (c *Class) submit(t *task) (ok bool, waiting int) {
	c.mu.Lock()
	n := len(c.waiting) - c.head
	if c.running < c.workers && n == 0 {
		c.running++
		c.mu.Unlock()
		go c.work(t)
		return true, 0
	}
	if n >= c.queue {
		c.mu.Unlock()
		return false, n
	}
	c.waiting = append(c.waiting, t)
	c.armLocked()
	c.mu.Unlock()
	return true, n
}

// work runs t and then what waits.
func (c *Class) work(t *task) {
	for t != nil {
		c.run(t)
		c.mu.Lock()
		if t = c.popLocked(); t == nil {
			c.running--
		}
		c.mu.Unlock()
	}
}

func (c *Class) run(t *task) {
	conn := t.req.conn
	if waited := time.Since(t.req.received); c.maxWait > 0 && waited > c.maxWait {
		c.expire(t, waited)
		return
	}
	if queued := conn.queued.Load(); conn.hoards(queued, conn.ep.limits.TotalBytes/2) {
		conn.ep.stats.overloads.Add(1)
		t.req.Defer().Error(&protocol.Error{Code: protocol.SystemBusy,
			Remark: overloadRemark("bytes of answers that the client has not read", queued, conn.ep.limits.HighWater)})
		conn.finished(t)
		return
	}
	var resp Response
	conn.run(t.route, t.req, &resp) // even if the connection is gone: the sender may not have waited for an answer
	conn.finished(t)
}

func (c *Class) popLocked() *task {
	if c.head == len(c.waiting) {
		return nil
	}
	t := c.waiting[c.head]
	c.waiting[c.head] = nil
	if c.head++; c.head == len(c.waiting) {
		c.waiting, c.head = c.waiting[:0], 0
		if c.armed && c.timer.Stop() {
			c.armed = false
		}
	} else if c.head >= 1024 && c.head*2 >= len(c.waiting) {
		n := copy(c.waiting, c.waiting[c.head:])
		clear(c.waiting[n:])
		c.waiting, c.head = c.waiting[:n], 0
	}
	return t
}

// armLocked sets the timer for the oldest waiting request, so that it is answered when its time is over even if every
// worker hangs.
func (c *Class) armLocked() {
	if c.maxWait <= 0 || c.armed || c.head == len(c.waiting) {
		return
	}
	c.armed = true
	d := max(c.maxWait-time.Since(c.waiting[c.head].req.received), 0) + time.Millisecond
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.expireOld)
	} else {
		c.timer.Reset(d)
	}
}

func (c *Class) expireOld() {
	for {
		c.mu.Lock()
		c.armed = false
		var t *task
		var waited time.Duration
		if c.head < len(c.waiting) {
			if waited = time.Since(c.waiting[c.head].req.received); waited > c.maxWait {
				t = c.popLocked()
			} else {
				c.armLocked()
			}
		}
		c.mu.Unlock()
		if t == nil {
			return
		}
		c.expire(t, waited)
	}
}

func (c *Class) expire(t *task, waited time.Duration) {
	t.req.conn.ep.stats.timeouts.Add(1)
	t.req.Defer().Error(&protocol.Error{Code: protocol.SystemBusy, Remark: fmt.Sprintf(
		"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms, size of queue: %d",
		waited.Milliseconds(), c.Waiting())})
	t.req.conn.finished(t)
}

// overloadRemark is the remark for a request that one more of resource would be too much for.
func overloadRemark(resource string, have, most int64) string {
	return fmt.Sprintf("[OVERLOAD]system busy, start flow control for a while, %s: %d of at most %d", resource, have, most)
}

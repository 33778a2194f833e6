package controller

import (
	"sync"
	"time"

	"github.com/epochmq/epochmq/controller/machine"
)

// Bounds of the time that a broker may be silent, which its heartbeats tell.
const (
	defaultSilence = 10 * time.Second
	minSilence     = 100 * time.Millisecond
	maxSilence     = 10 * time.Minute
)

// brokerKey names a broker.
type brokerKey struct {
	cluster, set string
	id           int64
}

// beat is what a heartbeat told.
type beat struct {
	addr     string
	silence  time.Duration // without a heartbeat after which it is dead
	epoch    int32
	end      int64
	confirm  int64
	priority int64
	learner  bool
	fencing  bool // its set acknowledges only what all in-sync members have, two at least: an election fences it
	leased   bool // it waits for answers to its heartbeats, and counts on a lease
}

// liveness is what a table knows about a broker.
type liveness uint8

const (
	unknown liveness = iota // no sign of it, or it fell silent
	alive
	closed // it was alive and its newest connection closed
)

// entry is a broker in the table. It stays after its death, as evidence.
type entry struct {
	beat
	known bool // a heartbeat told the rest; else a request was the sign of life
	state liveness
	last  time.Time // newest sign of life
	gone  time.Time // when it stopped being alive
	conn  any       // newest connection
}

func (e *entry) deadline() time.Time { return e.last.Add(e.silence) }

// liveTable is the liveness of brokers as this controller sees it. Every controller keeps its own, from the heartbeats
// that brokers send to all of them. Time is given in. Safe for concurrent use.
type liveTable struct {
	mu sync.Mutex
	m  map[brokerKey]*entry // guarded by mu; only of registered brokers, see Controller.heartbeat
}

func newLiveTable() *liveTable { return &liveTable{m: map[brokerKey]*entry{}} }

// heartbeat notes a heartbeat and says whether the broker was not alive before, and whether it may be silent for less long
// than expire was told. The newest one counts in everything, also when epoch or end went down: the broker restarted or cut
// its log.
func (l *liveTable) heartbeat(k brokerKey, b beat, conn any, now time.Time) (came, sooner bool) {
	b.silence = min(max(b.silence, minSilence), maxSilence)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.m[k]
	if e == nil {
		e = &entry{}
		l.m[k] = e
	}
	came = e.state != alive
	sooner = came || now.Add(b.silence).Before(e.deadline())
	*e = entry{beat: b, known: true, state: alive, last: now, conn: conn}
	return came, sooner
}

// touch notes another sign of life of a broker that sent no heartbeat yet.
func (l *liveTable) touch(k brokerKey, addr string, conn any, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.m[k]
	if e != nil && e.state == alive && now.Before(e.deadline()) {
		e.conn = conn // of a process that may have restarted: the close of the older one means nothing now
		return
	}
	b := beat{addr: addr, silence: defaultSilence}
	if e != nil {
		b.learner, b.silence = e.learner, e.silence
	}
	l.m[k] = &entry{beat: b, state: alive, last: now, conn: conn}
}

// disconnected takes the brokers down whose newest connection is conn.
func (l *liveTable) disconnected(conn any, now time.Time) (gone []brokerKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.m {
		if e.state == alive && e.conn == conn {
			e.state, e.gone, e.conn = closed, now, nil
			gone = append(gone, k)
		}
	}
	return gone
}

// expired is a broker that fell silent, with its connection.
type expired struct {
	key  brokerKey
	conn any
}

// expire takes silent brokers down and says when the next one is due; a zero time when none is alive.
func (l *liveTable) expire(now time.Time) (gone []expired, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.m {
		if e.state != alive {
			continue
		}
		if d := e.deadline(); !now.Before(d) {
			gone = append(gone, expired{k, e.conn})
			e.state, e.gone, e.conn = unknown, d, nil
		} else if next.IsZero() || d.Before(next) {
			next = d
		}
	}
	return gone, next
}

// get is the entry of a broker, its state as of now.
func (l *liveTable) get(k brokerKey, now time.Time) (e entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.m[k]
	if p == nil {
		return entry{}, false
	}
	e = *p
	if e.state == alive && !now.Before(e.deadline()) {
		e.state, e.gone = unknown, e.deadline()
	}
	return e, true
}

// facts are the live replicas of a set.
func (l *liveTable) facts(t *machine.Set, now time.Time) map[int64]machine.Live {
	m := map[int64]machine.Live{}
	for id := range t.Replicas {
		if e, ok := l.get(brokerKey{t.Cluster, t.Name, id}, now); ok && e.state == alive {
			m[id] = machine.Live{Addr: e.addr, Known: e.known, Epoch: e.epoch, End: e.end, Priority: e.priority, Learner: e.learner}
		}
	}
	return m
}

// silence is the longest time that a member of a set may be silent, as far as its heartbeats told.
func (l *liveTable) silence(t *machine.Set) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range t.Replicas {
		if e := l.m[brokerKey{t.Cluster, t.Name, id}]; e != nil {
			longest = max(longest, e.silence)
		}
	}
	if longest == 0 {
		return defaultSilence
	}
	return longest
}

// keep forgets all brokers that are not registered.
func (l *liveTable) keep(registered func(brokerKey) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.m {
		if !registered(k) {
			delete(l.m, k)
		}
	}
}

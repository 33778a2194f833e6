package remoting

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Limits bound what connections hold. A zero field takes its default.
type Limits struct {
	MaxFrame     int           // bytes of a frame with its length word, either way (16 MiB)
	HighWater    int64         // bytes waiting to be written at which a server stops reading the connection (1 MiB)
	LowWater     int64         // at which it goes on (256 KiB)
	MaxQueued    int64         // bytes waiting to be written that end the connection, or fail a call of ours (64 MiB)
	WriteTimeout time.Duration // in which a peer must take some of what waits (10 s)
	IdleTimeout  time.Duration // without a byte either way after which a connection is closed (120 s)
	ConnBytes    int64         // of slow requests in work of a connection, over which it is not read (64 MiB)
	TotalBytes   int64         // of all connections' slow requests; together with large partial frames; and of their large answers (256 MiB each)
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if l.MaxFrame <= 0 {
		l.MaxFrame = protocol.MaxFrame
	}
	def(&l.HighWater, 1<<20)
	def(&l.LowWater, 256<<10)
	l.LowWater = min(l.LowWater, l.HighWater)
	def(&l.MaxQueued, 64<<20)
	def((*int64)(&l.WriteTimeout), int64(10*time.Second))
	def((*int64)(&l.IdleTimeout), int64(120*time.Second))
	def(&l.ConnBytes, 64<<20)
	def(&l.TotalBytes, 256<<20)
	return l
}

// Stats are counters since the start of a server or client.
type Stats struct {
	Connections int64 // open now
	Accepted    int64
	Foreign     int64 // closed at once: other protocols
	Malformed   int64 // closed for a frame that is none
	Panics      int64 // of handlers
	Overloads   int64 // answered busy because a limit was reached
	Timeouts    int64 // answered busy because they had waited too long
	SlowPeers   int64 // closed because they did not read
	BytesInWork int64 // now, see Limits.TotalBytes
	SlowRunning int64 // slow requests that run or wait now
}

type counters struct {
	accepted, foreign, malformed, panics, overloads, timeouts, slowPeers atomic.Int64
}

// endpoint is what the connections of one server or client share.
type endpoint struct {
	limits   Limits
	mux      *Mux
	log      *slog.Logger
	mapError func(error) (int32, string)
	batchEnd []func(*Conn)
	server   bool
	goAway   bool
	started  time.Time

	beyond   chan struct{} // holds one connection that may go beyond TotalBytes
	draining atomic.Bool
	bytes    atomic.Int64 // of slow requests that run or wait
	frames   atomic.Int64 // of large buffers of partial frames
	slow     atomic.Int64 // slow requests that run or wait
	nextConn atomic.Uint64
	stats    counters
	answers  atomic.Int64 // bytes of large answers in memory that wait to be written
	quiet    quietLog
	wg       sync.WaitGroup // goroutines of connections
	heaviest func() *Conn   // of a server: the connection with the most bytes that its peer has not read, or nil
}

func newEndpoint(limits Limits, mux *Mux, log *slog.Logger) *endpoint {
	if mux == nil {
		mux = NewMux()
	}
	if log == nil {
		log = slog.Default()
	}
	return &endpoint{limits: limits.withDefaults(), mux: mux, log: log, mapError: MapError,
		started: time.Now(), beyond: make(chan struct{}, 1)}
}

// patience is how long a peer may take for a frame: usually enough for the largest one over a slow line, and short when all
// of them hold so much that others wait.
func (ep *endpoint) patience() time.Duration {
	if ep.held() > ep.limits.TotalBytes/4*3 {
		return ep.limits.WriteTimeout
	}
	return slowFrame * ep.limits.IdleTimeout
}

const slowFrame = 3 // idle timeouts that a frame may take

// held is what connections hold of frames and requests.
func (ep *endpoint) held() int64 { return ep.bytes.Load() + ep.frames.Load() }

// clock is a monotonic time in nanoseconds.
func (ep *endpoint) clock() int64 { return int64(time.Since(ep.started)) }

func (ep *endpoint) snapshot() Stats {
	s := &ep.stats
	return Stats{Accepted: s.accepted.Load(), Foreign: s.foreign.Load(), Malformed: s.malformed.Load(),
		Panics: s.panics.Load(), Overloads: s.overloads.Load(), Timeouts: s.timeouts.Load(), SlowPeers: s.slowPeers.Load(),
		BytesInWork: ep.held(), SlowRunning: ep.slow.Load()}
}

// quietLog lets one line pass per interval and kind, and counts the rest.
type quietLog struct {
	mu    sync.Mutex
	kinds map[string]*quietKind // guarded by mu; keys are constants of this package
}

type quietKind struct {
	last    time.Time
	skipped int
}

const quietInterval = 10 * time.Second

func (q *quietLog) warn(log *slog.Logger, kind string, args ...any) {
	q.mu.Lock()
	if q.kinds == nil {
		q.kinds = make(map[string]*quietKind)
	}
	k := q.kinds[kind]
	if k == nil {
		k = new(quietKind)
		q.kinds[kind] = k
	}
	now := time.Now()
	if !k.last.IsZero() && now.Sub(k.last) < quietInterval {
		k.skipped++
		q.mu.Unlock()
		return
	}
	skipped := k.skipped
	k.last, k.skipped = now, 0
	q.mu.Unlock()
	if skipped > 0 {
		args = append(args, "alike", skipped)
	}
	log.Warn(kind, args...)
}

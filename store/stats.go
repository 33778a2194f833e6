package store

import (
	"math/bits"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// putBounds are the upper ends, in milliseconds, of the put time classes of the runtime info; the last class is open.
var putBounds = [...]int64{0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000}

// PutClasses is the number of put time classes: <=0ms, 0~10ms ... 5~10s, 10s~.
const PutClasses = len(putBounds) + 1

const (
	sampleKeep   = 601 // one-second samples, enough for an average over 600 s
	latencySlots = 40  // powers of two of microseconds
)

// counters are the hot counters of a store. Fields are only added to; the sampler reads them.
type counters struct {
	puts, putBytes, putFailed atomic.Int64 // messages, record bytes, refused or failed appends
	putMax, getMax            atomic.Int64 // microseconds
	found, miss, transferred  atomic.Int64 // Get calls with and without messages, messages handed out
	_                         [64]byte
	classes                   [PutClasses]atomic.Int64
	latency                   [latencySlots]atomic.Int64
	dispatchMaxBatch          atomic.Int64
}

func (c *counters) put(n, size int64, took time.Duration) {
	c.puts.Add(n)
	c.putBytes.Add(size)
	us := took.Microseconds()
	raise(&c.putMax, us)
	ms, i := us/1000, 0
	for i < len(putBounds) && ms > putBounds[i] {
		i++
	}
	c.classes[i].Add(1)
	c.latency[min(bits.Len64(uint64(us)), latencySlots-1)].Add(1)
}

func (c *counters) get(n int64, took time.Duration) {
	if n > 0 {
		c.found.Add(1)
		c.transferred.Add(n)
	} else {
		c.miss.Add(1)
	}
	raise(&c.getMax, took.Microseconds())
}

func raise(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if v <= old || a.CompareAndSwap(old, v) {
			return
		}
	}
}

// sample is the state of the counters at one second.
type sample struct{ puts, found, miss, transferred int64 }

// sampler keeps one sample a second and one copy of the put classes a minute. It is filled by the housekeeper.
type sampler struct {
	mu       sync.Mutex
	ring     [sampleKeep]sample // guarded by mu, ring[(n-1)%sampleKeep] is the newest
	n        int
	minute   [PutClasses]int64 // classes at the start of the running minute
	classes  [PutClasses]int64 // classes of the last full minute
	latency  [latencySlots]int64
	window   [latencySlots]int64 // latency counts of the last full minute
	haveFull bool
}

func (s *sampler) tick(c *counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring[s.n%sampleKeep] = sample{c.puts.Load(), c.found.Load(), c.miss.Load(), c.transferred.Load()}
	s.n++
	if s.n%60 != 0 {
		return
	}
	s.haveFull = true
	for i := range s.classes {
		v := c.classes[i].Load()
		s.classes[i], s.minute[i] = v-s.minute[i], v
	}
	for i := range s.window {
		v := c.latency[i].Load()
		s.window[i], s.latency[i] = v-s.latency[i], v
	}
}

// Rate is an average per second over 10, 60 and 600 s. Known says which of them have enough samples.
type Rate struct {
	PerSecond [3]float64
	Known     [3]bool
}

func (s *sampler) rate(pick func(*sample) int64) (r Rate) {
	for i, span := range [...]int{10, 60, 600} {
		if s.n <= span {
			continue
		}
		last, first := &s.ring[(s.n-1)%sampleKeep], &s.ring[(s.n-1-span)%sampleKeep]
		r.PerSecond[i], r.Known[i] = float64(pick(last)-pick(first))/float64(span), true
	}
	return r
}

// quantile returns the upper end, in milliseconds, of the class that holds the share p of the last minute's puts.
func (s *sampler) quantile(p float64) float64 {
	var total int64
	for _, n := range s.window {
		total += n
	}
	if total == 0 {
		return 0
	}
	var seen int64
	for i, n := range s.window {
		if seen += n; float64(seen) >= p*float64(total) {
			return float64(uint64(1)<<i) / 1000
		}
	}
	return 0
}

// PathUsage is the use of the file system that holds one path of the store.
type PathUsage struct {
	Path         string
	Total, Avail int64   // bytes
	Ratio        float64 // used fraction 0 to 1, -1 unknown
}

// Stats is what the store knows about itself, for the runtime info of a broker. Times are milliseconds, sizes bytes.
type Stats struct {
	BootTime                                  int64
	Puts, PutBytes, PutFailed                 int64
	PutTimeMax, GetTimeMax                    int64
	PutDistribution                           [PutClasses]int64 // of the last full minute
	PutDistributionKnown                      bool
	PutLatency99, PutLatency999               float64
	Found, Miss, Transferred                  int64 // totals: Get calls with, without messages; messages handed out
	PutRate, FoundRate, MissRate, TransferOut Rate
	Log                                       []PathUsage
	Queue                                     PathUsage
	LogMin, LogMax, Flushed, Confirmed        int64 // log offsets
	Dispatched, DispatchBehind                int64 // log offset dispatched to queues and index, bytes to do
	DispatchMaxBuffer                         int64 // largest number of entries of one dispatch round
	AppendLockHeld                            int64 // how long the append lock or the stage has been busy now
	EarliestStoreTime                         int64 // store time of the first record, -1 unknown
	ToFlush                                   int64 // bytes written but not flushed
	Queues                                    int
	Flags                                     Flags
	Err                                       error // cause of the fence, nil when open
}

func (s *sampler) fill(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.PutRate = s.rate(func(x *sample) int64 { return x.puts })
	st.FoundRate = s.rate(func(x *sample) int64 { return x.found })
	st.MissRate = s.rate(func(x *sample) int64 { return x.miss })
	st.TransferOut = s.rate(func(x *sample) int64 { return x.transferred })
	st.PutDistribution, st.PutDistributionKnown = s.classes, s.haveFull
	st.PutLatency99, st.PutLatency999 = s.quantile(0.99), s.quantile(0.999)
}

// Stats collects what the store knows about itself. It asks the file systems that the last look has not seen.
func (s *Store) Stats() Stats {
	c := &s.count
	st := Stats{
		BootTime: s.boot, Puts: c.puts.Load(), PutBytes: c.putBytes.Load(), PutFailed: c.putFailed.Load(),
		PutTimeMax: c.putMax.Load() / 1000, GetTimeMax: c.getMax.Load() / 1000,
		Found: c.found.Load(), Miss: c.miss.Load(), Transferred: c.transferred.Load(),
		LogMin: int64(s.log.Min()), LogMax: int64(s.log.End()), Flushed: s.log.Flushed().Load(), Confirmed: s.visible(),
		Dispatched: s.d.done.Load(), DispatchMaxBuffer: c.dispatchMaxBatch.Load(),
		AppendLockHeld: s.log.Busy().Milliseconds(), EarliestStoreTime: s.EarliestStoreTime(),
		Flags: s.flags.load(), Err: s.fenceErr(),
	}
	s.samples.fill(&st)
	u := s.usage.Load()
	if u.log == nil { // the cleaner has not looked yet
		cfg := s.config()
		writable, readOnly := cfg.LogPaths()
		u = &diskUse{queue: s.measure(filepath.Join(s.root, "consumequeue"))}
		for _, p := range slices.Concat(writable, readOnly) {
			u.log = append(u.log, s.measure(p))
		}
	}
	st.Log, st.Queue = u.log, u.queue
	st.DispatchBehind = max(st.Confirmed-st.Dispatched, 0)
	st.ToFlush = max(st.LogMax-st.Flushed, 0)
	st.Queues = s.queues.Stats().Queues
	return st
}

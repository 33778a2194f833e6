// Package delay delivers messages whose delay level has run out.
//
// The main type is Service: one loop per level follows that level's queue of SCHEDULE_TOPIC_XXXX and puts each due message
// into the queue that it names, in the order of the log, many with one append. produce stores messages there; broker
// starts the service on a master, after the store has recovered. A loop sleeps until the next message is due or the first
// one of an empty queue arrives. The service never changes a message: the delivered copy still shows the level and where
// it was going.
//
// Delivery is at least once. The position of each level is saved in config/delayOffset.json every ten seconds and at
// Close, after the last delivery: a stop repeats nothing, a kill repeats at most what was delivered since the last save.
package delay

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
)

// Config are the settings of the service, from the keys of the same names. Apply changes them.
type Config struct {
	FlushInterval time.Duration // flushDelayOffsetInterval
	VersionStep   int64         // delayOffsetUpdateVersionStep: deliveries per data version
}

// Store is what the service reads.
type Store interface {
	Get(q *store.Query, r *store.Result) error
	Bounds(topic []byte, id int32) (low, high message.QueueOffset, known bool)
}

// Door stores the delivered messages: n says how many, of the first ones, are stored for sure.
type Door interface {
	PutAll(ctx context.Context, ms []*message.Message) (n int, err error)
}

// Service is described by the package. Its methods may be called from any goroutine.
type Service struct {
	conf   atomic.Pointer[Config]
	store  Store
	door   Door
	file   File
	log    *slog.Logger
	levels atomic.Pointer[Levels]

	mu      sync.Mutex
	state   state        // guarded by mu
	changed bool         // guarded by mu: since the last save
	updates int64        // guarded by mu: deliveries since the version moved
	loops   []*levelLoop // guarded by mu; loops[i] is of level i+1
	running bool         // guarded by mu
	closed  bool         // guarded by mu

	saving sync.Mutex // one Save at a time; never held with mu
	stop   chan struct{}
	wg     sync.WaitGroup

	wake atomic.Pointer[[]*levelLoop] // loops, for Arrived
}

var scheduleTopic = []byte(topic.ScheduleTopic)

// New makes a service with the levels of messageDelayLevel. It reads and starts nothing.
func New(cfg Config, levels *Levels, st Store, door Door, file File, log *slog.Logger) *Service {
	s := &Service{store: st, door: door, file: file, log: log, stop: make(chan struct{}),
		state: state{offsets: map[int32]message.QueueOffset{}}}
	s.conf.Store(&cfg)
	s.levels.Store(levels)
	s.wake.Store(new([]*levelLoop))
	return s
}

// Apply replaces the settings.
func (s *Service) Apply(cfg Config) { s.conf.Store(&cfg) }

// SetLevels replaces the table of delays at once: messages that wait are due by the new table. The loop of a level that is
// gone goes on until its queue is empty, with a delay of one second.
func (s *Service) SetLevels(l *Levels) {
	s.levels.Store(l)
	s.mu.Lock()
	if s.running && !s.closed {
		s.startLoopsLocked()
	}
	loops := s.loops
	s.mu.Unlock()
	for _, l := range loops {
		l.signal()
	}
}

// Start loads the positions, corrects those that are outside of their queue and saves that, and starts the loops. The
// store must have recovered. A file that is there but broken is an error.
func (s *Service) Start() error {
	st := state{offsets: map[int32]message.QueueOffset{}}
	if _, err := s.file.Load(func(data []byte) (err error) {
		st, err = decodeState(data)
		return err
	}); err != nil {
		return err
	}
	corrected := false
	for level, off := range st.offsets {
		low, high, _ := s.store.Bounds(scheduleTopic, level-1)
		if right := min(max(off, low), high); right != off {
			s.log.Warn("delay offset corrected", "level", level, "offset", off, "to", right)
			st.offsets[level], corrected = right, true
		}
	}
	s.mu.Lock()
	s.state, s.changed = st, corrected
	s.mu.Unlock()
	if err := s.Save(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = true
	s.startLoopsLocked()
	s.wg.Go(s.saveLoop)
	return nil
}

// startLoopsLocked starts the loops of all levels that are configured or have a position.
func (s *Service) startLoopsLocked() {
	n := s.levels.Load().Max()
	for level := range s.state.offsets {
		if level <= maxLevels {
			n = max(n, level)
		}
	}
	for level := int32(len(s.loops)) + 1; level <= n; level++ {
		l := &levelLoop{s: s, level: level, next: s.state.offsets[level], kick: make(chan struct{}, 1)}
		s.loops = append(s.loops, l)
		s.wg.Go(l.run)
	}
	loops := s.loops[:len(s.loops):len(s.loops)]
	s.wake.Store(&loops)
}

// maxLevels bounds the loops that a file can ask for.
const maxLevels = 128

// Close waits for deliveries under way, ends the loops and saves the positions. Twice is fine.
func (s *Service) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.wg.Wait()
	return s.Save()
}

// Arrived is called by the arrival hub. It only wakes the loop that waits for a first message.
func (s *Service) Arrived(a store.Arrival) {
	if a.Topic != topic.ScheduleTopic {
		return
	}
	if loops := *s.wake.Load(); a.QueueID >= 0 && int(a.QueueID) < len(loops) {
		if l := loops[a.QueueID]; l.idle.Load() {
			l.signal()
		}
	}
}

// Offsets returns the position of each level: the offset of the next message to look at.
func (s *Service) Offsets() map[int32]message.QueueOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.state.offsets)
}

// Encode returns the content of delayOffset.json as of now, which the admin answers and slaves copy.
func (s *Service) Encode() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.encode()
}

// moved notes that a level has come to off, after n deliveries.
func (s *Service) moved(level int32, off message.QueueOffset, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.state.offsets[level]; ok && old == off {
		return
	}
	s.state.offsets[level], s.changed = off, true
	if s.updates += int64(n); s.updates >= max(s.conf.Load().VersionStep, 1) {
		s.updates, s.state.version = 0, s.state.version.next()
	}
}

// Save writes the positions when they have changed.
func (s *Service) Save() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	s.changed = false
	data := s.state.encode()
	s.mu.Unlock()
	err := s.file.Save(data)
	if err != nil {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
	}
	return err
}

func (s *Service) saveLoop() {
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(max(s.conf.Load().FlushInterval, 100*time.Millisecond)):
		}
		if err := s.Save(); err != nil {
			s.log.Error("save delay offsets", "err", err)
		}
	}
}

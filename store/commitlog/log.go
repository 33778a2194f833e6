// Package commitlog is the message log: records of package message, one behind the other in segments of fixed size.
//
// The main type is Log. The store appends batches to it, the dispatcher follows it, readers take views of it, replication
// copies it. It never looks up topics, never decides who may read (the owner of Confirmed does) and never retries a failed
// write or flush: the first one fences the log.
//
// Formats: docs/formats/record.md. Design: DESIGN.md.
package commitlog

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Errors that callers branch on.
var (
	ErrClosed     = errors.New("commit log closed")
	ErrFenced     = errors.New("commit log fenced") // wraps the cause; final
	ErrTooLarge   = errors.New("record too large")
	ErrFull       = errors.New("no room for the next log segment") // nothing was appended; trying again later is fine
	ErrOutOfRange = errors.New("offset outside the commit log")
	ErrNotAtEnd   = errors.New("raw append does not continue the commit log")
	ErrBoundary   = errors.New("offset is no record boundary")
	ErrState      = errors.New("commit log not recovered")
	ErrFollowing  = errors.New("commit log follows another one") // Append only; see Follow
)

// Sizes of stages. A stage is larger than what a connection's read brings, and small enough to stay in the cache.
const (
	DefaultStageSize = 128 << 10
	DefaultStages    = 16
	DefaultRingSize  = 16 << 10
	recordOverhead   = 64 << 10 // what a record may have beside the largest body
	scanBuffer       = 512 << 10
)

// Config describes a Log. Zero values of the lower part mean the defaults.
type Config struct {
	Paths         []string // folders that are written, usually one
	ReadOnlyPaths []string // folders of older segments
	SegmentSize   int64    // bytes; must not change over an existing log. Default 1 GiB
	MaxBody       int      // largest body in bytes; a record may be 64 KiB larger. Default 4 MiB

	SyncFlush     bool          // flush as soon as bytes are written, not after FlushInterval
	FlushInterval time.Duration // a written byte is flushed at most that much later. Default 500 ms
	ManualConfirm bool          // the owner calls SetConfirmed; otherwise Confirmed follows Flushed (SyncFlush) or Written

	AppendCRC     bool // each record ends with the property __CRC32#
	VerifyPropCRC bool // Recover demands that property instead of the body's CRC
	SkipCRC       bool // Recover does not check bodies
	Random        bool // no read-ahead for mapped reads

	DurableTo message.LogOffset      // known to have been flushed: Recover refuses to end below it. 0: unknown
	Rewrite   bool                   // the last run met a failed flush: Recover writes everything above DurableTo again
	PathFull  func(path string) bool // folders to avoid for new segments; nil: none
	NoPrepare bool                   // create segments when needed, not ahead (tests that must repeat exactly)
	StageSize int                    // bytes of one stage
	Stages    int                    // number of stages
	RingSize  int                    // entries kept for the dispatcher, a power of two
}

func (c *Config) setDefaults() error {
	if c.SegmentSize == 0 {
		c.SegmentSize = 1 << 30
	}
	if c.MaxBody == 0 {
		c.MaxBody = 4 << 20
	}
	if c.FlushInterval == 0 {
		c.FlushInterval = 500 * time.Millisecond
	}
	if c.StageSize == 0 {
		c.StageSize = DefaultStageSize
	}
	if c.Stages == 0 {
		c.Stages = DefaultStages
	}
	if c.RingSize == 0 {
		c.RingSize = DefaultRingSize
	}
	if c.SegmentSize < 2*message.BlankSize || c.SegmentSize > 1<<31-1 {
		return fmt.Errorf("open commit log: segment size %d is not between %d and 2 GiB", c.SegmentSize, 2*message.BlankSize)
	}
	if c.RingSize&(c.RingSize-1) != 0 || c.StageSize < message.BlankSize || c.Stages < 2 {
		return fmt.Errorf("open commit log: ring of %d, %d stages of %d bytes", c.RingSize, c.Stages, c.StageSize)
	}
	return nil
}

// Log is the commit log. Append, Write, Flush, View and Scan may be called by any goroutine; Recover, AppendRaw, Truncate
// and DropBefore by one at a time, see there.
//
// Invariant: Flushed <= Written <= End. Bytes below Written are in the page cache and never change until a Truncate;
// bytes above End in the segments are zero.
type Log struct {
	cfg  Config
	seq  *mappedfile.Sequence
	born time.Time
	ring ring

	written   *watermark.Mark
	flushed   *watermark.Mark
	confirmed *watermark.Mark
	fence     atomic.Pointer[error]

	mu       sync.Mutex // the append lock: assigning offsets and copying into a stage, never I/O
	ready    bool       // recovered, not closed
	closed   bool
	follows  bool         // Append is refused
	end      atomic.Int64 // written under mu
	segEnd   int64        // where the current segment ends; == end: the next byte starts a segment
	seg      *mappedfile.Segment
	lastTime int64    // store time of the newest record, ms
	ahead    int64    // the segment that was ordered in advance
	cur      *stage   // being filled; nil: none
	full     []*stage // waiting to be written, in log order
	free     []*stage // last used first, so that a hot one is taken
	stages   int      // made so far

	writing   sync.Mutex // the writer's token, held over pwrite; taken before mu
	wrote     int64
	out       []*stage
	busySince atomic.Int64 // age mark of the stages in the writer's hands, 0: none

	flushing sync.Mutex // the flusher's token, held over fdatasync; taken before writing
	synced   int64

	dirty    atomic.Bool // the flusher knows that there is something to flush
	kickSoon chan struct{}
	kickNow  chan struct{}
	stop     chan struct{}
	done     chan struct{}
	closing  sync.Once
	closeErr error
}

// Open lists the segments and starts the flusher. Unless the log is empty, Recover must come before the first Append.
// A foreign or misshapen file is a *mappedfile.CorruptError and nothing is changed.
func Open(fsys mappedfile.FS, cfg Config) (*Log, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	advice := mappedfile.AdviseNormal
	if cfg.Random {
		advice = mappedfile.AdviseRandom
	}
	seq, err := mappedfile.OpenSequence(fsys, mappedfile.Config{
		Paths: cfg.Paths, ReadOnly: cfg.ReadOnlyPaths, SegmentSize: cfg.SegmentSize, Advice: advice, Full: cfg.PathFull,
	})
	if err != nil {
		return nil, fmt.Errorf("open commit log: %w", err)
	}
	l := &Log{
		cfg: cfg, seq: seq, born: time.Now(), ring: newRing(cfg.RingSize),
		written: watermark.New(0), flushed: watermark.New(0), confirmed: watermark.New(0),
		kickSoon: make(chan struct{}, 1), kickNow: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
		ready: seq.Last() == nil,
	}
	go l.flushLoop()
	return l, nil
}

// Written is the mark below which bytes are in the page cache: a killed process loses nothing of them.
func (l *Log) Written() *watermark.Mark { return l.written }

// Flushed is the mark below which bytes are on disk.
func (l *Log) Flushed() *watermark.Mark { return l.flushed }

// Confirmed is the mark below which dispatch, consumers and services may see the log.
func (l *Log) Confirmed() *watermark.Mark { return l.confirmed }

// SetConfirmed moves Confirmed forward. Its one policy owner calls it, see Config.ManualConfirm.
func (l *Log) SetConfirmed(off message.LogOffset) { l.confirmed.Advance(int64(off)) }

// Min is the lowest offset that exists.
func (l *Log) Min() message.LogOffset {
	if l.seq.First() == nil {
		return l.End()
	}
	return message.LogOffset(l.seq.Min())
}

// End is the offset of the next record, counting what is staged.
func (l *Log) End() message.LogOffset { return message.LogOffset(l.end.Load()) }

// SegmentSize is the length of each segment in bytes.
func (l *Log) SegmentSize() int64 { return l.cfg.SegmentSize }

// SegmentInfo describes one file of the log.
type SegmentInfo struct {
	Base    message.LogOffset
	End     message.LogOffset
	Path    string
	ModTime time.Time
}

// Segments lists the files, oldest first. A file that goes while they are listed is left out.
func (l *Log) Segments() []SegmentInfo {
	var infos []SegmentInfo
	for _, s := range l.seq.Segments() {
		if t, err := s.ModTime(); err == nil {
			infos = append(infos, SegmentInfo{message.LogOffset(s.Base()), message.LogOffset(s.End()), s.Path(), t})
		}
	}
	return infos
}

// Gaps lists the holes between segments: files that somebody removed.
func (l *Log) Gaps() []mappedfile.Gap { return l.seq.Gaps() }

// DropBefore removes the segments that end at or below off, oldest first, at most limit of them (0: all), and returns how
// many went. The last segment and what is not flushed stay; readers keep what they hold.
func (l *Log) DropBefore(off message.LogOffset, limit int) (int, error) {
	return l.seq.DropFront(min(int64(off), l.flushed.Load()), limit)
}

// UnmapIdle ends the maps of segments that nobody read since the last call, so that page tables do not grow with all that was ever read.
// It returns how many it ended.
func (l *Log) UnmapIdle() int {
	n := 0
	for _, s := range l.seq.Segments() {
		if s.UnmapIdle() {
			n++
		}
	}
	return n
}

// Fence ends writing for good: every waiter and every later Append, Write and Flush gets an error that wraps ErrFenced and
// cause. Reading goes on. Only the first call counts.
func (l *Log) Fence(cause error) {
	l.setFence(cause)
	l.failMarks()
}

// setFence stops writers at once; failMarks, which runs callbacks, must follow without a lock.
func (l *Log) setFence(cause error) {
	err := fmt.Errorf("%w: %w", ErrFenced, cause)
	l.fence.CompareAndSwap(nil, &err)
}

func (l *Log) failMarks() {
	err := l.Err()
	l.written.Fail(err)
	l.flushed.Fail(err)
	l.confirmed.Fail(err)
}

// Err is the error of Fence, nil while the log works.
func (l *Log) Err() error {
	if p := l.fence.Load(); p != nil {
		return *p
	}
	return nil
}

// Close writes and flushes everything, stops the flusher and gives the files back; views that are still held stay valid.
// Whoever still waits for a mark gets ErrClosed. Twice is fine.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		wasReady := l.ready
		l.closed, l.ready = true, false
		l.mu.Unlock()
		close(l.stop)
		<-l.done
		if wasReady {
			l.closeErr = l.Flush(l.End())
		}
		l.closeErr = errors.Join(l.closeErr, l.seq.Close())
		l.written.Fail(ErrClosed)
		l.flushed.Fail(ErrClosed)
		l.confirmed.Fail(ErrClosed)
	})
	return l.closeErr
}

// Package store is the storage engine of a broker: one message log, the queues and the key index that are derived from it,
// and everything that keeps them in step over kills, power losses and full disks.
//
// The main type is Store. The broker's features append batches, read by queue offset, time, key and log offset, and wait
// for marks; replication will use the log below it. The store knows no request, no connection and no group, and never
// acknowledges: it says which offsets are written, flushed and confirmed, and the caller waits for what it promised.
//
// Design: DESIGN.md. Formats: docs/formats/store-layout.md.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const fallbackRAM = 4 << 30 // when the machine does not tell

// Options are what a store is given beside its configuration. The zero value is right for a broker.
type Options struct {
	Log           *slog.Logger // nil: slog.Default
	RAM           int64        // bytes of memory, for the in-memory rule of Get; 0: what the machine has
	BootID        string       // names this run of the kernel and of the folder's mount; empty: what the machine says
	ManualConfirm bool         // the owner calls SetConfirmed; otherwise confirmed follows flushed (sync) or written (async)
}

// Store is an open store. All methods may be called by any goroutine unless they say otherwise.
type Store struct {
	fs   mappedfile.FS
	o    Options
	root string
	ram  int64
	hot  int64 // bytes behind the log's end that are in memory without asking: hotWindow, less in tests
	boot int64 // ms when it was opened

	cfg    atomic.Pointer[Config]
	delays atomic.Pointer[[]int64]
	apply  sync.Mutex // one ApplyConfig at a time

	lock    io.Closer
	log     *commitlog.Log
	queues  *consumequeue.Table
	idx     *index.Index
	handles handles
	d       *dispatcher
	indexer *indexer // nil without messageIndexEnable
	saver   *saver
	cleaner *cleaner

	flags     flagSet
	cause     atomic.Pointer[error]
	usage     atomic.Pointer[diskUse]
	count     counters
	samples   sampler
	onArrival atomic.Pointer[func(Arrival)]
	following atomic.Pointer[error] // why appends are refused, see role.go; nil: they are not
	changing  sync.Mutex            // one change of role, cut or promotion at a time

	damageMet    atomic.Int64 // records that readers passed over
	damageWarned atomic.Int64 // ms of the last warning of it

	report   RecoveryReport
	failed   bool           // the last run met a failed write or flush
	changed  bool           // recovery has begun to change files
	notes    sync.WaitGroup // of the goroutine that notes a failure
	life     sync.Mutex     // guards started; Start and Close
	started  bool
	closed   atomic.Bool
	closing  sync.Once
	closeErr error
}

// Open locks the folder, refuses what this store does not serve, and recovers; nothing of the folder is changed before
// that is decided. The caller calls Start to dispatch, save and clean, and Close in any case.
func Open(fsys mappedfile.FS, cfg Config, opts Options) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Store{fs: fsys, o: opts, root: cfg.Root(), ram: opts.RAM, hot: hotWindow, boot: time.Now().UnixMilli()}
	if s.o.Log == nil {
		s.o.Log = slog.Default()
	}
	if s.ram <= 0 {
		s.ram = physicalRAM()
	}
	s.setConfig(&cfg)
	s.usage.Store(&diskUse{})
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", s.root, err), s.abandon())
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if err := s.fs.MkdirAll(s.root, 0o755); err != nil {
		return err
	}
	if s.lock, err = s.fs.Lock(filepath.Join(s.root, "lock")); err != nil {
		if errors.Is(err, mappedfile.ErrLocked) {
			return fmt.Errorf("another broker uses this folder: %w", err)
		}
		return err
	}
	if err := refuse(s.fs, s.root); err != nil {
		return err
	}
	if s.failed, err = s.hasFailed(); err != nil {
		return err
	}
	cfg := s.config()
	writable, readOnly := cfg.LogPaths()
	s.log, err = commitlog.Open(s.fs, commitlog.Config{
		Paths: writable, ReadOnlyPaths: readOnly, SegmentSize: cfg.MappedFileSizeCommitLog,
		MaxBody:   int(cfg.MappedFileSizeCommitLog), // the limit that counts is checked when a batch is filled
		SyncFlush: cfg.SyncFlush(), FlushInterval: time.Duration(cfg.FlushIntervalCommitLog) * time.Millisecond,
		ManualConfirm: s.o.ManualConfirm, AppendCRC: cfg.EnabledAppendPropCRC, VerifyPropCRC: cfg.ForceVerifyPropCRC,
		SkipCRC: !cfg.CheckCRCOnRecover, Rewrite: s.failed, Random: !cfg.DataReadAheadEnable,
		PathFull: func(path string) bool { return s.usage.Load().full[path] },
	})
	if err != nil {
		return err
	}
	s.queues, err = consumequeue.Open(s.fs, consumequeue.Config{Dir: filepath.Join(s.root, "consumequeue"), FileSize: cfg.queueFileSize()})
	if err != nil {
		return err
	}
	if cfg.MessageIndexEnable {
		s.idx, err = index.Open(s.fs, index.Config{Dir: filepath.Join(s.root, "index"), Slots: int32(cfg.MaxHashSlotNum), Entries: int32(cfg.MaxIndexNum)})
		if err != nil {
			return err
		}
	}
	s.d = newDispatcher(s)
	s.saver, s.cleaner = newSaver(s), newCleaner(s)
	if s.idx != nil {
		s.indexer = newIndexer(s)
	}
	if err := s.recover(); err != nil {
		return err
	}
	s.log.Written().Add(&watermark.Waiter{At: 1<<63 - 1, Done: s.logFenced})
	return nil
}

// abandon gives back what a failed Open holds and writes nothing more, but that it failed.
func (s *Store) abandon() error {
	s.notes.Wait()
	if s.changed {
		s.noteFailure()
	}
	var errs []error
	if s.queues != nil {
		errs = append(errs, s.queues.Abandon())
	}
	if s.idx != nil {
		errs = append(errs, s.idx.Abandon())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Start begins dispatching, saving marks and cleaning. Once, before Close.
func (s *Store) Start() {
	s.life.Lock()
	defer s.life.Unlock()
	if s.started || s.closed.Load() {
		return
	}
	s.started = true
	go s.d.run()
	if s.indexer != nil {
		go s.indexer.run()
	}
	go s.saver.run()
	go s.cleaner.run()
}

// Close makes everything durable in the order that a following start relies on: log, complete dispatch, queues, index,
// mark, checkpoint; only then abort goes. After a fence nothing more is written and the cause is returned. Twice is fine.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	s.life.Lock()
	s.closed.Store(true)
	started := s.started
	s.life.Unlock()
	if !started {
		go s.d.run() // what was appended before Start is dispatched now
	}
	err := s.fenceErr()
	if err == nil {
		err = s.log.Flush(s.log.End())
	}
	if err == nil {
		err = s.drainDispatch()
	}
	close(s.d.stop)
	<-s.d.gone
	if s.indexer != nil {
		close(s.indexer.stop)
		if started {
			<-s.indexer.gone
		}
	}
	for _, w := range []*worker{&s.saver.worker, &s.cleaner.worker} {
		close(w.stop)
		if started {
			<-w.gone
		}
	}
	if err == nil {
		err = s.fenceErr()
	}
	if err == nil {
		err = s.saver.last()
	}
	if err != nil {
		s.o.Log.Error("store is closed without a clean end, the next start recovers", "error", err)
		return errors.Join(err, s.abandon())
	}
	errs := []error{s.queues.Close()}
	if s.idx != nil {
		errs = append(errs, s.idx.Close())
	}
	errs = append(errs, s.log.Close())
	s.notes.Wait()
	if err := errors.Join(errs...); err != nil {
		s.noteFailure()
		return errors.Join(err, s.lock.Close())
	}
	s.forgetBoot()
	if message.LogOffset(s.d.done.Load()) == s.log.End() && (s.indexer == nil || s.indexer.caught.Load()) {
		err = s.removeAbort() // a Java broker builds nothing after a clean end, so everything must be there
	}
	return errors.Join(err, s.lock.Close())
}

// drainDispatch waits until everything that is confirmed is dispatched, but for a record of which only a part is.
func (s *Store) drainDispatch() error {
	return s.d.looked.Wait(context.Background(), s.visible())
}

// fence ends writing for good: waiters fail, reads of what is there go on. Only the first call counts.
func (s *Store) fence(cause error) { s.log.Fence(cause) }

// logFenced is told by the log, on whatever goroutine met the failure, that it takes nothing more.
func (s *Store) logFenced(err error) {
	if err == nil || errors.Is(err, commitlog.ErrClosed) || !s.cause.CompareAndSwap(nil, &err) {
		return // passed, or the log was closed in good order
	}
	s.flags.set(Fenced, true)
	s.d.done.Fail(err)
	s.d.looked.Fail(err)
	s.notes.Go(s.noteFailure)
	s.o.Log.Error("store is fenced, it takes no more messages until it is restarted; reads go on", "error", err)
}

// Err is the cause of the fence, nil while the store works.
func (s *Store) Err() error { return s.fenceErr() }

func (s *Store) fenceErr() error {
	if p := s.cause.Load(); p != nil {
		return &FencedError{Cause: *p}
	}
	return nil
}

func (s *Store) config() *Config { return s.cfg.Load() }

// Config returns the configuration in force.
func (s *Store) Config() Config { return *s.config() }

func (s *Store) setConfig(c *Config) {
	own := *c
	levels, err := ParseDelayLevels(own.MessageDelayLevel)
	if err != nil {
		panic("store: configuration was not validated: " + err.Error())
	}
	s.delays.Store(&levels)
	s.cfg.Store(&own)
}

// ApplyConfig takes the live keys of next, all at once, and returns the honoured keys that differ but need a restart.
func (s *Store) ApplyConfig(next Config) (restart []string, err error) {
	if err := next.Validate(); err != nil {
		return nil, err
	}
	s.apply.Lock()
	defer s.apply.Unlock()
	c := s.Config()
	restart = c.applyLive(&next)
	s.setConfig(&c)
	s.d.wakeUp(nil)
	return restart, nil
}

// OnArrival registers the one receiver of arrivals, nil for none. It is called on the dispatcher's goroutine after every
// round, without a lock, and must not block.
func (s *Store) OnArrival(fn func(Arrival)) {
	if fn == nil {
		s.onArrival.Store(nil)
		return
	}
	s.onArrival.Store(&fn)
}

// Log is the commit log, for replication and inspection. Appending to it directly is the business of a replica.
func (s *Store) Log() *commitlog.Log { return s.log }

// Written is the mark below which a killed process loses nothing.
func (s *Store) Written() *watermark.Mark { return s.log.Written() }

// Flushed is the mark below which a power loss loses nothing.
func (s *Store) Flushed() *watermark.Mark { return s.log.Flushed() }

// Confirmed is the mark below which consumers may see.
func (s *Store) Confirmed() *watermark.Mark { return s.log.Confirmed() }

// Dispatched is the mark below which messages are in their queues.
func (s *Store) Dispatched() *watermark.Mark { return s.d.done }

// SetConfirmed moves Confirmed, with Options.ManualConfirm.
func (s *Store) SetConfirmed(off message.LogOffset) { s.log.SetConfirmed(off) }

// SyncFlush says whether an acknowledgement must wait for Flushed.
func (s *Store) SyncFlush() bool { return s.config().SyncFlush() }

// Flags returns the running flags.
func (s *Store) Flags() Flags { return s.flags.load() }

// SetNotWritable sets or clears the flag by which an owner refuses writes.
func (s *Store) SetNotWritable(on bool) { s.flags.set(NotWritable, on) }

// Recovery tells what Open found and did.
func (s *Store) Recovery() RecoveryReport { return s.report }

// worker is the stop and end of one goroutine.
type worker struct{ stop, gone chan struct{} }

func newWorker() worker { return worker{make(chan struct{}), make(chan struct{})} }

// pause waits d; false when the worker is to stop.
func (w *worker) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.stop:
		return false
	case <-t.C:
		return true
	}
}

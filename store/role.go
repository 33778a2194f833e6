package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/commitlog"
)

// CloseWrites refuses appends from now on with an error that matches ErrNotMaster and cause; when it returns none is under
// way any more. What was appended before stays and is dispatched as far as it is confirmed. Closing again only changes the
// cause.
func (s *Store) CloseWrites(cause error) {
	err := fmt.Errorf("%w: %w", ErrNotMaster, cause)
	s.following.Store(&err)
	s.log.Follow(true)
}

// OpenWrites takes appends again. After AppendRaw or TruncateTo, Promote must come first.
func (s *Store) OpenWrites() {
	s.log.Follow(false)
	s.following.Store(nil)
}

func (s *Store) notMaster() error {
	if p := s.following.Load(); p != nil {
		return *p
	}
	return nil
}

var errOpen = errors.New("store takes appends of its own: close writes before its log is changed from outside")

// AppendRaw continues the log with bytes of the master's, cut anywhere; an empty log takes any start of a file. The bytes are
// in the page cache when it returns. Writes are closed; one goroutine calls it.
func (s *Store) AppendRaw(at message.LogOffset, p []byte) error {
	if s.notMaster() == nil {
		return errOpen
	}
	if s.closed.Load() {
		return ErrClosed
	}
	if err := s.log.AppendRaw(at, p); err != nil {
		return s.mapErr(err)
	}
	return s.Write(at + message.LogOffset(len(p)))
}

// Min is the first offset of the log, End the one behind its last byte, what is staged included.
func (s *Store) Min() message.LogOffset { return s.log.Min() }

// End is the offset behind the last byte of the log, what is staged included.
func (s *Store) End() message.LogOffset { return s.log.End() }

// SegmentSize is the size of a file of the log.
func (s *Store) SegmentSize() int64 { return s.log.SegmentSize() }

// ViewAt is a window on the raw log, confirmed or not: up to limit bytes, shorter at the end of a file and at Written.
func (s *Store) ViewAt(from message.LogOffset, limit int) (commitlog.View, error) {
	return s.log.View(from, limit)
}

// FlushSoon starts a flush without waiting for it.
func (s *Store) FlushSoon() { s.log.FlushSoon() }

// Promote prepares a log that was written from outside for appends: the part of a record at its end goes, queue offsets count
// every record up to its end, confirmed or not, and store times continue. It returns that end. Writes are closed and nobody
// calls AppendRaw; OpenWrites may follow.
func (s *Store) Promote(ctx context.Context) (message.LogOffset, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.notMaster() == nil {
		return 0, errOpen
	}
	if err := s.fenceErr(); err != nil {
		return 0, err
	}
	end, err := s.cut(s.log.End())
	if err != nil {
		return 0, fmt.Errorf("promote: %w", err)
	}
	s.d.steps.Lock()
	defer s.d.steps.Unlock()
	s.handles.each(func(q *Queue) { q.SetNext(state(q).cq.Max()) })
	last := s.d.newestTime()
	at, err := s.log.Scan(message.LogOffset(s.d.done.Load()), end, func(rec *message.Record) error {
		last = max(last, rec.StoreTime)
		if !takesOffset(rec.SysFlag) {
			return ctx.Err()
		}
		q, err := s.lateQueue(rec.Topic, rec.QueueID)
		if errors.Is(err, ErrIllegal) {
			return nil
		}
		if err == nil {
			q.SetNext(rec.QueueOffset + 1)
			err = ctx.Err()
		}
		return err
	})
	if err == nil && at < end {
		err = fmt.Errorf("a record at %d reaches above the end of the log at %d", at, end)
	}
	if err != nil {
		return 0, fmt.Errorf("promote: count the queues up to %d: %w", end, err)
	}
	s.log.RaiseStoreTime(last)
	return end, nil
}

// newestTime is the store time of the newest message dispatched.
func (d *dispatcher) newestTime() int64 {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.lastTime
}

// TruncateTo cuts the log at the greatest boundary of a record at or below to, which it returns, and queues, index and
// Confirmed with it. Writes are closed, nobody calls AppendRaw, and no acknowledgement waits for what is cut. A crash
// leaves the store as it was or cut: the next start goes on with a cut that began. An error of writing fences.
func (s *Store) TruncateTo(to message.LogOffset) (message.LogOffset, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.notMaster() == nil {
		return 0, errOpen
	}
	if s.closed.Load() {
		return 0, ErrClosed
	}
	if err := s.fenceErr(); err != nil {
		return 0, err
	}
	return s.cut(to)
}

// cut is TruncateTo with changing held.
func (s *Store) cut(to message.LogOffset) (message.LogOffset, error) {
	if err := s.Flush(s.log.End()); err != nil {
		return 0, err
	}
	s.saver.busy.Lock()
	defer s.saver.busy.Unlock()
	s.d.steps.Lock()
	defer s.d.steps.Unlock()
	if s.indexer != nil {
		s.indexer.hold()
		defer s.indexer.step.Unlock()
	}
	s.d.turn.Lock()
	defer s.d.turn.Unlock()
	b, err := s.boundaryAt(to)
	if err != nil {
		return 0, fmt.Errorf("cut the log to %d: %w", to, err)
	}
	end := s.log.End()
	if b.at == end {
		return end, nil
	}
	if err := s.cutLocked(b); err != nil {
		err = fmt.Errorf("cut the log from %d to %d: %w", end, b.at, err)
		s.fence(err)
		return 0, err
	}
	s.o.Log.Warn("the log is cut: what stood above is not part of the master's", "from", end, "to", b.at)
	return b.at, nil
}

// boundary is the start of a record and what is known of the one before it.
type boundary struct {
	at   message.LogOffset
	last checkpoint.RecordRef // Size 0: there is none
	time int64                // its store time
}

// boundaryAt finds the greatest boundary at or below to.
func (s *Store) boundaryAt(to message.LogOffset) (b boundary, err error) {
	low, end := s.log.Min(), s.log.End()
	if to < low {
		return b, fmt.Errorf("%w: it begins at %d", commitlog.ErrOutOfRange, low)
	}
	to = min(to, end)
	size := message.LogOffset(s.log.SegmentSize())
	note := func(rec *message.Record) error {
		b.last = checkpoint.RecordRef{Log: rec.LogOffset, Size: rec.Size}
		b.time = rec.StoreTime
		return nil
	}
	from := max(to/size*size, low)
	if b.at, err = s.log.Scan(from, to, note); err != nil {
		return b, err
	}
	if b.at = max(b.at, from); b.at > to { // inside of the blank at the end of a file
		b.at = max(b.last.Log+message.LogOffset(b.last.Size), from)
	}
	for b.last.Size == 0 && from > low { // the last record of an earlier file
		from = max(from-size, low)
		if _, err = s.log.Scan(from, from+size, note); err != nil {
			return b, err
		}
	}
	return b, nil
}

func (s *Store) cutPath() string { return filepath.Join(s.root, checkpoint.Dir, "cut") }

// cutLocked cuts the log at a boundary, with every lock held that keeps others from looking.
func (s *Store) cutLocked(b boundary) error {
	if err := s.noteCut(b.at); err != nil {
		return err
	}
	if err := s.forgetMarks(); err != nil {
		return err
	}
	if err := s.queues.TruncateAbove(b.at); err != nil {
		return err
	}
	if s.idx != nil {
		if err := s.idx.TruncateAbove(b.at); err != nil {
			return err
		}
		if err := s.lowerIndexTime(s.idx.FlushedTime()); err != nil {
			return err
		}
		s.indexer.pos = min(s.indexer.pos, b.at)
	}
	if err := s.log.Truncate(b.at); err != nil {
		return err
	}
	if err := s.lowerConfirmed(b.at); err != nil {
		return err
	}
	s.saver.saved, s.saver.durable = -1, -1 // their marks are gone
	if done := message.LogOffset(s.d.done.Load()); done > b.at {
		s.d.last, s.d.lastTime = b.last, b.time
		s.d.moveTo(b.at)
	} else {
		s.d.moveTo(done)
	}
	s.handles.each(func(q *Queue) { q.SetNext(state(q).cq.Max()) })
	if err := s.queues.Flush(); err != nil {
		return err
	}
	return s.endCut()
}

// lowerConfirmed takes back what the checkpoint file says is confirmed above a cut.
func (s *Store) lowerConfirmed(at message.LogOffset) error {
	f, err := checkpoint.Open(s.fs, filepath.Join(s.root, "checkpoint"))
	if err != nil {
		return err
	}
	c := f.Values()
	if c.Confirm <= at {
		return f.Close()
	}
	c.Confirm = at
	f.Set(c)
	return errors.Join(f.Flush(), f.Close())
}

// noteCut leaves the note by which a start after a crash goes on with the cut.
func (s *Store) noteCut(at message.LogOffset) error {
	dir := filepath.Join(s.root, checkpoint.Dir)
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := s.fs.WriteFile(s.cutPath(), []byte(strconv.FormatInt(int64(at), 10)+"\n"), 0o644); err != nil {
		return err
	}
	return errors.Join(s.fs.SyncDir(dir), s.fs.SyncDir(s.root))
}

func (s *Store) endCut() error {
	if err := s.fs.Remove(s.cutPath()); err != nil {
		return err
	}
	return s.fs.SyncDir(filepath.Dir(s.cutPath()))
}

// openCut reads the note of a cut that a crash interrupted. A note that was not written whole is of a cut that had changed
// nothing yet.
func (s *Store) openCut() (at message.LogOffset, found bool, err error) {
	text, err := s.fs.ReadFile(s.cutPath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if n := len(text); n == 0 || text[n-1] != '\n' {
		return 0, false, nil
	}
	off, err := strconv.ParseInt(string(text[:len(text)-1]), 10, 64)
	if err != nil || off < 0 {
		return 0, false, nil
	}
	return message.LogOffset(off), true, nil
}

func (s *Store) bootPath() string { return filepath.Join(s.root, checkpoint.Dir, "boot") }

// writeBoot notes that this run acknowledges what a loss of power would take, and in which run of the machine. A start in
// another one then knows that it may lack acknowledged messages.
func (s *Store) writeBoot() error {
	if s.config().SyncFlush() {
		s.forgetBoot()
		return nil
	}
	if err := s.fs.WriteFile(s.bootPath(), []byte(s.o.BootID+"\n"), 0o644); err != nil {
		return err
	}
	return s.fs.SyncDir(filepath.Dir(s.bootPath()))
}

// forgetBoot ends the note; everything is on disk. A note that stays makes a start more careful than it need be.
func (s *Store) forgetBoot() {
	if err := s.fs.Remove(s.bootPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Warn("the note of an unfinished run stays", "error", err)
	}
}

// uncleanBoot says whether the last run acknowledged without flushing and the machine was started again since.
func (s *Store) uncleanBoot() (bool, error) {
	text, err := s.fs.ReadFile(s.bootPath())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && string(text) != s.o.BootID+"\n", err
}

// AcceptUnclean ends what RecoveryReport.Unclean says of this and all following starts: the owner has told those who have to
// know that acknowledged messages may be gone.
func (s *Store) AcceptUnclean() error {
	if err := s.writeBoot(); err != nil {
		return fmt.Errorf("note that the store runs: %w", err)
	}
	return nil
}

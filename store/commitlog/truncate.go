package commitlog

import (
	"fmt"

	"github.com/epochmq/epochmq/message"
)

// Truncate makes to the end of the log; it must be the start of a record, whole or not, or the end, not below Min. Nobody appends, and the
// dispatcher and all who wait for a mark above to are stopped; readers may go on: no new view reaches above to, and the cut
// waits until views taken before have been released. The bytes are zeroed in place, never cut off. A crash leaves the log
// either as it was or ending at to: the first record above to is wiped durably before anything else. The queues' next
// offsets and Confirmed of a manual owner are the caller's business.
func (l *Log) Truncate(to message.LogOffset) error {
	end := l.End()
	if to == end {
		return nil
	}
	if err := l.Write(end); err != nil {
		return err
	}
	if err := l.checkBoundary(to, end); err != nil {
		return err
	}
	if err := l.truncate(int64(to), int64(end)); err != nil {
		l.Fence(fmt.Errorf("truncate commit log to %d: %w", to, err))
		return l.Err()
	}
	return nil
}

func (l *Log) checkBoundary(to, end message.LogOffset) error {
	if to < l.Min() || to > end {
		return fmt.Errorf("truncate commit log to %d: %w, it holds %d to %d", to, ErrOutOfRange, l.Min(), end)
	}
	c := cursor{seq: l.seq, limit: int64(end)}
	defer c.close()
	if !c.seek(int64(to)) {
		return fmt.Errorf("truncate commit log to %d: %w", to, ErrOutOfRange)
	}
	var rec message.Record
	v, _, err := c.read(int64(to), &rec, nil)
	if err != nil {
		return fmt.Errorf("truncate commit log to %d: %w", to, err)
	}
	if v == isDamaged || v == isNothing {
		return fmt.Errorf("truncate commit log to %d: %w", to, ErrBoundary)
	}
	return nil
}

func (l *Log) truncate(to, end int64) error {
	l.setMarks(to)
	old := l.seq.Renew(to)
	<-old.Gone() // views of the cut bytes; those of later segments keep their unlinked files

	tail := l.seq.Find(to)
	defer tail.Release()
	wipe := min(int64(message.BlankSize), end-to)
	if err := tail.WriteAt(make([]byte, wipe), to-tail.Base()); err != nil {
		return err
	}
	if err := tail.Sync(); err != nil {
		return err
	}
	if _, _, err := l.cut(to); err != nil {
		return err
	}
	if err := l.seq.Sync(l.seq.Min(), to); err != nil {
		return err
	}
	l.setEnd(to, l.segment(to))
	return nil
}

// setMarks lowers end and marks, so that no new view reaches above to and nothing is appended.
func (l *Log) setMarks(to int64) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = false
	l.end.Store(to)
	if l.confirmed.Load() > to {
		l.confirmed.Reset(to)
	}
	if l.flushed.Load() > to {
		l.flushed.Reset(to)
	}
	l.written.Reset(to)
	l.wrote, l.synced = to, min(l.synced, to)
}

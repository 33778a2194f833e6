package commitlog

import (
	"fmt"
	"time"

	"github.com/epochmq/epochmq/message"
)

// Write returns when everything below to is in the page cache. The first caller writes for all: what is staged by then goes
// out in one call per stage, and those who came later find it done. The first error fences the log.
func (l *Log) Write(to message.LogOffset) error {
	if l.written.Load() >= int64(to) {
		return nil
	}
	wrote, err := l.write(int64(to))
	if err != nil {
		if l.Err() != nil {
			l.failMarks()
		}
		return err
	}
	l.written.Advance(wrote) // outside of the token: it runs the waiters' callbacks
	if !l.cfg.ManualConfirm && !l.cfg.SyncFlush {
		l.confirmed.Advance(l.written.Load()) // not wrote: a fence may have stopped Written below it, and Confirmed is never above
	}
	if l.cfg.SyncFlush {
		signal(l.kickNow)
	}
	return nil
}

func (l *Log) write(to int64) (int64, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	for l.wrote < to {
		if err := l.Err(); err != nil {
			return 0, err
		}
		if !l.takeStages() {
			return 0, fmt.Errorf("write commit log to %d: %w, it ends at %d", to, ErrOutOfRange, l.wrote)
		}
		if err := l.writeStages(); err != nil {
			l.setFence(err)
			return 0, l.Err()
		}
	}
	return l.wrote, nil
}

// takeStages moves what is staged into out. Called with the writer's token.
func (l *Log) takeStages() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sealLocked()
	l.out, l.full = l.full, l.out[:0]
	if len(l.out) == 0 {
		return false
	}
	l.busySince.Store(l.out[0].since)
	return true
}

// writeStages writes out and gives the stages back. On error they stay: nothing may be appended any more.
func (l *Log) writeStages() error {
	for _, st := range l.out {
		if st.n > 0 {
			if err := st.seg.WriteAt(st.buf[:st.n], st.off-st.seg.Base()); err != nil {
				return err
			}
		}
		l.wrote = st.end
	}
	l.busySince.Store(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, st := range l.out {
		if len(st.buf) == l.cfg.StageSize {
			l.free = append(l.free, st)
		}
		l.out[i] = nil
	}
	l.out = l.out[:0]
	return nil
}

// Flush returns when everything below to is on disk; it writes what is staged first. One flush covers everything written
// when it starts, so a caller waits for at most the one that runs and one more. The first error fences the log.
func (l *Log) Flush(to message.LogOffset) error {
	if l.flushed.Load() >= int64(to) {
		return nil
	}
	if err := l.Write(to); err != nil {
		return err
	}
	synced, err := l.flush(int64(to))
	if err != nil {
		l.failMarks()
		return err
	}
	l.flushed.Advance(synced)
	if !l.cfg.ManualConfirm && l.cfg.SyncFlush {
		l.confirmed.Advance(l.flushed.Load())
	}
	return nil
}

func (l *Log) flush(to int64) (int64, error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if l.synced >= to {
		return l.synced, nil
	}
	if err := l.Err(); err != nil {
		return 0, err
	}
	target := l.written.Load()
	if err := l.seq.Sync(l.synced, target); err != nil {
		l.setFence(err)
		return 0, l.Err()
	}
	l.synced = target
	return target, nil
}

// kick tells the flusher that there is something to flush within the interval.
func (l *Log) kick() {
	if !l.dirty.Load() && !l.dirty.Swap(true) {
		signal(l.kickSoon)
	}
}

// FlushSoon makes the flusher write and flush everything appended so far, at once, and does not wait. A caller that will wait
// for Flushed anyway need not call Write: one pwrite then serves the whole group.
func (l *Log) FlushSoon() { signal(l.kickNow) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushLoop is the flusher: at once for what was written in sync mode, at most FlushInterval after the first append
// otherwise. Close ends it. Errors fence the log and reach everybody who waits that way.
func (l *Log) flushLoop() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.kickNow:
			_ = l.Flush(l.End())
		case <-l.kickSoon:
			timer.Reset(l.cfg.FlushInterval)
		case <-timer.C:
			l.dirty.Store(false)
			_ = l.Flush(l.End())
		}
	}
}

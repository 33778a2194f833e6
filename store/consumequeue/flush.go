package consumequeue

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/epochmq/epochmq/message"
)

const (
	syncEach   = 24  // up to so many queues are synced file by file, more with one syncfs
	cleanRound = 256 // queues whose stale tail one flush cleans
)

// Drain hands all units in memory to the operating system: after it, a killed process loses none of them. An error is a
// failed write and final.
func (t *Table) Drain() error {
	t.dmu.Lock()
	dirty := t.dirty
	t.dirty = nil
	t.dmu.Unlock()
	for _, q := range dirty {
		q.w.Lock()
		q.inDirty = false
		q.putRound = t.round()
		var err error
		if !q.dropped {
			err = q.writeOut()
		}
		q.w.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) round() uint64 {
	t.dmu.Lock()
	defer t.dmu.Unlock()
	return t.rounds
}

// Flush drains and makes everything that was put before the call durable, with one syncfs when many queues changed. An
// error is final: nothing may be assumed durable, and no mark may be written.
func (t *Table) Flush() error {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	if err := t.Drain(); err != nil {
		return err
	}
	if err := t.cleanTails(cleanRound); err != nil {
		return err
	}
	t.dmu.Lock()
	unsynced, all := t.unsynced, t.syncAll
	t.unsynced, t.syncAll = nil, false
	t.dmu.Unlock()
	if err := t.sync(unsynced, all); err != nil {
		return err
	}
	t.trim()
	return nil
}

// sync makes the written units of qs durable; with all, whatever else is in the files too.
func (t *Table) sync(qs []*Queue, all bool) error {
	each := !all && len(qs) <= syncEach
	for _, q := range qs {
		from, to, created := q.takeUnsynced()
		if !each || to < from {
			continue
		}
		for file := from; file <= to; file++ {
			if err := q.syncFile(file); err != nil {
				return err
			}
		}
		if !created {
			continue
		}
		for _, dir := range []string{q.dir, filepath.Dir(q.dir), t.dir} {
			if err := ignoreMissing(t.fs.SyncDir(dir)); err != nil {
				return err
			}
		}
	}
	if each {
		return nil
	}
	return t.fs.SyncFS(t.dir)
}

// takeUnsynced returns the numbers of the files to sync; to < from when there is none.
func (q *Queue) takeUnsynced() (from, to int64, created bool) {
	q.w.Lock()
	defer q.w.Unlock()
	q.inUnsynced = false
	created, q.newFiles = q.newFiles, false
	if q.dropped && q.written == 0 {
		return 0, -1, false
	}
	last := max(q.written-1, 0) / q.t.perFile
	return max(q.syncFrom, q.first), max(last, q.syncFrom), created
}

// syncFile uses a descriptor of its own, so that a put does not wait for the disk. A file that was deleted meanwhile needs
// no sync.
func (q *Queue) syncFile(file int64) error {
	f, err := q.t.fs.OpenFile(q.fileName(file), os.O_RDWR, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	return errors.Join(f.Datasync(), f.Close())
}

// trim releases the buffers of queues that were idle for two flushes.
func (t *Table) trim() {
	t.dmu.Lock()
	t.rounds++
	round := t.rounds
	warm := t.warm
	t.warm = nil
	t.dmu.Unlock()
	kept := warm[:0]
	for _, q := range warm {
		q.w.Lock()
		if !q.inDirty && q.putRound+2 < round && q.written == q.max.Load() {
			q.mu.Lock()
			q.tail, q.tailAt = nil, q.written
			q.mu.Unlock()
			q.inWarm = false
		} else {
			kept = append(kept, q)
		}
		q.w.Unlock()
	}
	t.dmu.Lock()
	t.warm = append(t.warm, kept...)
	t.dmu.Unlock()
}

// cleanTails cleans up to n queues that may have stale bytes above their end; all when n is negative.
func (t *Table) cleanTails(n int) error {
	t.dmu.Lock()
	if n < 0 || n > len(t.stale) {
		n = len(t.stale)
	}
	todo := t.stale[:n:n]
	t.stale = t.stale[n:]
	t.dmu.Unlock()
	for _, q := range todo {
		q.w.Lock()
		var err error
		if !q.dropped {
			err = q.cleanTail()
		}
		q.w.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Summaries appends what a recovery mark must know of every queue that has, or had, units. It describes what is written;
// call it after Drain, with no put in between, when it must agree with a log offset.
func (t *Table) Summaries(dst []Summary) []Summary {
	for _, q := range t.All() {
		q.w.Lock()
		if !q.fresh && !q.dropped {
			low := min(q.min.Load(), q.written)
			dst = append(dst, Summary{
				Topic: q.topic, ID: q.id,
				Min: message.QueueOffset(low), Max: message.QueueOffset(q.written),
				MinLog: message.LogOffset(q.minLog.Load()), End: message.LogOffset(q.writtenEnd),
				First: q.first,
			})
		}
		q.w.Unlock()
	}
	return dst
}

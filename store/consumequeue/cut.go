package consumequeue

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// TruncateAbove removes all units whose message does not end at or below the log offset at, in every queue.
func (t *Table) TruncateAbove(at message.LogOffset) error {
	for _, q := range t.All() {
		if err := q.TruncateAbove(at); err != nil {
			return err
		}
	}
	return nil
}

// TruncateAbove removes the units whose message does not end at or below the log offset at. The cut is zeroed in place
// and durable on return; later files are deleted.
func (q *Queue) TruncateAbove(at message.LogOffset) error {
	if q.End() <= at {
		return nil
	}
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped || q.end.Load() <= int64(at) {
		return nil
	}
	if err := q.writeOut(); err != nil {
		return err
	}
	low, high := q.min.Load(), q.max.Load()
	var failed error
	n := sort.Search(int(high-low), func(i int) bool {
		u, ok, err := q.At(message.QueueOffset(low + int64(i)))
		failed = errors.Join(failed, err)
		return ok && !u.Blank() && u.End() > at
	})
	if failed != nil {
		return failed
	}
	return q.cutTo(low + int64(n))
}

// TruncateTo removes the units from offset to on, durably. It does nothing when to is not below Max.
func (q *Queue) TruncateTo(to message.QueueOffset) error {
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped || int64(to) >= q.max.Load() {
		return nil
	}
	if err := q.writeOut(); err != nil {
		return err
	}
	return q.cutTo(max(int64(to), q.min.Load()))
}

// cutTo sets Max down to to and wipes what is above. Everything is written and the caller holds q.w.
func (q *Queue) cutTo(to int64) error {
	end := int64(0)
	if to > q.min.Load() {
		u, _, err := q.At(message.QueueOffset(to - 1))
		if err != nil {
			return err
		}
		end = int64(u.End())
	}
	q.max.Store(to)
	q.end.Store(end)
	if to <= q.min.Load() {
		q.minLog.Store(math.MaxInt64)
	}
	q.written, q.writtenEnd = to, end
	q.syncFrom = min(q.syncFrom, q.fileOf(message.QueueOffset(to)))
	q.mu.Lock()
	if keep := (to - q.tailAt) * UnitSize; keep >= 0 {
		q.tail = q.tail[:min(keep, int64(len(q.tail)))]
	} else {
		q.tail, q.tailAt = q.tail[:0], to
	}
	q.mu.Unlock()
	return q.wipe()
}

// cleanTail wipes what an unclean end may have left above Max, once. The caller holds q.w.
func (q *Queue) cleanTail() error {
	if !q.inStale {
		return nil
	}
	q.inStale = false
	return q.wipe()
}

// wipe makes everything from written on read as zero, durably: a unit that survives there would be taken for real when a
// Java broker opens the store. The caller holds q.w.
func (q *Queue) wipe() error {
	cur := q.written / q.t.perFile
	files, err := q.list()
	if err != nil {
		return err
	}
	removed := false
	for _, f := range files {
		switch {
		case f.index < cur:
		case f.index > cur:
			removed = true
			if err := errors.Join(q.unmapRange(f.index, f.index+1), q.removeFile(f.index)); err != nil {
				return err
			}
		case f.size == q.t.fileSize():
			if err := q.wipeFile(cur, (q.written-cur*q.t.perFile)*UnitSize); err != nil {
				return err
			}
		}
	}
	if removed {
		return q.t.fs.SyncDir(q.dir)
	}
	return nil
}

func (q *Queue) removeFile(index int64) error {
	if q.wfile != nil && q.windex == index {
		if err := q.closeWriter(); err != nil {
			return err
		}
	}
	return ignoreMissing(q.t.fs.Remove(q.fileName(index)))
}

// wipeFile zeroes the parts of a file from byte pos on that may hold data; holes stay holes.
func (q *Queue) wipeFile(index, pos int64) error {
	f, err := q.t.fs.OpenFile(q.fileName(index), os.O_RDWR, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	size := q.t.fileSize()
	wiped := false
	for pos < size {
		var start, end int64
		if start, end, err = f.NextData(pos, size); err != nil || start >= size {
			break
		}
		start = max(start, pos)
		if end <= start {
			break
		}
		var zero bool
		if zero, err = allZero(f, start, end); err != nil {
			break
		}
		if !zero {
			if err = f.Zero(start, end-start); err != nil {
				break
			}
			wiped = true
		}
		pos = end
	}
	if err == nil && wiped {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}

func allZero(f mappedfile.File, from, to int64) (bool, error) {
	var buf [4096]byte
	for from < to {
		p := buf[:min(int64(len(buf)), to-from)]
		if _, err := f.ReadAt(p, from); err != nil {
			return false, err
		}
		for _, b := range p {
			if b != 0 {
				return false, nil
			}
		}
		from += int64(len(p))
	}
	return true, nil
}

// CorrectMin raises Min of every queue to the first unit whose message is still in a log that starts at low. Queues whose
// first message is still there cost nothing.
func (t *Table) CorrectMin(low message.LogOffset) error {
	for _, q := range t.All() {
		if err := q.CorrectMin(low); err != nil {
			return err
		}
	}
	return nil
}

// CorrectMin raises Min to the first unit whose message is still in a log that starts at low, to Max when there is none.
func (q *Queue) CorrectMin(low message.LogOffset) error {
	if q.min.Load() == q.max.Load() || q.minLog.Load() >= int64(low) && q.minLog.Load() != math.MaxInt64 {
		return nil
	}
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped {
		return nil
	}
	from, to := q.min.Load(), q.max.Load()
	if q.end.Load() <= int64(low) { // also when only blank units are left
		q.min.Store(to)
		q.minLog.Store(math.MaxInt64)
		return nil
	}
	var failed error
	n := sort.Search(int(to-from), func(i int) bool {
		u, ok, err := q.At(message.QueueOffset(from + int64(i)))
		failed = errors.Join(failed, err)
		return ok && !u.Blank() && u.Log >= low
	})
	if failed != nil {
		return failed
	}
	return q.setMin(from + int64(n))
}

// setMin stores min and the log offset of its unit. The caller holds q.w.
func (q *Queue) setMin(at int64) error {
	q.min.Store(at)
	u, ok, err := q.At(message.QueueOffset(at))
	if err != nil {
		return err
	}
	if ok {
		q.minLog.Store(int64(u.Log))
	} else {
		q.minLog.Store(math.MaxInt64)
	}
	return nil
}

// DeleteExpired corrects Min of every queue for a log that starts at low and deletes the files below it, never the last
// one of a queue. It returns the number of files deleted.
func (t *Table) DeleteExpired(low message.LogOffset) (int, error) {
	files := 0
	for _, q := range t.All() {
		n, err := q.DeleteExpired(low)
		files += n
		if err != nil {
			return files, err
		}
	}
	return files, nil
}

// DeleteExpired is Table.DeleteExpired for one queue.
func (q *Queue) DeleteExpired(low message.LogOffset) (int, error) {
	if err := q.CorrectMin(low); err != nil {
		return 0, err
	}
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped || q.fresh {
		return 0, nil
	}
	last := max(q.max.Load()-1, 0) / q.t.perFile
	keep := min(q.min.Load()/q.t.perFile, last)
	if q.first >= keep {
		return 0, nil
	}
	if q.written < keep*q.t.perFile { // their units must not come back when the buffer is written
		if err := q.writeOut(); err != nil {
			return 0, err
		}
	}
	n := 0
	if err := q.unmapRange(q.first, keep); err != nil {
		return 0, err
	}
	for ; q.first < keep; q.first++ {
		if err := q.removeFile(q.first); err != nil {
			return n, err
		}
		n++
	}
	return n, ignoreMissing(q.t.fs.SyncDir(q.dir))
}

// found is one file of a queue on disk.
type found struct {
	index int64
	size  int64
}

// list returns the files of the queue in order; none when the folder is missing. Names that are no file of a queue are
// left alone.
func (q *Queue) list() ([]found, error) {
	entries, err := q.t.fs.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := make([]found, 0, len(entries))
	for _, e := range entries {
		at, ok := parseName(e.Name())
		if !ok || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if at%q.t.fileSize() != 0 {
			return nil, &mappedfile.CorruptError{File: filepath.Join(q.dir, e.Name()), Offset: -1,
				Reason: "name does not fit mappedFileSizeConsumeQueue"}
		}
		files = append(files, found{index: at / q.t.fileSize(), size: info.Size()})
	}
	return files, nil
}

// parseName reads a file name of 20 digits.
func parseName(name string) (at int64, ok bool) {
	if len(name) != 20 {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' || at > (math.MaxInt64-9)/10 {
			return 0, false
		}
		at = at*10 + int64(c-'0')
	}
	return at, true
}

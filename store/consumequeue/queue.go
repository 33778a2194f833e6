package consumequeue

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const (
	maxOffset = math.MaxInt64 / UnitSize / 2 // of a first unit: the byte position must fit
	maxSkip   = 16 << 20                     // units that Skip fills at most
)

// Bounds of the buffer of one queue, in units. It grows while more than half of it is not yet written when it is full.
const (
	firstTail = 16
	maxTail   = 256
)

// Queue is the units of one topic and queue id. One goroutine puts at a time; readers are many and do not wait for it.
//
// Invariant: units in [Min, Max) are in tail, or in a file, or in both; what is not in tail is in a file.
type Queue struct {
	t     *Table
	topic string
	id    int32
	dir   string

	min    atomic.Int64 // queue offset
	max    atomic.Int64 // queue offset; stored only with w held
	end    atomic.Int64 // log offset after the last unit's message; stored only with w held
	minLog atomic.Int64 // log offset of the unit at min; math.MaxInt64 when the queue is empty

	// w serialises whoever changes the queue. It is held over file operations; readers never take it.
	w          sync.Mutex
	dropped    bool
	fresh      bool // nothing was ever put, or Reset: the first unit may have any offset
	haveDir    bool
	newFiles   bool // a file was created since the last flush
	inDirty    bool
	inUnsynced bool
	inStale    bool
	inWarm     bool
	first      int64 // number of the first file
	written    int64 // units below are in a file
	writtenEnd int64 // value of end at written
	syncFrom   int64 // number of the lowest file that is not durable
	putRound   uint64
	wfile      mappedfile.File // open for writing; nil or file windex
	windex     int64
	wused      atomic.Bool

	// mu guards what readers share with the writer. No file operation happens under it.
	mu     sync.Mutex
	tail   []byte // units from tailAt on
	tailAt int64  // queue offset of the first unit in tail
	maps   []*mapped
}

func newQueue(t *Table, topic string, id int32) *Queue {
	q := &Queue{t: t, topic: topic, id: id, dir: t.queueDir(topic, id), fresh: true}
	q.minLog.Store(math.MaxInt64)
	return q
}

// Topic is the topic of the queue.
func (q *Queue) Topic() string { return q.topic }

// ID is the queue id within the topic.
func (q *Queue) ID() int32 { return q.id }

// Min is the lowest offset that can be read; equal to Max when there is none.
func (q *Queue) Min() message.QueueOffset { return message.QueueOffset(q.min.Load()) }

// Max is the next offset that will be put.
func (q *Queue) Max() message.QueueOffset { return message.QueueOffset(q.max.Load()) }

// End is the log offset after the message of the last unit, 0 when there is none.
func (q *Queue) End() message.LogOffset { return message.LogOffset(q.end.Load()) }

// Put adds units in ascending order of offset. An offset below Max is taken as put before and skipped, so that a part of
// the log may be dispatched again. A unit that does not follow the last one is a *MisalignedError and ends the call; the
// units before it are put. Any other error is a failed write and final. Put writes only when the buffer is full.
func (q *Queue) Put(entries []Entry) error {
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped {
		return ErrDropped
	}
	for len(entries) > 0 && int64(entries[0].Offset) < q.max.Load() {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	if q.fresh {
		if int64(entries[0].Offset) > maxOffset {
			return q.misaligned(&entries[0], q.max.Load())
		}
		if err := q.begin(int64(entries[0].Offset)); err != nil {
			return err
		}
	}
	for len(entries) > 0 {
		n, err := q.push(entries)
		if err != nil {
			return err
		}
		entries = entries[n:]
	}
	q.markDirty()
	return nil
}

func (q *Queue) misaligned(e *Entry, want int64) error {
	return &MisalignedError{Topic: q.topic, ID: q.id, Want: message.QueueOffset(want), Got: e.Offset, Log: e.Log}
}

// begin sets the first offset of an empty queue and fills its file with blank units below it.
func (q *Queue) begin(at int64) error {
	if err := q.cleanTail(); err != nil {
		return err
	}
	file := at / q.t.perFile
	start := file * q.t.perFile
	if err := q.writeBlanks(start, at); err != nil {
		return err
	}
	q.first = file
	q.syncFrom = file
	q.written, q.writtenEnd = at, 0
	q.mu.Lock()
	q.tail, q.tailAt = q.tail[:0], at
	q.mu.Unlock()
	q.end.Store(0)
	q.max.Store(at)
	q.min.Store(at)
	q.minLog.Store(math.MaxInt64)
	q.fresh = false
	return nil
}

// push copies as many units into the buffer as have room and returns how many.
func (q *Queue) push(entries []Entry) (int, error) {
	if len(q.tail) == cap(q.tail) {
		if err := q.makeRoom(); err != nil {
			return 0, err
		}
	}
	entries = entries[:min(len(entries), (cap(q.tail)-len(q.tail))/UnitSize)]
	next, end := q.max.Load(), q.end.Load()
	was, firstLog := next, int64(0)
	var misaligned error
	q.mu.Lock()
	for i := range entries {
		e := &entries[i]
		if int64(e.Offset) < next { // the same unit twice in one round
			continue
		}
		if int64(e.Offset) != next || int64(e.Log) < end || e.Size <= 0 {
			misaligned = q.misaligned(e, next)
			break
		}
		if next == was {
			firstLog = int64(e.Log)
		}
		q.tail = e.Unit.Append(q.tail)
		end = int64(e.Log) + int64(e.Size)
		next++
	}
	if next > was {
		if q.minLog.Load() == math.MaxInt64 {
			q.minLog.Store(firstLog)
		}
		q.end.Store(end)
		q.max.Store(next) // before mu is released: a reader of the buffer must not get ahead of Max
	}
	q.mu.Unlock()
	if misaligned != nil {
		q.markDirty()
		return 0, misaligned
	}
	return len(entries), nil
}

// makeRoom grows the buffer, or writes it out and keeps its newest quarter.
func (q *Queue) makeRoom() error {
	units := cap(q.tail) / UnitSize
	pending := q.max.Load() - q.written
	if units == 0 || (units < maxTail && pending*2 > int64(units)) {
		grown := make([]byte, len(q.tail), max(firstTail, units*2)*UnitSize)
		q.mu.Lock()
		copy(grown, q.tail)
		q.tail = grown
		q.mu.Unlock()
		q.markWarm()
		return nil
	}
	if err := q.writeOut(); err != nil {
		return err
	}
	drop := units - units/4
	q.mu.Lock()
	n := copy(q.tail, q.tail[drop*UnitSize:])
	q.tail = q.tail[:n]
	q.tailAt += int64(drop)
	q.mu.Unlock()
	return nil
}

// writeOut hands all units of the buffer that are not written to the operating system. The caller holds q.w.
func (q *Queue) writeOut() error {
	for q.written < q.max.Load() {
		if err := q.cleanTail(); err != nil {
			return err
		}
		file := q.written / q.t.perFile
		n := min(q.max.Load(), (file+1)*q.t.perFile) - q.written
		from := (q.written - q.tailAt) * UnitSize
		if err := q.write(file, q.tail[from:from+n*UnitSize], q.written); err != nil {
			return err
		}
		q.written += n
	}
	q.writtenEnd = q.end.Load()
	return nil
}

func (q *Queue) write(file int64, p []byte, at int64) error {
	f, err := q.writer(file)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(p, (at-file*q.t.perFile)*UnitSize); err != nil {
		return err
	}
	q.markUnsynced(file)
	return nil
}

// writeBlanks fills [from, to) with blank units. The caller holds q.w.
func (q *Queue) writeBlanks(from, to int64) error {
	const chunk = 4096
	if from >= to {
		return nil
	}
	buf := make([]byte, 0, min(to-from, chunk)*UnitSize)
	for len(buf) < cap(buf) {
		buf = Unit{Size: blankSize}.Append(buf)
	}
	for from < to {
		file := from / q.t.perFile
		n := min(to, (file+1)*q.t.perFile, from+chunk) - from
		if err := q.write(file, buf[:n*UnitSize], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// Skip fills [Max, to) with blank units, for a hole that the log has as well, and sets Max to to. A hole of more than
// 16 million units is refused with a *MisalignedError.
func (q *Queue) Skip(to message.QueueOffset) error {
	q.w.Lock()
	defer q.w.Unlock()
	at := q.max.Load()
	switch {
	case q.dropped:
		return ErrDropped
	case int64(to) <= at:
		return nil
	case int64(to) > maxOffset, !q.fresh && int64(to)-at > maxSkip:
		return q.misaligned(&Entry{Offset: to}, at)
	case q.fresh:
		return q.begin(int64(to))
	}
	if err := q.writeOut(); err != nil {
		return err
	}
	if err := q.cleanTail(); err != nil {
		return err
	}
	if err := q.writeBlanks(at, int64(to)); err != nil {
		return err
	}
	q.written = int64(to)
	q.mu.Lock()
	q.tail, q.tailAt = q.tail[:0], int64(to)
	q.mu.Unlock()
	if q.min.Load() == at { // nothing readable below: start behind the hole
		q.min.Store(int64(to))
	}
	q.max.Store(int64(to))
	return nil
}

// Reset empties the queue and deletes its files, so that the next put may start anywhere.
func (q *Queue) Reset() error {
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped {
		return ErrDropped
	}
	err := q.clear()
	q.fresh = true
	return err
}

// clear forgets all units and removes all files. The caller holds q.w.
func (q *Queue) clear() error {
	q.max.Store(0)
	q.min.Store(0)
	q.end.Store(0)
	q.minLog.Store(math.MaxInt64)
	q.written, q.writtenEnd, q.first, q.syncFrom = 0, 0, 0, 0
	q.mu.Lock()
	q.tail, q.tailAt = nil, 0
	q.mu.Unlock()
	errs := []error{q.unmapRange(0, math.MaxInt64), q.closeWriter()}
	names, err := q.t.fs.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errs...)
	}
	errs = append(errs, err)
	for _, e := range names {
		if _, ok := parseName(e.Name()); ok {
			errs = append(errs, ignoreMissing(q.t.fs.Remove(filepath.Join(q.dir, e.Name()))))
		}
	}
	errs = append(errs, ignoreMissing(q.t.fs.SyncDir(q.dir)))
	return errors.Join(errs...)
}

// drop ends the queue and deletes its folder.
func (q *Queue) drop() error {
	q.w.Lock()
	defer q.w.Unlock()
	if q.dropped {
		return nil
	}
	q.dropped = true
	return errors.Join(q.clear(), ignoreMissing(q.t.fs.Remove(q.dir)))
}

// release closes the files and maps and keeps everything on disk.
func (q *Queue) release() error {
	q.w.Lock()
	defer q.w.Unlock()
	q.dropped = true
	return errors.Join(q.closeWriter(), q.unmapRange(0, math.MaxInt64))
}

// The mark functions put the queue on a list of the table. The caller holds q.w.

func (q *Queue) markDirty() {
	if q.inDirty {
		return
	}
	q.inDirty = true
	q.t.dmu.Lock()
	q.t.dirty = append(q.t.dirty, q)
	q.t.dmu.Unlock()
}

func (q *Queue) markUnsynced(file int64) {
	if q.inUnsynced {
		q.syncFrom = min(q.syncFrom, file)
		return
	}
	q.inUnsynced, q.syncFrom = true, file
	q.t.dmu.Lock()
	q.t.unsynced = append(q.t.unsynced, q)
	q.t.dmu.Unlock()
}

func (q *Queue) markStale() {
	if q.inStale {
		return
	}
	q.inStale = true
	q.t.dmu.Lock()
	q.t.stale = append(q.t.stale, q)
	q.t.dmu.Unlock()
}

func (q *Queue) markWarm() {
	if q.inWarm {
		return
	}
	q.inWarm = true
	q.t.dmu.Lock()
	q.t.warm = append(q.t.warm, q)
	q.t.dmu.Unlock()
}

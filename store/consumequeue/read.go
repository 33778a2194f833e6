package consumequeue

import (
	"errors"

	"github.com/epochmq/epochmq/message"
)

// Range decodes units from offset from on into dst and returns how many. It returns 0 when from is below Min or not
// below Max, and a *GapError when the units that should be there are missing on disk. Blank units are delivered like
// others. It allocates nothing unless a file must be mapped.
func (q *Queue) Range(from message.QueueOffset, dst []Unit) (int, error) {
	n := 0
	for n < len(dst) {
		at := int64(from) + int64(n)
		if at < q.min.Load() || at >= q.max.Load() {
			break
		}
		k, limit := q.fromTail(at, dst[n:])
		if k > 0 {
			n += k
			continue
		}
		if limit <= 0 {
			break
		}
		k, err := q.fromFile(at, dst[n:n+int(min(int64(len(dst)-n), limit))])
		if err != nil && n == 0 {
			return 0, err
		}
		if k == 0 {
			break
		}
		n += k
	}
	return n, nil
}

// fromTail decodes from the buffer; when at is not in it, limit is how many units from at on the files must have.
func (q *Queue) fromTail(at int64, dst []Unit) (n int, limit int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at < q.tailAt {
		return 0, q.tailAt - at
	}
	i := (at - q.tailAt) * UnitSize
	if i >= int64(len(q.tail)) { // the buffer was released: everything is in the files
		return 0, q.max.Load() - at
	}
	src := q.tail[i:]
	for n < len(dst) && len(src) >= UnitSize {
		dst[n] = Decode(src)
		src = src[UnitSize:]
		n++
	}
	return n, 0
}

// fromFile decodes from the file that holds at, never beyond it, and stops at a unit that was not written.
func (q *Queue) fromFile(at int64, dst []Unit) (int, error) {
	file := at / q.t.perFile
	m, err := q.acquire(file)
	if errors.Is(err, errMissing) && at < q.min.Load() { // deleted meanwhile
		return 0, nil
	}
	if errors.Is(err, errMissing) {
		return 0, q.gap(at)
	}
	if err != nil {
		return 0, err
	}
	src := m.m.Bytes()[(at-file*q.t.perFile)*UnitSize:]
	n := 0
	for n < len(dst) && len(src) >= UnitSize {
		u := Decode(src)
		if !u.Valid() {
			break
		}
		dst[n] = u
		src = src[UnitSize:]
		n++
	}
	if err := q.releaseMap(m); err != nil {
		return 0, err
	}
	if n == 0 && at >= q.min.Load() && at < q.max.Load() {
		return 0, q.gap(at)
	}
	return n, nil
}

func (q *Queue) gap(at int64) error {
	return &GapError{Topic: q.topic, ID: q.id, Offset: message.QueueOffset(at), Next: q.NextFile(message.QueueOffset(at))}
}

// NextFile is the first offset of the file after the one that holds at.
func (q *Queue) NextFile(at message.QueueOffset) message.QueueOffset {
	return message.QueueOffset((q.fileOf(at) + 1) * q.t.perFile)
}

// At returns the unit of one offset; ok is false outside of [Min, Max) and where units are missing.
func (q *Queue) At(at message.QueueOffset) (u Unit, ok bool, err error) {
	var one [1]Unit
	n, err := q.Range(at, one[:])
	var gap *GapError
	if errors.As(err, &gap) {
		return Unit{}, false, nil
	}
	return one[0], n == 1, err
}

// OffsetByTime finds an offset by store time, with times that ascend along the queue. Lower: the first message at or
// after ms, Max when all are older. Upper: the last message at or before ms, Min when all are newer. timeOf returns the
// store time of a message in ms, or a negative number when it cannot be read, which counts as too early.
func (q *Queue) OffsetByTime(ms int64, upper bool, timeOf func(Unit) int64) (message.QueueOffset, error) {
	lo, hi := q.Min(), q.Max()
	first := lo
	// Invariant: units below lo are before the wanted boundary, units from hi on are not.
	for lo < hi {
		mid := lo + (hi-lo)/2
		u, ok, err := q.At(mid)
		if err != nil {
			return 0, err
		}
		t := int64(-1)
		if ok && !u.Blank() {
			t = timeOf(u)
		}
		if t < ms || (upper && t == ms) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if upper && lo > first {
		lo--
	}
	return lo, nil
}

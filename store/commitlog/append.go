package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// stage is a run of log bytes on its way to one segment.
type stage struct {
	seg   *mappedfile.Segment
	off   int64 // log offset of buf[0]
	end   int64 // log offset that is reached when the stage is written: off+n, or the segment's end behind a blank
	n     int
	buf   []byte
	since int64 // when the first byte came, see Log.clock
}

// obstacle is what keeps an append from being done under the lock.
type obstacle uint8

const (
	none obstacle = iota
	needStage
	needSegment
)

// Append places the batch at the end of the log, in one segment, and hands it to the dispatch ring. The bytes are staged
// only: Write makes them safe against a kill, Flush against power loss; the flusher does both within the flush interval if
// nobody else does. Offsets of queues and store times follow log order. It copies under the lock and does everything else
// outside of it; it waits when all stages are full. ErrFull, ErrTooLarge: nothing was appended.
func (l *Log) Append(b *Batch) (Placed, error) {
	if err := l.admit(b); err != nil {
		return Placed{}, err
	}
	var own *stage // for what does not fit a usual stage
	if len(b.buf) > l.cfg.StageSize {
		own = &stage{buf: make([]byte, len(b.buf))}
	}
	start := time.Now() // the only look at the clock of an append that need not wait
	now, waited := start, false
	for {
		if !l.mu.TryLock() {
			l.mu.Lock()
			waited = true
		}
		p, order, why, err := l.tryAppendLocked(b, own, now)
		l.mu.Unlock()
		if err != nil {
			return Placed{}, err
		}
		if waited = waited || why != none; waited {
			now = time.Now()
		}
		switch why {
		case none:
			if order >= 0 {
				l.seq.PrepareAsync(order)
			}
			l.kick()
			p.Waited = now.Sub(start)
			return p, nil
		case needStage:
			err = l.Write(p.End)
		case needSegment:
			err = l.prepare(order)
		}
		if err != nil {
			return Placed{}, err
		}
		now = time.Now()
	}
}

func (l *Log) admit(b *Batch) error {
	if len(b.entries) == 0 {
		return errors.New("append to commit log: empty batch")
	}
	if b.crc != l.cfg.AppendCRC {
		return errors.New("append to commit log: batch of another log")
	}
	if int64(len(b.buf))+message.BlankSize > l.cfg.SegmentSize {
		return fmt.Errorf("%w: %d bytes, a segment has %d", ErrTooLarge, len(b.buf), l.cfg.SegmentSize)
	}
	for i := range b.entries {
		if n := int(b.entries[i].Size); n > l.cfg.MaxBody+recordOverhead {
			return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, n, l.cfg.MaxBody+recordOverhead)
		}
	}
	return nil
}

// tryAppendLocked does the part under the lock; now is the time, or shortly before. order is the base of a segment to
// create: now if why is needSegment, ahead of time if why is none, -1 if there is nothing to create. p.End is the log's end
// if why is needStage.
func (l *Log) tryAppendLocked(b *Batch, own *stage, now time.Time) (p Placed, order int64, why obstacle, err error) {
	if err := l.usableLocked(); err != nil {
		return p, -1, none, err
	}
	if l.follows {
		return p, -1, none, ErrFollowing
	}
	n := int64(len(b.buf))
	if n+message.BlankSize > l.segEnd-l.end.Load() {
		if why, base := l.rollLocked(l.since(now)); why != none {
			return Placed{End: l.End()}, base, why, nil
		}
	}
	st := own
	if st == nil {
		st = l.stageLocked(len(b.buf), l.since(now))
	} else if len(l.full) < l.cfg.Stages {
		l.enqueueLocked(st, l.since(now))
	} else {
		st = nil
	}
	if st == nil {
		return Placed{End: l.End()}, -1, needStage, nil
	}
	at := l.end.Load()
	storeTime := max(now.UnixMilli(), l.lastTime)
	b.place(at, storeTime)
	copy(st.buf[st.n:], b.buf)
	st.n += len(b.buf)
	st.end = at + n
	l.lastTime = storeTime
	l.ring.push(b.entries)
	l.end.Store(at + n)
	return Placed{Start: message.LogOffset(at), End: message.LogOffset(at + n), StoreTime: storeTime}, l.orderLocked(), none, nil
}

func (l *Log) usableLocked() error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.closed {
		return ErrClosed
	}
	if !l.ready {
		return ErrState
	}
	return nil
}

// stageLocked returns a stage with room for n bytes at the end of the log, nil when all are full. clock is the time for a new one.
func (l *Log) stageLocked(n int, clock int64) *stage {
	if st := l.cur; st != nil && len(st.buf)-st.n >= n {
		return st
	}
	var st *stage
	if k := len(l.free); k > 0 {
		st = l.free[k-1]
		l.free = l.free[:k-1]
	} else if l.stages < l.cfg.Stages {
		st = &stage{buf: make([]byte, l.cfg.StageSize)}
		l.stages++
	} else {
		return nil
	}
	l.enqueueLocked(st, clock)
	l.cur = st
	return st
}

// enqueueLocked starts st at the end of the log.
func (l *Log) enqueueLocked(st *stage, clock int64) {
	l.sealLocked()
	st.seg, st.off, st.end, st.n, st.since = l.seg, l.end.Load(), l.end.Load(), 0, clock
	l.full = append(l.full, st)
}

// sealLocked ends the stage that is being filled; it stays in the list of those to be written.
func (l *Log) sealLocked() { l.cur = nil }

// rollLocked ends the current segment with a blank record and goes on in the next one, which must be prepared; base is the
// one to create if it is not.
func (l *Log) rollLocked(clock int64) (why obstacle, base int64) {
	left := l.segEnd - l.end.Load()
	var st *stage
	if left > 0 {
		if st = l.stageLocked(message.BlankSize, clock); st == nil {
			return needStage, -1
		}
	}
	next, ok := l.seq.Next(l.segEnd)
	if !ok {
		return needSegment, l.segEnd
	}
	if st != nil {
		if left >= message.BlankSize {
			binary.BigEndian.PutUint32(st.buf[st.n:], uint32(left))
			binary.BigEndian.PutUint32(st.buf[st.n+4:], message.MagicBlank)
			st.n += message.BlankSize
		}
		st.end = l.segEnd
	}
	l.sealLocked()
	l.end.Store(l.segEnd)
	l.seg = next
	l.segEnd = next.End()
	return none, -1
}

// orderLocked names the segment to create ahead of time, once the current one is half full.
func (l *Log) orderLocked() int64 {
	if l.cfg.NoPrepare || l.ahead == l.segEnd || l.segEnd-l.end.Load() > l.cfg.SegmentSize/2 {
		return -1
	}
	l.ahead = l.segEnd
	return l.segEnd
}

// prepare creates the next segment, outside of the lock.
func (l *Log) prepare(base int64) error {
	err := l.seq.Prepare(base)
	var failed *mappedfile.SyncError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		l.Fence(err)
		return l.Err()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, mappedfile.ErrClosed):
		return ErrClosed
	}
	return fmt.Errorf("append to commit log: %w", err)
}

// Follow makes Append fail with ErrFollowing, or ends that. When it returns no Append is under way that began before.
func (l *Log) Follow(on bool) {
	l.mu.Lock()
	l.follows = on
	l.mu.Unlock()
}

// AppendRaw continues the log with bytes of another log, blank records and gaps included; at must be its end (an empty log
// takes any segment start). Nothing is checked and the dispatch ring is passed by: the dispatcher scans. One goroutine
// calls it, and nobody calls Append meanwhile.
func (l *Log) AppendRaw(at message.LogOffset, p []byte) error {
	if l.End() == 0 && at > 0 && int64(at)%l.cfg.SegmentSize == 0 && l.seq.Last() == nil {
		l.setEnd(int64(at), nil)
	}
	for {
		rest, order, why, err := l.tryAppendRaw(int64(at), p)
		if err != nil {
			return err
		}
		at += message.LogOffset(len(p) - len(rest))
		p = rest
		switch why {
		case none:
			if order >= 0 {
				l.seq.PrepareAsync(order)
			}
		case needStage:
			err = l.Write(at)
		case needSegment:
			err = l.prepare(order)
		}
		if err != nil {
			return err
		}
		if len(p) == 0 {
			l.kick()
			return nil
		}
	}
}

func (l *Log) tryAppendRaw(at int64, p []byte) (rest []byte, order int64, why obstacle, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return p, -1, none, err
	}
	if end := l.end.Load(); at != end {
		return p, -1, none, fmt.Errorf("%w: at %d, the log ends at %d", ErrNotAtEnd, at, end)
	}
	for len(p) > 0 {
		if l.end.Load() == l.segEnd {
			next, ok := l.seq.Next(l.segEnd)
			if !ok {
				return p, l.segEnd, needSegment, nil
			}
			l.sealLocked()
			l.seg, l.segEnd = next, next.End()
		}
		st := l.stageLocked(1, l.clock())
		if st == nil {
			return p, -1, needStage, nil
		}
		end := l.end.Load()
		n := copy(st.buf[st.n:], p[:min(int64(len(p)), l.segEnd-end)])
		st.n += n
		st.end = end + int64(n)
		l.end.Store(end + int64(n))
		p = p[n:]
	}
	return nil, l.orderLocked(), none, nil
}

// RaiseStoreTime makes sure that later records are not stored earlier than ms: for an owner that knows the newest store
// time although Recover read no record.
func (l *Log) RaiseStoreTime(ms int64) {
	l.mu.Lock()
	l.lastTime = max(l.lastTime, ms)
	l.mu.Unlock()
}

// clock is a monotonic time, > 0.
func (l *Log) clock() int64 { return l.since(time.Now()) }

func (l *Log) since(now time.Time) int64 { return int64(now.Sub(l.born)) + 1 }

// Busy is the age of the oldest byte that was appended and is not written yet, 0 when there is none.
func (l *Log) Busy() time.Duration {
	since := l.busySince.Load()
	if since == 0 {
		l.mu.Lock()
		if len(l.full) > 0 {
			since = l.full[0].since
		}
		l.mu.Unlock()
	}
	if since == 0 {
		return 0
	}
	return time.Duration(l.clock() - since)
}

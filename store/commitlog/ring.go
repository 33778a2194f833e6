package commitlog

import (
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
)

// ring hands entries from the appenders (one at a time, under the append lock) to the one dispatcher. When it is full,
// entries are left out; the dispatcher sees the hole by the offsets and scans the log for it. An entry is pushed before the
// log's end moves over it, so that a record below Written is either in the ring or left out, never on its way.
type ring struct {
	slots []Entry
	head  atomic.Uint64 // next slot to fill
	tail  atomic.Uint64 // next slot to take
}

func newRing(size int) ring { return ring{slots: make([]Entry, size)} }

func (r *ring) push(entries []Entry) {
	head, room := r.head.Load(), uint64(len(r.slots))
	if head+uint64(len(entries))-r.tail.Load() > room {
		return
	}
	for i := range entries {
		r.slots[head&(room-1)] = entries[i]
		head++
	}
	r.head.Store(head)
}

// clear forgets everything; only while nobody takes.
func (r *ring) clear() { r.tail.Store(r.head.Load()) }

// Next gives the dispatcher, which has dispatched everything below pos, the entries of the records that follow: they start
// at pos, touch each other and end at or below limit. limit must not be above Written. When n is 0 and gap > pos, the
// entries of [pos, gap) are not there: Scan that range, then go on with Next at gap. n == 0 and gap == pos: nothing to do.
// Only one goroutine may call it.
func (l *Log) Next(pos, limit message.LogOffset, buf []Entry) (n int, gap message.LogOffset) {
	r := &l.ring
	tail, head := r.tail.Load(), r.head.Load()
	mask := uint64(len(r.slots) - 1)
	gap = max(pos, limit)
	for ; tail != head && n < len(buf); tail++ {
		e := &r.slots[tail&mask]
		if e.LogOffset < pos {
			continue // the dispatcher scanned over it
		}
		if e.LogOffset > pos {
			gap = min(gap, e.LogOffset)
			break
		}
		if e.End() > limit {
			gap = pos
			break
		}
		buf[n] = *e
		n++
		pos = e.End()
	}
	r.tail.Store(tail)
	return n, gap
}

package remoting

import (
	"os"
	"sync"
	"sync/atomic"
)

const (
	copyBelow    = 16 << 10 // bodies below are copied behind their header: cheaper than another slice to write
	sendFileFrom = 64 << 10 // parts from here go out from their file
	outMostKept  = 128 << 10
	maxSlices    = 64 // of one write
)

// outQueue is what waits to be written: the bytes of buf, with extras between them.
type outQueue struct {
	buf    *outBuf // nil when there are none
	extras []extra
	size   int64 // bytes left

	at    int   // bytes of buf that are written
	first int   // extras that are written
	some  int64 // bytes of extras[first] that are written
	freed int   // extras whose part was released
}

// extra is a piece that is not copied into buf.
type extra struct {
	at   int      // its place in buf
	b    []byte   // in memory, or
	f    *os.File // in a file from off
	off  int64
	n    int64
	part Part          // to be released; nil when nobody waits for it
	mem  *atomic.Int64 // counts n while the piece is held; nil for views and files
}

type outBuf struct{ b []byte }

var outBufs = sync.Pool{New: func() any { return &outBuf{make([]byte, 0, 4<<10)} }}

func freeOutBuf(b *outBuf) {
	if b != nil && cap(b.b) <= outMostKept {
		b.b = b.b[:0]
		outBufs.Put(b)
	}
}

func (q *outQueue) empty() bool { return q.size == 0 }

// buffer is where heads and small bodies are appended.
func (q *outQueue) buffer() *outBuf {
	if q.buf == nil {
		q.buf = outBufs.Get().(*outBuf)
	}
	return q.buf
}

func (q *outQueue) add(e extra) {
	e.at = 0
	if q.buf != nil {
		e.at = len(q.buf.b)
	}
	q.extras = append(q.extras, e)
	q.size += e.n
}

// gather appends the next slices to write to list, at most its capacity, or returns the extra whose file comes next.
func (q *outQueue) gather(list [][]byte) ([][]byte, *extra) {
	pos := q.at
	for i := q.first; i < len(q.extras); i++ {
		e := &q.extras[i]
		if e.at > pos {
			list = append(list, q.buf.b[pos:e.at])
			pos = e.at
			if len(list) == cap(list) {
				return list, nil
			}
		}
		if e.f != nil {
			if len(list) == 0 {
				return list, e
			}
			return list, nil
		}
		b := e.b
		if i == q.first {
			b = b[q.some:]
		}
		if list = append(list, b); len(list) == cap(list) {
			return list, nil
		}
	}
	if q.buf != nil && pos < len(q.buf.b) {
		list = append(list, q.buf.b[pos:])
	}
	return list, nil
}

// advance notes that n more bytes are written.
func (q *outQueue) advance(n int64) {
	q.size -= n
	for n > 0 {
		stop := -1
		if q.first < len(q.extras) {
			stop = q.extras[q.first].at
		} else {
			stop = len(q.buf.b)
		}
		if d := int64(stop - q.at); d > 0 {
			d = min(d, n)
			q.at += int(d)
			n -= d
			continue
		}
		d := min(q.extras[q.first].n-q.some, n)
		q.some += d
		n -= d
		if q.some == q.extras[q.first].n {
			q.first, q.some = q.first+1, 0
		}
	}
}

// release releases the parts that are written.
func (q *outQueue) release() { q.releaseTo(q.first) }

func (q *outQueue) releaseTo(end int) {
	for ; q.freed < end; q.freed++ {
		e := &q.extras[q.freed]
		p := e.part
		if e.mem != nil {
			e.mem.Add(-e.n)
		}
		*e = extra{at: e.at, n: e.n}
		if p != nil {
			p.Release()
		}
	}
}

// reset makes a written queue ready for the next use.
func (q *outQueue) reset() {
	freeOutBuf(q.buf)
	extras := q.extras[:0]
	if cap(extras) > 4*maxSlices {
		extras = nil
	}
	*q = outQueue{extras: extras}
}

// drop gives up what is left.
func (q *outQueue) drop(c *Conn) {
	c.queued.Add(-q.size)
	q.releaseTo(len(q.extras))
	q.reset()
}

package main

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

const (
	headSize = 88
	slots    = 1 << 18 // messages that a pull can find
)

// memLog is a ring of record bytes and a ring of index entries under one lock, all of it touched in advance.
type memLog struct {
	mu    sync.Mutex
	buf   []byte
	pos   int
	next  int64
	index []entry
}

type entry struct{ at, size int }

func newMemLog(size int) *memLog {
	l := &memLog{buf: make([]byte, size), index: make([]entry, slots)}
	for i := 0; i < len(l.buf); i += 4096 {
		l.buf[i] = 1
	}
	for i := range l.index {
		l.index[i] = entry{}
	}
	return l
}

// put stores one record and returns its queue offset and place. With a flusher the record is staged there as well.
func (l *memLog) put(h *header, body, props []byte, f *flusher) (int64, int64) {
	crc := crc32.ChecksumIEEE(body) & 0x7FFFFFFF
	n := headSize + len(body) + 1 + len(h.topic) + 2 + len(props)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pos+n > len(l.buf) {
		l.pos = 0
	}
	at := l.pos
	r := l.buf[at : at+n : at+n]
	l.pos += n
	binary.BigEndian.PutUint32(r, uint32(n))
	binary.BigEndian.PutUint32(r[4:], 0xDAA320A7)
	binary.BigEndian.PutUint32(r[8:], crc)
	binary.BigEndian.PutUint32(r[12:], uint32(h.queueID))
	binary.BigEndian.PutUint64(r[20:], uint64(l.next))
	binary.BigEndian.PutUint64(r[28:], uint64(at))
	binary.BigEndian.PutUint32(r[84:], uint32(len(body)))
	i := headSize + copy(r[headSize:], body)
	r[i] = byte(len(h.topic))
	i += 1 + copy(r[i+1:], h.topic)
	binary.BigEndian.PutUint16(r[i:], uint16(len(props)))
	copy(r[i+2:], props)
	q := l.next
	l.index[q%slots] = entry{at, n}
	l.next++
	if f != nil {
		f.stage(r)
	}
	return q, int64(at)
}

// find returns up to n records from queue offset q that lie side by side, and the offset behind them.
func (l *memLog) find(q int64, n int) ([]byte, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q < 0 || q >= l.next || l.next-q > slots {
		return nil, q
	}
	first := l.index[q%slots]
	end := first.at
	for ; n > 0 && q < l.next; n-- {
		e := l.index[q%slots]
		if e.at != end {
			break
		}
		end += e.size
		q++
	}
	return l.buf[first.at:end], q
}

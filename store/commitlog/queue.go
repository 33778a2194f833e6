package commitlog

import (
	"encoding/binary"
	"sync/atomic"
	"unicode/utf8"

	"github.com/epochmq/epochmq/message"
)

// scheduleTopic holds delayed messages; their tags code is a time, computed by the dispatcher from DelayLevel.
const scheduleTopic = "SCHEDULE_TOPIC_XXXX"

// Queue is the append end of one topic queue: the log gives out its offsets under the append lock. The store owns the table
// of them and makes exactly one per topic and id.
type Queue struct {
	Topic string
	ID    int32
	Owner any // of the store, set before the first append; the log does not look at it

	next       atomic.Int64 // written under the append lock
	prefix     int32        // hash of topic and '#'
	isSchedule bool
}

// NewQueue returns a queue whose next message gets offset next.
func NewQueue(topic string, id int32, next message.QueueOffset) *Queue {
	q := &Queue{Topic: topic, ID: id, isSchedule: topic == scheduleTopic}
	q.prefix = 31*hashMore(0, []byte(topic)) + '#'
	q.next.Store(int64(next))
	return q
}

// Next is the offset of the next message.
func (q *Queue) Next() message.QueueOffset { return message.QueueOffset(q.next.Load()) }

// SetNext moves the next offset; only while nothing is appended to the queue.
func (q *Queue) SetNext(next message.QueueOffset) { q.next.Store(int64(next)) }

// RaiseNext moves the next offset up to next, never down; appends may go on meanwhile.
func (q *Queue) RaiseNext(next message.QueueOffset) {
	for {
		now := q.next.Load()
		if int64(next) <= now || q.next.CompareAndSwap(now, int64(next)) {
			return
		}
	}
}

// KeyHash is Java's hashCode of topic#key, the hash under which the index finds the message.
func (q *Queue) KeyHash(key []byte) int32 { return hashMore(q.prefix, key) }

// Powers of 31 as int32, for eight units of a hash at once.
const (
	p2 int32 = 31 * 31
	p3 int32 = p2 * 31
	p4 int32 = p3 * 31
	p5 int32 = p4 * 31
	p6 int32 = 887503681
	p7 int32 = 1742810335
	p8 int32 = -1807454463

	highBits = 0x8080808080808080
)

// hashMore continues Java's String.hashCode over the UTF-16 units of s.
func hashMore(h int32, s []byte) int32 {
	i := 0
	for ; i+8 <= len(s); i += 8 { // the products do not wait for each other
		if binary.LittleEndian.Uint64(s[i:])&highBits != 0 {
			break
		}
		b := s[i : i+8]
		h = h*p8 + int32(b[0])*p7 + int32(b[1])*p6 + int32(b[2])*p5 + int32(b[3])*p4 +
			int32(b[4])*p3 + int32(b[5])*p2 + int32(b[6])*31 + int32(b[7])
	}
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}

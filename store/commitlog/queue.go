package commitlog

import (
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

// KeyHash is Java's hashCode of topic#key, the hash under which the index finds the message.
func (q *Queue) KeyHash(key []byte) int32 { return hashMore(q.prefix, key) }

// hashMore continues Java's String.hashCode over the UTF-16 units of s.
func hashMore(h int32, s []byte) int32 {
	for i := 0; i < len(s); {
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

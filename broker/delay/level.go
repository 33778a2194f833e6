package delay

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
)

// Waiting times of a loop.
const (
	forever    = time.Duration(math.MaxInt64)
	retryAfter = 100 * time.Millisecond // after a refused put
	faultAfter = time.Second            // after a failed read
	readAtOnce = 64                     // messages
)

// levelLoop delivers the messages of one level. Only its goroutine touches next, failed, query and result.
type levelLoop struct {
	s     *Service
	level int32
	next  message.QueueOffset // the message to look at
	idle  atomic.Bool         // the queue is empty as far as the loop knows: an arrival wakes it
	kick  chan struct{}

	failing bool // the last put was refused; said once
	query   store.Query
	result  store.Result
}

func (l *levelLoop) signal() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *levelLoop) run() {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		wait := l.pass()
		timer.Reset(wait)
		select {
		case <-l.s.stop:
			return
		case <-l.kick:
		case <-timer.C:
		}
	}
}

// pass delivers all that is due and returns how long to wait for more.
func (l *levelLoop) pass() time.Duration {
	for {
		select {
		case <-l.s.stop:
			return forever
		default:
		}
		l.idle.Store(true) // before the read: a message that comes after it signals
		wait, more := l.step()
		if wait != forever {
			l.idle.Store(false)
		}
		if !more {
			return wait
		}
	}
}

// step reads from next and delivers what is due of it. more: look again at once.
func (l *levelLoop) step() (wait time.Duration, more bool) {
	l.query = store.Query{Topic: scheduleTopic, QueueID: l.level - 1, Offset: l.next, MaxMsgs: readAtOnce}
	if err := l.s.store.Get(&l.query, &l.result); err != nil {
		l.s.log.Error("read delayed messages", "level", l.level, "offset", l.next, "err", err)
		return faultAfter, false
	}
	defer l.result.Release()
	if l.result.Status == store.Found {
		return l.deliver()
	}
	moved := l.result.Next != l.next
	if moved {
		l.s.log.Warn("delayed messages skipped", "level", l.level, "offset", l.next, "to", l.result.Next, "status", l.result.Status.String())
		l.advance(l.result.Next, 0)
	}
	return forever, moved
}

// deliver puts the due messages of the result. What is not due ends it: a queue is in the order of time.
func (l *levelLoop) deliver() (wait time.Duration, more bool) {
	delay := l.s.levels.Load().Delay(l.level)
	now := time.Now()
	due, ends, wait := l.due(now.UnixMilli(), delay)
	n, err := 0, error(nil)
	if len(due) > 0 {
		n, err = l.s.door.PutAll(context.Background(), due)
	}
	switch {
	case err == nil && len(ends) > 0:
		l.advance(ends[len(ends)-1], n)
	case n > 0:
		l.advance(ends[n-1], n)
	case len(ends) == 0:
		l.advance(l.next, 0)
	}
	if err != nil {
		if !l.failing {
			l.s.log.Error("deliver delayed message", "level", l.level, "offset", l.next, "err", err)
		}
		l.failing = true
		return retryAfter, false
	}
	l.failing = false
	return wait, wait == 0
}

// due decodes the records of the result. It returns the messages to put, for each of them the offset behind it, where
// messages that cannot be delivered count to the one before, and how long the first that is not due has to wait, 0 when
// all are due.
func (l *levelLoop) due(now int64, delay time.Duration) (due []*message.Message, ends []message.QueueOffset, wait time.Duration) {
	at := l.next
	for _, v := range l.result.Views {
		for b := v.Bytes(); len(b) > 0; {
			var rec message.Record
			if err := message.Parse(b, &rec); err != nil {
				l.s.log.Error("delayed message is damaged", "level", l.level, "offset", at, "log", v.Offset(), "err", err)
				return due, ends, l.skipRest(at, &ends, len(due))
			}
			b = b[rec.Size:]
			at = rec.QueueOffset + 1
			left := time.Duration(rec.StoreTime-now)*time.Millisecond + delay
			if left > 0 && left <= delay { // more than the whole delay: the clock was set back
				return due, ends, left
			}
			if m := l.copyOf(&rec); m != nil {
				due = append(due, m)
				ends = append(ends, at)
			} else if len(ends) > 0 {
				ends[len(ends)-1] = at
			} else {
				l.advance(at, 0)
			}
		}
	}
	if end := l.result.Next; end > at {
		at = end
	}
	if len(ends) > 0 {
		ends[len(ends)-1] = at
	} else {
		l.advance(at, 0)
	}
	return due, ends, 0
}

// skipRest goes over what cannot be decoded: the whole answer, since the next record cannot be found.
func (l *levelLoop) skipRest(at message.QueueOffset, ends *[]message.QueueOffset, due int) time.Duration {
	end := max(l.result.Next, at+1)
	if due > 0 {
		(*ends)[due-1] = end
	} else {
		l.advance(end, 0)
	}
	return 0
}

// copyOf is the message as it is delivered; nil when the record does not say where to.
func (l *levelLoop) copyOf(rec *message.Record) *message.Message {
	to, _ := message.Property(rec.Properties, message.PropRealTopic)
	q, _ := message.Property(rec.Properties, message.PropRealQueueID)
	id, err := strconv.ParseInt(string(q), 10, 32)
	if len(to) == 0 || err != nil || string(to) == topic.HalfTopic {
		l.s.log.Error("delayed message dropped: it does not say where to", "level", l.level, "offset", rec.QueueOffset,
			"log", rec.LogOffset, "topic", string(to), "queue", string(q))
		return nil
	}
	return &message.Message{Topic: to, QueueID: int32(id), Flag: rec.Flag, SysFlag: rec.SysFlag, BornTime: rec.BornTime,
		BornHost: rec.BornHost, StoreHost: rec.StoreHost, ReconsumeTimes: rec.ReconsumeTimes, Body: rec.Body, Properties: rec.Properties}
}

func (l *levelLoop) advance(to message.QueueOffset, n int) {
	l.next = to
	l.s.moved(l.level, to, n)
}

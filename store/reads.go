package store

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// headBytes is enough of a record to read its store time, whatever its hosts are.
const headBytes = message.PosSysFlag + 4 + 8 + 20 + 8

func isCorrupt(err error) bool {
	var damage *mappedfile.CorruptError
	return errors.As(err, &damage)
}

// View returns a view of the whole record at a log offset that consumers may see; the caller releases it. ErrNoRecord when
// no record starts there. It may wait for the disk.
func (s *Store) View(off message.LogOffset) (commitlog.View, error) {
	if s.closed.Load() {
		return commitlog.View{}, ErrClosed
	}
	if off < s.log.Min() || int64(off) >= s.visible() {
		return commitlog.View{}, fmt.Errorf("%w: %d is outside of %d to %d", ErrNoRecord, off, s.log.Min(), s.visible())
	}
	v, err := s.log.Record(off)
	if errors.Is(err, commitlog.ErrBoundary) || errors.Is(err, commitlog.ErrOutOfRange) {
		return commitlog.View{}, fmt.Errorf("%w: %w", ErrNoRecord, err)
	}
	if err != nil {
		return commitlog.View{}, err
	}
	var rec message.Record
	if err := message.Parse(v.Bytes(), &rec); err != nil || rec.LogOffset != off {
		v.Release()
		return commitlog.View{}, fmt.Errorf("%w: %d", ErrNoRecord, off)
	}
	return v, nil
}

// ViewID is View for an offset message id; the host in it is returned and not compared.
func (s *Store) ViewID(id string) (commitlog.View, netip.AddrPort, error) {
	host, off, err := message.ParseID(id)
	if err != nil {
		return commitlog.View{}, host, err
	}
	v, err := s.View(off)
	return v, host, err
}

// visible is the log offset up to which consumers may see.
func (s *Store) visible() int64 { return s.log.Confirmed().Load() }

// storeTime reads the store time of the record of a unit, -1 when the record is gone.
func (s *Store) storeTime(u consumequeue.Unit) int64 { return s.storeTimeAt(u.Log) }

func (s *Store) storeTimeAt(off message.LogOffset) int64 {
	v, err := s.log.View(off, headBytes)
	if err != nil {
		return -1
	}
	defer v.Release()
	b := v.Bytes()
	var head [headBytes]byte
	if s.log.Written().Load()-int64(off) > s.hot { // may be cold: not through the map
		n, err := v.ReadAt(head[:v.Len()], 0)
		if err != nil && n < v.Len() {
			return -1
		}
		b = head[:n]
	}
	if len(b) < headBytes { // no record is that short
		return -1
	}
	return message.StoreTimeAt(b)
}

// StoreTime returns the store time, in ms, of one message of a queue; -1 when it is not there any more.
func (s *Store) StoreTime(topic []byte, id int32, at message.QueueOffset) int64 {
	q := s.queues.Get(topic, id)
	if q == nil {
		return -1
	}
	u, ok, err := q.At(at)
	if err != nil || !ok || u.Blank() {
		return -1
	}
	return s.storeTime(u)
}

// Earliest returns the store time, in ms, of the oldest message of a queue, -1 when there is none.
func (s *Store) Earliest(topic []byte, id int32) int64 {
	q := s.queues.Get(topic, id)
	if q == nil || q.Min() == q.Max() {
		return -1
	}
	return s.StoreTime(topic, id, q.Min())
}

// EarliestStoreTime returns the store time, in ms, of the oldest record of the log, -1 when there is none.
func (s *Store) EarliestStoreTime() int64 {
	low := s.log.Min()
	if int64(low) >= s.visible() {
		return -1
	}
	return s.storeTimeAt(low)
}

// OffsetByTime finds an offset by store time in ms. Lower: the first message stored at or after ms, the queue's maximum
// when all are older. Upper: the last one stored at or before ms, the queue's minimum when all are newer. 0 for an unknown
// queue.
func (s *Store) OffsetByTime(topic []byte, id int32, ms int64, upper bool) (message.QueueOffset, error) {
	q := s.queues.Get(topic, id)
	if q == nil {
		return 0, nil
	}
	return q.OffsetByTime(ms, upper, s.storeTime)
}

// InMemory says whether the message at one offset of a queue is within the part of the log that memory holds.
func (s *Store) InMemory(topic []byte, id int32, at message.QueueOffset) bool {
	q := s.queues.Get(topic, id)
	if q == nil {
		return false
	}
	u, ok, err := q.At(at)
	if err != nil || !ok || u.Blank() {
		return false
	}
	return s.visible()-int64(u.Log) <= s.ram/100*int64(s.config().AccessMessageInMemoryMaxRatio)
}

// Units decodes the raw entries of a queue from an offset on, for inspection; it returns how many it wrote into dst.
func (s *Store) Units(topic []byte, id int32, from message.QueueOffset, dst []consumequeue.Unit) (int, error) {
	q := s.queues.Get(topic, id)
	if q == nil {
		return 0, ErrNoQueue
	}
	return q.Range(from, dst)
}

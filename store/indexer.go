package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/index"
)

const (
	indexBatch = 1024
	indexNear  = 1 << 20 // bytes of the log that are put with the dispatcher waiting
)

var errYield = errors.New("somebody else wants to change the log")

// indexer brings the index to where the dispatcher stands, beside the running store, and then ends: from then on the
// dispatcher puts. One goroutine, run.
type indexer struct {
	worker
	s      *Store
	step   sync.Mutex        // held while the log is read and by who cuts it; taken before the dispatcher's turn
	yield  atomic.Int32      // how many wait for step
	pos    message.LogOffset // everything below was put; guarded by step
	caught atomic.Bool       // set with the dispatcher's turn held

	recs   []index.Record
	hashes []int32
}

func newIndexer(s *Store) *indexer { return &indexer{worker: newWorker(), s: s} }

func (x *indexer) run() {
	defer close(x.gone)
	err := x.catchUp()
	if errors.Is(err, errStopped) {
		return
	}
	if err == nil {
		if err = x.s.idx.Repair(); errors.Is(err, index.ErrClosed) {
			return
		}
	}
	if err != nil {
		x.s.flags.set(IndexError, true)
		x.s.o.Log.Error("index cannot be built", "error", err)
	}
}

// catchUp puts what is dispatched and not in the index. The last part is put with the dispatcher waiting, so that nothing
// is left between them.
func (x *indexer) catchUp() error {
	for {
		met, err := x.advance()
		if met || err != nil {
			return err
		}
	}
}

// advance puts the next part; met says that it was the last one.
func (x *indexer) advance() (met bool, err error) {
	x.step.Lock()
	defer x.step.Unlock()
	if to := message.LogOffset(x.s.d.done.Load()); to-x.pos > indexNear {
		return false, x.scan(to)
	}
	return x.meet()
}

func (x *indexer) meet() (met bool, err error) {
	x.s.d.turn.Lock()
	defer x.s.d.turn.Unlock()
	to := message.LogOffset(x.s.d.done.Load())
	if err := x.scan(to); err != nil || x.pos < to {
		return false, err
	}
	x.caught.Store(true)
	return true, nil
}

// hold waits for the right to change the log and the index; the caller unlocks step.
func (x *indexer) hold() {
	x.yield.Add(1)
	x.step.Lock()
	x.yield.Add(-1)
}

// scan puts what lies below to, or less when somebody else wants to have step. Called with step held.
func (x *indexer) scan(to message.LogOffset) error {
	for x.pos < to && x.yield.Load() == 0 {
		at, err := x.s.log.Scan(x.pos, to, x.add)
		if err != nil && !isCorrupt(err) && !errors.Is(err, errYield) {
			return err
		}
		if err := x.flush(); err != nil {
			return err
		}
		x.pos = at
		if errors.Is(err, errYield) {
			return nil
		}
		if err != nil {
			x.pos = min(x.s.nextFile(at), to)
		} else if at < to {
			return fmt.Errorf("index the log: a record at %d reaches above %d", at, to)
		}
	}
	return nil
}

func (x *indexer) add(rec *message.Record) error {
	select {
	case <-x.stop:
		return errStopped
	default:
	}
	if x.yield.Load() > 0 {
		return errYield
	}
	x.recs, x.hashes = appendIndexRecord(x.recs, x.hashes, rec)
	if len(x.recs) < indexBatch {
		return nil
	}
	return x.flush()
}

func (x *indexer) flush() error {
	err := x.s.idx.Put(x.recs)
	x.recs, x.hashes = x.recs[:0], x.hashes[:0]
	return err
}

// appendIndexRecord adds what the index takes of a record. Rolled back messages are put without keys.
func appendIndexRecord(recs []index.Record, hashes []int32, rec *message.Record) ([]index.Record, []int32) {
	start := len(hashes)
	if rec.SysFlag&message.TransactionMask != message.TransactionRollback {
		unique, _ := message.Property(rec.Properties, message.PropUniqKey)
		keys, _ := message.Property(rec.Properties, message.PropKeys)
		hashes = index.AppendHashes(hashes, rec.Topic, unique, keys)
	}
	recs = append(recs, index.Record{Log: rec.LogOffset, StoreTime: rec.StoreTime, Hashes: hashes[start:len(hashes):len(hashes)]})
	return recs, hashes
}

// indexPut gives a round of the dispatcher to the index, once that has caught up. Called with the dispatcher's turn held.
func (s *Store) indexPut(entries []commitlog.Entry) error {
	x := s.indexer
	if x == nil || !x.caught.Load() {
		return nil
	}
	for i := range entries {
		e := &entries[i]
		if e.MoreKeys {
			if err := x.long(e); err != nil {
				return err
			}
			continue
		}
		start := len(x.hashes)
		if e.SysFlag&message.TransactionMask != message.TransactionRollback {
			for _, h := range e.KeyHashes() {
				x.hashes = append(x.hashes, nonNegative(h))
			}
		}
		x.recs = append(x.recs, index.Record{Log: e.LogOffset, StoreTime: e.StoreTime, Hashes: x.hashes[start:len(x.hashes):len(x.hashes)]})
	}
	err := x.flush()
	if err != nil {
		s.flags.set(IndexError, true)
	}
	return err
}

// long indexes a message with more keys than an entry holds.
func (x *indexer) long(e *commitlog.Entry) error {
	v, err := x.s.log.Record(e.LogOffset)
	if err != nil {
		return err
	}
	defer v.Release()
	var rec message.Record
	if err := message.Parse(v.Bytes(), &rec); err != nil {
		return err
	}
	x.recs, x.hashes = appendIndexRecord(x.recs, x.hashes, &rec)
	return nil
}

// nonNegative is the form in which the index keeps a hash.
func nonNegative(h int32) int32 {
	if h < 0 {
		h = -h
	}
	return max(h, 0)
}

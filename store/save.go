package store

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/consumequeue"
)

const (
	markInterval = time.Second
	// durableBytes of dispatched log are the most that a start after a power loss has to dispatch again, whatever the
	// interval for flushing queues is.
	durableBytes = 256 << 20
)

// saver hands queues and index to the operating system and writes running marks about once a second, and makes them
// durable with a durable mark and the checkpoint file at the queues' flush interval. One goroutine, run; last is called
// after it ended.
type saver struct {
	worker
	s         *Store
	kick      chan chan error // save a running mark now
	queues    []consumequeue.Summary
	busy      sync.Mutex        // held while marks are made and by who cuts the log; taken before the dispatcher's steps
	saved     message.LogOffset // end of the newest running mark
	durable   message.LogOffset // end of the newest durable mark
	durableAt time.Time
}

func newSaver(s *Store) *saver {
	return &saver{worker: newWorker(), s: s, kick: make(chan chan error), saved: -1, durable: -1, durableAt: time.Now()}
}

func (v *saver) run() {
	defer close(v.gone)
	tick := time.NewTicker(markInterval)
	defer tick.Stop()
	for {
		var answer chan error
		select {
		case <-v.stop:
			return
		case answer = <-v.kick:
		case <-tick.C:
			v.s.samples.tick(&v.s.count)
		}
		err := v.save(answer != nil)
		if answer != nil {
			answer <- err
		}
		if err != nil {
			v.s.fence(err)
			return
		}
	}
}

// now writes a running mark at once and returns when it stands; it does nothing after the saver ended.
func (v *saver) now() error {
	answer := make(chan error, 1)
	select {
	case v.kick <- answer:
		return <-answer
	case <-v.gone:
		return nil
	}
}

// save writes the marks that are due. An error is a failed write or flush of queues or index and final; a mark that cannot
// be written costs only time at the next start.
func (v *saver) save(always bool) error {
	if v.s.fenceErr() != nil {
		return nil
	}
	v.busy.Lock()
	defer v.busy.Unlock()
	done := message.LogOffset(v.s.d.done.Load())
	if done != v.saved || always {
		m, _, err := v.snapshot(checkpoint.Running)
		if err != nil {
			return err
		}
		v.write(m)
		v.saved = m.LogEnd
	}
	if v.due(done) {
		return v.makeDurable()
	}
	return nil
}

func (v *saver) due(done message.LogOffset) bool {
	if done == v.durable {
		return false
	}
	cfg := v.s.config()
	since := time.Since(v.durableAt)
	if since < time.Duration(cfg.FlushIntervalConsumeQueue)*time.Millisecond {
		return false
	}
	return since >= time.Duration(cfg.FlushConsumeQueueThoroughInterval)*time.Millisecond || done-max(v.durable, 0) >= durableBytes
}

// snapshot drains queues and index and describes them and the log offset that they agree on.
func (v *saver) snapshot(kind checkpoint.Kind) (*checkpoint.Mark, int64, error) {
	s := v.s
	d := s.d
	d.turn.Lock()
	defer d.turn.Unlock()
	if err := s.queues.Drain(); err != nil {
		s.flags.set(QueueError, true)
		return nil, 0, fmt.Errorf("write queues: %w", err)
	}
	m := &checkpoint.Mark{Kind: kind, BootID: s.o.BootID, Time: time.Now().UnixMilli(), Last: d.last}
	m.LogEnd = d.last.Log + message.LogOffset(d.last.Size)
	v.queues = s.queues.Summaries(v.queues[:0])
	m.Queues = v.queues
	if s.idx != nil {
		if err := s.idx.Drain(); err != nil {
			s.flags.set(IndexError, true)
			return nil, 0, fmt.Errorf("write index: %w", err)
		}
		m.Index, m.Indexed = s.idx.State(), true
	}
	return m, d.lastTime, nil
}

// write completes a mark with the checksum of its last record and writes it. Once readers have met damage no mark is written any more and
// those that stand are deleted, so that the next start looks at everything.
func (v *saver) write(m *checkpoint.Mark) bool {
	if v.s.damageMet.Load() > 0 {
		if err := v.s.forgetMarks(); err != nil {
			v.s.o.Log.Warn("recovery marks are not deleted, the next start may not see the damage", "error", err)
		}
		return true
	}
	err := v.sign(m)
	if err == nil {
		err = checkpoint.WriteMark(v.s.fs, v.s.root, m)
	}
	if err != nil {
		v.s.o.Log.Warn("recovery mark is not written, the next start may take longer", "error", err)
	}
	return err == nil
}

func (v *saver) sign(m *checkpoint.Mark) error {
	if m.Last.Size == 0 {
		return nil
	}
	rec, err := v.s.log.Record(m.Last.Log)
	if err != nil {
		return err
	}
	m.Last.CRC = checkpoint.RecordCRC(rec.Bytes())
	rec.Release()
	return nil
}

// makeDurable flushes the log, the queues and the index, in this order, then says so: first in a durable mark, then in the
// checkpoint file of a Java broker, whose times are those of the last message that all of them hold.
func (v *saver) makeDurable() error {
	s := v.s
	m, lastTime, err := v.snapshot(checkpoint.Durable)
	if err != nil {
		return err
	}
	if err := s.log.Flush(m.LogEnd); err != nil {
		return err
	}
	if err := s.queues.Flush(); err != nil {
		s.flags.set(QueueError, true)
		return fmt.Errorf("flush queues: %w", err)
	}
	if s.idx != nil {
		if err := s.idx.Flush(); err != nil {
			s.flags.set(IndexError, true)
			return fmt.Errorf("flush index: %w", err)
		}
	}
	if v.write(m) {
		v.durable = m.LogEnd
	}
	v.durableAt = time.Now()
	return v.checkpoint(lastTime)
}

func (v *saver) checkpoint(lastTime int64) error {
	f, err := checkpoint.Open(v.s.fs, filepath.Join(v.s.root, "checkpoint"))
	if err != nil {
		return err
	}
	c := f.Values()
	if lastTime > 0 {
		c.PhysicTime, c.LogicsTime = lastTime, lastTime
	}
	if v.s.idx != nil {
		// Entries of the very last millisecond may be put after the flush, so only those before it are vouched for.
		c.IndexTime = max(v.s.idx.FlushedTime()-1, 0)
	}
	if v.s.o.ManualConfirm {
		c.Confirm = message.LogOffset(v.s.visible())
	}
	f.Set(c)
	if err := f.Flush(); err != nil {
		_ = f.Close() // the flush error is the one that counts
		return err
	}
	return f.Close()
}

// last makes everything durable at the end of a run, after all others have stopped.
func (v *saver) last() error { return v.makeDurable() }

// forget deletes the marks before something that they vouch for is changed.
func (s *Store) forgetMarks() error { return checkpoint.RemoveMarks(s.fs, s.root) }

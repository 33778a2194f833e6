package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

const (
	dispatchBatch = 1024 // entries of one round: bounds how long an arrival waits for those before it
	arrivalKeep   = 64   // arrivals kept without growing
)

// dispatcher follows the log and fills queues and index. One goroutine, run, owns it.
//
// Invariant: what lies below done is in the queues and was given to the index; queues, index, mark and checkpoint are only
// changed with turn held, so whoever holds turn sees them agree with done.
type dispatcher struct {
	s    *Store
	done *watermark.Mark // log offset dispatched
	// looked is done, or the end of a part of a record that starts there: raw bytes and confirm offsets come in pieces of any
	// length.
	looked *watermark.Mark
	steps  sync.Mutex // held by run while it looks at the log, and by who cuts it; taken before turn
	turn   sync.Mutex // held over one round; taken before the locks of queues and index. Callbacks run without it

	buf      []commitlog.Entry
	entries  int // dispatched since run last looked
	touched  []*Queue
	arrivals []Arrival
	spare    [][]consumequeue.Entry // empty lists for queues that see many entries in a round
	last     checkpoint.RecordRef   // the newest record dispatched, without its checksum; guarded by turn
	lastTime int64                  // its store time

	stop  chan struct{}
	wake  chan struct{}   // a waited-for mark has passed or failed
	waits [2]dispatchWait // for Confirmed and for Written
	gone  chan struct{}
}

func newDispatcher(s *Store) *dispatcher {
	d := &dispatcher{
		s: s, done: watermark.New(0), looked: watermark.New(0), buf: make([]commitlog.Entry, dispatchBatch), arrivals: make([]Arrival, 0, arrivalKeep),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	for i := range d.waits {
		w := &d.waits[i]
		w.Done = func(err error) {
			w.queued.Store(false)
			d.wakeUp(err)
		}
	}
	return d
}

// run dispatches what is confirmed until Close or the first failure, which fences the store.
func (d *dispatcher) run() {
	defer close(d.gone)
	var last time.Time // end of the last round
	pause := roundPause
	for {
		limit, err := d.await()
		if err != nil {
			return
		}
		if left := pause - time.Since(last); left > 0 && left <= pause {
			// Under load a round for every write would cost more than the writes: what comes within the pause goes into one.
			time.Sleep(left)
			limit = max(limit, message.LogOffset(d.source().Load()))
		}
		if err := d.step(limit); err != nil {
			d.s.fence(fmt.Errorf("dispatch: %w", err))
			return
		}
		last, pause = time.Now(), roundPause
		if d.entries >= busyEntries {
			pause = busyPause
		}
		d.entries = 0
	}
}

// step dispatches up to limit, or to where the log was cut meanwhile.
func (d *dispatcher) step(limit message.LogOffset) error {
	d.steps.Lock()
	defer d.steps.Unlock()
	return d.upTo(min(limit, message.LogOffset(d.source().Load())))
}

// roundPause is the least time between two rounds, busyPause after one of many entries. A message that comes alone is
// dispatched at once.
const (
	roundPause  = 100 * time.Microsecond
	busyPause   = 500 * time.Microsecond
	busyEntries = 16
)

var errStopped = errors.New("dispatcher stopped")

// await returns a limit above what was looked at, as soon as there is one.
func (d *dispatcher) await() (message.LogOffset, error) {
	for {
		select {
		case <-d.stop:
			return 0, errStopped
		default:
		}
		mark, pos := d.source(), d.looked.Load()
		if to := mark.Load(); to > pos {
			return message.LogOffset(to), nil
		}
		if err := mark.Err(); err != nil {
			return 0, err
		}
		w := &d.waits[0]
		if mark == d.s.log.Written() {
			w = &d.waits[1]
		}
		if w.queued.CompareAndSwap(false, true) { // it may still be there from before the source changed
			w.At = pos + 1
			mark.Add(&w.Waiter)
		}
		select {
		case <-d.wake:
		case <-d.stop:
			return 0, errStopped
		}
	}
}

// dispatchWait is the dispatcher's wait for one of its two sources.
type dispatchWait struct {
	watermark.Waiter
	queued atomic.Bool
}

// moveTo makes pos, at or below where it stood, the place where dispatching goes on. Called with steps and turn held; the
// marks it waits for are lower already.
func (d *dispatcher) moveTo(pos message.LogOffset) {
	d.done.Reset(int64(pos))
	d.looked.Reset(int64(pos))
	for i, mark := range []*watermark.Mark{d.s.log.Confirmed(), d.s.log.Written()} {
		if w := &d.waits[i]; mark.Remove(&w.Waiter) { // it waits for an offset that may be far above
			w.queued.Store(false)
		}
	}
	d.wakeUp(nil)
}

func (d *dispatcher) wakeUp(error) {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// source is the mark up to which the log may be seen.
func (d *dispatcher) source() *watermark.Mark {
	if d.s.config().ReadUnCommitted {
		return d.s.log.Written()
	}
	return d.s.log.Confirmed()
}

// upTo dispatches all whole records below limit.
func (d *dispatcher) upTo(limit message.LogOffset) error {
	for {
		select {
		case <-d.stop:
			return nil
		default:
		}
		pos := message.LogOffset(d.done.Load())
		n, gap := d.s.log.Next(pos, limit, d.buf)
		switch {
		case n > 0:
			if err := d.round(d.buf[:n], d.buf[n-1].End()); err != nil {
				return err
			}
		case gap > pos:
			at, err := d.scan(pos, gap)
			if err != nil {
				return err
			}
			if at < gap {
				d.looked.Advance(int64(gap))
				return nil
			}
		default:
			d.looked.Advance(int64(limit))
			return nil
		}
	}
}

// scan reads what the ring did not keep, and returns where the first record starts that reaches above to, or to. Damage
// below a confirmed offset cannot be passed over: messages behind it would get visible without it. It fences.
func (d *dispatcher) scan(from, to message.LogOffset) (message.LogOffset, error) {
	n := 0
	following := d.s.following.Load() != nil
	at, err := d.s.log.Scan(from, to, func(rec *message.Record) error {
		q, err := d.s.lateQueue(rec.Topic, rec.QueueID)
		if errors.Is(err, ErrIllegal) {
			d.s.o.Log.Warn("record of an impossible queue is not dispatched", "offset", rec.LogOffset, "error", err)
			return nil
		}
		if err != nil {
			return err
		}
		if following && takesOffset(rec.SysFlag) {
			q.RaiseNext(rec.QueueOffset + 1) // never down: writes may have been opened since
		}
		d.buf[n].Fill(rec, q)
		if n++; n < len(d.buf) {
			return nil
		}
		n = 0
		return d.round(d.buf, rec.LogOffset+message.LogOffset(rec.Size))
	})
	if err != nil {
		return at, err
	}
	if n > 0 || at > message.LogOffset(d.done.Load()) {
		if err := d.round(d.buf[:n], at); err != nil {
			return at, err
		}
	}
	if part := to - at; part > largestRecord || part > 0 && !following && !d.s.o.ManualConfirm {
		return at, fmt.Errorf("record at %d reaches above the confirmed offset %d", at, to)
	}
	return at, nil
}

// largestRecord is more than any configuration lets a record have: a part that is longer is damage.
const largestRecord = 256 << 20

// takesOffset says whether a message with these flags takes a queue offset: prepared and rolled back ones take none.
func takesOffset(sysFlag int32) bool {
	t := sysFlag & message.TransactionMask
	return t == 0 || t == message.TransactionCommit
}

// round gives entries to queues and index, moves done to end and tells who waits for arrivals.
func (d *dispatcher) round(entries []commitlog.Entry, end message.LogOffset) error {
	if err := d.apply(entries); err != nil {
		return err
	}
	raise(&d.s.count.dispatchMaxBatch, int64(len(entries)))
	d.entries += len(entries)
	d.done.Advance(int64(end))
	d.looked.Advance(int64(end))
	fn := d.s.onArrival.Load()
	for i := range d.arrivals {
		if fn != nil {
			(*fn)(d.arrivals[i])
		}
	}
	return nil
}

func (d *dispatcher) apply(entries []commitlog.Entry) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	d.touched, d.arrivals = d.touched[:0], d.arrivals[:0]
	levels := d.s.delays.Load()
	for i := range entries {
		d.enqueue(&entries[i], i, *levels)
	}
	for _, q := range d.touched {
		if err := d.put(q, entries); err != nil {
			return err
		}
	}
	if n := len(entries); n > 0 {
		newest := &entries[n-1]
		d.last = checkpoint.RecordRef{Log: newest.LogOffset, Size: newest.Size}
		d.lastTime = max(d.lastTime, newest.StoreTime)
		return d.s.indexPut(entries)
	}
	return nil
}

// enqueue notes an entry for its queue. Prepared and rolled back messages belong to no queue.
func (d *dispatcher) enqueue(e *commitlog.Entry, i int, levels []int64) {
	if !takesOffset(e.SysFlag) {
		return
	}
	if e.DelayLevel > 0 {
		e.TagsCode = deliverTime(e, levels)
	}
	st := state(e.Queue)
	if len(st.pending) == 0 {
		d.touched = append(d.touched, e.Queue)
		if st.pending == nil {
			st.pending = d.list()
		}
	}
	st.last = i
	st.pending = append(st.pending, consumequeue.Entry{Offset: e.QueueOffset, Unit: consumequeue.Unit{Log: e.LogOffset, Size: e.Size, Tags: e.TagsCode}})
}

// deliverTime is the tags code of a delayed message: when to deliver it.
func deliverTime(e *commitlog.Entry, levels []int64) int64 {
	level := min(int(e.DelayLevel), len(levels))
	if level == 0 {
		return e.StoreTime + 1000
	}
	return e.StoreTime + levels[level-1]
}

func (d *dispatcher) put(q *Queue, entries []commitlog.Entry) error {
	st := state(q)
	err := st.cq.Put(st.pending)
	if err != nil {
		err = d.refused(q, st.pending, err)
	}
	newest := &entries[st.last]
	if err == nil {
		d.arrivals = append(d.arrivals, Arrival{Topic: q.Topic, QueueID: q.ID, Offset: newest.QueueOffset + 1,
			TagsCode: newest.TagsCode, StoreTime: newest.StoreTime, Count: len(st.pending)})
	} else {
		d.s.flags.set(QueueError, true)
	}
	st.pending = st.pending[:0]
	if cap(st.pending) > keepPending {
		if len(d.spare) < spareLists {
			d.spare = append(d.spare, st.pending)
		}
		st.pending = nil
	}
	return err
}

// Most queues see few entries in a round and keep a short list; longer ones are shared by all.
const (
	keepPending = 16
	spareLists  = 64
)

// list returns an empty list for a queue's entries of one round.
func (d *dispatcher) list() []consumequeue.Entry {
	if n := len(d.spare); n > 0 {
		l := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return l
	}
	return nil
}

// refused handles entries that their queue does not take.
func (d *dispatcher) refused(q *Queue, entries []consumequeue.Entry, err error) error {
	var off *consumequeue.MisalignedError
	switch {
	case errors.As(err, &off):
		d.s.o.Log.Error("queue does not follow the log, it is built again", "error", err)
		return d.rebuild(q, entries[len(entries)-1].End())
	case errors.Is(err, consumequeue.ErrDropped):
		return nil // its topic was deleted while messages were on their way
	}
	return err
}

// rebuild empties a queue and fills it from all records below to. Called with turn held.
func (d *dispatcher) rebuild(q *Queue, to message.LogOffset) error {
	if err := d.s.forgetMarks(); err != nil {
		return err
	}
	if err := state(q).cq.Reset(); err != nil {
		return err
	}
	f := refiller{s: d.s, only: q}
	return f.run(d.s.log.Min(), to)
}

// refiller puts the records of a log range into the queues again. Entries that are there are left alone; a hole that the
// log has as well is filled with blanks; a queue that starts again at 0 (its topic was deleted and came back) starts anew.
type refiller struct {
	s       *Store
	only    *Queue // nil: all
	levels  []int64
	entry   commitlog.Entry
	unit    [1]consumequeue.Entry
	strict  bool                      // a hole is an error (*consumequeue.MisalignedError) instead of being filled
	skipped int                       // records of impossible queues
	tick    func(rec *message.Record) // for progress, may be nil
	onSkip  func(rec *message.Record, err error)
}

func (f *refiller) run(from, to message.LogOffset) error {
	for from < to {
		at, err := f.s.log.Scan(from, to, f.record)
		if err == nil {
			return nil
		}
		if !isCorrupt(err) {
			return err
		}
		from = f.s.nextFile(at)
		f.s.o.Log.Error("commit log is damaged, going on with its next file", "offset", at, "next", from, "error", err)
	}
	return nil
}

// record puts one record. It is the callback of Recover and Scan.
func (f *refiller) record(rec *message.Record) error {
	if f.tick != nil {
		f.tick(rec)
	}
	if !takesOffset(rec.SysFlag) {
		return nil
	}
	if f.only != nil && (rec.QueueID != f.only.ID || string(rec.Topic) != f.only.Topic) {
		return nil
	}
	q, err := f.s.lateQueue(rec.Topic, rec.QueueID)
	if errors.Is(err, ErrIllegal) {
		if f.skipped++; f.skipped == 1 {
			f.s.o.Log.Warn("record of an impossible queue is not dispatched", "offset", rec.LogOffset, "error", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.entry.Fill(rec, q)
	if f.entry.DelayLevel > 0 {
		if f.levels == nil {
			f.levels = slices.Clone(*f.s.delays.Load())
		}
		f.entry.TagsCode = deliverTime(&f.entry, f.levels)
	}
	f.unit[0] = consumequeue.Entry{Offset: rec.QueueOffset, Unit: consumequeue.Unit{Log: rec.LogOffset, Size: rec.Size, Tags: f.entry.TagsCode}}
	return f.put(state(q).cq)
}

// put brings one queue and one record together. A record below the queue's end was put before, unless damage took its
// entry, or it belongs to an earlier life of a topic that was deleted and came back.
func (f *refiller) put(cq *consumequeue.Queue) error {
	u := &f.unit[0]
	switch {
	case f.strict && u.Offset < cq.Max():
		return nil
	case u.Log < cq.End():
		return f.verify(cq, u)
	case u.Offset < cq.Max():
		if u.Offset > 0 {
			if u.Offset >= cq.Min() {
				was, ok, err := cq.At(u.Offset)
				if err != nil {
					return err
				}
				if !ok || !f.names(cq, u.Offset, was.Log) { // a loss of power brought back what a cut had taken
					if err := cq.TruncateTo(u.Offset); err != nil {
						return err
					}
					return cq.Put(f.unit[:])
				}
			}
			return nil // a number given out twice: the first one stays
		}
		if err := cq.Reset(); err != nil { // a new life
			return err
		}
	case f.strict && cq.Max() == 0 && u.Offset > 0: // a new queue starts at 0, so this one has lost its files
		return &consumequeue.MisalignedError{Topic: cq.Topic(), ID: cq.ID(), Got: u.Offset, Log: u.Log}
	case !f.strict && cq.Max() > 0 && u.Offset > cq.Max():
		if err := cq.Skip(u.Offset); err != nil {
			return err
		}
	}
	return cq.Put(f.unit[:])
}

// holds tells whether the entry that stands at u's place is u, or that of a later life of the topic.
func (f *refiller) holds(cq *consumequeue.Queue, u *consumequeue.Entry, was consumequeue.Unit) bool {
	switch {
	case was.Blank() || was.Log < u.Log:
		return false
	case was.Log == u.Log:
		return was.Size == u.Size && (was.Ext() || was.Tags == u.Tags || cq.Topic() == message.TopicSchedule)
	}
	return f.names(cq, u.Offset, was.Log)
}

// names tells whether the record at a place of the log says that it is this one of the queue.
func (f *refiller) names(cq *consumequeue.Queue, offset message.QueueOffset, at message.LogOffset) bool {
	v, err := f.s.log.Record(at)
	if err != nil {
		return false // no record stands there: the entry is damaged
	}
	defer v.Release()
	var rec message.Record
	return message.Parse(v.Bytes(), &rec) == nil && rec.QueueID == cq.ID() && rec.QueueOffset == offset && string(rec.Topic) == cq.Topic()
}

// verify compares the entry of a record below the queue's end, and cuts the queue where it is missing: what follows is put
// again.
func (f *refiller) verify(cq *consumequeue.Queue, u *consumequeue.Entry) error {
	var err error
	switch {
	case u.Offset >= cq.Max(): // of an earlier life
		return nil
	case u.Offset < cq.Min(): // the queue has lost its first files
		err = cq.Reset()
	default:
		was, ok, aerr := cq.At(u.Offset)
		if aerr != nil {
			return aerr
		}
		if ok && f.holds(cq, u, was) {
			return nil
		}
		err = cq.TruncateTo(u.Offset)
	}
	if err != nil {
		return err
	}
	return cq.Put(f.unit[:])
}

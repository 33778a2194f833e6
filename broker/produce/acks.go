package produce

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

// appendLimit bounds what is encoded before it is appended, so that it fits one stage of the log.
const appendLimit = 120 << 10

// pending is the state of one connection between a read and its BatchEnd, with the scratch that makes a send free of
// allocations. Only the connection's loop uses it. Batch and acks are borrowed for the time of one read: a connection
// that sends nothing holds nothing.
type pending struct {
	h      *Handler
	batch  *store.Batch // frames that are encoded and not appended; nil before the first of a read
	acks   *acks        // who waits, for what is appended and what is not; nil with batch
	header header
	found  properties
	text   []byte // properties of the message in work
	uniqAt [2]int // where its UNIQ_KEY stands in text
	msg    message.Message
	item   func(*message.BatchItem) error // addItem, bound once

	tally tally // accepted and not yet given to Stats

	sinceCheck int   // sends since overload looked at the clock
	refusal    error // what it found
}

func (h *Handler) pendingOf(c *remoting.Conn) *pending {
	return c.Local(h, h.newPending).(*pending)
}

func (h *Handler) makePending() any {
	p := &pending{h: h}
	p.item = p.addItem
	return p
}

// borrow takes batch and acks for the read that has begun.
func (p *pending) borrow() {
	if p.batch == nil {
		p.batch, p.acks = p.h.batches.Get().(*store.Batch), p.h.pool.Get().(*acks)
	}
}

// giveBack ends the read. The acks stay with their waiters when they are parked.
func (p *pending) giveBack(parked bool) {
	p.h.batches.Put(p.batch)
	if !parked {
		p.acks.reset()
		p.h.pool.Put(p.acks)
	}
	p.batch, p.acks, p.sinceCheck, p.refusal = nil, nil, 0, nil
	if cap(p.text) > 8<<10 {
		p.text = nil
	}
}

// finish completes the property text: the broker's own properties, and a UNIQ_KEY where the producer gave none.
func (p *pending) finish(c *settings, ids *message.UniqIDs) {
	if p.found.uniq != nil {
		p.uniqAt = [2]int{-1, -1}
	} else {
		p.text = append(p.text, message.PropUniqKey...)
		p.text = append(p.text, nameEnd)
		p.uniqAt[0] = len(p.text)
		p.text = ids.Append(p.text)
		p.uniqAt[1] = len(p.text)
		p.text = append(p.text, valueEnd)
	}
	p.text = append(p.text, c.appended...)
}

// uniq is the UNIQ_KEY of the message in work.
func (p *pending) uniq() []byte {
	if p.uniqAt[0] < 0 {
		return p.found.uniq
	}
	return p.text[p.uniqAt[0]:p.uniqAt[1]]
}

// append hands the batch to the log and notes for each ack where its messages are, or why there are none.
func (p *pending) append() {
	if p.batch.Len() == 0 {
		return
	}
	a := p.acks
	need, err := p.h.need()
	var placed store.Placed
	if err == nil {
		placed, err = p.h.Store.Append(p.batch)
	}
	for i := a.placed; i < len(a.list); i++ {
		k := &a.list[i]
		if k.err = err; err != nil {
			continue
		}
		first := p.batch.Entry(k.first)
		k.queueOffset, k.log = first.QueueOffset, first.LogOffset
		k.logs = int32(len(a.logs))
		for j := 1; j < k.n; j++ {
			a.logs = append(a.logs, p.batch.Entry(k.first+j).LogOffset)
		}
		if k.noWait {
			a.writeTo = placed.End
		} else {
			a.waitFor = placed.End
		}
	}
	if err == nil {
		a.end = placed.End
		if a.need == nil { // the first: when a role ended since, its mark has failed, and what came after is not sure either
			a.need = need
		}
	}
	a.placed = len(a.list)
	p.batch.Reset()
}

// fewAcks is the number of sends in one read below which waiting for others' pays: a write costs as much for one message as for twenty.
const fewAcks = 8

// BatchEnd appends and writes what the frames of one read brought, and answers them or parks the answers until the
// flushed mark has passed. It runs on the connection's loop.
func (h *Handler) BatchEnd(conn *remoting.Conn) {
	p := h.pendingOf(conn)
	if p.batch == nil {
		return
	}
	p.append()
	p.countAll()
	a, parked := p.acks, false
	sync := h.Store.SyncFlush()
	switch {
	case !sync:
		var err error
		if a.end > 0 {
			if len(a.list) < fewAcks {
				// Other connections that are ready stage their messages first, and one write serves all.
				runtime.Gosched()
			}
			err = h.Store.Write(a.end)
		}
		if parked = err == nil && a.need != nil && a.waitFor > 0; !parked {
			a.answer(err, all, protocol.Success)
			break
		}
		a.answer(nil, onlyNoWait, protocol.Success)
		a.park(nil)
	default:
		if a.writeTo > 0 {
			a.answer(h.Store.Write(a.writeTo), onlyNoWait, protocol.Success)
		}
		if parked = a.waitFor > 0; parked {
			a.park(h.Store.Flushed())
			h.Store.Log().FlushSoon() // one write and one flush for all that wait
		} else {
			a.answer(nil, all, protocol.Success) // none was stored
		}
	}
	p.giveBack(parked)
}

// need is what the replicas must do for what is appended now; an error refuses it. Both nil: there are none to wait for.
func (h *Handler) need() (*watermark.Mark, error) {
	if h.Replicas == nil {
		return nil, nil
	}
	return h.Replicas.Need()
}

// ack is one send that waits for its answer.
type ack struct {
	reply       remoting.Pending
	err         error // not stored
	queueOffset message.QueueOffset
	log         message.LogOffset
	uniq        [2]int32 // in acks.text
	logs        int32    // where in acks.logs the further offsets of a client batch begin
	queueID     int32    // that the producer asked for
	first, n    int      // its messages in the connection's batch
	noWait      bool     // written is enough
	done        bool
}

// acks are the sends of one read, their texts, and the wait for the flushed mark. They are pooled: a parked one goes back
// when both the mark and the timer have let it go.
type acks struct {
	h       *Handler
	list    []ack
	text    []byte
	logs    []message.LogOffset
	placed  int               // list[:placed] was appended
	end     message.LogOffset // of what was appended; one-way sends have no ack and need the write too
	writeTo message.LogOffset // the last message that must be written
	waitFor message.LogOffset // the last message that must be as durable as is configured
	need    *watermark.Mark   // what the replicas have of the log; nil: nothing is asked of them

	resp    remoting.Response
	scratch []byte
	flush   watermark.Waiter // for the disk
	copies  watermark.Waiter // for the replicas
	open    atomic.Int32     // waiters that have not passed
	copied  atomic.Bool      // the replicas have it, or are not asked
	timer   *time.Timer
	flushIn time.Duration // after the timer has rung for the replicas: how much longer the disk may take
	decided atomic.Bool   // by a mark or by the timer
	failed  error         // what the mark said, set before it is handed to the acker
	code    int32
	refs    atomic.Int32 // of the waiters and the timer
}

func newAcks(h *Handler) *acks {
	a := &acks{h: h}
	a.flush.Done = a.passed
	a.copies.Done = a.replicated
	return a
}

func (a *acks) reset() {
	clear(a.list)
	a.list, a.text, a.logs = a.list[:0], a.text[:0], a.logs[:0]
	a.placed, a.end, a.writeTo, a.waitFor, a.need, a.failed = 0, 0, 0, 0, nil, nil
	a.decided.Store(false)
}

// add notes a send whose messages are in the batch. One-way sends leave nothing.
func (a *acks) add(req *remoting.Request, k ack) {
	if !req.Oneway() {
		k.reply = req.Defer()
		a.list = append(a.list, k)
	}
}

// save copies a UNIQ_KEY, which the frame or the scratch holds, to where the answer finds it.
func (a *acks) save(uniq []byte) [2]int32 {
	start := int32(len(a.text))
	a.text = append(a.text, uniq...)
	return [2]int32{start, int32(len(a.text))}
}

// park waits for the flushed mark, unless it is nil, and for the replicas' where the batch needs them, each at most for its
// timeout.
func (a *acks) park(flushed *watermark.Mark) {
	c := a.h.conf.Load()
	n, limit := int32(0), c.SyncFlushTimeout
	if flushed != nil {
		n++
	}
	if a.copied.Store(a.need == nil); a.need != nil {
		n++
		limit = c.SlaveTimeout
	}
	a.flushIn = 0
	if flushed != nil && a.need != nil {
		a.flushIn = max(c.SyncFlushTimeout-c.SlaveTimeout, 0)
	}
	a.open.Store(n)
	a.refs.Store(n + 1)
	a.flush.At, a.copies.At = int64(a.waitFor), int64(a.waitFor)
	if a.timer == nil {
		a.timer = time.AfterFunc(limit, a.timedOut)
	} else {
		a.timer.Reset(limit)
	}
	need := a.need // a belongs to whoever decides from the first Add on, but for the waiter that is not added yet
	if flushed != nil {
		flushed.Add(&a.flush)
	}
	if need != nil {
		need.Add(&a.copies)
	}
}

func (a *acks) replicated(err error) {
	a.copied.Store(err == nil)
	a.passed(err)
}

// passed is called by whoever moves a mark: the answers are written by the acker, so that a flusher flushes on at once.
func (a *acks) passed(err error) {
	if (err != nil || a.open.Add(-1) == 0) && a.decided.CompareAndSwap(false, true) {
		if a.timer.Stop() {
			a.refs.Add(-1)
		}
		a.failed, a.code = err, protocol.Success
		a.h.acks.push(a)
		return
	}
	a.unref()
}

// timedOut answers FLUSH_SLAVE_TIMEOUT or FLUSH_DISK_TIMEOUT: the message is stored, its flush and its way to the replicas
// go on.
func (a *acks) timedOut() {
	code := protocol.FlushSlaveTimeout
	if a.copied.Load() {
		if d := a.flushIn; d > 0 && !a.decided.Load() {
			a.flushIn = 0
			a.timer.Reset(d)
			return
		}
		code = protocol.FlushDiskTimeout
	}
	if a.decided.CompareAndSwap(false, true) {
		a.failed, a.code = nil, code
		a.answer(nil, all, code)
	}
	a.unref()
}

func (a *acks) unref() {
	if a.refs.Add(-1) == 0 {
		a.reset()
		a.h.pool.Put(a)
	}
}

// Which acks answer is for.
const (
	all        = false
	onlyNoWait = true
)

// answer replies to the acks that have none yet. err says that what was appended is not as durable as it must be.
func (a *acks) answer(err error, noWait bool, code int32) {
	if len(a.list) == 0 {
		return
	}
	conn := a.list[0].reply.Conn() // all of a read are of one connection
	conn.Cork()
	defer conn.Uncork()
	c := a.h.conf.Load()
	for i := range a.list {
		k := &a.list[i]
		if k.done || noWait && !k.noWait {
			continue
		}
		k.done = true
		a.resp.Reset()
		if k.err == nil {
			k.err = err
		}
		if k.err != nil {
			code, remark := a.h.status(c, k.err)
			if err != nil && code == protocol.SystemError {
				code = protocol.ServiceNotAvailable // it may be stored: never a code that clients read as stored
			}
			c.refuse(&a.resp, code, remark)
		} else {
			a.success(c, k, code)
		}
		k.reply.Reply(&a.resp)
	}
}

// success fills the answer to a stored send.
func (a *acks) success(c *settings, k *ack, code int32) {
	a.resp.Code = code
	a.scratch = message.AppendID(a.scratch[:0], c.StoreHost, k.log)
	for j := range k.n - 1 {
		a.scratch = append(a.scratch, ',')
		a.scratch = message.AppendID(a.scratch, c.StoreHost, a.logs[int(k.logs)+j])
	}
	e := &a.resp.Ext
	e.AddBytes("msgId", a.scratch)
	e.AddInt("queueId", int64(k.queueID))
	e.AddInt("queueOffset", int64(k.queueOffset))
	e.AddBytes("transactionId", a.text[k.uniq[0]:k.uniq[1]])
	c.region(e)
}

// acker answers parked sends on goroutines of its own.
type acker struct {
	mu     sync.Mutex
	list   []*acks // guarded by mu
	closed bool    // guarded by mu
	kick   chan struct{}
	wg     sync.WaitGroup
}

func (k *acker) init() { k.kick = make(chan struct{}, 1) }

func (k *acker) start() { k.wg.Go(k.run) }

// push never blocks. After close the caller's goroutine answers.
func (k *acker) push(a *acks) {
	k.mu.Lock()
	closed := k.closed
	if !closed {
		k.list = append(k.list, a)
	}
	k.mu.Unlock()
	if closed {
		a.finish()
		return
	}
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *acker) run() {
	var work []*acks
	for {
		k.mu.Lock()
		work, k.list = k.list, work[:0]
		closed := k.closed
		k.mu.Unlock()
		for i, a := range work {
			work[i] = nil
			a.finish()
		}
		if len(work) > 0 {
			continue
		}
		if closed {
			return
		}
		<-k.kick
	}
}

func (k *acker) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	select {
	case k.kick <- struct{}{}:
	default:
	}
	k.wg.Wait()
}

// finish answers and gives the object back.
func (a *acks) finish() {
	a.answer(a.failed, all, a.code)
	a.unref()
}

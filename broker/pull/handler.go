// Package pull serves consumers that ask for messages (requests 11 and 361).
//
// The main types are Handler, the requests with their long polls, and Hub, through which the store tells features that
// messages have arrived. broker registers Handler.Pull to run inline on the connection's loop: what is in the page cache
// is answered there, as views of the log, without a copy or an allocation. A pull that would have to wait for the disk,
// and one that an arrival woke, run on the handler's own goroutines. It never writes a message and never creates a queue.
package pull

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

// Config are the settings that pulls obey, from the broker's keys of the same names. Apply changes them at once.
type Config struct {
	BrokerPermission      int32 // bits of topic.Perm
	LitePullMessageEnable bool
	LongPollingEnable     bool
	ShortPollingTime      time.Duration // how long a pull waits when LongPollingEnable is off
	SlaveReadEnable       bool
	BrokerIP              string // named in remarks
}

// Store is what Handler reads.
type Store interface {
	Get(q *store.Query, r *store.Result) error
	MaxOffset(topic []byte, queueID int32, committed bool) message.QueueOffset
}

// Topics finds a topic without allocating; nil: unknown.
type Topics interface {
	Get(name []byte) *topic.Config
}

// Groups finds a group's settings, created by use where the broker allows it; nil: unknown.
type Groups interface {
	FindOrCreate(name []byte) (*group.Config, error)
	Forbidden(group, topic string, index int) bool
}

// Consumers says who is online, from heartbeats; nil: nobody of the group.
type Consumers interface {
	Consumers(group []byte) *group.Consumers
}

// Offsets remembers where groups are. A staged offset is settled by the wiring at the end of the read, before the answers
// of the read go out.
type Offsets interface {
	Stage(group, topic []byte, queue int32, off message.QueueOffset) error
	Pulled(group, topic []byte, queue int32, next message.QueueOffset)
	PendingReset(group, topic []byte, queue int32) (off message.QueueOffset, pending bool)
	TakeReset(group, topic []byte, queue int32, asked message.QueueOffset) (off message.QueueOffset, pending bool)
}

// Stats counts what was handed out.
type Stats interface {
	Got(group, topic []byte, queue int32, msgs, bytes int)
}

// Deps are the objects that Handler uses.
type Deps struct {
	Store     Store
	Topics    Topics
	Groups    Groups
	Consumers Consumers
	Offsets   Offsets
	Stats     Stats
	Gate      func() error // why every pull is refused now, as on a slave that serves no reads; nil: never
}

// Handler answers pulls. Start before the first request; Close answers what is parked.
type Handler struct {
	Deps
	conf      atomic.Pointer[Config]
	filters   filters
	parked    *table
	held      atomic.Int64 // pulls that are parked or on their way to an answer
	heldBytes atomic.Int64 // of their requests
	woken     *runner
	cold      *runner
	once      sync.Once
	closed    atomic.Bool
}

const (
	wokenRunners = 2
	coldRunners  = 4
	coldLimit    = 1024 // pulls that may wait for a cold read
	maxSuspend   = 10 * time.Minute
	maxParked    = 200_000 // further pulls are answered at once

	maxParkedBytes = 64 << 20 // of the requests of parked pulls
	maxParkedSize  = 64 << 10 // of one of them
	parkedCost     = 256      // bytes of a parked pull besides its request, about
)

// New makes a handler. It starts nothing.
func New(cfg Config, d Deps) *Handler {
	h := &Handler{Deps: d, parked: newTable()}
	h.Apply(cfg)
	h.woken = newRunner(0, h.resume)
	h.cold = newRunner(coldLimit, h.resume)
	return h
}

// Apply replaces the settings.
func (h *Handler) Apply(cfg Config) { h.conf.Store(&cfg) }

// Start starts the goroutines that serve woken and cold pulls.
func (h *Handler) Start() {
	h.woken.start(wokenRunners)
	h.cold.start(coldRunners)
}

// Close answers every parked pull that nothing was found, and ends the goroutines. Twice is fine.
func (h *Handler) Close() {
	h.once.Do(func() {
		h.closed.Store(true)
		for _, p := range h.parked.close() {
			p.timer.Stop()
			h.push(h.woken, p)
		}
	})
	h.woken.close()
	h.cold.close()
}

// mayPark says whether there is room for one more parked pull; others are answered at once.
func (h *Handler) mayPark(req *remoting.Request) bool {
	size := sizeOf(req)
	return size <= maxParkedSize && h.held.Load() < maxParked && h.heldBytes.Load()+size <= maxParkedBytes && !h.closed.Load()
}

// sizeOf is about what a copy of a request takes.
func sizeOf(req *remoting.Request) int64 {
	return parkedCost + int64(req.HeaderSize()+len(req.Body)+16*req.Len())
}

type ofConnKey struct{}

func (h *Handler) ofConn(c *remoting.Conn) *ofConn {
	return c.Local(ofConnKey{}, func() any { return &ofConn{pulls: make(map[*parked]struct{})} }).(*ofConn)
}

// Gone forgets the parked pulls of a connection that has closed. It is called on the connection's loop after its last
// request.
func (h *Handler) Gone(c *remoting.Conn) {
	for _, p := range h.ofConn(c).all() {
		if h.parked.remove(p) {
			p.timer.Stop()
			h.uncount(p)
		}
	}
}

func (h *Handler) uncount(p *parked) {
	if p.size > 0 {
		h.held.Add(-1)
		h.heldBytes.Add(-p.size)
		p.size = 0 // it may still be cold and come to resume again
	}
}

// Parked is the number of pulls that wait for messages.
func (h *Handler) Parked() int { return h.parked.len() }

// Pull is the handler of requests 11 and 361; it does not block.
func (h *Handler) Pull(req *remoting.Request, resp *remoting.Response) error {
	if h.Gate != nil {
		if err := h.Gate(); err != nil {
			return err
		}
	}
	var r request
	a := answers.Get().(*answer)
	plan, err := h.read(req, &r, a, true)
	if err != nil {
		a.free()
		return refuse(err, resp)
	}
	if r.sysFlag&flagCommit != 0 && r.hasCommit && !a.reset { // a reset is a commit, and later than this one
		if err := h.Offsets.Stage(r.group, r.topic, r.queueID, r.commitOffset); err != nil {
			a.free()
			return err
		}
	}
	switch {
	case a.result.Cold && !a.reset:
		a.free()
		return h.later(req, &r, plan)
	case !a.reset && answerCode(a.result.Status, r.offset) == protocol.PullNotFound && r.sysFlag&flagSuspend != 0 && r.suspendMillis > 0 && h.mayPark(req):
		a.free()
		return h.park(req, &r, plan)
	}
	h.fill(&r, plan, a, resp)
	a.send(resp)
	return nil
}

// plan is what the checks of a pull found.
type plan struct {
	topic  *topic.Config
	group  *group.Config
	filter *TagFilter
}

// read decodes and checks the request and asks the store; hot means that nothing may be read from the disk.
func (h *Handler) read(req *remoting.Request, r *request, a *answer, hot bool) (plan, error) {
	if err := r.decode(&req.Header); err != nil {
		return plan{}, err
	}
	pl, err := h.check(req, r)
	if err != nil {
		return pl, err
	}
	a.query = store.Query{Topic: r.topic, QueueID: r.queueID, Offset: r.offset,
		MaxMsgs: int(max(r.maxNums, 1)), MaxBytes: int(max(r.maxBytes, 1)), Filter: pl.filter, HotOnly: hot}
	a.resetTo, a.reset = h.Offsets.TakeReset(r.group, r.topic, r.queueID, r.offset)
	if err := h.Store.Get(&a.query, &a.result); err != nil {
		return pl, fmt.Errorf("pull %s/%d@%d: %w", r.topic, r.queueID, r.offset, err)
	}
	return pl, nil
}

// fill makes the head of the answer out of a result. A pending reset of the group's offset replaces what was found.
func (h *Handler) fill(r *request, pl plan, a *answer, resp *remoting.Response) {
	res := &a.result
	next := res.Next
	resp.Code, resp.Remark = answerCode(res.Status, r.offset), res.Status.String()
	if a.reset {
		next, resp.Code, resp.Remark = a.resetTo, protocol.PullOffsetMoved, "OFFSET_RESET"
		res.Release()
	} else if res.Count > 0 {
		h.Stats.Got(r.group, r.topic, r.queueID, res.Count, res.Bytes)
	}
	e := &resp.Ext
	e.AddInt("suggestWhichBrokerId", h.suggest(pl.group, res.SuggestSlave))
	e.AddInt("nextBeginOffset", int64(next))
	e.AddInt("minOffset", int64(res.Min))
	e.AddInt("maxOffset", int64(res.Max))
	e.AddInt("topicSysFlag", int64(pl.topic.SysFlag))
	e.AddInt("groupSysFlag", int64(pl.group.SysFlag))
	h.Offsets.Pulled(r.group, r.topic, r.queueID, next)
}

func (h *Handler) suggest(g *group.Config, slow bool) int64 {
	switch {
	case !h.conf.Load().SlaveReadEnable:
		return 0
	case slow:
		return g.WhichBrokerWhenSlow
	}
	return g.BrokerID
}

// answerCode maps what the store found to RocketMQ's code.
func answerCode(s store.GetStatus, asked message.QueueOffset) int32 {
	switch s {
	case store.Found:
		return protocol.Success
	case store.MessageWasRemoving, store.NoMatchedMessage:
		return protocol.PullRetryImmediately
	case store.OffsetFoundNull, store.OffsetOverflowOne:
		return protocol.PullNotFound
	case store.NoMatchedLogicQueue, store.NoMessageInQueue:
		if asked == 0 {
			return protocol.PullNotFound
		}
	}
	return protocol.PullOffsetMoved
}

// clone takes the request out of its connection's buffer, to be answered later.
func (h *Handler) clone(req *remoting.Request, r *request, pl plan) *parked {
	return &parked{req: req.Clone(), reply: req.Defer(), at: queueID{pl.topic.Name, r.queueID}, offset: r.offset,
		filter: pl.filter}
}

// later hands a pull over that has to read from the disk.
func (h *Handler) later(req *remoting.Request, r *request, pl plan) error {
	p := h.clone(req, r, pl)
	p.cold = true
	h.push(h.cold, p)
	return remoting.Later
}

// park keeps a pull until a message arrives or its time is over.
func (h *Handler) park(req *remoting.Request, r *request, pl plan) error {
	c := h.conf.Load()
	wait := time.Duration(min(r.suspendMillis, maxSuspend.Milliseconds())) * time.Millisecond
	if !c.LongPollingEnable {
		wait = c.ShortPollingTime
	}
	p := h.clone(req, r, pl)
	p.size = sizeOf(p.req)
	h.held.Add(1)
	h.heldBytes.Add(p.size)
	p.owner = h.ofConn(req.Conn())
	p.owner.add(p)
	p.timer = time.AfterFunc(maxSuspend, func() { h.wakeIfParked(p) })
	if !h.parked.add(p) {
		h.wake(p)
		return remoting.Later
	}
	p.timer.Reset(wait) // after add: a timer that runs before it would find nothing to wake
	// A message that was dispatched, or a reset made, between the read and add woke nobody: look again, now that arrivals see the pull.
	_, reset := h.Offsets.PendingReset(r.group, r.topic, r.queueID)
	if reset || h.Store.MaxOffset(r.topic, r.queueID, true) > p.offset {
		h.wakeIfParked(p)
	}
	return remoting.Later
}

// Wake answers the parked pulls of a queue: an offset was reset, of which its reader is to hear now.
func (h *Handler) Wake(topic string, queue int32) {
	for _, p := range h.parked.take(queueID{topic, queue}) {
		h.wake(p)
	}
}

// Arrived is called by the hub after messages of a queue can be read; it only moves pulls between lists.
func (h *Handler) Arrived(a store.Arrival) { h.parked.arrived(&a, h.wake) }

func (h *Handler) wakeIfParked(p *parked) {
	if h.parked.remove(p) {
		h.wake(p)
	}
}

// wake continues a pull that was taken out of the table.
func (h *Handler) wake(p *parked) {
	p.timer.Stop()
	p.owner.remove(p)
	h.push(h.woken, p)
}

// push answers at once when r takes no more.
func (h *Handler) push(r *runner, p *parked) {
	if !r.push(p) {
		p.reply.Error(&protocol.Error{Code: protocol.SystemBusy, Remark: "[OVERLOAD]system busy, start flow control for a while"})
	}
}

// resume serves a pull that was parked or is cold; it runs on a runner's goroutine and answers in any case, except that
// a woken pull that turns out cold goes on to the cold runner.
func (h *Handler) resume(p *parked) {
	h.uncount(p)
	select {
	case <-p.req.Conn().Done():
		p.reply.Error(remoting.ErrClosed)
		return
	default:
	}
	var r request
	a := answers.Get().(*answer)
	pl, err := h.read(p.req, &r, a, !p.cold)
	if err != nil {
		a.free()
		var resp remoting.Response
		if err = refuse(err, &resp); err != nil {
			p.reply.Error(err)
			return
		}
		p.reply.Reply(&resp)
		return
	}
	if a.result.Cold && !p.cold && !a.reset {
		a.free()
		p.cold = true
		h.push(h.cold, p)
		return
	}
	var resp remoting.Response
	h.fill(&r, pl, a, &resp)
	if p.cold {
		err = a.load(&resp)
		a.free()
		if err != nil {
			p.reply.Error(err)
			return
		}
	} else {
		a.send(&resp)
	}
	p.reply.Reply(&resp)
}

// remarks of refusals that name the asked thing.
func noSuchTopic(name []byte) error {
	return &protocol.Error{Code: protocol.TopicNotExist, Remark: "topic[" + string(name) + "] not exist, apply first please! \nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."}
}

func badQueue(r *request, t *topic.Config, peer string) error {
	return &protocol.Error{Code: protocol.InvalidParameter, Remark: "queueId[" + strconv.Itoa(int(r.queueID)) + "] is illegal, topic:[" + t.Name +
		"] topicConfig.readQueueNums:[" + strconv.Itoa(int(t.ReadQueueNums)) + "] consumer:[/" + peer + "]"}
}

// Package produce takes messages from producers (requests 10, 310, 320) and back from consumers (36).
//
// The main type is Handler. broker registers Send to run inline on the connection's loop and BatchEnd to run after every
// read. Send checks one frame and encodes it into the connection's batch; BatchEnd appends and writes what one read
// brought, once, and answers; with synchronous flush the answers wait for the flushed mark, with replicas for theirs. So a message costs no
// allocation, no hand-off and a share of a system call. Send never answers success for a message that is less durable
// than the configuration says.
package produce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/commitlog"
)

// Config are the settings that sends obey, from the broker's and the store's keys of the same names. Apply changes them at
// once.
type Config struct {
	BrokerClusterName string
	RegionID          string
	TraceOn           bool
	BrokerPermission  int32         // bits of topic.Perm
	StartAcceptSend   time.Time     // startAcceptSendRequestTimeStamp; zero: at once
	FastFailure       bool          // brokerFastFailureEnable: refuse instead of letting wait
	WaitInQueue       time.Duration // waitTimeMillsInSendQueue
	PageCacheBusy     time.Duration // osPageCacheBusyTimeOutMills
	SyncFlushTimeout  time.Duration
	SlaveTimeout      time.Duration  // slaveTimeout: how long an answer waits for replicas
	MaxMessageSize    int            // bytes of a body
	MaxDelayLevel     int32          // number of levels in messageDelayLevel
	StoreHost         netip.AddrPort // brokerIP1 and listenPort: in message ids
}

// Store is where messages go.
type Store interface {
	NewBatch() *store.Batch
	Append(b *store.Batch) (store.Placed, error)
	Write(to message.LogOffset) error
	Flushed() *watermark.Mark
	Log() *commitlog.Log // for FlushSoon
	SyncFlush() bool
	Busy() time.Duration
	View(off message.LogOffset) (commitlog.View, error)
}

// Topics finds topics without allocating, and makes those that a send may make.
type Topics interface {
	Get(name []byte) *topic.Config
	CreateOnSend(name, defaultTopic string, queues, sysFlag int32) (*topic.Config, error)
	Ensure(name string, queues, perm, sysFlag int32, order bool) (*topic.Config, error)
}

// Groups finds a group's settings, created by use where the broker allows it; nil: unknown.
type Groups interface {
	FindOrCreate(name []byte) (*group.Config, error)
}

// Locks says whether a group consumes in order.
type Locks interface {
	Held(group []byte, now time.Time) bool
}

// Door stores messages that the broker makes itself.
type Door interface {
	Put(ctx context.Context, m *message.Message) error
}

// Stats counts what was accepted and given back.
type Stats interface {
	Put(topic []byte, queue int32, sends, msgs, bytes int)
	SendBack(group, topic string)
	DeadLetter(group, topic string)
}

// Replicas say whether this broker takes messages at all, and what an answer waits for beyond it.
type Replicas interface {
	// Accepting returns nil, or why a send is refused before it is looked at, as on a slave. It is asked for every send.
	Accepting() error
	// Need returns the mark that an offset must pass before success is answered, nil when no replica is asked, or why
	// nothing is accepted now. Whoever ends a role lets the marks of its term fail.
	Need() (*watermark.Mark, error)
}

// Deps are the objects that Handler uses.
type Deps struct {
	Store    Store
	Replicas Replicas // nil: this broker has none
	Topics   Topics
	Groups   Groups
	Locks    Locks
	Door     Door
	Stats    Stats
	IDs      *message.UniqIDs // for messages that come without
}

// Handler serves sends and send-backs. Start before the first request; Close after the last connection has gone.
type Handler struct {
	Deps
	conf atomic.Pointer[settings]
	acks acker

	batches, pool sync.Pool  // *store.Batch, *acks
	newPending    func() any // makePending, bound once: binding it at each use would allocate
}

// settings is a Config with what is derived from it.
type settings struct {
	Config
	appended []byte // the properties that the broker adds to every message
	traceOn  string
}

// New makes a handler. It starts nothing.
func New(cfg Config, d Deps) *Handler {
	h := &Handler{Deps: d}
	h.pool.New = func() any { return newAcks(h) }
	h.batches.New = func() any { return h.Store.NewBatch() }
	h.newPending = h.makePending
	h.acks.init()
	h.Apply(cfg)
	return h
}

// Apply replaces the settings.
func (h *Handler) Apply(cfg Config) {
	s := &settings{Config: cfg, traceOn: strconv.FormatBool(cfg.TraceOn)}
	s.appended = property(s.appended, message.PropMsgRegion, []byte(cfg.RegionID))
	s.appended = property(s.appended, message.PropCluster, []byte(cfg.BrokerClusterName))
	s.appended = property(s.appended, message.PropTraceSwitch, []byte(s.traceOn))
	h.conf.Store(s)
}

// Start starts the goroutines that answer sends which waited for the disk.
func (h *Handler) Start() { h.acks.start() }

// Close ends them after they have answered what is known. Twice is fine.
func (h *Handler) Close() { h.acks.close() }

// Send is the handler of requests 10, 310 and 320, one-way or not. It stages the message; BatchEnd answers.
func (h *Handler) Send(req *remoting.Request, resp *remoting.Response) error {
	c := h.conf.Load()
	p := h.pendingOf(req.Conn())
	p.borrow()
	if h.Replicas != nil {
		if err := h.Replicas.Accepting(); err != nil {
			return err
		}
	}
	if err := h.overload(c, p, req); err != nil {
		return err
	}
	m := &p.header
	if err := m.decode(&req.Header); err != nil {
		return err
	}
	if len(req.Body) == 0 {
		return &protocol.Error{Code: protocol.SystemError, Remark: "the message body is empty"}
	}
	err := h.send(c, p, req)
	if err == nil {
		return remoting.Later
	}
	code, remark := h.status(c, err)
	c.refuse(resp, code, remark)
	return nil
}

// overload refuses a send that waited too long, and every send while the disk does not take what was staged. A refused
// send is not stored.
func (h *Handler) overload(c *settings, p *pending, req *remoting.Request) error {
	if !c.FastFailure {
		return nil
	}
	if p.sinceCheck++; p.sinceCheck%16 != 1 { // two clock reads for sixteen messages of a read are enough
		return p.refusal
	}
	p.refusal = nil
	if held := h.Store.Busy(); held > c.PageCacheBusy {
		p.refusal = &protocol.Error{Code: protocol.SystemBusy, Remark: fmt.Sprintf("[REJECTREQUEST]system busy, start flow control for a while, the oldest staged message waits for the disk since %dms", held.Milliseconds())}
	} else if waited := time.Since(req.Received()); waited > c.WaitInQueue {
		p.refusal = &protocol.Error{Code: protocol.SystemBusy, Remark: fmt.Sprintf("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms, size of queue: %d", waited.Milliseconds(), len(p.acks.list))}
	}
	return p.refusal
}

// send checks a decoded send and stages it.
func (h *Handler) send(c *settings, p *pending, req *remoting.Request) error {
	t, err := h.check(c, p, req)
	if err != nil {
		return err
	}
	m := &p.header
	if m.queueID < 0 {
		if t.WriteQueueNums <= 0 {
			return illegalQueue(m.queueID, t, req)
		}
		m.queueID = rand.Int32N(t.WriteQueueNums)
	}
	p.text = p.found.clean(p.text[:0], m.properties)
	if m.batch {
		return h.sendBatch(c, p, req)
	}
	to := target{topic: m.topic, queueID: m.queueID}
	if message.IsRetryTopicBytes(m.topic) {
		if err := h.retry(p, req, &to); err != nil {
			return err
		}
	}
	if err := h.special(c, p, &to); err != nil {
		return err
	}
	p.finish(c, h.IDs)
	return h.stage(c, p, req, to)
}

// target is where a message is stored; the answer names the queue that the producer asked for.
type target struct {
	topic   []byte
	queueID int32
}

// stage encodes the message into the connection's batch and notes who waits for it.
func (h *Handler) stage(c *settings, p *pending, req *remoting.Request, to target) error {
	m := &p.header
	p.msg = message.Message{Topic: to.topic, QueueID: to.queueID, Flag: m.flag, SysFlag: m.sysFlag, BornTime: m.born,
		BornHost: c.bornHost(req), StoreHost: c.StoreHost, ReconsumeTimes: m.reconsumeTimes,
		Body: req.Body, Properties: p.text}
	if p.batch.Len() > 0 && p.batch.Bytes()+len(req.Body)+len(p.text) > appendLimit {
		p.append()
	}
	if err := p.batch.Add(&p.msg); err != nil {
		return err
	}
	last := p.batch.Len() - 1
	p.count(to.topic, to.queueID, 1, int(p.batch.Entry(last).Size))
	p.acks.add(req, ack{queueID: m.queueID, first: last, n: 1, noWait: p.found.noWait, uniq: p.acks.save(p.uniq())})
	return nil
}

// bornHost is the producer's address; a connection without one, such as a pipe, counts as the broker's own.
func (c *settings) bornHost(req *remoting.Request) netip.AddrPort {
	if a := req.Conn().RemoteAddrPort(); a.IsValid() {
		return a
	}
	return c.StoreHost
}

// refuse fills an answer with the fields that every answer to a send carries.
func (c *settings) refuse(resp *remoting.Response, code int32, remark string) {
	resp.Code, resp.Remark = code, remark
	c.region(&resp.Ext)
}

func (c *settings) region(e *protocol.Ext) {
	e.Add("TRACE_ON", c.traceOn)
	e.Add("MSG_REGION", c.RegionID)
}

func peer(req *remoting.Request) string { return strings.TrimPrefix(req.Conn().RemoteAddr(), "/") }

package offset

import (
	"log/slog"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Queues is what Handler asks the store.
type Queues interface {
	Bounds(topic []byte, queueID int32) (low, high message.QueueOffset, known bool)
	InMemory(topic []byte, queueID int32, at message.QueueOffset) bool
}

// Topics finds a topic; nil: unknown.
type Topics interface {
	Get(name []byte) *topic.Config
}

// Groups finds a group's settings; nil: unknown.
type Groups interface {
	Find(name []byte) *group.Config
}

// Handler answers requests 14 and 15. Both run inline; broker registers BatchEnd with the server.
type Handler struct {
	table      *Table
	topics     Topics
	groups     Groups
	queues     Queues
	serverSide func() bool // useServerSideResetOffset
	log        *slog.Logger
}

// NewHandler makes a handler. serverSide is asked at each request.
func NewHandler(t *Table, topics Topics, groups Groups, queues Queues, serverSide func() bool, log *slog.Logger) *Handler {
	return &Handler{t, topics, groups, queues, serverSide, log}
}

// place is the group, topic and queue of a request. The names are views of the frame.
type place struct {
	group, topic []byte
	queue        int32
	hasQueue     bool
}

func (p *place) decode(req *remoting.Request) (err error) {
	var ok bool
	if p.group, ok = req.Get("consumerGroup"); !ok {
		return protocol.Missing("consumerGroup")
	}
	if p.topic, ok = req.Get("topic"); !ok {
		return protocol.Missing("topic")
	}
	p.queue, p.hasQueue, err = req.Int32("queueId")
	return err
}

// Query is request 14.
func (h *Handler) Query(req *remoting.Request, resp *remoting.Response) error {
	resp.Ext.Present()
	var p place
	if err := p.decode(req); err != nil {
		return err
	}
	if !p.hasQueue {
		return protocol.Missing("queueId")
	}
	if h.table.Staged() { // a commit before it on the same connection must be seen
		if err := h.table.Settle(); err != nil {
			return err
		}
	}
	off, ok := message.QueueOffset(0), false
	if h.serverSide() {
		off, ok = h.table.PendingReset(p.group, p.topic, p.queue)
	}
	if !ok {
		off, ok = h.table.Query(p.group, p.topic, p.queue)
	}
	if ok {
		resp.Ext.AddInt("offset", int64(off))
		return nil
	}
	zero, given, err := req.Bool("setZeroIfNotFound")
	if err != nil {
		return err
	}
	if given && !zero {
		return errDoNotSetZero
	}
	if low, _, known := h.queues.Bounds(p.topic, p.queue); known && low <= 0 && h.queues.InMemory(p.topic, p.queue, 0) {
		resp.Ext.AddInt("offset", 0)
		return nil
	}
	return errFirstBoot
}

var (
	errDoNotSetZero = &protocol.Error{Code: protocol.QueryNotFound, Remark: "Not found, do not set to zero, maybe this group boot first"}
	errFirstBoot    = &protocol.Error{Code: protocol.QueryNotFound, Remark: "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"}
)

// due is the answers that a connection waits for until its batch is settled.
type due struct{ replies []remoting.Pending }

type dueKey struct{}

func (h *Handler) due(c *remoting.Conn) *due {
	return c.Local(dueKey{}, func() any { return new(due) }).(*due)
}

// Update is request 15. It is answered at the end of the batch, when it is in the journal.
func (h *Handler) Update(req *remoting.Request, resp *remoting.Response) error {
	resp.Ext.Present()
	var p place
	if err := p.decode(req); err != nil {
		return err
	}
	if h.groups.Find(p.group) == nil {
		return protocol.Errorf(protocol.SubscriptionGroupNotExist, "Group %s not exist!", p.group)
	}
	t := h.topics.Get(p.topic)
	if t == nil {
		return protocol.Errorf(protocol.TopicNotExist, "Topic %s not exist!", p.topic)
	}
	if !p.hasQueue {
		return protocol.Errorf(protocol.InvalidParameter, "QueueId is null, topic is %s", p.topic)
	}
	if !h.exists(t, &p) {
		return protocol.Errorf(protocol.InvalidParameter, "QueueId %d is illegal, topic is %s", p.queue, p.topic)
	}
	off, ok, err := req.Int64("commitOffset")
	if err != nil {
		return err
	}
	if !ok {
		return protocol.Errorf(protocol.InvalidParameter, "Offset is null, topic is %s", p.topic)
	}
	if h.serverSide() {
		if _, pending := h.table.PendingReset(p.group, p.topic, p.queue); pending {
			resp.Remark = "Offset has been previously reset"
			return nil
		}
	}
	if err := h.table.Stage(p.group, p.topic, p.queue, message.QueueOffset(off)); err != nil {
		return err
	}
	if req.Oneway() {
		return nil
	}
	d := h.due(req.Conn())
	d.replies = append(d.replies, req.Defer())
	return remoting.Later
}

// exists says whether the topic has the queue or had it. RocketMQ keeps an offset of any number; a peer could fill memory
// and disk with them.
func (h *Handler) exists(t *topic.Config, p *place) bool {
	if p.queue >= 0 && p.queue < max(t.ReadQueueNums, t.WriteQueueNums) {
		return true
	}
	_, _, known := h.queues.Bounds(p.topic, p.queue)
	return known
}

// BatchEnd settles what the requests of one read staged, and answers them.
func (h *Handler) BatchEnd(c *remoting.Conn) {
	if !h.table.Staged() && len(h.due(c).replies) == 0 {
		return
	}
	err := h.table.Settle()
	if err != nil {
		h.log.Error("offsets are not committed", "err", err)
	}
	d := h.due(c)
	for _, p := range d.replies {
		if err != nil {
			p.Error(err)
			continue
		}
		var ok remoting.Response
		ok.Ext.Present()
		p.Reply(&ok)
	}
	clear(d.replies)
	d.replies = d.replies[:0]
}

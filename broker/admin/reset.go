package admin

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// How long a client may take to answer, and the first version that can.
const (
	statusTimeout  = 5 * time.Second
	directTimeout  = 10 * time.Second
	versionReset   = 28 // V3_0_7_SNAPSHOT
	versionRunning = 62 // V3_1_8_SNAPSHOT
)

// Caller sends requests to a client; the peers of the registry implement it.
type Caller interface {
	Call(ctx context.Context, cmd *protocol.Command) (*protocol.Command, error)
	Oneway(cmd *protocol.Command) error
}

// Reset sets the offsets of groups and asks their clients where they are.
type Reset struct {
	Self       Self
	ServerSide func() bool // useServerSideResetOffset
	Topics     interface {
		Lookup(name string) *topic.Config
	}
	Group   func(name string) *group.Config // nil: unknown
	Online  func(group string) *group.Consumers
	Offsets interface {
		Offsets(group, topic string) map[int32]message.QueueOffset
		AssignReset(group, topic string, queue int32, off message.QueueOffset) error
	}
	Wake   func(topic string, queue int32) // answers the pulls that wait for messages of a queue
	Queues interface {
		Bounds(topic string, queueID int32) (min, max message.QueueOffset)
		OffsetByTime(topic string, queueID int32, ms int64) (message.QueueOffset, error)
	}
}

// order is a decoded request 222.
type order struct {
	topic, group string
	queue        int64 // -1: all
	offset       int64 // -1: by time
	timestamp    int64 // negative: the end
	force        bool
}

func decodeOrder(req *remoting.Request) (o order, err error) {
	if o.topic, err = required(req, "topic"); err != nil {
		return o, err
	}
	if o.group, err = required(req, "group"); err != nil {
		return o, err
	}
	if o.queue, err = optionalInt(req, "queueId", -1); err != nil {
		return o, err
	}
	if o.offset, err = optionalInt(req, "offset", -1); err != nil {
		return o, err
	}
	if o.timestamp, err = optionalInt(req, "timestamp", -1); err != nil {
		return o, err
	}
	o.force, err = optionalBool(req, "isForce", false)
	return o, err
}

// Reset is request 222.
func (h *Reset) Reset(req *remoting.Request, resp *remoting.Response) error {
	o, err := decodeOrder(req)
	if err != nil {
		return err
	}
	if h.ServerSide() {
		return h.onServer(&o, resp)
	}
	return h.onClients(&o, resp)
}

// onServer commits the offsets and makes them pending: the next pull of each queue is told.
func (h *Reset) onServer(o *order, resp *remoting.Response) error {
	c := h.Topics.Lookup(o.topic)
	if c == nil {
		return protocol.Errorf(protocol.TopicNotExist, "Topic %s does not exist", o.topic)
	}
	if h.Group(o.group) == nil {
		return protocol.Errorf(protocol.SubscriptionGroupNotExist, "Group %s does not exist", o.group)
	}
	targets := map[int32]message.QueueOffset{}
	if o.queue >= 0 && o.offset != -1 {
		q := int32(o.queue)
		lo, hi := h.Queues.Bounds(o.topic, q)
		if o.queue > int64(q) || o.offset < int64(lo) || o.offset > int64(hi)+1 {
			return protocol.Errorf(protocol.SystemError, "Target offset %d not in consume queue range [%d-%d]", o.offset, lo, hi)
		}
		targets[q] = message.QueueOffset(o.offset)
	} else {
		for q := range c.ReadQueueNums {
			if o.queue < 0 || int64(q) == o.queue {
				off, err := h.byTime(o, q)
				if err != nil {
					return err
				}
				targets[q] = off
			}
		}
	}
	var table queueTable
	for q := range c.ReadQueueNums {
		off, ok := targets[q]
		if !ok {
			continue
		}
		if err := h.Offsets.AssignReset(o.group, o.topic, q, off); err != nil {
			return err
		}
		h.Wake(o.topic, q)
		table.add(h.Self.Name, o.topic, q, int64(off))
	}
	return put(resp, map[string]any{"offsetTable": table.body()})
}

func (h *Reset) byTime(o *order, q int32) (message.QueueOffset, error) {
	if o.timestamp < 0 {
		_, hi := h.Queues.Bounds(o.topic, q)
		return hi, nil
	}
	off, err := h.Queues.OffsetByTime(o.topic, q, o.timestamp)
	return max(0, off), err
}

// onClients tells every client of the group where to go on (request 220).
func (h *Reset) onClients(o *order, resp *remoting.Response) error {
	c := h.Topics.Lookup(o.topic)
	if c == nil {
		return protocol.Errorf(protocol.TopicNotExist, "[reset-offset] reset offset failed, no topic in this broker. topic=%s", o.topic)
	}
	have := h.Offsets.Offsets(o.group, o.topic)
	var table queueTable
	for q := range c.WriteQueueNums {
		if o.queue >= 0 && int64(q) != o.queue {
			continue
		}
		now, ok := have[q]
		if !ok {
			return protocol.Errorf(protocol.SystemError, "THe consumer group <%s> not exist", o.group)
		}
		off, err := h.byTime(o, q)
		if err != nil {
			return err
		}
		if !o.force && off >= now {
			off = now
		}
		table.add(h.Self.Name, o.topic, q, int64(off))
	}
	online := h.Online(o.group)
	if online == nil {
		return protocol.Errorf(protocol.ConsumerNotOnline, "Consumer not online, so can not reset offset, Group: %s Topic: %s Timestamp: %d",
			o.group, o.topic, o.timestamp)
	}
	body := map[bool][]byte{}
	for _, asList := range []bool{false, true} {
		b, err := table.resetBody(asList)
		if err != nil {
			return err
		}
		body[asList] = b
	}
	for _, m := range online.Clients() {
		if m.Version < versionReset {
			return protocol.Errorf(protocol.SystemError, "the client does not support this feature. version=%s", protocol.VersionName(m.Version))
		}
		cmd := protocol.NewRequest(protocol.ReqResetConsumerClientOffset, map[string]string{"topic": o.topic, "group": o.group,
			"timestamp": strconv.FormatInt(o.timestamp, 10), "isForce": "false", "queueId": "-1"}, body[m.Language == "CPP"])
		if peer, ok := m.Peer.(Caller); ok {
			if err := peer.Oneway(cmd); err != nil {
				return err
			}
		}
	}
	return put(resp, map[string]any{"offsetTable": table.body()})
}

// ConsumerStatus is request 223: where each client of a group is (request 221 to each).
func (h *Reset) ConsumerStatus(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	g, err := required(req, "group")
	if err != nil {
		return err
	}
	only := req.String("clientAddr")
	online := h.Online(g)
	if online == nil {
		return protocol.Errorf(protocol.SystemError, "No Any Consumer online in the consumer group: [%s]", g)
	}
	var mu sync.Mutex
	table := map[string]*fastjson.Node{}
	var calls sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	for _, m := range online.Clients() {
		peer, ok := m.Peer.(Caller)
		if !ok || only != "" && only != m.ID {
			continue
		}
		calls.Go(func() {
			answer, err := peer.Call(ctx, protocol.NewRequest(protocol.ReqGetConsumerStatusFromClient,
				map[string]string{"topic": name, "group": g}, nil))
			if err != nil || answer.Code != protocol.Success {
				return // a client that does not answer is left out
			}
			if queues := messageQueueTable(answer.Body); queues != nil {
				mu.Lock()
				table[m.ID] = queues
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	return put(resp, map[string]any{"consumerTable": table, "messageQueueTable": struct{}{}})
}

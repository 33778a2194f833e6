package admin

import (
	"fmt"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Unit is an entry of a consume queue.
type Unit struct {
	Log  message.LogOffset
	Size int32
	Tags int64
}

// Files answers requests about the files of the store.
type Files struct {
	CleanQueues func() error // drops what queues hold of a log that is gone
	CleanUnused func() error // drops the queues of topics that do not exist
	CleanLog    func() error // drops expired segments now
	LogEnd      func() message.LogOffset
	Online      func(group string) *group.Consumers
	Queues      interface {
		Bounds(topic string, queueID int32) (min, max message.QueueOffset)
		Known(topic string, queueID int32) bool
		Units(topic string, queueID int32, from message.QueueOffset, max int) ([]Unit, error)
	}
}

// CleanExpiredQueues is request 306.
func (h *Files) CleanExpiredQueues(*remoting.Request, *remoting.Response) error {
	return h.CleanQueues()
}

// CleanUnusedTopics is request 316.
func (h *Files) CleanUnusedTopics(*remoting.Request, *remoting.Response) error {
	return h.CleanUnused()
}

// DeleteExpiredLog is request 329.
func (h *Files) DeleteExpiredLog(*remoting.Request, *remoting.Response) error { return h.CleanLog() }

// queueRow is a consume queue entry in the answer of request 321.
type queueRow struct {
	PhysicOffset int64 `json:"physicOffset"`
	PhysicSize   int32 `json:"physicSize"`
	TagsCode     int64 `json:"tagsCode"`
	Eval         bool  `json:"eval"`
}

// Queue is request 321: entries of one consume queue, and whether the subscription of a group takes them.
func (h *Files) Queue(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	id, err := optionalInt(req, "queueId", 0)
	if err != nil {
		return err
	}
	index, err := optionalInt(req, "index", 0)
	if err != nil {
		return err
	}
	count, err := optionalInt(req, "count", 0)
	if err != nil {
		return err
	}
	q := int32(id)
	if int64(q) != id || !h.Queues.Known(name, q) {
		return protocol.Errorf(protocol.SystemError, "%d@%s is not exist!", id, name)
	}
	lo, hi := h.Queues.Bounds(name, q)
	body := map[string]any{"minQueueIndex": int64(lo), "maxQueueIndex": int64(hi)}
	var sub *group.Subscription
	if g := req.String("consumerGroup"); g != "" {
		body["filterData"] = "null"
		if c := h.Online(g); c == nil {
			body["filterData"] = fmt.Sprintf("%s@%s is not online!", g, name)
		} else if sub = c.Subscription([]byte(name)); sub != nil {
			body["subscriptionData"] = subscriptionBody(sub)
		}
	}
	if index < int64(lo) || index >= int64(hi) {
		resp.Remark = fmt.Sprintf("Index %d of %d@%s is not exist!", index, id, name)
		return nil
	}
	const most = 4096 // entries of one answer
	units, err := h.Queues.Units(name, q, message.QueueOffset(index), int(min(max(count, 0), most, int64(hi)-index)))
	if err != nil {
		return err
	}
	rows := make([]queueRow, 0, len(units))
	for _, u := range units {
		rows = append(rows, queueRow{PhysicOffset: int64(u.Log), PhysicSize: u.Size, TagsCode: u.Tags})
	}
	body["queueData"] = rows
	return put(resp, body)
}

// HAStatus is request 907: a master without replicas.
func (h *Files) HAStatus(_ *remoting.Request, resp *remoting.Response) error {
	return put(resp, map[string]any{"master": true, "masterCommitLogMaxOffset": int64(h.LogEnd()), "inSyncSlaveNums": 0,
		"haConnectionInfo": []any{}, "haClientRuntimeInfo": map[string]any{"lastReadTimestamp": 0, "lastWriteTimestamp": 0,
			"masterFlushOffset": 0, "maxOffset": 0, "transferredByteInSecond": 0}})
}

// RocksDBProgress is request 354.
func (h *Files) RocksDBProgress(_ *remoting.Request, resp *remoting.Response) error {
	return put(resp, map[string]any{"checkStatus": 0, "checkResult": "It is not CombineConsumeQueueStore, no need check"})
}

package lock

import (
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Handler serves requests 41 and 42 over a table. Both are quick and may run inline.
type Handler struct {
	table *Table
	known func(group string, q Queue) bool
}

// NewHandler makes a handler. known says whether there is such a group and such a queue on this broker: others are not
// locked, so that the table does not grow with what clients invent.
func NewHandler(t *Table, known func(group string, q Queue) bool) *Handler {
	return &Handler{table: t, known: known}
}

// Lock is the handler of request 41: the answer lists the queues that the client holds now.
func (h *Handler) Lock(req *remoting.Request, resp *remoting.Response) error {
	var b protocol.LockBatchRequestBody
	queues, err := h.decode(req.Body, &b)
	if err != nil {
		return err
	}
	held := h.table.Lock(b.ConsumerGroup, b.ClientID, queues, time.Now())
	out := protocol.LockBatchResponseBody{LockOKMQSet: make([]protocol.MessageQueue, 0, len(held))}
	for _, q := range held {
		out.LockOKMQSet = append(out.LockOKMQSet, protocol.MessageQueue{BrokerName: q.Broker, Topic: q.Topic, QueueID: q.ID})
	}
	resp.Body.Bytes, err = fastjson.Marshal(out)
	return err
}

// Unlock is the handler of request 42, usually one-way.
func (h *Handler) Unlock(req *remoting.Request, resp *remoting.Response) error {
	var b protocol.LockBatchRequestBody
	queues, err := h.decode(req.Body, &b)
	if err != nil {
		return err
	}
	h.table.Unlock(b.ConsumerGroup, b.ClientID, queues)
	return nil
}

// decode reads a body and returns its queues that are known, each once.
func (h *Handler) decode(body []byte, b *protocol.LockBatchRequestBody) ([]Queue, error) {
	if err := fastjson.Unmarshal(body, b); err != nil || b.ConsumerGroup == "" || b.ClientID == "" {
		return nil, &protocol.Error{Code: protocol.SystemError, Remark: "the lock request has no readable body with consumerGroup and clientId"}
	}
	if len(b.ClientID) > maxClientID {
		return nil, protocol.Errorf(protocol.SystemError, "the lock request's clientId has %d bytes, %d are allowed", len(b.ClientID), maxClientID)
	}
	queues := make([]Queue, 0, min(len(b.MQSet), 64))
	seen := make(map[Queue]bool, min(len(b.MQSet), 64))
	for _, q := range b.MQSet {
		key := Queue{Broker: q.BrokerName, Topic: q.Topic, ID: q.QueueID}
		if !seen[key] && h.known(b.ConsumerGroup, key) {
			seen[key] = true
			queues = append(queues, key)
		}
	}
	return queues, nil
}

const maxClientID = 255 // bytes

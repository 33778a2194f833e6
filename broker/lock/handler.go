package lock

import (
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Handler serves requests 41 and 42 over a table. Both are quick and may run inline.
type Handler struct{ table *Table }

// NewHandler makes a handler.
func NewHandler(t *Table) *Handler { return &Handler{table: t} }

// Lock is the handler of request 41: the answer lists the queues that the client holds now.
func (h *Handler) Lock(req *remoting.Request, resp *remoting.Response) error {
	var b protocol.LockBatchRequestBody
	queues, err := decode(req.Body, &b)
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
	queues, err := decode(req.Body, &b)
	if err != nil {
		return err
	}
	h.table.Unlock(b.ConsumerGroup, b.ClientID, queues)
	return nil
}

func decode(body []byte, b *protocol.LockBatchRequestBody) ([]Queue, error) {
	if err := fastjson.Unmarshal(body, b); err != nil || b.ConsumerGroup == "" || b.ClientID == "" {
		return nil, &protocol.Error{Code: protocol.SystemError, Remark: "the lock request has no readable body with consumerGroup and clientId"}
	}
	queues := make([]Queue, 0, len(b.MQSet))
	for _, q := range b.MQSet {
		queues = append(queues, Queue{Broker: q.BrokerName, Topic: q.Topic, ID: q.QueueID})
	}
	return queues, nil
}

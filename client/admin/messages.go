package admin

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// ByID reads a message by its offset id, from the broker that the id names.
func (a *Admin) ByID(ctx context.Context, id string) (*client.Received, error) {
	host, off, err := message.ParseID(id)
	if err != nil {
		return nil, err
	}
	return a.View(ctx, host.String(), "", int64(off))
}

// View reads the message at a log offset of one broker. topic may be empty.
func (a *Admin) View(ctx context.Context, addr, topic string, logOffset int64) (*client.Received, error) {
	ext := map[string]string{"offset": itoa(logOffset)}
	if topic != "" {
		ext["topic"] = topic
	}
	answer, err := a.call(ctx, addr, protocol.ReqViewMessageByID, ext, nil)
	if err != nil {
		return nil, err
	}
	list, err := client.ParseRecords(answer.Body, client.Queue{})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("answer holds no message")
	}
	return &list[0], nil
}

// KeyQuery looks messages up by a key, or by the producer's id when Unique is set.
type KeyQuery struct {
	Topic      string
	Key        string
	Max        int   // per broker, 32 when 0
	Begin, End int64 // store time in ms since the epoch; End 0 is without limit
	Unique     bool
}

// ByKey returns the messages that have a key, newest first. The index knows hashes only: messages of the topic without the very key are
// dropped here. None is an empty list.
func (a *Admin) ByKey(ctx context.Context, q KeyQuery) ([]client.Received, error) {
	addrs, err := a.topicBrokers(ctx, q.Topic)
	if err != nil {
		return nil, err
	}
	limit, end := q.Max, q.End
	if limit <= 0 {
		limit = 32
	}
	if end <= 0 {
		end = math.MaxInt64
	}
	lists := make([][]client.Received, len(addrs))
	err = each(addrs, func(addr string) error {
		ext := map[string]string{"topic": q.Topic, "key": q.Key, "maxNum": itoa(limit), "beginTimestamp": itoa(q.Begin), "endTimestamp": itoa(end)}
		if q.Unique {
			ext["_UNIQUE_KEY_QUERY"] = "true"
		}
		answer, err := a.call(ctx, addr, protocol.ReqQueryMessage, ext, nil)
		if NotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		list, err := client.ParseRecords(answer.Body, client.Queue{})
		lists[slices.Index(addrs, addr)] = list
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []client.Received
	for _, m := range slices.Concat(lists...) {
		if m.Queue.Topic == q.Topic && (q.Unique && m.ID() == q.Key || !q.Unique && slices.Contains(m.Keys(), q.Key)) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(x, y client.Received) int { return y.StoreTime.Compare(x.StoreTime) })
	return out, nil
}

// toolsGroup is the group that RocketMQ's tools read with.
const toolsGroup = "TOOLS_CONSUMER"

// ByOffset reads the message at an offset of a queue.
func (a *Admin) ByOffset(ctx context.Context, q client.Queue, offset int64) (*client.Received, error) {
	r, err := a.c.Pull(ctx, client.PullRequest{Group: toolsGroup, Queue: q, Offset: offset, Max: 1})
	if err != nil {
		return nil, err
	}
	if r.Status != client.PullFound || len(r.Messages) == 0 || r.Messages[0].QueueOffset != offset {
		return nil, &client.ServerError{Addr: q.Broker, Code: protocol.QueryNotFound,
			Remark: q.String() + " holds the offsets from " + itoa(r.Min) + " to before " + itoa(r.Max)}
	}
	return &r.Messages[0], nil
}

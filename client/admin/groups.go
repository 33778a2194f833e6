package admin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// PutGroup creates or replaces a consumer group at the brokers of a target. protocol.NewSubscriptionGroupConfig has the defaults.
func (a *Admin) PutGroup(ctx context.Context, to Target, g *protocol.SubscriptionGroupConfig) error {
	addrs, err := a.Masters(ctx, to)
	if err != nil {
		return err
	}
	body, err := fastjson.Marshal(g)
	if err != nil {
		return err
	}
	return each(addrs, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqUpdateAndCreateSubscriptionGroup, nil, body)
		return err
	})
}

// GetGroup reads a group's configuration at one broker. A broker that creates groups by itself creates it.
func (a *Admin) GetGroup(ctx context.Context, addr, group string) (*protocol.SubscriptionGroupConfig, error) {
	return decode[protocol.SubscriptionGroupConfig](ctx, a, addr, protocol.ReqGetSubscriptionGroupConfig, map[string]string{"group": group})
}

// BrokerGroups reads the configuration of all groups of one broker, sorted by name.
func (a *Admin) BrokerGroups(ctx context.Context, addr string) ([]*protocol.SubscriptionGroupConfig, error) {
	table := map[string]*protocol.SubscriptionGroupConfig{}
	err := a.pages(ctx, addr, protocol.ReqGetAllSubscriptionGroupConfig, "groupSeq", "maxGroupNum", "totalGroupNum",
		func(answer *protocol.Command) (string, int, error) {
			w, err := read[protocol.SubscriptionGroupWrapper](addr, answer)
			if err != nil {
				return "", 0, err
			}
			for name, g := range w.SubscriptionGroupTable {
				if g != nil {
					table[name] = g
				}
			}
			return version(w.DataVersion), len(w.SubscriptionGroupTable), nil
		})
	if err != nil {
		return nil, err
	}
	out := make([]*protocol.SubscriptionGroupConfig, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		out = append(out, table[name])
	}
	return out, nil
}

// Groups lists the names of all groups of a target, sorted.
func (a *Admin) Groups(ctx context.Context, to Target) ([]string, error) {
	addrs, err := a.Masters(ctx, to)
	if err != nil {
		return nil, err
	}
	lists := make([][]string, len(addrs))
	err = each(addrs, func(addr string) error {
		groups, err := a.BrokerGroups(ctx, addr)
		for _, g := range groups {
			i := slices.Index(addrs, addr)
			lists[i] = append(lists[i], g.GroupName)
		}
		return err
	})
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), err
}

// DeleteGroup deletes a group at the brokers of a target, with its offsets if asked to, and its retry and dead letter topics unless the target
// is one broker.
func (a *Admin) DeleteGroup(ctx context.Context, to Target, group string, offsets bool) error {
	addrs, err := a.Masters(ctx, to)
	if err != nil {
		return err
	}
	err = each(addrs, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqDeleteSubscriptionGroup, map[string]string{"groupName": group,
			"cleanOffset": strconv.FormatBool(offsets)}, nil)
		return err
	})
	if to.Addr != "" {
		return err
	}
	return errors.Join(err, a.DeleteTopic(ctx, to, message.RetryTopic(group)), a.DeleteTopic(ctx, to, message.DLQTopic(group)))
}

// Consumers reads who is connected in a group. The brokers all know; the first that answers is taken.
func (a *Admin) Consumers(ctx context.Context, group string) (*protocol.ConsumerConnection, error) {
	addrs, err := a.groupBrokers(ctx, group, "")
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range addrs {
		c, err := decode[protocol.ConsumerConnection](ctx, a, addr, protocol.ReqGetConsumerConnectionList, map[string]string{"consumerGroup": group})
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Producers reads who is connected in a producer group that sends to a topic.
func (a *Admin) Producers(ctx context.Context, group, topic string) (*protocol.ProducerConnection, error) {
	addrs, err := a.topicBrokers(ctx, topic)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range addrs {
		c, err := decode[protocol.ProducerConnection](ctx, a, addr, protocol.ReqGetProducerConnectionList, map[string]string{"producerGroup": group})
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// QueueProgress is how far a group is in one queue.
type QueueProgress struct {
	Queue client.Queue
	protocol.OffsetWrapper
}

// Lag is how many messages of the queue the group has not consumed.
func (p *QueueProgress) Lag() int64 { return max(p.BrokerOffset-p.ConsumerOffset, 0) }

// Progress is how far a group is.
type Progress struct {
	Group  string
	TPS    float64
	Queues []QueueProgress // sorted by topic, broker and number
}

// Lag is the sum over all queues.
func (p *Progress) Lag() (n int64) {
	for i := range p.Queues {
		n += p.Queues[i].Lag()
	}
	return n
}

// Progress reads how far a group is, in one topic or, when it is empty, in all that it reads.
func (a *Admin) Progress(ctx context.Context, group, topic string) (*Progress, error) {
	addrs, err := a.groupBrokers(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	ext := map[string]string{"consumerGroup": group}
	if topic != "" {
		ext["topic"] = topic
	}
	stats := make([]*protocol.ConsumeStats, len(addrs))
	err = each(addrs, func(addr string) (err error) {
		stats[slices.Index(addrs, addr)], err = decode[protocol.ConsumeStats](ctx, a, addr, protocol.ReqGetConsumeStats, maps.Clone(ext))
		return err
	})
	if err != nil {
		return nil, err
	}
	p := &Progress{Group: group}
	for _, s := range stats {
		p.TPS += s.ConsumeTps
		for _, e := range s.OffsetTable {
			p.Queues = append(p.Queues, QueueProgress{queueOf(e.Queue), e.Value})
		}
	}
	slices.SortFunc(p.Queues, func(x, y QueueProgress) int { return compareQueues(x.Queue, y.Queue) })
	return p, nil
}

// QueueOffset is an offset of a queue.
type QueueOffset struct {
	Queue  client.Queue
	Offset int64
}

// Reset says where a group is put. Force also moves it forward in brokers that ask the clients themselves.
type Reset struct {
	Group string
	Topic string
	Queue int32 // -1 for all
	Time  int64 // ms since the epoch; -1 for the end, 0 for the beginning
	// Offset, when not nil, is used instead of Time; it needs a Queue.
	Offset *int64
	Force  bool
}

// ResetOffset puts a group to a time or an offset at all brokers of a topic and returns the new offsets, sorted. Members that are connected
// follow with their next pull.
func (a *Admin) ResetOffset(ctx context.Context, r Reset) ([]QueueOffset, error) {
	addrs, err := a.topicBrokers(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return a.resetAt(ctx, addrs, r)
}

// ResetOffsetAt is ResetOffset at one broker, for an offset of one queue.
func (a *Admin) ResetOffsetAt(ctx context.Context, addr string, r Reset) ([]QueueOffset, error) {
	return a.resetAt(ctx, []string{addr}, r)
}

func (a *Admin) resetAt(ctx context.Context, addrs []string, r Reset) ([]QueueOffset, error) {
	ext := map[string]string{"topic": r.Topic, "group": r.Group, "queueId": itoa(r.Queue), "timestamp": itoa(r.Time),
		"isForce": strconv.FormatBool(r.Force)}
	if r.Offset != nil {
		ext["offset"] = itoa(*r.Offset)
	}
	lists := make([][]QueueOffset, len(addrs))
	err := each(addrs, func(addr string) error {
		b, err := decode[protocol.ResetOffsetBody](ctx, a, addr, protocol.ReqInvokeBrokerToResetOffset, maps.Clone(ext))
		if err != nil {
			return err
		}
		for _, e := range b.OffsetTable {
			i := slices.Index(addrs, addr)
			lists[i] = append(lists[i], QueueOffset{queueOf(e.Queue), e.Value})
		}
		return nil
	})
	out := slices.Concat(lists...)
	slices.SortFunc(out, func(x, y QueueOffset) int { return compareQueues(x.Queue, y.Queue) })
	return out, err
}

// SetOffset stores a group's offset of one queue, without telling members that are connected.
func (a *Admin) SetOffset(ctx context.Context, group string, q client.Queue, offset int64) error {
	r, err := a.c.Route(ctx, q.Topic)
	if err != nil {
		return err
	}
	addr := r.Master(q.Broker)
	if addr == "" {
		return &client.RouteError{Topic: q.Topic}
	}
	_, err = a.call(ctx, addr, protocol.ReqUpdateConsumerOffset, map[string]string{"consumerGroup": group, "topic": q.Topic,
		"queueId": itoa(q.ID), "commitOffset": itoa(offset), "bname": q.Broker}, nil)
	return err
}

// CloneOffsets copies the offsets of a group to another one, of one topic or all.
func (a *Admin) CloneOffsets(ctx context.Context, from, to, topic string, offline bool) error {
	addrs, err := a.groupBrokers(ctx, from, topic)
	if err != nil {
		return err
	}
	return each(addrs, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqCloneGroupOffset, map[string]string{"srcGroup": from, "destGroup": to, "topic": topic,
			"offline": strconv.FormatBool(offline)}, nil)
		return err
	})
}

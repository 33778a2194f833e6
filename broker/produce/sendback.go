package produce

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

// firstRetryLevel is the delay level of the first redelivery when the client leaves the choice to the broker.
const firstRetryLevel = 3

// SendBack is the handler of request 36: a consumer could not process a message and gives it back, to be delivered again
// later, or to the dead letters. It waits for the disk; register it as slow.
func (h *Handler) SendBack(req *remoting.Request, resp *remoting.Response) error {
	c := h.conf.Load()
	if h.Replicas != nil {
		if err := h.Replicas.Accepting(); err != nil {
			return err
		}
	}
	b, err := decodeBack(req)
	if err != nil {
		return err
	}
	g, err := h.Groups.FindOrCreate(b.group)
	if err != nil {
		return err
	}
	if g == nil {
		return refusal(protocol.SubscriptionGroupNotExist, "subscription group not exist, %s%s", b.group, faq)
	}
	if c.BrokerPermission&topic.PermWrite == 0 {
		return refusal(protocol.NoPermission, "the broker[%s] sending message is forbidden", c.StoreHost.Addr())
	}
	if g.RetryQueueNums <= 0 {
		return nil
	}
	retry, err := h.retryTopic(g, b.unitMode)
	if err != nil {
		return err
	}
	v, err := h.Store.View(b.offset)
	if errors.Is(err, store.ErrNoRecord) {
		return refusal(protocol.SystemError, "look message by offset failed, %d", b.offset)
	}
	if err != nil {
		return err
	}
	defer v.Release()
	var rec message.Record
	if err := message.Parse(v.Bytes(), &rec); err != nil || !rec.BodyValid() {
		return refusal(protocol.SystemError, "look message by offset failed, %d", b.offset)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.SyncFlushTimeout)
	defer cancel()
	return h.giveBack(ctx, c, b, g, retry, &rec)
}

// back is the header of a send-back.
type back struct {
	offset   message.LogOffset
	group    []byte
	level    int64
	unitMode bool
	max      int32 // -1: the group's
}

func decodeBack(req *remoting.Request) (back, error) {
	h := &req.Header
	b := back{max: -1}
	off, ok, err := h.Int64("offset")
	if err != nil || !ok {
		return b, malformed("offset")
	}
	b.offset = message.LogOffset(off)
	if b.group, ok = h.Get("group"); !ok || len(b.group) == 0 {
		return b, malformed("group")
	}
	if b.level, ok, err = h.Int64("delayLevel"); err != nil || !ok {
		return b, malformed("delayLevel")
	}
	if v, ok := h.Get("unitMode"); ok {
		b.unitMode = isTrue(v)
	}
	n, ok, err := h.Int32("maxReconsumeTimes")
	if err != nil {
		return b, malformed("maxReconsumeTimes")
	}
	if ok && req.Version >= v3_4_9 {
		b.max = n
	}
	return b, nil
}

func (h *Handler) retryTopic(g *group.Config, unit bool) (*topic.Config, error) {
	var flag int32
	if unit {
		flag = topic.SysFlagUnitSub
	}
	t, err := h.Topics.Ensure(message.RetryTopic(g.Name), g.RetryQueueNums, topic.PermRead|topic.PermWrite, flag, false)
	if err != nil {
		return nil, err
	}
	if !t.Writable() {
		return nil, refusal(protocol.NoPermission, "the topic[%s] sending message is forbidden", t.Name)
	}
	return t, nil
}

// giveBack stores a copy of rec in the schedule topic on its way to the retry topic, or in the dead letters.
func (h *Handler) giveBack(ctx context.Context, c *settings, b back, g *group.Config, retry *topic.Config, rec *message.Record) error {
	limit := g.RetryMaxTimes
	if b.max >= 0 {
		limit = b.max
	}
	to, queue, level := retry.Name, rand.Int32N(max(g.RetryQueueNums, 1)), b.level
	dead := rec.ReconsumeTimes >= limit || level < 0
	if dead {
		t, err := h.Topics.Ensure(message.DLQTopic(g.Name), 1, topic.PermRead|topic.PermWrite, 0, false)
		if err != nil {
			return err
		}
		to, queue, level = t.Name, 0, 0
	} else {
		if level == 0 {
			level = firstRetryLevel + int64(rec.ReconsumeTimes)
		}
		level = min(level, int64(c.MaxDelayLevel))
	}
	props := backProperties(c, rec, level)
	if level > 0 {
		props[message.PropRealTopic], props[message.PropRealQueueID] = to, strconv.Itoa(int(queue))
		to, queue = topic.ScheduleTopic, int32(level-1)
	}
	m := &message.Message{Topic: []byte(to), QueueID: queue, Flag: rec.Flag, SysFlag: rec.SysFlag, BornTime: rec.BornTime,
		BornHost: rec.BornHost, StoreHost: c.StoreHost, ReconsumeTimes: rec.ReconsumeTimes + 1, Body: rec.Body,
		Properties: message.EncodeProperties(props)}
	if err := h.Door.Put(ctx, m); err != nil {
		return &protocol.Error{Code: protocol.SystemError, Remark: putStatus(err) + ": " + err.Error()}
	}
	from := props[message.PropRetryTopic]
	if dead {
		h.Stats.DeadLetter(g.Name, from)
	} else {
		h.Stats.SendBack(g.Name, from)
	}
	return nil
}

// backProperties are the properties of the copy.
func backProperties(c *settings, rec *message.Record, level int64) map[string]string {
	props := message.DecodeProperties(rec.Properties)
	if props[message.PropRetryTopic] == "" {
		props[message.PropRetryTopic] = string(rec.Topic)
	}
	if props[message.PropOriginMessageID] == "" {
		props[message.PropOriginMessageID] = string(message.AppendID(nil, rec.StoreHost, rec.LogOffset))
	}
	props[message.PropWait] = "false"
	props[message.PropDelay] = strconv.FormatInt(level, 10)
	return props
}

// putStatus is RocketMQ's name for why a message was not stored.
func putStatus(err error) string {
	switch {
	case errors.Is(err, store.ErrIllegal), errors.Is(err, store.ErrTooLarge):
		return "MESSAGE_ILLEGAL"
	case errors.Is(err, store.ErrPropertiesTooLong):
		return "PROPERTIES_SIZE_EXCEEDED"
	case errors.Is(err, store.ErrDiskFull), errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotWritable), errors.Is(err, store.ErrNotMaster):
		return "SERVICE_NOT_AVAILABLE"
	case errors.Is(err, context.DeadlineExceeded):
		return "FLUSH_DISK_TIMEOUT"
	}
	return "UNKNOWN_ERROR"
}

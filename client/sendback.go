package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// innerGroup is the producer group of messages that consumers send for themselves.
const innerGroup = "CLIENT_INNER_PRODUCER"

// defaultRetries is what brokers use when nobody says otherwise.
const defaultRetries = 16

// sendBack returns a message to the group: its broker stores a copy that is delivered again after a delay. When the broker cannot, a copy is
// sent to the retry topic as a new message. level as in RetryError; most is 0 for the group's setting.
func (g *group) sendBack(ctx context.Context, m *Received, level, most int) error {
	err := g.askBack(ctx, m, level, most)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if err2 := g.sendCopy(ctx, m, level, most); err2 != nil {
		return fmt.Errorf("%w; and as a new message: %w", err, err2)
	}
	return nil
}

func (g *group) askBack(ctx context.Context, m *Received, level, most int) error {
	r, err := g.c.Route(ctx, m.Queue.Topic)
	if err != nil {
		return err
	}
	addr := r.Master(m.Queue.Broker)
	if addr == "" {
		return &RouteError{Topic: m.Queue.Topic}
	}
	ext := map[string]string{
		"offset": strconv.FormatInt(m.LogOffset, 10), "group": g.cfg.name, "delayLevel": strconv.Itoa(level), "originMsgId": m.OffsetID(),
		"originTopic": m.Topic, "unitMode": "false", "bname": m.Queue.Broker,
	}
	if most > 0 {
		ext["maxReconsumeTimes"] = strconv.Itoa(most)
	}
	_, err = g.c.Call(ctx, addr, protocol.NewRequest(protocol.ReqConsumerSendMsgBack, ext, nil))
	if unreachable(err) || notServing(err) {
		g.c.staleRoute(m.Queue.Topic)
	}
	return err
}

// sendCopy publishes the message to the group's retry topic, with what the broker needs to count its tries.
func (g *group) sendCopy(ctx context.Context, m *Received, level, most int) error {
	retry := message.RetryTopic(g.cfg.name)
	r, err := g.c.publishRoute(ctx, retry, time.Time{})
	if err != nil {
		return err
	}
	limit := most
	setDefault(&limit, defaultRetries)
	times := m.ReconsumeTimes + 1
	switch {
	case level < 0:
		times = limit + 1 // past the limit: the broker moves it to the dead letter topic
	case level == 0:
		level = 3 + m.ReconsumeTimes
	}
	props := m.Properties()
	for _, name := range []string{message.PropTranMsg, message.PropReconsumeTime, message.PropMaxReconsumeTimes, message.PropRealTopic,
		message.PropRealQueueID, message.PropMinOffset, message.PropMaxOffset} {
		delete(props, name)
	}
	if props[message.PropOriginMessageID] == "" {
		props[message.PropOriginMessageID] = m.OffsetID()
	}
	props[message.PropRetryTopic] = m.Topic
	delete(props, message.PropDelay)
	if level > 0 {
		props[message.PropDelay] = strconv.Itoa(level)
	}
	encoded := message.EncodeProperties(props)
	if len(encoded) > maxProperties {
		return errors.New("properties do not fit any more")
	}
	o := &outgoing{code: protocol.ReqSendMessageV2, group: innerGroup, topic: retry, body: m.Body, props: encoded, flag: m.Flag,
		sysFlag: m.SysFlag & (message.FlagCompressed | message.CodecMask), born: m.BornTime.UnixMilli(), messages: 1,
		reconsumed: int32(times), most: int32(limit)}
	ctx, cancel := context.WithTimeout(ctx, g.c.cfg.RequestTimeout)
	defer cancel()
	var last error
	for _, i := range rand.Perm(len(r.Write)) {
		if _, last = g.c.sendOnce(ctx, o, r, r.Write[i]); last == nil || outcomeUnknown(last) {
			return last
		}
	}
	return last
}

package produce

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

const (
	faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

// errIllegal is a message whose body or properties are too long, or that no rule allows.
var errIllegal = errors.New("message is illegal")

// check runs the checks of data-plane.md 2.1 up to the queue id, in their order, and returns the topic, created when it
// may be.
func (h *Handler) check(c *settings, p *pending, req *remoting.Request) (*topic.Config, error) {
	m := &p.header
	if !c.StartAcceptSend.IsZero() && time.Now().Before(c.StartAcceptSend) {
		return nil, refusal(protocol.SystemError, "broker unable to service, until %s",
			c.StartAcceptSend.Format("2006-01-02 15:04:05.000"))
	}
	if c.BrokerPermission&topic.PermWrite == 0 {
		return nil, refusal(protocol.NoPermission, "the broker[%s] sending message is forbidden", c.StoreHost.Addr())
	}
	t, name := h.Topics.Get(m.topic), ""
	if t != nil {
		name = t.Name // a known topic has a legal name
	} else {
		name = string(m.topic)
		if err := message.ValidateTopic(name); err != nil && name != message.RetryPrefix { // create says more of that
			return nil, refusal(protocol.InvalidParameter, "%s", err)
		}
	}
	if internal(name) {
		return nil, refusal(protocol.NoPermission, "Sending message to topic[%s] is forbidden.", m.topic)
	}
	if t == nil {
		var err error
		if t, err = h.create(m); err != nil {
			return nil, err
		}
	}
	if !t.Writable() {
		return nil, refusal(protocol.NoPermission, "the topic[%s] sending message is forbidden", m.topic)
	}
	if m.queueID >= max(t.WriteQueueNums, t.ReadQueueNums) {
		return nil, illegalQueue(m.queueID, t, req)
	}
	return t, nil
}

// create makes the topic of a send when that is allowed. A retry topic needs a group first, so that a name such as
// "%RETRY%" never becomes a topic.
func (h *Handler) create(m *header) (*topic.Config, error) {
	if message.IsRetryTopicBytes(m.topic) {
		if _, err := h.retryGroup(m.topic); err != nil {
			return nil, err
		}
	}
	t, err := h.Topics.CreateOnSend(string(m.topic), string(m.defaultTopic), max(m.queues, 1), m.unitFlag())
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, refusal(protocol.TopicNotExist, "topic[%s] not exist, apply first please!%s", m.topic, faq)
	}
	return t, nil
}

// internal topics take messages from the broker only.
func internal(name string) bool {
	return message.NotAllowedSendTopic(name) || strings.HasPrefix(name, message.SystemTopicPrefix)
}

func illegalQueue(id int32, t *topic.Config, req *remoting.Request) error {
	return refusal(protocol.InvalidParameter, "request queueId[%d] is illegal, %s Producer: %s", id, describe(t), peer(req))
}

// describe is a topic in the words of RocketMQ's remarks.
func describe(t *topic.Config) string {
	perm := []byte("---")
	for i, bit := range [...]int32{topic.PermRead, topic.PermWrite, topic.PermInherit} {
		if t.Perm&bit != 0 {
			perm[i] = "RWX"[i]
		}
	}
	var attrs []string
	for k, v := range t.Attributes {
		attrs = append(attrs, k+"="+v)
	}
	return fmt.Sprintf("TopicConfig [topicName=%s, readQueueNums=%d, writeQueueNums=%d, perm=%s, topicFilterType=%s, topicSysFlag=%d, order=%t, attributes={%s}]",
		t.Name, t.ReadQueueNums, t.WriteQueueNums, perm, t.FilterType, t.SysFlag, t.Order, strings.Join(attrs, ", "))
}

// retryGroup returns the settings of the group that a retry topic belongs to.
func (h *Handler) retryGroup(name []byte) (*group.Config, error) {
	owner := name[len(topic.RetryPrefix):]
	if len(owner) > 0 {
		g, err := h.Groups.FindOrCreate(owner)
		if err != nil {
			return nil, err
		}
		if g != nil {
			return g, nil
		}
	}
	return nil, refusal(protocol.SubscriptionGroupNotExist, "subscription group not exist, %s%s", owner, faq)
}

// v3_4_9 is the first version whose producers send maxReconsumeTimes.
const v3_4_9 = 121

// retry sends a message that a client puts back by itself on to the dead letters when it was delivered often enough, or
// when its group consumes in order and so cannot have it redelivered.
func (h *Handler) retry(p *pending, req *remoting.Request, to *target) error {
	g, err := h.retryGroup(to.topic)
	if err != nil {
		return err
	}
	limit := g.RetryMaxTimes
	if req.Version >= v3_4_9 && p.header.hasMax {
		limit = p.header.maxReconsume
	}
	if p.header.reconsumeTimes <= limit && !h.Locks.Held([]byte(g.Name), time.Now()) {
		return nil
	}
	dead, err := h.Topics.Ensure(message.DLQTopic(g.Name), 1, topic.PermRead|topic.PermWrite, 0, false)
	if err != nil {
		return err
	}
	to.topic, to.queueID = []byte(dead.Name), 0
	p.found.delay = minusOne
	return nil
}

var (
	minusOne      = []byte("-1")
	scheduleTopic = []byte(topic.ScheduleTopic)
)

// special handles transactions, timers and delay levels. A message with a delay level is stored in the schedule topic
// and carries where it belongs.
func (h *Handler) special(c *settings, p *pending, to *target) error {
	f := &p.found
	if kind := p.header.sysFlag & message.TransactionMask; f.prepared || kind == message.TransactionPrepared || kind == message.TransactionRollback {
		return refusal(protocol.NoPermission, "the broker[%s] sending transaction message is forbidden", c.StoreHost.Addr())
	}
	if f.innerBatch || p.header.sysFlag&(message.FlagInnerBatch|message.FlagNeedUnwrap) != 0 {
		return errIllegal
	}
	level := int64(0)
	if f.delay != nil {
		var ok bool
		if level, ok = protocol.ParseInt(f.delay); !ok {
			return refusal(protocol.MessageIllegal, "the message is illegal, DELAY is no number")
		}
	}
	switch {
	case level <= 0 && f.timer && !f.timed:
		return refusal(protocol.SystemError, "accurate timer message is not enabled, timerWheelEnable is false")
	case level > 0 && c.MaxDelayLevel > 0:
		if level > int64(c.MaxDelayLevel) {
			level = int64(c.MaxDelayLevel)
		}
		p.text = appendDelay(p.text, level, to.topic, to.queueID)
		to.topic, to.queueID = scheduleTopic, int32(level-1)
	case f.delay != nil:
		p.text = property(p.text, message.PropDelay, f.delay)
	}
	return nil
}

// appendDelay writes the level of a message and where it goes after its delay.
func appendDelay(dst []byte, level int64, realTopic []byte, realQueue int32) []byte {
	var n [20]byte
	dst = property(dst, message.PropDelay, strconv.AppendInt(n[:0], level, 10))
	dst = property(dst, message.PropRealTopic, realTopic)
	return property(dst, message.PropRealQueueID, strconv.AppendInt(n[:0], int64(realQueue), 10))
}

func refusal(code int32, format string, args ...any) error {
	return &protocol.Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// status is the code and remark for a send that was not stored, or whose storing failed.
func (h *Handler) status(c *settings, err error) (int32, string) {
	var p *protocol.Error
	switch {
	case errors.As(err, &p):
		return p.Code, p.Remark
	case errors.Is(err, errIllegal), errors.Is(err, store.ErrIllegal), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrPropertiesTooLong):
		return protocol.MessageIllegal, fmt.Sprintf("the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit 32KB.", c.MaxMessageSize)
	case errors.Is(err, store.ErrDiskFull), errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrNotWritable), errors.Is(err, store.ErrNotMaster):
		return protocol.ServiceNotAvailable, "service not available now. It may be caused by one of the following reasons: the broker's disk is full, the store has failed or is closing: " + err.Error()
	}
	return protocol.SystemError, err.Error()
}

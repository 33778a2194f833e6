package pull

import (
	"errors"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Values of forbiddenType: who refuses.
const (
	byBroker       = 1
	byGroup        = 2
	byTopic        = 3
	byBroadcast    = 4
	bySubscription = 5
)

const faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

// forbidden refuses with code 16 and the forbiddenType that data-plane.md 4.1 lists.
func forbidden(kind int, remark string) error {
	return &refusal{&protocol.Error{Code: protocol.NoPermission, Remark: remark}, kind}
}

// refusal is a protocol.Error with a forbiddenType; Pull adds the field to the answer.
type refusal struct {
	cause *protocol.Error
	kind  int
}

func (r *refusal) Unwrap() error { return r.cause }

func (r *refusal) Error() string { return r.cause.Error() }

// refuse answers a refused pull: RocketMQ's refusals have ext fields, though none or only the forbiddenType. Other errors
// are the server's to answer.
func refuse(err error, resp *remoting.Response) error {
	var p *protocol.Error
	if !errors.As(err, &p) {
		return err
	}
	resp.Code, resp.Remark = p.Code, p.Remark
	resp.Ext.Present()
	var f *refusal
	if errors.As(err, &f) {
		resp.Ext.AddInt("forbiddenType", int64(f.kind))
	}
	return nil
}

// check runs the checks of data-plane.md 4.1 in their order.
func (h *Handler) check(req *remoting.Request, r *request) (pl plan, err error) {
	c := h.conf.Load()
	if c.BrokerPermission&topic.PermRead == 0 {
		return pl, forbidden(byBroker, "the broker["+c.BrokerIP+"] pulling message is forbidden")
	}
	if req.Code == protocol.ReqLitePullMessage && !c.LitePullMessageEnable {
		return pl, forbidden(byBroker, "the broker["+c.BrokerIP+"] for lite pull consumer is forbidden")
	}
	if pl.group, err = h.Groups.FindOrCreate(r.group); err != nil {
		return pl, err
	}
	if pl.group == nil {
		return pl, &protocol.Error{Code: protocol.SubscriptionGroupNotExist,
			Remark: "subscription group [" + string(r.group) + "] does not exist," + faq}
	}
	if !pl.group.ConsumeEnable {
		return pl, forbidden(byGroup, "subscription group no permission, "+string(r.group))
	}
	if pl.topic = h.Topics.Get(r.topic); pl.topic == nil {
		return pl, noSuchTopic(r.topic)
	}
	if !pl.topic.Readable() {
		return pl, forbidden(byTopic, "the topic["+pl.topic.Name+"] pulling message is forbidden")
	}
	if r.queueID < 0 || r.queueID >= pl.topic.ReadQueueNums {
		return pl, badQueue(r, pl.topic, req.Conn().RemoteAddr())
	}
	if r.sysFlag&flagSubscription != 0 {
		pl.filter, err = h.asked(r)
	} else {
		pl.filter, err = h.subscribed(r, pl)
	}
	return pl, err
}

// asked takes the subscription from the request.
func (h *Handler) asked(r *request) (*TagFilter, error) {
	if !isTagType(string(r.exprType)) {
		return nil, errNoSQL
	}
	f, err := h.filters.get(r.expr)
	if err != nil {
		return nil, &protocol.Error{Code: protocol.SubscriptionParseFailed, Remark: "parse the consumer's subscription failed"}
	}
	return f, nil
}

// subscribed takes the subscription from the group's heartbeats.
func (h *Handler) subscribed(r *request, pl plan) (*TagFilter, error) {
	online := h.Consumers.Consumers(r.group)
	if online == nil {
		return nil, &protocol.Error{Code: protocol.SubscriptionNotExist, Remark: "the consumer's group info not exist" + faq}
	}
	if !pl.group.ConsumeBroadcastEnable && online.Broadcast() {
		return nil, forbidden(byBroadcast, "the consumer group["+pl.group.Name+"] can not consume by broadcast way")
	}
	if h.Groups.Forbidden(pl.group.Name, pl.topic.Name, group.ForbiddenRead) {
		return nil, forbidden(bySubscription, "the consumer group["+pl.group.Name+"] is forbidden for topic["+pl.topic.Name+"]")
	}
	sub := online.Subscription(r.topic)
	if sub == nil {
		return nil, &protocol.Error{Code: protocol.SubscriptionNotExist, Remark: "the consumer's subscription not exist" + faq}
	}
	if sub.Version < r.subVersion {
		return nil, &protocol.Error{Code: protocol.SubscriptionNotLatest, Remark: "the consumer's subscription not latest"}
	}
	if !isTagType(sub.Type) {
		return nil, errNoSQL
	}
	f, err := h.filters.getText(sub.Expression)
	if err != nil {
		return nil, &protocol.Error{Code: protocol.SubscriptionParseFailed, Remark: "parse the consumer's subscription failed"}
	}
	return f, nil
}

var errNoSQL = &protocol.Error{Code: protocol.SystemError, Remark: "The broker does not support consumer to filter message by SQL92"}

package protocol

import (
	"fmt"
	"strings"

	"github.com/epochmq/epochmq/internal/fastjson"
)

// HeartbeatData is the body of HEART_BEAT. Format: spec data-plane, 4.3.
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet,set"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"`
	ProducerDataSet      []ProducerData `json:"producerDataSet,set"`
	WithoutSub           bool           `json:"withoutSub"`
}

// ProducerData is one producer group of a client.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// ConsumerData is one consumer group of a client.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere   `json:"consumeFromWhere"`
	ConsumeType         ConsumeType        `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        MessageModel       `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet,set"`
	UnitMode            bool               `json:"unitMode"`
}

// SubscriptionData is one subscription of a group.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []int32  `json:"codeSet,set"`
	ExpressionType  string   `json:"expressionType"`
	SubString       string   `json:"subString"`
	SubVersion      int64    `json:"subVersion"`
	TagsSet         []string `json:"tagsSet,set"`
	Topic           string   `json:"topic"`
}

// UnmarshalFastJSON reads a subscription; without a type it is one by tags.
func (d *SubscriptionData) UnmarshalFastJSON(n *fastjson.Node) error {
	type plain SubscriptionData
	p := plain{ExpressionType: "TAG"}
	if err := n.Decode(&p); err != nil {
		return err
	}
	*d = SubscriptionData(p)
	return nil
}

// Values of ConsumeType, MessageModel and ConsumeFromWhere. Clients send names or ordinals.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY"
	ConsumePop       ConsumeType = "CONSUME_POP"

	Broadcasting MessageModel = "BROADCASTING"
	Clustering   MessageModel = "CLUSTERING"

	FromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	FromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	FromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

// ConsumeType tells how a group reads.
type ConsumeType string

// MessageModel tells whether the members of a group share the messages.
type MessageModel string

// ConsumeFromWhere tells where a new group begins.
type ConsumeFromWhere string

var (
	consumeTypes  = []string{"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"}
	messageModels = []string{"BROADCASTING", "CLUSTERING"}
	fromWheres    = []string{"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
		"CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"}
)

// enumName reads an enum given by name or by ordinal.
func enumName(n *fastjson.Node, what string, names []string) (string, error) {
	if n.Kind == fastjson.Number {
		i, ok := ParseInt([]byte(n.Text))
		if !ok || i < 0 || i >= int64(len(names)) {
			return "", fmt.Errorf("%s %s: ordinals go from 0 to %d", what, n.Text, len(names)-1)
		}
		return names[i], nil
	}
	for _, name := range names {
		if n.Kind == fastjson.String && n.Text == name {
			return name, nil
		}
	}
	if n.Kind == fastjson.Null {
		return "", nil
	}
	return "", fmt.Errorf("%s %q: want one of %s", what, n.Text, strings.Join(names, ", "))
}

// UnmarshalFastJSON reads a name or an ordinal. "PUSH" and "PULL" of old tools are understood.
func (t *ConsumeType) UnmarshalFastJSON(n *fastjson.Node) error {
	switch n.Text {
	case "PUSH":
		*t = ConsumePassively
		return nil
	case "PULL":
		*t = ConsumeActively
		return nil
	}
	s, err := enumName(n, "consumeType", consumeTypes)
	*t = ConsumeType(s)
	return err
}

// UnmarshalFastJSON reads a name or an ordinal.
func (m *MessageModel) UnmarshalFastJSON(n *fastjson.Node) error {
	s, err := enumName(n, "messageModel", messageModels)
	*m = MessageModel(s)
	return err
}

// UnmarshalFastJSON reads a name or an ordinal. An unknown name is left out, as RocketMQ does: the broker never uses it.
func (w *ConsumeFromWhere) UnmarshalFastJSON(n *fastjson.Node) error {
	s, err := enumName(n, "consumeFromWhere", fromWheres)
	if err != nil && n.Kind == fastjson.String {
		s, err = "", nil
	}
	*w = ConsumeFromWhere(s)
	return err
}

// LockBatchRequestBody asks for or gives back queues (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ).
type LockBatchRequestBody struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet,set"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchResponseBody lists the queues that the caller holds now.
type LockBatchResponseBody struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet,set"`
}

// ConsumerList answers GET_CONSUMER_LIST_BY_GROUP.
type ConsumerList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// CheckClientConfigBody is the body of CHECK_CLIENT_CONFIG.
type CheckClientConfigBody struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        *string          `json:"namespace"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

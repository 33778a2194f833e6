package protocol

import "github.com/epochmq/epochmq/internal/fastjson"

// QueueTable is a map keyed by message queues, in the order in which it is written.
type QueueTable[V any] []QueueEntry[V]

// QueueEntry is one entry of a QueueTable.
type QueueEntry[V any] struct {
	Queue MessageQueue
	Value V
}

// MarshalFastJSON writes the queues as bare object keys.
func (t QueueTable[V]) MarshalFastJSON() any {
	p := make(fastjson.Pairs, 0, len(t))
	for _, e := range t {
		p = append(p, fastjson.Pair{Key: e.Queue, Value: e.Value})
	}
	return p
}

// UnmarshalFastJSON reads object keys, bare or quoted.
func (t *QueueTable[V]) UnmarshalFastJSON(n *fastjson.Node) error {
	*t = (*t)[:0]
	for _, m := range n.Members {
		var e QueueEntry[V]
		key := m.Key
		if key.Kind == fastjson.String {
			inner, err := fastjson.Parse([]byte(key.Text))
			if err != nil {
				return err
			}
			key = inner
		}
		if err := key.Decode(&e.Queue); err != nil {
			return err
		}
		if err := m.Value.Decode(&e.Value); err != nil {
			return err
		}
		*t = append(*t, e)
	}
	return nil
}

// OffsetWrapper is how far a group is in one queue.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"` // ms, store time of the newest consumed message
	PullOffset     int64 `json:"pullOffset"`
}

// ConsumeStats answers GET_CONSUME_STATS.
type ConsumeStats struct {
	ConsumeTps  float64                   `json:"consumeTps"`
	OffsetTable QueueTable[OffsetWrapper] `json:"offsetTable"`
}

// TopicOffset is where one queue begins and ends.
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"` // ms
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

// TopicStatsTable answers GET_TOPIC_STATS_INFO.
type TopicStatsTable struct {
	OffsetTable QueueTable[TopicOffset] `json:"offsetTable"`
	TopicPutTps float64                 `json:"topicPutTps"`
}

// ResetOffsetBody carries new offsets by queue.
type ResetOffsetBody struct {
	OffsetTable QueueTable[int64] `json:"offsetTable"`
}

// Connection is one client of a group.
type Connection struct {
	ClientAddr string `json:"clientAddr"`
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	Version    int32  `json:"version"`
}

// ConsumerConnection answers GET_CONSUMER_CONNECTION_LIST.
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet,set"`
	ConsumeFromWhere  ConsumeFromWhere            `json:"consumeFromWhere"`
	ConsumeType       ConsumeType                 `json:"consumeType"`
	MessageModel      MessageModel                `json:"messageModel"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"`
}

// ProducerConnection answers GET_PRODUCER_CONNECTION_LIST.
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet,set"`
}

// SubscriptionGroupConfig describes a consumer group on one broker.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string    `json:"attributes"`
	BrokerID                       int64                `json:"brokerId"`
	ConsumeBroadcastEnable         bool                 `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool                 `json:"consumeEnable"`
	ConsumeFromMinEnable           bool                 `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool                 `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32                `json:"consumeTimeoutMinute"`
	GroupName                      string               `json:"groupName"`
	GroupRetryPolicy               *GroupRetryPolicy    `json:"groupRetryPolicy"`
	GroupSysFlag                   int32                `json:"groupSysFlag"`
	NotifyConsumerIdsChangedEnable bool                 `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32                `json:"retryMaxTimes"`
	RetryQueueNums                 int32                `json:"retryQueueNums"`
	SubscriptionDataSet            []SimpleSubscription `json:"subscriptionDataSet,set"`
	WhichBrokerWhenConsumeSlowly   int64                `json:"whichBrokerWhenConsumeSlowly"`
}

// SimpleSubscription is a subscription kept with a group's configuration.
type SimpleSubscription struct {
	Expression     string `json:"expression"`
	ExpressionType string `json:"expressionType"`
	Topic          string `json:"topic"`
	Version        int64  `json:"version"`
}

// GroupRetryPolicy is how the delay between retries grows.
type GroupRetryPolicy struct {
	CustomizedRetryPolicy  *CustomizedRetryPolicy  `json:"customizedRetryPolicy"`
	ExponentialRetryPolicy *ExponentialRetryPolicy `json:"exponentialRetryPolicy"`
	Type                   string                  `json:"type"`
}

// CustomizedRetryPolicy lists the delays in ms.
type CustomizedRetryPolicy struct {
	Next []int64 `json:"next"`
}

// ExponentialRetryPolicy multiplies the delay up to a maximum; times in ms.
type ExponentialRetryPolicy struct {
	Initial    int64 `json:"initial"`
	Max        int64 `json:"max"`
	Multiplier int64 `json:"multiplier"`
}

// NewSubscriptionGroupConfig returns RocketMQ's defaults for a group.
func NewSubscriptionGroupConfig(name string) *SubscriptionGroupConfig {
	return &SubscriptionGroupConfig{Attributes: map[string]string{}, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		ConsumeTimeoutMinute: 15, GroupName: name, GroupRetryPolicy: &GroupRetryPolicy{Type: "CUSTOMIZED"}, NotifyConsumerIdsChangedEnable: true,
		RetryMaxTimes: 16, RetryQueueNums: 1, WhichBrokerWhenConsumeSlowly: 1}
}

// UnmarshalFastJSON reads a group, with RocketMQ's defaults for what is absent.
func (c *SubscriptionGroupConfig) UnmarshalFastJSON(n *fastjson.Node) error {
	type plain SubscriptionGroupConfig
	p := plain(*NewSubscriptionGroupConfig(""))
	if err := n.Decode(&p); err != nil {
		return err
	}
	*c = SubscriptionGroupConfig(p)
	return nil
}

// SubscriptionGroupWrapper answers GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion                         `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32         `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]*SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

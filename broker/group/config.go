package group

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
)

// Config is what is known of one consumer group, in the form of subscriptionGroup.json and of the admin requests.
// A Config that Configs has given out is shared and must not be changed: Clone it.
type Config struct {
	Name                   string                    `json:"groupName"`
	ConsumeEnable          bool                      `json:"consumeEnable"`
	ConsumeFromMinEnable   bool                      `json:"consumeFromMinEnable"`
	ConsumeBroadcastEnable bool                      `json:"consumeBroadcastEnable"`
	ConsumeMessageOrderly  bool                      `json:"consumeMessageOrderly"`
	RetryQueueNums         int32                     `json:"retryQueueNums"`
	RetryMaxTimes          int32                     `json:"retryMaxTimes"`
	RetryPolicy            json.RawMessage           `json:"groupRetryPolicy"`
	BrokerID               int64                     `json:"brokerId"`
	WhichBrokerWhenSlow    int64                     `json:"whichBrokerWhenConsumeSlowly"`
	NotifyChanges          bool                      `json:"notifyConsumerIdsChangedEnable"`
	SysFlag                int32                     `json:"groupSysFlag"`
	ConsumeTimeoutMinute   int32                     `json:"consumeTimeoutMinute"`
	Subscriptions          json.RawMessage           `json:"subscriptionDataSet"` // kept as it came; nil: absent
	Attributes             map[string]string         `json:"attributes"`
	Extra                  map[string]*fastjson.Node `json:"-"` // fields of a later RocketMQ, kept
}

// NewConfig is a group with RocketMQ's defaults.
func NewConfig(name string) *Config {
	return &Config{Name: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueueNums: 1, RetryMaxTimes: 16, RetryPolicy: json.RawMessage(`{"type":"CUSTOMIZED"}`),
		WhichBrokerWhenSlow: 1, NotifyChanges: true, ConsumeTimeoutMinute: 15, Attributes: map[string]string{}}
}

// Clone returns a copy that may be changed.
func (c *Config) Clone() *Config {
	d := *c
	d.Attributes = maps.Clone(c.Attributes)
	d.Extra = maps.Clone(c.Extra)
	return &d
}

// knownFields are the names that Config has a field for.
var knownFields = map[string]bool{"groupName": true, "consumeEnable": true, "consumeFromMinEnable": true,
	"consumeBroadcastEnable": true, "consumeMessageOrderly": true, "retryQueueNums": true, "retryMaxTimes": true,
	"groupRetryPolicy": true, "brokerId": true, "whichBrokerWhenConsumeSlowly": true,
	"notifyConsumerIdsChangedEnable": true, "groupSysFlag": true, "consumeTimeoutMinute": true,
	"subscriptionDataSet": true, "attributes": true}

// UnmarshalFastJSON starts from the defaults, so that a file or request of an older RocketMQ may lack fields, and keeps
// fields that it does not know.
func (c *Config) UnmarshalFastJSON(n *fastjson.Node) error {
	type plain Config
	p := plain(*NewConfig(""))
	if err := n.Decode(&p); err != nil {
		return fmt.Errorf("decode group config: %w", err)
	}
	for _, m := range n.Members {
		if !knownFields[m.Key.Text] && m.Value.Kind != fastjson.Null {
			if p.Extra == nil {
				p.Extra = map[string]*fastjson.Node{}
			}
			p.Extra[m.Key.Text] = m.Value
		}
	}
	if p.Attributes == nil {
		p.Attributes = map[string]string{}
	}
	*c = Config(p)
	return nil
}

// Fields is the config as a JSON object: every known field and the kept unknown ones.
func (c *Config) Fields() map[string]any {
	f := map[string]any{
		"groupName": c.Name, "consumeEnable": c.ConsumeEnable, "consumeFromMinEnable": c.ConsumeFromMinEnable,
		"consumeBroadcastEnable": c.ConsumeBroadcastEnable, "consumeMessageOrderly": c.ConsumeMessageOrderly,
		"retryQueueNums": c.RetryQueueNums, "retryMaxTimes": c.RetryMaxTimes, "groupRetryPolicy": c.RetryPolicy,
		"brokerId": c.BrokerID, "whichBrokerWhenConsumeSlowly": c.WhichBrokerWhenSlow,
		"notifyConsumerIdsChangedEnable": c.NotifyChanges, "groupSysFlag": c.SysFlag,
		"consumeTimeoutMinute": c.ConsumeTimeoutMinute, "attributes": c.Attributes,
	}
	if c.Subscriptions != nil {
		f["subscriptionDataSet"] = c.Subscriptions
	}
	for name, value := range c.Extra {
		f[name] = value
	}
	return f
}

// Version is the version of a table of groups.
type Version = topic.Version

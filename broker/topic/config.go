package topic

import (
	"maps"
	"time"
)

// Bits of Config.Perm and of Config.SysFlag.
const (
	PermInherit int32 = 1
	PermWrite   int32 = 2
	PermRead    int32 = 4

	SysFlagUnit    int32 = 1
	SysFlagUnitSub int32 = 2
)

// Names of topics that every broker has.
const (
	DefaultTopic   = "TBW102" // the template of topics that are created by sending
	SelfTestTopic  = "SELF_TEST_TOPIC"
	BenchmarkTopic = "BenchmarkTest"
	OffsetMoved    = "OFFSET_MOVED_EVENT"
	ScheduleTopic  = "SCHEDULE_TOPIC_XXXX"
	HalfTopic      = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic    = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TimerTopic     = "rmq_sys_wheel_timer"
	RetryPrefix    = "%RETRY%"
	DLQPrefix      = "%DLQ%"
)

// Config is what is known of one topic, in the form of topics.json and of the admin requests. A Config that a Table
// has given out is shared and must not be changed: Clone it.
type Config struct {
	Name           string            `json:"topicName"`
	ReadQueueNums  int32             `json:"readQueueNums"`
	WriteQueueNums int32             `json:"writeQueueNums"`
	Perm           int32             `json:"perm"`
	FilterType     string            `json:"topicFilterType"` // SINGLE_TAG or MULTI_TAG
	SysFlag        int32             `json:"topicSysFlag"`
	Order          bool              `json:"order"`
	Attributes     map[string]string `json:"attributes"`
}

// NewConfig is a readable and writable topic with as many read as write queues.
func NewConfig(name string, queues int32) *Config {
	return &Config{Name: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: PermRead | PermWrite,
		FilterType: "SINGLE_TAG", Attributes: map[string]string{}}
}

// Readable says whether the topic's own permission lets consumers read.
func (c *Config) Readable() bool { return c.Perm&PermRead != 0 }

// Writable says whether the topic's own permission lets producers write.
func (c *Config) Writable() bool { return c.Perm&PermWrite != 0 }

// Inherited says whether the topic may serve as a template.
func (c *Config) Inherited() bool { return c.Perm&PermInherit != 0 }

// Clone returns a copy that may be changed.
func (c *Config) Clone() *Config {
	d := *c
	d.Attributes = maps.Clone(c.Attributes)
	if d.Attributes == nil {
		d.Attributes = map[string]string{}
	}
	return &d
}

// Equal compares all fields.
func (c *Config) Equal(d *Config) bool {
	return c.Name == d.Name && c.ReadQueueNums == d.ReadQueueNums && c.WriteQueueNums == d.WriteQueueNums &&
		c.Perm == d.Perm && c.FilterType == d.FilterType && c.SysFlag == d.SysFlag && c.Order == d.Order &&
		maps.Equal(c.Attributes, d.Attributes)
}

// Version orders the states of a table: by StateVersion, Counter, Timestamp. The field order is protocol.DataVersion's.
type Version struct {
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms since the epoch
	Counter      int64 `json:"counter"`
}

// NewVersion is the version of an empty table made now.
func NewVersion() Version { return Version{Timestamp: time.Now().UnixMilli()} }

// Next is the version of the state after this one.
func (v Version) Next() Version {
	return Version{StateVersion: v.StateVersion, Timestamp: time.Now().UnixMilli(), Counter: v.Counter + 1}
}

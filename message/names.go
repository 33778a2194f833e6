package message

import "strings"

// Prefixes of topics that belong to a group, and of system names.
const (
	RetryPrefix       = "%RETRY%"
	DLQPrefix         = "%DLQ%"
	SystemTopicPrefix = "rmq_sys_"
	SystemGroupPrefix = "CID_RMQ_SYS_"
)

// Topics that the broker itself uses.
const (
	TopicDefault      = "TBW102"
	TopicSchedule     = "SCHEDULE_TOPIC_XXXX"
	TopicBenchmark    = "BenchmarkTest"
	TopicHalf         = "RMQ_SYS_TRANS_HALF_TOPIC"
	TopicOpHalf       = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TopicCheckMaxTime = "TRANS_CHECK_MAX_TIME_TOPIC"
	TopicSelfTest     = "SELF_TEST_TOPIC"
	TopicOffsetMoved  = "OFFSET_MOVED_EVENT"
	TopicTrace        = "RMQ_SYS_TRACE_TOPIC"
	TopicCheckpoint   = "CHECKPOINT_TOPIC"
	TopicTimer        = "rmq_sys_wheel_timer"
)

var systemTopics = map[string]bool{
	TopicDefault: true, TopicSchedule: true, TopicBenchmark: true, TopicHalf: true, TopicOpHalf: true, TopicCheckMaxTime: true,
	TopicSelfTest: true, TopicOffsetMoved: true, TopicTrace: true, TopicCheckpoint: true,
}

var notAllowedSend = map[string]bool{
	TopicSchedule: true, TopicHalf: true, TopicOpHalf: true, TopicCheckMaxTime: true, TopicSelfTest: true, TopicOffsetMoved: true,
}

// NameError says why a name is refused, in the words of RocketMQ 5.3.3, which clients and operators know.
type NameError struct{ Remark string }

func (e *NameError) Error() string { return e.Remark }

// ValidateTopic checks a topic name as a broker does: not blank, allowed characters, at most 127 of them, and no retry or dead letter
// topic of a group without a name. *NameError otherwise.
func ValidateTopic(s string) error {
	if s == RetryPrefix || s == DLQPrefix {
		return &NameError{"The specified topic " + s + " names no group."}
	}
	return validate("topic", s, MaxTopicLen)
}

// ValidateGroup checks a group name: not blank, allowed characters, at most 120 of them. *NameError otherwise.
func ValidateGroup(s string) error { return validate("group", s, MaxGroupLen) }

func validate(kind, s string, most int) error {
	if strings.TrimSpace(s) == "" {
		return &NameError{"The specified " + kind + " is blank."}
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '%' || c == '|' || c == '_' || c == '-') {
			return &NameError{"The specified " + kind + " contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"}
		}
	}
	if len(s) > most {
		return &NameError{"The specified " + kind + " is longer than " + kind + " max length."}
	}
	return nil
}

// IsSystemTopic tells whether a name belongs to the broker itself. Cluster and broker names, which are system topics too, are known to
// the topic table only.
func IsSystemTopic(s string) bool { return systemTopics[s] || strings.HasPrefix(s, SystemTopicPrefix) }

// NotAllowedSendTopic tells whether clients may not send to a topic.
func NotAllowedSendTopic(s string) bool { return notAllowedSend[s] }

// IsSystemGroup tells whether a group belongs to the broker itself.
func IsSystemGroup(s string) bool { return strings.HasPrefix(s, SystemGroupPrefix) }

// RetryTopic returns the topic that holds a group's retried messages.
func RetryTopic(group string) string { return RetryPrefix + group }

// DLQTopic returns the topic that holds a group's dead letters.
func DLQTopic(group string) string { return DLQPrefix + group }

// IsRetryTopic tells whether a topic holds retried messages.
func IsRetryTopic(s string) bool { return strings.HasPrefix(s, RetryPrefix) }

// IsDLQTopic tells whether a topic holds dead letters.
func IsDLQTopic(s string) bool { return strings.HasPrefix(s, DLQPrefix) }

// IsRetryTopicBytes is IsRetryTopic of bytes.
func IsRetryTopicBytes(b []byte) bool {
	return len(b) >= len(RetryPrefix) && string(b[:len(RetryPrefix)]) == RetryPrefix
}

package message

import (
	"bytes"
	"sort"
)

// Separators of the encoded properties.
const (
	NameSeparator     = 0x01
	PropertySeparator = 0x02
)

// Reserved property names. Format: docs/formats/record.md.
const (
	PropKeys                       = "KEYS"
	PropTags                       = "TAGS"
	PropWait                       = "WAIT"
	PropDelay                      = "DELAY"
	PropRetryTopic                 = "RETRY_TOPIC"
	PropRealTopic                  = "REAL_TOPIC"
	PropRealQueueID                = "REAL_QID"
	PropTranMsg                    = "TRAN_MSG"
	PropProducerGroup              = "PGROUP"
	PropMinOffset                  = "MIN_OFFSET"
	PropMaxOffset                  = "MAX_OFFSET"
	PropBuyerID                    = "BUYER_ID"
	PropOriginMessageID            = "ORIGIN_MESSAGE_ID"
	PropTransferFlag               = "TRANSFER_FLAG"
	PropCorrectionFlag             = "CORRECTION_FLAG"
	PropMQ2Flag                    = "MQ2_FLAG"
	PropReconsumeTime              = "RECONSUME_TIME"
	PropMaxReconsumeTimes          = "MAX_RECONSUME_TIMES"
	PropConsumeStartTime           = "CONSUME_START_TIME"
	PropPopCK                      = "POP_CK"
	PropPopCKOffset                = "POP_CK_OFFSET"
	PropFirstPopTime               = "1ST_POP_TIME"
	PropTranPreparedOffset         = "TRAN_PREPARED_QUEUE_OFFSET"
	PropDupInfo                    = "DUP_INFO"
	PropExtendUniqInfo             = "EXTEND_UNIQ_INFO"
	PropInstanceID                 = "INSTANCE_ID"
	PropMsgRegion                  = "MSG_REGION"
	PropTraceSwitch                = "TRACE_ON"
	PropUniqKey                    = "UNIQ_KEY"
	PropCorrelationID              = "CORRELATION_ID"
	PropReplyToClient              = "REPLY_TO_CLIENT"
	PropTTL                        = "TTL"
	PropArriveTime                 = "ARRIVE_TIME"
	PropPushReplyTime              = "PUSH_REPLY_TIME"
	PropMsgType                    = "MSG_TYPE"
	PropCluster                    = "CLUSTER"
	PropInnerMultiDispatch         = "INNER_MULTI_DISPATCH"
	PropInnerMultiQueueOffset      = "INNER_MULTI_QUEUE_OFFSET"
	PropInnerNum                   = "INNER_NUM"
	PropInnerBase                  = "INNER_BASE"
	PropTimerDelayMs               = "TIMER_DELAY_MS"
	PropTimerDelaySec              = "TIMER_DELAY_SEC"
	PropTimerDeliverMs             = "TIMER_DELIVER_MS"
	PropTimerEnqueueMs             = "TIMER_ENQUEUE_MS"
	PropTimerDequeueMs             = "TIMER_DEQUEUE_MS"
	PropTimerRollTimes             = "TIMER_ROLL_TIMES"
	PropTimerOutMs                 = "TIMER_OUT_MS"
	PropTimerDelUniqKey            = "TIMER_DEL_UNIQKEY"
	PropTimerDelayLevel            = "TIMER_DELAY_LEVEL"
	PropBornHost                   = "__BORNHOST"
	PropBornTimestamp              = "BORN_TIMESTAMP"
	PropDLQOriginTopic             = "DLQ_ORIGIN_TOPIC"
	PropDLQOriginMessageID         = "DLQ_ORIGIN_MESSAGE_ID"
	PropTransactionCheckTimes      = "TRANSACTION_CHECK_TIMES"
	PropCheckImmunitySeconds       = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	PropTransactionID              = "__transactionId__"
	PropShardingKey                = "__SHARDINGKEY"
	PropCRC32                      = "__CRC32#"
	PropTraceContext               = "TRACE_CONTEXT"
	PropRedirect                   = "REDIRECT"
	PropForwardQueueID             = "PROPERTY_FORWARD_QUEUE_ID"
	PropTransientPrefix            = "__RMQ.TRANSIENT."
	keysSeparator             byte = ' '
)

// EachProperty calls fn for every pair of encoded properties, in their order, until it returns false. Segments without a separator, with
// an empty name or an empty value are passed over, as RocketMQ does. name and value are views of props.
func EachProperty(props []byte, fn func(name, value []byte) bool) {
	for len(props) > 0 {
		var pair []byte
		pair, props = cutProperty(props)
		if name, value, ok := splitPair(pair); ok && !fn(name, value) {
			return
		}
	}
}

func cutProperty(props []byte) (pair, rest []byte) {
	if i := bytes.IndexByte(props, PropertySeparator); i >= 0 {
		return props[:i], props[i+1:]
	}
	return props, nil
}

func splitPair(pair []byte) (name, value []byte, ok bool) {
	i := bytes.IndexByte(pair, NameSeparator)
	if i <= 0 || i == len(pair)-1 {
		return nil, nil, false
	}
	return pair[:i], pair[i+1:], true
}

// Property returns the value of a name; among duplicates the last wins. It allocates nothing; value is a view of props.
func Property(props []byte, name string) (value []byte, ok bool) {
	for len(props) > 0 {
		var pair []byte
		pair, props = cutProperty(props)
		if len(pair) > len(name)+1 && pair[len(name)] == NameSeparator && string(pair[:len(name)]) == name {
			value, ok = pair[len(name)+1:], true
		}
	}
	return value, ok
}

// AppendProperty appends one encoded pair, with its closing separator.
func AppendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, NameSeparator)
	dst = append(dst, value...)
	return append(dst, PropertySeparator)
}

// DropProperty appends props without any pair of the given name.
func DropProperty(dst, props []byte, name string) []byte {
	for len(props) > 0 {
		var pair []byte
		pair, props = cutProperty(props)
		if len(pair) > len(name) && pair[len(name)] == NameSeparator && string(pair[:len(name)]) == name {
			continue
		}
		if len(pair) == 0 {
			continue
		}
		dst = append(dst, pair...)
		dst = append(dst, PropertySeparator)
	}
	return dst
}

// DecodeProperties returns the pairs as a map; the last duplicate wins.
func DecodeProperties(props []byte) map[string]string {
	m := map[string]string{}
	EachProperty(props, func(name, value []byte) bool {
		m[string(name)] = string(value)
		return true
	})
	return m
}

// EncodeProperties encodes a map, sorted by name.
func EncodeProperties(m map[string]string) []byte {
	names := make([]string, 0, len(m))
	size := 0
	for name, value := range m {
		names = append(names, name)
		size += len(name) + len(value) + 2
	}
	sort.Strings(names)
	dst := make([]byte, 0, size)
	for _, name := range names {
		dst = AppendProperty(dst, name, m[name])
	}
	return dst
}

// EachKey calls fn for every non-empty key of a KEYS value.
func EachKey(keys []byte, fn func(key []byte)) {
	for len(keys) > 0 {
		i := bytes.IndexByte(keys, keysSeparator)
		if i < 0 {
			fn(keys)
			return
		}
		if i > 0 {
			fn(keys[:i])
		}
		keys = keys[i+1:]
	}
}

package pull

import (
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Bits of a pull request's sysFlag.
const (
	flagCommit       = 1  // commitOffset is to be stored
	flagSuspend      = 2  // wait for messages
	flagSubscription = 4  // the subscription is in the request
	flagClassFilter  = 8  // never served
	flagLitePull     = 16 // a lite pull consumer asks
)

// request is the header of a pull. Its slices are views of the frame.
type request struct {
	group, topic     []byte
	expr, exprType   []byte
	queueID          int32
	maxNums          int32
	maxBytes         int32
	sysFlag          int32
	offset           message.QueueOffset
	commitOffset     message.QueueOffset
	suspendMillis    int64
	subVersion       int64
	hasCommit        bool
	hasQueue, hasOff bool
}

const noLimit = 1<<31 - 1

// decode reads the fields of h. Group, topic, queueId and queueOffset must be there.
func (r *request) decode(h *protocol.Header) error {
	*r = request{maxNums: 32, maxBytes: noLimit}
	var bad string
	for i := range h.Len() {
		name, value := h.Field(i)
		if field := r.set(name, value); field != "" {
			bad = field
		}
	}
	switch {
	case bad != "":
		return malformed(bad)
	case len(r.group) == 0:
		return malformed("consumerGroup")
	case len(r.topic) == 0:
		return malformed("topic")
	case !r.hasQueue:
		return malformed("queueId")
	case !r.hasOff:
		return malformed("queueOffset")
	}
	return nil
}

// set stores one field and returns its name when the value is no number.
func (r *request) set(name, value []byte) string {
	ok := true
	switch string(name) {
	case "consumerGroup":
		r.group = value
	case "topic":
		r.topic = value
	case "subscription":
		r.expr = value
	case "expressionType":
		r.exprType = value
	case "queueId":
		r.queueID, ok = parse32(value)
		r.hasQueue = ok
	case "queueOffset":
		var n int64
		n, ok = protocol.ParseInt(value)
		r.offset, r.hasOff = message.QueueOffset(n), ok
	case "maxMsgNums":
		r.maxNums, ok = parse32(value)
	case "maxMsgBytes":
		r.maxBytes, ok = parse32(value)
	case "sysFlag":
		r.sysFlag, ok = parse32(value)
	case "commitOffset":
		var n int64
		n, ok = protocol.ParseInt(value)
		r.commitOffset, r.hasCommit = message.QueueOffset(n), ok
	case "suspendTimeoutMillis":
		r.suspendMillis, ok = protocol.ParseInt(value)
	case "subVersion":
		r.subVersion, ok = protocol.ParseInt(value)
	}
	if !ok {
		return string(name)
	}
	return ""
}

func parse32(b []byte) (int32, bool) {
	n, ok := protocol.ParseInt(b)
	return int32(n), ok && n == int64(int32(n))
}

func malformed(field string) error {
	return &protocol.Error{Code: protocol.SystemError, Remark: "pull request header: field " + field + " is missing or no number"}
}

package produce

import (
	"bytes"

	"github.com/epochmq/epochmq/message"
)

// Separators of the property text.
const (
	nameEnd  = 1
	valueEnd = 2
)

// properties is what one pass over a producer's property text found. Byte slices are views of the text. Where a name
// occurs twice the last one counts, as in RocketMQ.
type properties struct {
	uniq       []byte // UNIQ_KEY, nil when absent
	delay      []byte // DELAY
	keys       bool   // KEYS is present
	noWait     bool   // WAIT is not true: the answer does not wait for the disk
	prepared   bool   // TRAN_MSG is true: half of a transaction
	timer      bool   // one of the TIMER_ names asks for a delivery time
	timed      bool   // TIMER_OUT_MS: was timed before, is never timed again
	innerBatch bool   // INNER_NUM
}

// clean copies the text of a producer to dst without what the broker itself writes (CLUSTER, MSG_REGION, TRACE_ON,
// DELAY) and without POP_CK, and notes what matters. Segments that RocketMQ's parser drops (no name, no value) are not
// copied, and the last value ends with its separator. It does not allocate when dst has room.
func (p *properties) clean(dst, text []byte) []byte {
	*p = properties{}
	for len(text) > 0 {
		seg := text
		if i := bytes.IndexByte(text, valueEnd); i >= 0 {
			seg, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		i := bytes.IndexByte(seg, nameEnd)
		if i <= 0 || i == len(seg)-1 {
			continue
		}
		if p.note(seg[:i], seg[i+1:]) {
			dst = append(dst, seg...)
			dst = append(dst, valueEnd)
		}
	}
	return dst
}

// note remembers one property and reports whether it is copied.
func (p *properties) note(name, value []byte) bool {
	switch string(name) {
	case message.PropPopCK, message.PropCluster, message.PropMsgRegion, message.PropTraceSwitch:
		return false
	case message.PropDelay:
		p.delay = value
		return false
	case message.PropUniqKey:
		p.uniq = value
	case message.PropKeys:
		p.keys = true
	case message.PropWait:
		p.noWait = !bytes.EqualFold(value, []byte("true"))
	case message.PropTranMsg:
		p.prepared = bytes.EqualFold(value, []byte("true"))
	case message.PropTimerDelayMs, message.PropTimerDelaySec, message.PropTimerDeliverMs, message.PropTimerDelUniqKey:
		p.timer = true
	case message.PropTimerOutMs:
		p.timed = true
	case message.PropInnerNum:
		p.innerBatch = true
	}
	return true
}

// property appends one name and value in the stored form.
func property(dst []byte, name string, value []byte) []byte {
	dst = append(dst, name...)
	dst = append(dst, nameEnd)
	dst = append(dst, value...)
	return append(dst, valueEnd)
}

package produce

import (
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// header is the header of a send. Its slices are views of the frame.
type header struct {
	group, topic, defaultTopic []byte
	properties                 []byte
	born                       int64
	queues                     int32 // wish for a new topic
	queueID                    int32
	sysFlag                    int32
	flag                       int32
	reconsumeTimes             int32
	maxReconsume               int32
	unitMode                   bool
	batch                      bool
	hasMax                     bool
	seen                       uint8 // of the required fields
}

// Required fields, for header.seen.
const (
	sawQueueID = 1 << iota
	sawSysFlag
	sawBorn
	sawFlag
	sawAll = sawQueueID | sawSysFlag | sawBorn | sawFlag
)

// decode reads the fields of a send under their long names (10) and their one-letter names (310, 320), whichever a
// client uses. It does not allocate.
func (m *header) decode(h *protocol.Header) error {
	*m = header{}
	var bad []byte
	for i := range h.Len() {
		name, value := h.Field(i)
		key := byte(0)
		if len(name) == 1 {
			key = name[0]
		} else {
			key = short(name)
		}
		if key != 0 && !m.set(key, value) {
			bad = name
		}
	}
	switch {
	case bad != nil:
		return malformed(string(bad))
	case m.seen&sawBorn == 0:
		return malformed("bornTimestamp")
	case m.seen&sawQueueID == 0:
		return malformed("queueId")
	case m.seen&sawSysFlag == 0:
		return malformed("sysFlag")
	case m.seen&sawFlag == 0:
		return malformed("flag")
	}
	return nil
}

// short is the one-letter name of a field, 0 for a field that is none of a send.
func short(name []byte) byte {
	switch string(name) {
	case "producerGroup":
		return 'a'
	case "topic":
		return 'b'
	case "defaultTopic":
		return 'c'
	case "defaultTopicQueueNums":
		return 'd'
	case "queueId":
		return 'e'
	case "sysFlag":
		return 'f'
	case "bornTimestamp":
		return 'g'
	case "flag":
		return 'h'
	case "properties":
		return 'i'
	case "reconsumeTimes":
		return 'j'
	case "unitMode":
		return 'k'
	case "maxReconsumeTimes":
		return 'l'
	case "batch":
		return 'm'
	}
	return 0
}

// set stores one field and reports whether its value was well formed.
func (m *header) set(key byte, value []byte) (ok bool) {
	ok = true
	switch key {
	case 'a':
		m.group = value
	case 'b':
		m.topic = value
	case 'c':
		m.defaultTopic = value
	case 'd':
		m.queues, ok = parse32(value)
	case 'e':
		m.queueID, ok = parse32(value)
		m.seen |= sawQueueID
	case 'f':
		m.sysFlag, ok = parse32(value)
		m.seen |= sawSysFlag
	case 'g':
		m.born, ok = protocol.ParseInt(value)
		m.seen |= sawBorn
	case 'h':
		m.flag, ok = parse32(value)
		m.seen |= sawFlag
	case 'i':
		m.properties = value
	case 'j':
		m.reconsumeTimes, ok = parse32(value)
	case 'k':
		m.unitMode = isTrue(value)
	case 'l':
		m.maxReconsume, ok = parse32(value)
		m.hasMax = true
	case 'm':
		m.batch = isTrue(value)
	}
	return ok
}

func isTrue(b []byte) bool {
	return len(b) == 4 && b[0]|0x20 == 't' && b[1]|0x20 == 'r' && b[2]|0x20 == 'u' && b[3]|0x20 == 'e'
}

func parse32(b []byte) (int32, bool) {
	n, ok := protocol.ParseInt(b)
	return int32(n), ok && n == int64(int32(n))
}

func malformed(field string) error {
	return &protocol.Error{Code: protocol.SystemError, Remark: "request header: field " + field + " is missing or malformed"}
}

// unitFlag is the system flag of a topic that this send creates.
func (m *header) unitFlag() int32 {
	switch {
	case !m.unitMode:
		return 0
	case message.IsRetryTopicBytes(m.topic):
		return 2 // UNIT_SUB
	}
	return 1 // UNIT
}

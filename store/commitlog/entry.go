package commitlog

import (
	"bytes"

	"github.com/epochmq/epochmq/message"
)

// MaxEntryKeys is how many key hashes an Entry carries.
const MaxEntryKeys = 6

// Entry is what the dispatcher needs of one record, so that it need not parse it again.
type Entry struct {
	Queue       *Queue
	LogOffset   message.LogOffset
	QueueOffset message.QueueOffset // 0 for prepared and rolled back messages
	StoreTime   int64               // ms since the epoch
	TagsCode    int64               // of TAGS; see DelayLevel
	Size        int32
	SysFlag     int32
	DelayLevel  int32 // of a record in SCHEDULE_TOPIC_XXXX, else 0: the dispatcher replaces TagsCode by the delivery time
	MoreKeys    bool  // there are more keys than fit: read the record
	keys        uint8
	keyHashes   [MaxEntryKeys]int32
}

// KeyHashes are the hashes of topic#UNIQ_KEY and of topic#key for each part of KEYS, in the order of the index.
func (e *Entry) KeyHashes() []int32 { return e.keyHashes[:e.keys] }

// End is the log offset behind the record.
func (e *Entry) End() message.LogOffset { return e.LogOffset + message.LogOffset(e.Size) }

// Fill sets e from a parsed record of queue q, as Append would have done.
func (e *Entry) Fill(rec *message.Record, q *Queue) {
	*e = Entry{Queue: q, LogOffset: rec.LogOffset, QueueOffset: rec.QueueOffset, StoreTime: rec.StoreTime, Size: rec.Size, SysFlag: rec.SysFlag}
	e.properties(rec.Properties)
}

// properties takes tags, keys and delay level out of encoded properties. A later duplicate of a name wins.
func (e *Entry) properties(props []byte) {
	var uniq, keys, tags, delay []byte
	for len(props) > 0 {
		pair := props
		if i := bytes.IndexByte(props, message.PropertySeparator); i >= 0 {
			pair, props = props[:i], props[i+1:]
		} else {
			props = nil
		}
		switch n := len(pair); { // by the length of the name, so that other names cost next to nothing
		case n > 5 && pair[4] == message.NameSeparator:
			switch string(pair[:4]) {
			case message.PropKeys:
				keys = pair[5:]
			case message.PropTags:
				tags = pair[5:]
			}
		case n > 6 && pair[5] == message.NameSeparator && string(pair[:5]) == message.PropDelay:
			delay = pair[6:]
		case n > 9 && pair[8] == message.NameSeparator && string(pair[:8]) == message.PropUniqKey:
			uniq = pair[9:]
		}
	}
	if len(tags) > 0 {
		e.TagsCode = message.TagsCode(tags)
	}
	e.addKey(uniq)
	for len(keys) > 0 {
		part := keys
		if i := bytes.IndexByte(keys, ' '); i >= 0 {
			part, keys = keys[:i], keys[i+1:]
		} else {
			keys = nil
		}
		e.addKey(part)
	}
	if e.Queue.isSchedule {
		e.DelayLevel = parseLevel(delay)
	}
}

func (e *Entry) addKey(key []byte) {
	switch {
	case len(key) == 0:
	case e.keys == MaxEntryKeys:
		e.MoreKeys = true
	default:
		e.keyHashes[e.keys] = e.Queue.KeyHash(key)
		e.keys++
	}
}

// parseLevel reads a small positive decimal; anything else is 0, no delay.
func parseLevel(b []byte) int32 {
	if len(b) == 0 || len(b) > 9 {
		return 0
	}
	var v int32
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		v = v*10 + int32(c-'0')
	}
	return v
}

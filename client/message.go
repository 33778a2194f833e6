package client

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/message/codec"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Queue names one queue of a topic at one broker.
type Queue struct {
	Topic  string
	Broker string
	ID     int32
}

// String is topic/queue(broker).
func (q Queue) String() string { return q.Topic + "/" + strconv.Itoa(int(q.ID)) + "(" + q.Broker + ")" }

func (q Queue) wire() protocol.MessageQueue {
	return protocol.MessageQueue{BrokerName: q.Broker, QueueID: q.ID, Topic: q.Topic}
}

func queueOf(m protocol.MessageQueue) Queue { return Queue{m.Topic, m.BrokerName, m.QueueID} }

func compareQueues(a, b Queue) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.Broker, b.Broker); c != 0 {
		return c
	}
	return int(a.ID) - int(b.ID)
}

// Message is what a producer sends. It and its body must not change until the send has ended; it is never changed by the client, so that
// it may be sent again.
type Message struct {
	Topic string
	Body  []byte
	Tags  string
	Keys  []string // for looking messages up; without blanks
	// Properties are the application's own; names that RocketMQ reserves are refused.
	Properties map[string]string
	Flag       int32 // the application's own
	// DelayLevel 1 to 18 delivers later, by the broker's table (10 s is level 3); 0 at once.
	DelayLevel int
	// NoWait lets the broker acknowledge before the message is on disk or replicated, whatever its configuration.
	NoWait bool
	// Queue binds the message to a queue; ShardKey to the queue that the key's hash selects, so that messages of a key keep their order.
	Queue    *Queue
	ShardKey string
}

// maxProperties is the length of all encoded properties that a record can hold.
const maxProperties = message.MaxPropertiesLen

// brokerRoom is what is left of it for the broker's own additions.
const brokerRoom = 512

var reserved = func() map[string]bool {
	m := map[string]bool{}
	for _, n := range []string{message.PropKeys, message.PropTags, message.PropWait, message.PropDelay, message.PropRetryTopic,
		message.PropRealTopic, message.PropRealQueueID, message.PropTranMsg, message.PropProducerGroup, message.PropMinOffset,
		message.PropMaxOffset, message.PropBuyerID, message.PropOriginMessageID, message.PropTransferFlag, message.PropCorrectionFlag,
		message.PropMQ2Flag, message.PropReconsumeTime, message.PropMsgRegion, message.PropTraceSwitch, message.PropUniqKey,
		message.PropMaxReconsumeTimes, message.PropConsumeStartTime, message.PropPopCK, message.PropPopCKOffset,
		message.PropFirstPopTime, message.PropTranPreparedOffset, message.PropDupInfo, message.PropExtendUniqInfo,
		message.PropInstanceID, message.PropCorrelationID, message.PropReplyToClient, message.PropTTL, message.PropArriveTime,
		message.PropPushReplyTime, message.PropCluster, message.PropMsgType} {
		m[n] = true
	}
	return m
}()

func (m *Message) refuse(format string, args ...any) error {
	return &MessageError{m.Topic, fmt.Sprintf(format, args...)}
}

// check looks at everything but the size.
func (m *Message) check() error {
	if m == nil {
		return &MessageError{Reason: "there is none, the pointer is nil"}
	}
	if err := message.ValidateTopic(m.Topic); err != nil {
		return &MessageError{m.Topic, err.Error()}
	}
	if len(m.Body) == 0 {
		return m.refuse("the body is empty")
	}
	for _, k := range m.Keys {
		if k == "" || strings.ContainsAny(k, " \x01\x02") {
			return m.refuse("key %q is empty or holds a blank or control character", k)
		}
	}
	if strings.ContainsAny(m.Tags, "\x01\x02") {
		return m.refuse("tags %q hold a control character", m.Tags)
	}
	for name, value := range m.Properties {
		switch {
		case reserved[name]:
			return m.refuse("property %s is reserved", name)
		case name == "" || value == "":
			return m.refuse("property %q has an empty name or value", name)
		case strings.ContainsAny(name, "\x01\x02") || strings.ContainsRune(value, '\x02'):
			return m.refuse("property %q holds a control character", name)
		}
	}
	return nil
}

// appendProperties appends the encoded properties.
func (m *Message) appendProperties(dst []byte, id string) []byte {
	for name, value := range m.Properties {
		dst = message.AppendProperty(dst, name, value)
	}
	if len(m.Keys) > 0 {
		dst = message.AppendProperty(dst, message.PropKeys, strings.Join(m.Keys, " "))
	}
	if m.Tags != "" {
		dst = message.AppendProperty(dst, message.PropTags, m.Tags)
	}
	if m.DelayLevel > 0 {
		dst = message.AppendProperty(dst, message.PropDelay, strconv.Itoa(m.DelayLevel))
	}
	if m.ShardKey != "" {
		dst = message.AppendProperty(dst, message.PropShardingKey, m.ShardKey)
	}
	dst = message.AppendProperty(dst, message.PropUniqKey, id)
	return message.AppendProperty(dst, message.PropWait, strconv.FormatBool(!m.NoWait))
}

// Received is a message that was fetched. Its slices belong to it and may be kept; they share memory with the messages of the same answer.
type Received struct {
	// Topic is the one that the message was sent to, also when it comes from a retry topic.
	Topic string
	// Queue, QueueOffset and LogOffset are where it was read.
	Queue       Queue
	QueueOffset int64
	LogOffset   int64
	Body        []byte // expanded; as stored when it could not be, SysFlag then still says compressed
	Flag        int32
	SysFlag     int32
	// ReconsumeTimes is how often it was handed out before without success.
	ReconsumeTimes int
	BornTime       time.Time
	BornHost       netip.AddrPort
	StoreTime      time.Time
	StoreHost      netip.AddrPort
	StoredSize     int // bytes in the log

	props []byte
}

// Property returns the value of a property, or "".
func (r *Received) Property(name string) string {
	v, _ := message.Property(r.props, name)
	return string(v)
}

// Properties returns all of them, RocketMQ's own included.
func (r *Received) Properties() map[string]string { return message.DecodeProperties(r.props) }

// Tags returns the message's tags.
func (r *Received) Tags() string { return r.Property(message.PropTags) }

// Keys returns the message's keys.
func (r *Received) Keys() []string { return strings.Fields(r.Property(message.PropKeys)) }

// ID is what the producer named it, which stays through retries; OffsetID if it has none.
func (r *Received) ID() string {
	if id := r.Property(message.PropUniqKey); id != "" {
		return id
	}
	return r.OffsetID()
}

// OffsetID is where it is stored: broker address and log offset in hex. Tools find it by that.
func (r *Received) OffsetID() string {
	return string(message.AppendID(nil, r.StoreHost, message.LogOffset(r.LogOffset)))
}

// String is topic/queue@offset.
func (r *Received) String() string {
	return r.Queue.Topic + "/" + strconv.Itoa(int(r.Queue.ID)) + "@" + strconv.FormatInt(r.QueueOffset, 10)
}

// maxExpanded bounds an expanded body.
const maxExpanded = 64 << 20

// received makes a Received of a stored record, whose memory it keeps.
func received(rec *message.Record, q Queue) Received {
	r := Received{
		Topic: string(rec.Topic), Queue: q, QueueOffset: int64(rec.QueueOffset), LogOffset: int64(rec.LogOffset), Body: rec.Body,
		Flag: rec.Flag, SysFlag: rec.SysFlag, ReconsumeTimes: int(rec.ReconsumeTimes), BornTime: time.UnixMilli(rec.BornTime),
		BornHost: rec.BornHost, StoreTime: time.UnixMilli(rec.StoreTime), StoreHost: rec.StoreHost, StoredSize: int(rec.Size),
		props: rec.Properties,
	}
	if q.Topic == r.Topic {
		r.Topic = q.Topic // one string for all
	}
	if rec.SysFlag&message.FlagCompressed != 0 {
		if body, err := codec.Decompress(rec.Body, rec.SysFlag, maxExpanded); err == nil {
			r.Body = body
			r.SysFlag &^= message.FlagCompressed | message.CodecMask
		}
	}
	return r
}

// ParseRecords decodes stored records that stand back to back, as pull, view and query answers hold them. It keeps b. q is the queue they
// were read from; its fields are taken from the records when it is the zero Queue.
func ParseRecords(b []byte, q Queue) ([]Received, error) {
	var out []Received
	var rec message.Record
	for len(b) > 0 {
		if err := message.Parse(b, &rec); err != nil {
			return out, err
		}
		at := q
		if at == (Queue{}) {
			at = Queue{Topic: string(rec.Topic), ID: rec.QueueID}
		}
		b = b[rec.Size:]
		if rec.SysFlag&message.FlagInnerBatch != 0 && rec.SysFlag&message.FlagNeedUnwrap != 0 {
			var err error
			if out, err = unwrap(out, &rec, at); err != nil {
				return out, err
			}
			continue
		}
		out = append(out, received(&rec, at))
	}
	return out, nil
}

// unwrap appends the messages of an inner batch, which a broker stores as one record.
func unwrap(out []Received, rec *message.Record, q Queue) ([]Received, error) {
	outer := received(rec, q)
	n := int64(0)
	err := message.EachBatchItem(outer.Body, func(it *message.BatchItem) error {
		r := outer
		r.Body, r.Flag, r.QueueOffset = it.Body, it.Flag, outer.QueueOffset+n
		r.props = append(append([]byte(nil), outer.props...), it.Properties...)
		out = append(out, r)
		n++
		return nil
	})
	return out, err
}

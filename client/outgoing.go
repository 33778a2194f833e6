package client

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/message/codec"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// outgoing is one send request, ready to be addressed to a queue as often as it takes.
type outgoing struct {
	code     int32
	group    string
	topic    string
	body     []byte
	props    []byte
	sysFlag  int32
	flag     int32
	born     int64
	id       string
	messages int
	batch    bool
	// Of a message that returns for another try; most is 0 when the broker's limit holds.
	reconsumed, most int32
}

// request addresses o to a queue. f is overwritten with the fields, which have the short names of SEND_MESSAGE_V2.
func (o *outgoing) request(q Queue, f *protocol.Ext) *protocol.Command {
	f.Reset()
	f.Add("a", o.group)
	f.Add("b", o.topic)
	f.Add("c", message.TopicDefault)
	f.AddInt("d", autoCreateQueues)
	f.AddInt("e", int64(q.ID))
	f.AddInt("f", int64(o.sysFlag))
	f.AddInt("g", o.born)
	f.AddInt("h", int64(o.flag))
	f.AddBytes("i", o.props)
	f.AddInt("j", int64(o.reconsumed))
	f.AddBool("k", false)
	if o.most > 0 {
		f.AddInt("l", int64(o.most))
	}
	f.AddBool("m", o.batch)
	f.Add("n", q.Broker)
	return &protocol.Command{Code: o.code, Version: protocol.Version, Fields: f, Body: o.body}
}

// encode makes a request of a message: properties, id, compression.
func (p *Producer) encode(m *Message) (*outgoing, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	if len(m.Body) > p.cfg.MaxMessageSize {
		return nil, m.refuse("the body has %d bytes, the limit is %d", len(m.Body), p.cfg.MaxMessageSize)
	}
	o := &outgoing{code: protocol.ReqSendMessageV2, group: p.cfg.Group, topic: m.Topic, body: m.Body, flag: m.Flag,
		born: time.Now().UnixMilli(), id: p.c.newID(), messages: 1}
	o.props = m.appendProperties(make([]byte, 0, 128), o.id)
	if len(o.props) > maxProperties-brokerRoom {
		return nil, m.refuse("the properties have %d bytes, the limit is %d", len(o.props), maxProperties-brokerRoom)
	}
	if c := p.cfg.Compression; c != CompressNone && len(m.Body) >= p.cfg.CompressAbove {
		if body, err := codec.Compress(nil, m.Body, c.flag(), p.cfg.CompressLevel); err == nil && len(body) < len(m.Body) {
			o.body = body
			o.sysFlag |= message.FlagCompressed | c.flag()
		}
	}
	return o, nil
}

// encodeBatch puts several messages of a topic into one request; they are stored together or not at all.
func (p *Producer) encodeBatch(ms []*Message) (*outgoing, []string, error) {
	if len(ms) == 0 {
		return nil, nil, &MessageError{"", "a batch of no messages"}
	}
	size := 0
	for _, m := range ms {
		if err := m.check(); err != nil {
			return nil, nil, err
		}
		size += len(m.Body) + 128
	}
	first := ms[0]
	o := &outgoing{code: protocol.ReqSendBatchMessage, group: p.cfg.Group, topic: first.Topic, born: time.Now().UnixMilli(),
		messages: len(ms), batch: true}
	ids := make([]string, len(ms))
	o.body = make([]byte, 0, min(size, 2*p.cfg.MaxMessageSize))
	var props []byte
	for i, m := range ms {
		switch {
		case m.Topic != first.Topic:
			return nil, nil, m.refuse("a batch holds one topic, this one began with %s", first.Topic)
		case m.DelayLevel != 0:
			return nil, nil, m.refuse("a batch cannot be delayed")
		case m.NoWait != first.NoWait:
			return nil, nil, m.refuse("a batch waits for storage as a whole or not")
		case message.IsRetryTopic(m.Topic):
			return nil, nil, m.refuse("a retry topic takes no batches")
		}
		ids[i] = p.c.newID()
		props = m.appendProperties(props[:0], ids[i])
		if len(props) > maxProperties-brokerRoom {
			return nil, nil, m.refuse("the properties have %d bytes, the limit is %d", len(props), maxProperties-brokerRoom)
		}
		o.body = message.AppendBatchItem(o.body, m.Flag, m.Body, props)
		if len(o.body) > p.cfg.MaxMessageSize {
			return nil, nil, m.refuse("the batch has %d bytes with %d of %d messages, the limit is %d", len(o.body), i+1, len(ms), p.cfg.MaxMessageSize)
		}
	}
	o.id = p.c.newID()
	o.props = message.AppendProperty(nil, message.PropUniqKey, o.id)
	o.props = message.AppendProperty(o.props, message.PropWait, strconv.FormatBool(!first.NoWait))
	return o, ids, nil
}

// Status is what the broker made of a message that it took.
type Status int

// Values of Status. All mean that the message is stored; the other three, that the durability asked for was not reached in time.
const (
	Stored Status = iota
	NotFlushedInTime
	NotReplicatedInTime
	NoReplica
)

func (s Status) String() string {
	switch s {
	case NotFlushedInTime:
		return "stored, flush timed out"
	case NotReplicatedInTime:
		return "stored, replication timed out"
	case NoReplica:
		return "stored, no replica available"
	}
	return "stored"
}

// Result is a broker's answer to a message.
type Result struct {
	Status   Status
	Queue    Queue
	Offset   int64    // of the message in the queue, of the first one for a batch
	ID       string   // made by this producer, stays through retries; of the batch for a batch
	IDs      []string // of the messages of a batch
	OffsetID string   // where it is stored; a list with commas for a batch
	Attempts int
}

// result reads the answer to a send.
func (o *outgoing) result(q Queue, addr string, answer *protocol.Command) (Result, error) {
	r := Result{Queue: q, ID: o.id, OffsetID: answer.Ext["msgId"]}
	switch answer.Code {
	case protocol.Success:
	case protocol.FlushDiskTimeout:
		r.Status = NotFlushedInTime
	case protocol.FlushSlaveTimeout:
		r.Status = NotReplicatedInTime
	case protocol.SlaveNotAvailable:
		r.Status = NoReplica
	default:
		return r, &ServerError{addr, answer.Code, answer.Remark}
	}
	if n, err := strconv.ParseInt(answer.Ext["queueId"], 10, 32); err == nil {
		r.Queue.ID = int32(n)
	}
	r.Offset, _ = strconv.ParseInt(answer.Ext["queueOffset"], 10, 64)
	return r, nil
}

// deadline is a context that has a deadline and nothing else; remoting reads it and starts no timer.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// sendOnce sends o to one queue and waits.
func (c *Client) sendOnce(ctx context.Context, o *outgoing, r *Route, q Queue) (Result, error) {
	addr := r.Master(q.Broker)
	if addr == "" {
		return Result{}, &RouteError{Topic: q.Topic}
	}
	cmd := o.request(q, &protocol.Ext{})
	c.dress(addr, cmd)
	answer, err := c.rpc.Call(ctx, addr, cmd)
	if err != nil {
		return Result{}, err
	}
	return o.result(q, addr, answer)
}

// Compression is a codec for bodies.
type Compression int

// Values of Compression. Every RocketMQ client reads zlib; LZ4 and Zstd need clients of 5.0 or later.
const (
	CompressZlib Compression = iota
	CompressLZ4
	CompressZstd
	CompressNone
)

func (c Compression) flag() int32 {
	switch c {
	case CompressLZ4:
		return message.CodecLZ4
	case CompressZstd:
		return message.CodecZstd
	}
	return message.CodecZlib
}

// ParseCompression reads zlib, lz4, zstd or none.
func ParseCompression(s string) (Compression, bool) {
	switch strings.ToLower(s) {
	case "zlib":
		return CompressZlib, true
	case "lz4":
		return CompressLZ4, true
	case "zstd":
		return CompressZstd, true
	case "none", "":
		return CompressNone, true
	}
	return CompressNone, false
}

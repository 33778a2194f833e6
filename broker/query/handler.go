// Package query answers questions about stored messages: by key (12), by log offset (33), and offsets of a queue by time
// (29), largest (30), smallest (31), store time of the oldest (32).
//
// The main type is Handler. Every request may wait for the disk; register them as slow. A question never creates a queue
// or a topic.
package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/commitlog"
)

// Store is what Handler asks.
type Store interface {
	QueryKeys(topic, key string, limit int, begin, end int64, unique bool) (store.KeyResult, error)
	View(off message.LogOffset) (commitlog.View, error)
	MaxOffset(topic []byte, id int32, committed bool) message.QueueOffset
	Bounds(topic []byte, id int32) (low, high message.QueueOffset, known bool)
	OffsetByTime(topic []byte, id int32, ms int64, upper bool) (message.QueueOffset, error)
	Earliest(topic []byte, id int32) int64
}

// Handler answers the questions.
type Handler struct {
	store      Store
	uniqueMost func() int // defaultQueryMaxNum
}

// New makes a handler; uniqueMost is the live value of defaultQueryMaxNum.
func New(st Store, uniqueMost func() int) *Handler {
	return &Handler{store: st, uniqueMost: uniqueMost}
}

// ByKey is the handler of request 12.
func (h *Handler) ByKey(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	topic, key := f.text("topic"), f.text("key")
	limit, begin, end := f.number("maxNum"), f.number("beginTimestamp"), f.number("endTimestamp")
	if f.err != nil {
		return f.err
	}
	u, _ := req.Get("_UNIQUE_KEY_QUERY")
	unique := strings.EqualFold(string(u), "true")
	if unique {
		limit = int64(h.uniqueMost())
	}
	res, err := h.store.QueryKeys(topic, key, int(min(max(limit, 0), 1<<20)), begin, end, unique)
	if err != nil {
		return err
	}
	defer res.Release()
	if len(res.Views) == 0 { // RocketMQ knows the state of the index only from what it found
		res.LastUpdateTime, res.LastUpdateStart = 0, 0
	}
	resp.Ext.AddInt("indexLastUpdateTimestamp", res.LastUpdateTime)
	resp.Ext.AddInt("indexLastUpdatePhyoffset", int64(res.LastUpdateStart))
	if len(res.Views) == 0 {
		resp.Code, resp.Remark = protocol.QueryNotFound, "can not find message, maybe time range not correct"
		return nil
	}
	resp.Body.Bytes, err = read(res.Views)
	return err
}

// ByOffset is the handler of request 33.
func (h *Handler) ByOffset(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	off := f.number("offset")
	if f.err != nil {
		return f.err
	}
	v, err := h.store.View(message.LogOffset(off))
	if errors.Is(err, store.ErrNoRecord) {
		return &protocol.Error{Code: protocol.SystemError, Remark: "can not find message by the offset, " + f.text("offset")}
	}
	if err != nil {
		return err
	}
	defer v.Release()
	resp.Body.Bytes, err = read([]commitlog.View{v})
	return err
}

// OffsetByTime is the handler of request 29.
func (h *Handler) OffsetByTime(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	topic, id, ms := f.text("topic"), f.queue(), f.number("timestamp")
	if f.err != nil {
		return f.err
	}
	b, _ := req.Get("boundaryType")
	off, err := h.store.OffsetByTime([]byte(topic), id, ms, strings.EqualFold(string(b), "upper"))
	if err != nil {
		return err
	}
	resp.Ext.AddInt("offset", int64(off))
	return nil
}

// MaxOffset is the handler of request 30: the offset of the next message.
func (h *Handler) MaxOffset(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	topic, id := f.text("topic"), f.queue()
	if f.err != nil {
		return f.err
	}
	resp.Ext.AddInt("offset", int64(h.store.MaxOffset([]byte(topic), id, true)))
	return nil
}

// MinOffset is the handler of request 31.
func (h *Handler) MinOffset(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	topic, id := f.text("topic"), f.queue()
	if f.err != nil {
		return f.err
	}
	low, _, _ := h.store.Bounds([]byte(topic), id)
	resp.Ext.AddInt("offset", int64(low))
	return nil
}

// EarliestTime is the handler of request 32: the store time of the oldest message of a queue, -1 when there is none.
func (h *Handler) EarliestTime(req *remoting.Request, resp *remoting.Response) error {
	f := fields{h: &req.Header}
	topic, id := f.text("topic"), f.queue()
	if f.err != nil {
		return f.err
	}
	resp.Ext.AddInt("timestamp", h.store.Earliest([]byte(topic), id))
	return nil
}

// fields reads required fields and keeps the first fault.
type fields struct {
	h   *protocol.Header
	err error
}

func (f *fields) text(name string) string {
	v, ok := f.h.Get(name)
	if !ok {
		f.fail(name)
	}
	return string(v)
}

func (f *fields) number(name string) int64 {
	n, ok, err := f.h.Int64(name)
	if err != nil || !ok {
		f.fail(name)
	}
	return n
}

func (f *fields) queue() int32 {
	n, ok, err := f.h.Int32("queueId")
	if err != nil || !ok {
		f.fail("queueId")
	}
	return n
}

func (f *fields) fail(name string) {
	if f.err == nil {
		f.err = &protocol.Error{Code: protocol.SystemError, Remark: "request header: field " + name + " is missing or no number"}
	}
}

// read copies views through their descriptors, not through the map, where a page fault would stop a processor. It stops
// before an answer would be larger than any client takes; the first view always fits.
func read(views []commitlog.View) ([]byte, error) {
	const most = 15 << 20
	size, n := 0, 0
	for ; n < len(views) && (n == 0 || size+views[n].Len() <= most); n++ {
		size += views[n].Len()
	}
	buf := make([]byte, size)
	at := 0
	for _, v := range views[:n] {
		m, err := v.ReadAt(buf[at:at+v.Len()], 0)
		if err != nil && m < v.Len() {
			return nil, fmt.Errorf("read log at %d: %w", v.Offset(), err)
		}
		at += v.Len()
	}
	return buf, nil
}

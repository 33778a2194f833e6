package admin

import (
	"slices"
	"strings"
	"time"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Offsets is what Progress uses of offset.Table.
type Offsets interface {
	Offsets(group, topic string) map[int32]message.QueueOffset
	PullOffset(group, topic string, queue int32) (message.QueueOffset, bool)
	TopicsOf(group string) []string
	GroupsOf(topic string) []string
	Commit(group, topic []byte, queue int32, off message.QueueOffset) error
	Encode() []byte
	Empty() bool
}

// Progress answers how far groups are.
type Progress struct {
	Self   Self
	Topics interface {
		Lookup(name string) *topic.Config
	}
	Groups interface {
		All() ([]*group.Config, group.Version)
	}
	Online       func(group string) *group.Consumers
	Offsets      Offsets
	Queues       QueueReader
	TPS          func(statsName, statsKey string) float64
	DelayOffsets func() []byte // delayOffset.json; nil: none
}

// row is the state of a group on one queue.
type row struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"`
	PullOffset     int64 `json:"pullOffset"`
}

func (h *Progress) row(g, t string, q int32, have map[int32]message.QueueOffset, pulled bool) row {
	_, hi := h.Queues.Bounds(t, q)
	r := row{BrokerOffset: int64(max(hi, 0)), ConsumerOffset: int64(have[q])}
	if pulled {
		off, _ := h.Offsets.PullOffset(g, t, q)
		r.PullOffset = max(r.ConsumerOffset, int64(off))
	}
	if last := have[q] - 1; last >= 0 {
		r.LastTimestamp = max(h.Queues.StoreTime(t, q, last), 0)
	}
	return r
}

// wanted says whether an online group still subscribes to a topic; a group that is offline counts as if it did.
func (h *Progress) wanted(g, t string) bool {
	c := h.Online(g)
	return c == nil || len(c.Subscriptions()) == 0 || c.Subscription([]byte(t)) != nil
}

// Stats is request 208.
func (h *Progress) Stats(req *remoting.Request, resp *remoting.Response) error {
	g, err := required(req, "consumerGroup")
	if err != nil {
		return err
	}
	topics, filter := h.Offsets.TopicsOf(g), true
	if v := req.String("topicList"); v != "" {
		topics, filter = strings.Split(v, ";"), false
	} else if v := req.String("topic"); v != "" {
		topics = []string{v}
	}
	var table queueTable
	tps := 0.0
	for _, name := range topics {
		c := h.Topics.Lookup(name)
		if c == nil || filter && !h.wanted(g, name) {
			continue
		}
		have := h.Offsets.Offsets(g, name)
		for q := range c.ReadQueueNums {
			table.add(h.Self.Name, name, q, h.row(g, name, q, have, true))
		}
		tps += h.TPS("GROUP_GET_NUMS", name+"@"+g)
	}
	return put(resp, map[string]any{"consumeTps": tps, "offsetTable": table.body()})
}

// BrokerStats is request 317.
func (h *Progress) BrokerStats(req *remoting.Request, resp *remoting.Response) error {
	ordered, ok, err := req.Bool("isOrder")
	if err != nil {
		return err
	}
	if !ok {
		return protocol.Missing("isOrder")
	}
	groups, _ := h.Groups.All()
	list := make([]map[string]any, 0, len(groups))
	var diff, inflight int64
	for _, g := range groups {
		stats := []any{}
		for _, name := range h.Offsets.TopicsOf(g.Name) {
			c := h.Topics.Lookup(name)
			if c == nil || ordered && !c.Order || !h.wanted(g.Name, name) {
				continue
			}
			var table queueTable
			have := h.Offsets.Offsets(g.Name, name)
			for q := range c.WriteQueueNums {
				r := h.row(g.Name, name, q, have, false)
				diff += r.BrokerOffset - r.ConsumerOffset
				inflight += r.PullOffset - r.ConsumerOffset
				table.add(h.Self.Name, name, q, r)
			}
			stats = append(stats, map[string]any{"consumeTps": h.TPS("GROUP_GET_NUMS", name+"@"+g.Name), "offsetTable": table.body()})
		}
		list = append(list, map[string]any{g.Name: stats})
	}
	return put(resp, map[string]any{"brokerAddr": h.Self.Addr(), "consumeStatsList": list, "totalDiff": diff, "totalInflightDiff": inflight})
}

// TimeSpan is request 303.
func (h *Progress) TimeSpan(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	g, err := required(req, "group")
	if err != nil {
		return err
	}
	c := h.Topics.Lookup(name)
	if c == nil {
		return noTopic(name)
	}
	now := time.Now().UnixMilli()
	have := h.Offsets.Offsets(g, name)
	spans := make([]map[string]any, 0, c.WriteQueueNums)
	for q := range c.WriteQueueNums {
		lo, hi := h.Queues.Bounds(name, q)
		first := h.Queues.StoreTime(name, q, lo)
		last := h.Queues.StoreTime(name, q, hi-1)
		consumed, off := first, have[q]
		if off > 0 {
			consumed = h.Queues.StoreTime(name, q, off-1)
		}
		delay := int64(0)
		if off < hi {
			delay = now - h.Queues.StoreTime(name, q, off)
		}
		span := map[string]any{"messageQueue": queue(h.Self.Name, name, q), "delayTime": delay}
		for key, at := range map[string]int64{"minTimeStamp": first, "maxTimeStamp": last, "consumeTimeStamp": consumed} {
			span[key] = at
			span[key+"Str"] = time.UnixMilli(at).Format("2006-01-02#15:04:05:") + millis(at)
		}
		spans = append(spans, span)
	}
	return put(resp, map[string]any{"consumeTimeSpanSet": spans})
}

func millis(ms int64) string {
	s := "000" + itoa(((ms%1000)+1000)%1000)
	return s[len(s)-3:]
}

// Correction is request 308: for each queue the smallest offset of the groups that are filtered, where it is below the
// compared group's.
func (h *Progress) Correction(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	compare, err := required(req, "compareGroup")
	if err != nil {
		return err
	}
	filter := strings.Split(req.String("filterGroups"), ",")
	lowest := map[int32]message.QueueOffset{}
	for _, g := range h.Offsets.GroupsOf(name) {
		if slices.Contains(filter, g) {
			continue
		}
		for q, off := range h.Offsets.Offsets(g, name) {
			if lo, _ := h.Queues.Bounds(name, q); off < lo {
				continue
			}
			if old, ok := lowest[q]; !ok || off < old {
				lowest[q] = off
			}
		}
	}
	for q, off := range h.Offsets.Offsets(compare, name) {
		if low, ok := lowest[q]; ok && off < low {
			lowest[q] = off
		}
	}
	return put(resp, map[string]any{"correctionOffsets": intKeys(lowest)})
}

// Clone is request 314.
func (h *Progress) Clone(req *remoting.Request, _ *remoting.Response) error {
	from, err := required(req, "srcGroup")
	if err != nil {
		return err
	}
	to, err := required(req, "destGroup")
	if err != nil {
		return err
	}
	if err := groupError(to); err != nil {
		return err
	}
	offline, err := optionalBool(req, "offline", false)
	if err != nil {
		return err
	}
	topics := h.Offsets.TopicsOf(from)
	if v := req.String("topic"); v != "" {
		topics = []string{v}
	}
	for _, name := range topics {
		if h.Topics.Lookup(name) == nil || !offline && !h.wanted(from, name) {
			continue
		}
		for q, off := range h.Offsets.Offsets(from, name) {
			if err := h.Offsets.Commit([]byte(to), []byte(name), q, off); err != nil {
				return err
			}
		}
	}
	return nil
}

// AllConsumer is request 43: the content of consumerOffset.json, for slaves.
func (h *Progress) AllConsumer(_ *remoting.Request, resp *remoting.Response) error {
	if h.Offsets.Empty() {
		return protocol.Errorf(protocol.SystemError, "No consumer offset in this broker")
	}
	body, err := compact(h.Offsets.Encode())
	resp.Body.Bytes = body
	return err
}

// AllDelay is request 45: the content of delayOffset.json.
func (h *Progress) AllDelay(_ *remoting.Request, resp *remoting.Response) error {
	data := h.DelayOffsets()
	if len(data) == 0 {
		return protocol.Errorf(protocol.SystemError, "No delay offset in this broker")
	}
	body, err := compact(data)
	resp.Body.Bytes = body
	return err
}

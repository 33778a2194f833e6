package admin

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// TopicTable is what Topics uses of topic.Table.
type TopicTable interface {
	Lookup(name string) *topic.Config
	All() ([]*topic.Config, topic.Version)
	Update(list ...*topic.Config) error
	IsSystem(name string) bool
	SystemNames() []string
}

// QueueReader reads queues: bounds (0 for what is unknown) and store times (-1 or 0: unknown).
type QueueReader interface {
	Bounds(topic string, queueID int32) (min, max message.QueueOffset)
	StoreTime(topic string, queueID int32, off message.QueueOffset) int64
}

// TopicsConfig are the settings of Topics, asked at each request.
type TopicsConfig struct {
	ValidateSystemTopic bool
	EnableMixedType     bool
	EnableSplitMetadata bool
	SplitMetadataSize   int
}

// Topics answers requests about topics.
type Topics struct {
	Self    Self
	Config  func() TopicsConfig
	Table   TopicTable
	Queues  QueueReader
	Remove  func(topic string) error    // takes the topic, its offsets, queues and counters away
	Readers func(topic string) []string // groups that subscribe or have offsets
	Read    func(group string) []string // topics on which a group has offsets
	TPS     func(statsName, statsKey string) float64
}

// Update is request 17.
func (h *Topics) Update(req *remoting.Request, _ *remoting.Response) error {
	c, err := topicFromHeader(req)
	if err != nil {
		return err
	}
	if err := h.check(c); err != nil {
		return err
	}
	return attributeError(h.Table.Update(c))
}

func topicFromHeader(req *remoting.Request) (*topic.Config, error) {
	name, err := required(req, "topic")
	if err != nil {
		return nil, err
	}
	c := topic.NewConfig(name, 16)
	for _, f := range []struct {
		name string
		to   *int32
	}{{"readQueueNums", &c.ReadQueueNums}, {"writeQueueNums", &c.WriteQueueNums}, {"perm", &c.Perm}} {
		v, ok, err := req.Int32(f.name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, protocol.Missing(f.name)
		}
		*f.to = v
	}
	if v, ok, err := req.Int32("topicSysFlag"); err != nil {
		return nil, err
	} else if ok {
		c.SysFlag = v
	}
	if c.Order, err = optionalBool(req, "order", false); err != nil {
		return nil, err
	}
	if v, ok := req.Get("topicFilterType"); ok {
		c.FilterType = string(v)
	}
	if v, ok := req.Get("attributes"); ok {
		if c.Attributes, err = topic.ParseAttributes(string(v)); err != nil {
			return nil, attributeError(err)
		}
	}
	return c, nil
}

// check refuses names and shapes that may not be created.
func (h *Topics) check(c *topic.Config) error {
	if err := topicError(c.Name); err != nil {
		return err
	}
	conf := h.Config()
	if conf.ValidateSystemTopic && h.Table.IsSystem(c.Name) {
		return systemTopic(c.Name)
	}
	if c.Attributes["+message.type"] == "MIXED" && !conf.EnableMixedType {
		return protocol.Errorf(protocol.InvalidParameter, "MIXED message type is not supported.")
	}
	const maxQueues = 1 << 16
	if c.ReadQueueNums < 0 || c.WriteQueueNums < 0 || c.ReadQueueNums > maxQueues || c.WriteQueueNums > maxQueues {
		return protocol.Errorf(protocol.InvalidParameter, "The numbers of queues of topic %s are out of range, allowed 0 to %d.", c.Name, maxQueues)
	}
	if c.Perm < 0 || c.Perm > 7 {
		return protocol.Errorf(protocol.InvalidParameter, "The perm %d of topic %s is out of range, allowed 0 to 7.", c.Perm, c.Name)
	}
	if c.FilterType != "SINGLE_TAG" && c.FilterType != "MULTI_TAG" {
		return protocol.Errorf(protocol.InvalidParameter, "The topicFilterType %s of topic %s is unknown.", c.FilterType, c.Name)
	}
	return nil
}

func systemTopic(name string) error {
	return protocol.Errorf(protocol.InvalidParameter, "The topic[%s] is conflict with system topic.", name)
}

func attributeError(err error) error {
	var bad *topic.AttributeError
	if errors.As(err, &bad) {
		return protocol.Errorf(protocol.SystemError, "%s", bad.Remark)
	}
	return err
}

// UpdateList is request 18: the first topic that may not be created refuses all.
func (h *Topics) UpdateList(req *remoting.Request, _ *remoting.Response) error {
	var body struct {
		Topics []*topic.Config `json:"topicConfigList"`
	}
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return protocol.Errorf(protocol.SystemError, "decode topicConfigList: %s", err)
	}
	for _, c := range body.Topics {
		if c == nil {
			return protocol.Errorf(protocol.InvalidParameter, "topicConfigList holds null")
		}
		if c.FilterType == "" {
			c.FilterType = "SINGLE_TAG"
		}
		if err := h.check(c); err != nil {
			return err
		}
	}
	return attributeError(h.Table.Update(body.Topics...))
}

// StaticTopic is request 513.
func (h *Topics) StaticTopic(*remoting.Request, *remoting.Response) error {
	return protocol.Errorf(protocol.RequestCodeNotSupported, "static topics are not supported by this broker")
}

// Delete is request 215.
func (h *Topics) Delete(req *remoting.Request, _ *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	if strings.TrimSpace(name) == "" {
		return topicError(name)
	}
	if h.Config().ValidateSystemTopic && h.Table.IsSystem(name) {
		return systemTopic(name)
	}
	return h.Remove(name)
}

// Get is request 351.
func (h *Topics) Get(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	c := h.Table.Lookup(name)
	if c == nil {
		return protocol.Errorf(protocol.TopicNotExist, "No topic in this broker. topic: %s", name)
	}
	return put(resp, c)
}

// page is a part of a table that a client reads in pieces, in the order of names.
type page struct{ from, to, total int }

// pageOf reads the paging fields of requests 21 and 201. Without any of them, or with paging off, it is everything.
func pageOf(req *remoting.Request, seqField, maxField string, total int, on bool, size int, now topic.Version) (page, error) {
	seq, hasSeq, err := req.Int64(seqField)
	if err != nil {
		return page{}, err
	}
	limit, hasMax, err := req.Int64(maxField)
	if err != nil {
		return page{}, err
	}
	version, hasVersion := req.Get("dataVersion")
	if !on || !hasSeq && !hasMax && !hasVersion {
		return page{0, total, total}, nil
	}
	if hasVersion {
		var theirs topic.Version
		if json.Unmarshal(version, &theirs) != nil || theirs != now {
			seq = 0
		}
	}
	if !hasMax || limit <= 0 || limit > int64(size) {
		limit = int64(size)
	}
	from := min(max(seq, 0), int64(total))
	return page{int(from), int(min(from+limit, int64(total))), total}, nil
}

// All is request 21.
func (h *Topics) All(req *remoting.Request, resp *remoting.Response) error {
	list, version := h.Table.All()
	conf := h.Config()
	p, err := pageOf(req, "topicSeq", "maxTopicNum", len(list), conf.EnableSplitMetadata, conf.SplitMetadataSize, version)
	if err != nil {
		return err
	}
	if p.to-p.from < p.total {
		slices.SortFunc(list, func(a, b *topic.Config) int { return strings.Compare(a.Name, b.Name) })
		list = list[p.from:p.to]
		resp.Ext.AddInt("totalTopicNum", int64(p.total))
	}
	resp.Ext.Present()
	table := make(map[string]*topic.Config, len(list))
	for _, c := range list {
		table[c.Name] = c
	}
	return put(resp, map[string]any{
		"dataVersion":                version,
		"mappingDataVersion":         topic.Version{},
		"topicConfigTable":           table,
		"topicQueueMappingDetailMap": struct{}{},
		"topicQueueMappingInfoMap":   struct{}{},
	})
}

// SystemTopics is request 305.
func (h *Topics) SystemTopics(_ *remoting.Request, resp *remoting.Response) error {
	return put(resp, map[string]any{"topicList": h.Table.SystemNames()})
}

// Stats is request 202.
func (h *Topics) Stats(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	c := h.Table.Lookup(name)
	if c == nil {
		return noTopic(name)
	}
	type row struct {
		Min  int64 `json:"minOffset"`
		Max  int64 `json:"maxOffset"`
		Last int64 `json:"lastUpdateTimestamp"`
	}
	var table queueTable
	for q := range max(c.ReadQueueNums, c.WriteQueueNums) {
		lo, hi := h.Queues.Bounds(name, q)
		r := row{Min: int64(max(lo, 0)), Max: int64(max(hi, 0))}
		if hi > 0 {
			r.Last = max(h.Queues.StoreTime(name, q, hi-1), 0)
		}
		table.add(h.Self.Name, name, q, r)
	}
	return put(resp, map[string]any{"offsetTable": table.body(), "topicPutTps": h.TPS("TOPIC_PUT_NUMS", name)})
}

// ConsumedBy is request 300.
func (h *Topics) ConsumedBy(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "topic")
	if err != nil {
		return err
	}
	return put(resp, map[string]any{"groupList": orEmpty(h.Readers(name))})
}

// ReadBy is request 343.
func (h *Topics) ReadBy(req *remoting.Request, resp *remoting.Response) error {
	group, err := required(req, "group")
	if err != nil {
		return err
	}
	return put(resp, map[string]any{"topicList": orEmpty(h.Read(group)), "brokerAddr": h.Self.Addr()})
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// GroupTable is what Groups uses of group.Configs.
type GroupTable interface {
	All() ([]*group.Config, group.Version)
	FindOrCreate(name []byte) (*group.Config, error)
	Update(list ...*group.Config) error
	Delete(name string) (existed bool, err error)
	Forbidden(group, topic string, index int) bool
	SetForbidden(group, topic string, index int, on bool) error
	ForbiddenTable() map[string]map[string]int32
}

// Groups answers requests about the settings of consumer groups.
type Groups struct {
	Config  func() TopicsConfig
	Table   GroupTable
	Online  func(group string) *group.Consumers
	Prepare func(c *group.Config) error            // makes what a new group needs
	Forget  func(group string, offsets bool) error // drops counters, and offsets when asked
}

// Update is request 200.
func (h *Groups) Update(req *remoting.Request, _ *remoting.Response) error {
	c := group.NewConfig("")
	if err := fastjson.Unmarshal(req.Body, c); err != nil {
		return protocol.Errorf(protocol.SystemError, "decode subscription group: %s", err)
	}
	if err := checkGroup(c); err != nil {
		return err
	}
	if err := h.Table.Update(c); err != nil {
		return attributeError(err)
	}
	return h.Prepare(c)
}

// UpdateList is request 225: the first bad one refuses all.
func (h *Groups) UpdateList(req *remoting.Request, _ *remoting.Response) error {
	var body struct {
		Groups []*group.Config `json:"groupConfigList"`
	}
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return protocol.Errorf(protocol.SystemError, "decode groupConfigList: %s", err)
	}
	for _, c := range body.Groups {
		if c == nil {
			return protocol.Errorf(protocol.InvalidParameter, "groupConfigList holds null")
		}
		if err := checkGroup(c); err != nil {
			return err
		}
	}
	if err := h.Table.Update(body.Groups...); err != nil {
		return attributeError(err)
	}
	for _, c := range body.Groups {
		if err := h.Prepare(c); err != nil {
			return err
		}
	}
	return nil
}

func checkGroup(c *group.Config) error {
	if err := groupError(c.Name); err != nil {
		return err
	}
	if c.RetryQueueNums < 0 || c.RetryQueueNums > 1<<16 {
		return protocol.Errorf(protocol.InvalidParameter, "retryQueueNums %d of group %s is out of range.", c.RetryQueueNums, c.Name)
	}
	return nil
}

// Delete is request 207.
func (h *Groups) Delete(req *remoting.Request, _ *remoting.Response) error {
	name, err := required(req, "groupName")
	if err != nil {
		return err
	}
	clean, err := optionalBool(req, "cleanOffset", false)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, group.SystemPrefix) {
		return protocol.Errorf(protocol.InvalidParameter, "The group[%s] is conflict with system group.", name)
	}
	if _, err := h.Table.Delete(name); err != nil {
		return err
	}
	return h.Forget(name, clean)
}

// Get is request 352. As in RocketMQ an unknown group is created where groups may be created by use.
func (h *Groups) Get(req *remoting.Request, resp *remoting.Response) error {
	name, ok := req.Get("group")
	if !ok {
		return protocol.Missing("group")
	}
	c, err := h.Table.FindOrCreate(name)
	if err != nil {
		return err
	}
	if c == nil {
		return protocol.Errorf(protocol.SubscriptionGroupNotExist, "No group in this broker")
	}
	return put(resp, c.Fields())
}

// All is request 201.
func (h *Groups) All(req *remoting.Request, resp *remoting.Response) error {
	list, version := h.Table.All()
	conf := h.Config()
	p, err := pageOf(req, "groupSeq", "maxGroupNum", len(list), conf.EnableSplitMetadata, conf.SplitMetadataSize, topic.Version(version))
	if err != nil {
		return err
	}
	if p.to-p.from < p.total {
		slices.SortFunc(list, func(a, b *group.Config) int { return strings.Compare(a.Name, b.Name) })
		list = list[p.from:p.to]
		resp.Ext.AddInt("totalGroupNum", int64(p.total))
	}
	table := make(map[string]any, len(list))
	for _, c := range list {
		table[c.Name] = c.Fields()
	}
	return put(resp, map[string]any{"dataVersion": version, "forbiddenTable": h.Table.ForbiddenTable(), "subscriptionGroupTable": table})
}

// ReadPermission is request 353: whether a group may read a topic, changed first when readable is given.
func (h *Groups) ReadPermission(req *remoting.Request, resp *remoting.Response) error {
	g, err := required(req, "group")
	if err != nil {
		return err
	}
	t, err := required(req, "topic")
	if err != nil {
		return err
	}
	readable, given, err := req.Bool("readable")
	if err != nil {
		return err
	}
	if given {
		if err := groupError(g); err != nil {
			return err
		}
		if err := topicError(t); err != nil {
			return err
		}
		if err := h.Table.SetForbidden(g, t, group.ForbiddenRead, !readable); err != nil {
			return fmt.Errorf("set forbidden: %w", err)
		}
	}
	return put(resp, map[string]any{"group": g, "topic": t, "readable": !h.Table.Forbidden(g, t, group.ForbiddenRead)})
}

// Subscription is request 345: what a group that is online wants of a topic.
func (h *Groups) Subscription(req *remoting.Request, resp *remoting.Response) error {
	g, err := required(req, "group")
	if err != nil {
		return err
	}
	t, err := required(req, "topic")
	if err != nil {
		return err
	}
	body := map[string]any{"group": g, "topic": t}
	if c := h.Online(g); c != nil {
		if s := c.Subscription([]byte(t)); s != nil {
			body["subscriptionData"] = subscriptionBody(s)
		}
	}
	return put(resp, body)
}

// subscriptionBody is SubscriptionData.
func subscriptionBody(s *group.Subscription) map[string]any {
	codes, tags := s.Codes, s.Tags
	if codes == nil {
		codes = []int32{}
	}
	return map[string]any{"topic": s.Topic, "subString": s.Expression, "expressionType": s.Type, "tagsSet": orEmpty(tags),
		"codeSet": codes, "subVersion": s.Version, "classFilterMode": s.ClassFilter}
}

package admin

import (
	"context"
	"errors"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Clients tells who is connected and passes requests on to clients.
type Clients struct {
	Self      Self
	Online    func(group string) *group.Consumers
	Producers func(group string) []*group.Client
	All       func() map[string][]*group.Client // producers
	Topic     func(name string) *topic.Config
	Group     func(name string) *group.Config
	Record    func(off message.LogOffset) ([]byte, bool) // a copy of the stored record
}

func connectionBody(m *group.Client) map[string]any {
	return map[string]any{"clientId": m.ID, "clientAddr": m.Peer.Addr(), "language": m.Language, "version": m.Version}
}

// Consumers is request 203.
func (h *Clients) Consumers(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "consumerGroup")
	if err != nil {
		return err
	}
	c := h.Online(name)
	if c == nil {
		return protocol.Errorf(protocol.ConsumerNotOnline, "the consumer group[%s] not online", name)
	}
	set := []any{}
	for _, m := range c.Clients() {
		set = append(set, connectionBody(m))
	}
	subs := map[string]any{}
	for _, s := range c.Subscriptions() {
		subs[s.Topic] = subscriptionBody(s)
	}
	return put(resp, map[string]any{"connectionSet": set, "subscriptionTable": subs, "consumeType": c.Type, "messageModel": c.Model, "consumeFromWhere": c.From})
}

// ProducersOf is request 204.
func (h *Clients) ProducersOf(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "producerGroup")
	if err != nil {
		return err
	}
	list := h.Producers(name)
	if len(list) == 0 {
		return protocol.Errorf(protocol.SystemError, "the producer group[%s] not exist", name)
	}
	set := []any{}
	for _, m := range list {
		set = append(set, connectionBody(m))
	}
	return put(resp, map[string]any{"connectionSet": set})
}

// AllProducers is request 328.
func (h *Clients) AllProducers(_ *remoting.Request, resp *remoting.Response) error {
	data := map[string]any{}
	for name, list := range h.All() {
		rows := []any{}
		for _, m := range list {
			rows = append(rows, map[string]any{"clientId": m.ID, "remoteIP": "/" + m.Peer.Addr(), "language": m.Language,
				"version": m.Version, "lastUpdateTimestamp": m.Seen.UnixMilli()})
		}
		data[name] = rows
	}
	return put(resp, map[string]any{"data": data})
}

// RunningInfo is request 307, passed on as it is.
func (h *Clients) RunningInfo(req *remoting.Request, resp *remoting.Response) error {
	return h.forward(req, resp, fieldsOf(req), req.Body)
}

// ConsumeDirectly is request 309: the client gets the stored record to consume it at once.
func (h *Clients) ConsumeDirectly(req *remoting.Request, resp *remoting.Response) error {
	ext := fieldsOf(req)
	ext["brokerName"] = h.Self.Name
	if c := h.Topic(ext["topic"]); c != nil {
		ext["topicSysFlag"] = itoa(int64(c.SysFlag))
	}
	if c := h.Group(ext["consumerGroup"]); c != nil {
		ext["groupSysFlag"] = itoa(int64(c.SysFlag))
	}
	body := req.Body
	if id := ext["msgId"]; id != "" {
		_, off, err := message.ParseID(id)
		if err != nil {
			return protocol.Errorf(protocol.SystemError, "decode msgId %s: %s", id, err)
		}
		record, ok := h.Record(off)
		if !ok {
			return protocol.Errorf(protocol.SystemError, "can not find message by the offset, %d", off)
		}
		body = record
	}
	return h.forward(req, resp, ext, body)
}

func fieldsOf(req *remoting.Request) map[string]string {
	ext := map[string]string{}
	req.Each(func(name, value []byte) bool {
		ext[string(name)] = string(value)
		return true
	})
	return ext
}

// forward sends the request to the client that it names and returns the client's answer.
func (h *Clients) forward(req *remoting.Request, resp *remoting.Response, ext map[string]string, body []byte) error {
	g, err := required(req, "consumerGroup")
	if err != nil {
		return err
	}
	id, err := required(req, "clientId")
	if err != nil {
		return err
	}
	var m *group.Client
	if c := h.Online(g); c != nil {
		m = c.Client(id)
	}
	if m == nil {
		return protocol.Errorf(protocol.SystemError, "The Consumer <%s> <%s> not online", g, id)
	}
	if m.Version < versionRunning {
		return protocol.Errorf(protocol.SystemError, "The Consumer <%s> Version <%s> too low to finish, please upgrade it to V3_1_8_SNAPSHOT", id, protocol.VersionName(m.Version))
	}
	peer, ok := m.Peer.(Caller)
	if !ok {
		return protocol.Errorf(protocol.SystemError, "The Consumer <%s> <%s> not online", g, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), directTimeout)
	defer cancel()
	answer, err := peer.Call(ctx, protocol.NewRequest(req.Code, ext, body))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return protocol.Errorf(protocol.ConsumeMsgTimeout, "consumer <%s> <%s> Timeout: %s", g, id, err)
	case err != nil:
		return protocol.Errorf(protocol.SystemError, "invoke consumer <%s> <%s> Exception: %s", g, id, err)
	}
	resp.Code, resp.Remark, resp.Body.Bytes = answer.Code, answer.Remark, answer.Body
	return nil
}

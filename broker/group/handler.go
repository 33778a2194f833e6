package group

import (
	"context"
	"fmt"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// HandlerConfig is what an operator may set; it is asked at each request.
type HandlerConfig struct {
	RejectPullConsumers bool
	RegisterProducers   bool
}

// Topics makes the retry topic of a group and tells whether a topic is ordered.
type Topics interface {
	Lookup(name string) *topic.Config
	Ensure(name string, queues, perm, sysFlag int32, order bool) (*topic.Config, error)
}

// Handler answers heartbeats (34), unregistering (35), the list of a group's clients (38) and the check of a subscription
// (46). It may write files (groups and retry topics), so broker registers it to run apart from the connections' loops.
type Handler struct {
	configs  *Configs
	registry *Registry
	topics   Topics
	config   func() HandlerConfig
}

// NewHandler makes a handler.
func NewHandler(configs *Configs, registry *Registry, topics Topics, config func() HandlerConfig) *Handler {
	return &Handler{configs, registry, topics, config}
}

// connPeer is a connection as the registry and admin see it. Two of the same connection are equal.
type connPeer struct{ conn *remoting.Conn }

// PeerOf is the Peer of a connection.
func PeerOf(c *remoting.Conn) Peer { return connPeer{c} }

// Addr is the client's end.
func (p connPeer) Addr() string { return p.conn.RemoteAddr() }

// NotifyChanged sends request 40.
func (p connPeer) NotifyChanged(group string) {
	cmd := protocol.NewRequest(protocol.ReqNotifyConsumerIDsChanged, map[string]string{"consumerGroup": group}, nil)
	if err := p.conn.Oneway(cmd); err != nil {
		return // the connection is going down: Gone follows, and the client rebalances on its own timer
	}
}

// CloseBecause ends the connection.
func (p connPeer) CloseBecause(string) { p.conn.Close() }

// Call sends a request to the client.
func (p connPeer) Call(ctx context.Context, cmd *protocol.Command) (*protocol.Command, error) {
	return p.conn.Call(ctx, cmd)
}

// Oneway sends a request that is not answered.
func (p connPeer) Oneway(cmd *protocol.Command) error { return p.conn.Oneway(cmd) }

// Heartbeat is request 34.
func (h *Handler) Heartbeat(req *remoting.Request, resp *remoting.Response) error {
	var hb heartbeat
	if err := fastjson.Unmarshal(req.Body, &hb); err != nil {
		return fmt.Errorf("decode heartbeat: %w", err)
	}
	peer := PeerOf(req.Conn())
	c := Client{ID: hb.ClientID, Peer: peer, Language: protocol.LanguageName(req.Language), Version: req.Version}
	if err := h.registry.admit(peer, &hb); err != nil {
		return err
	}
	subChange := hb.Fingerprint == 0
	for i := range hb.Consumers {
		changed, err := h.join(c, &hb, &hb.Consumers[i])
		if err != nil {
			return err
		}
		subChange = subChange || changed
	}
	if h.config().RegisterProducers {
		for _, p := range hb.Producers {
			if p.Group != "" && len(p.Group) <= maxMemberName {
				h.registry.JoinProducer(c, p.Group)
			}
		}
	}
	select {
	case <-req.Conn().Done(): // it closed while the heartbeat waited: nobody else would take it out again
		h.registry.Gone(peer)
	default:
	}
	resp.Ext.Add("IS_SUPPORT_HEART_BEAT_V2", "true")
	resp.Ext.AddBool("IS_SUB_CHANGE", subChange)
	return nil
}

// join registers one consumer entry. An entry of a group that does not exist and may not be created is passed over.
func (h *Handler) join(c Client, hb *heartbeat, e *consumerEntry) (subChange bool, err error) {
	if h.config().RejectPullConsumers && e.Type == ConsumeActively {
		return false, nil
	}
	conf, err := h.configs.FindOrCreate([]byte(e.Group))
	if err != nil || conf == nil {
		return false, err
	}
	ordered := false
	j := &Joining{Group: e.Group, Type: string(e.Type), Model: string(e.Model), From: string(e.From),
		WithoutSub: hb.WithoutSub || hb.IsWithout, Fingerprint: hb.Fingerprint}
	if j.Type == "" {
		j.Type = ConsumePassively
	}
	if j.Model == "" {
		j.Model = Clustering
	}
	if j.From == "" {
		j.From = "CONSUME_FROM_LAST_OFFSET"
	}
	for i := range e.Subs {
		s := e.Subs[i].subscription()
		j.Subscriptions = append(j.Subscriptions, s)
		t := h.topics.Lookup(s.Topic)
		ordered = ordered || t != nil && t.Order
	}
	var flag int32
	if e.Unit {
		flag = topic.SysFlagUnitSub
	}
	if _, err := h.topics.Ensure(topic.RetryPrefix+e.Group, conf.RetryQueueNums, topic.PermRead|topic.PermWrite, flag, ordered); err != nil {
		return false, err
	}
	return h.registry.Join(c, j), nil
}

// Unregister is request 35.
func (h *Handler) Unregister(req *remoting.Request, resp *remoting.Response) error {
	resp.Ext.Present()
	peer := PeerOf(req.Conn())
	if g := req.String("producerGroup"); g != "" {
		h.registry.LeaveProducer(peer, g)
	}
	if g := req.String("consumerGroup"); g != "" {
		h.registry.Leave(peer, g)
	}
	return nil
}

// List is request 38.
func (h *Handler) List(req *remoting.Request, resp *remoting.Response) error {
	resp.Ext.Present()
	g := req.String("consumerGroup")
	c := h.registry.Online(g)
	if c == nil {
		return protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", g)
	}
	body, err := fastjson.Marshal(struct {
		IDs []string `json:"consumerIdList"`
	}{c.ClientIDs()})
	resp.Body.Bytes = body
	return err
}

// CheckConfig is request 46: whether the broker can serve a subscription.
func (h *Handler) CheckConfig(req *remoting.Request, _ *remoting.Response) error {
	var body struct {
		Subscription *subscriptionEntry `json:"subscriptionData"`
	}
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return fmt.Errorf("decode client config: %w", err)
	}
	if s := body.Subscription; s != nil && s.Type != "" && s.Type != ExpressionTag {
		return protocol.Errorf(protocol.SystemError, "The broker does not support consumer to filter message by %s", s.Type)
	}
	return nil
}

package client

import (
	"strconv"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func (c *Client) remotingConfig() remoting.ClientConfig {
	return remoting.ClientConfig{Timeout: c.cfg.RequestTimeout, TLS: c.cfg.TLS, Dial: c.cfg.Dial}
}

// callbacks are the requests that brokers send to clients.
func (c *Client) callbacks() *remoting.Mux {
	m := remoting.NewMux()
	tools := remoting.NewClass("tools", 2, 16, 10*time.Second)
	m.Handle(protocol.ReqNotifyConsumerIDsChanged, remoting.Inline, c.membersChanged)
	m.Handle(protocol.ReqResetConsumerClientOffset, remoting.Slow(tools), c.resetOffsets)
	m.Handle(protocol.ReqGetConsumerStatusFromClient, remoting.Slow(tools), c.consumerStatus)
	m.Handle(protocol.ReqGetConsumerRunningInfo, remoting.Slow(tools), c.runningInfo)
	m.Handle(protocol.ReqConsumeMessageDirectly, remoting.Slow(tools), c.consumeDirectly)
	return m
}

func (c *Client) groupOf(req *remoting.Request, field string) (*group, error) {
	name, _ := req.Get(field)
	if g := c.group(string(name)); g != nil {
		return g, nil
	}
	return nil, protocol.Errorf(protocol.SystemError, "The Consumer Group <%s> not exist in this consumer", name)
}

func (c *Client) membersChanged(req *remoting.Request, _ *remoting.Response) error {
	if g, err := c.groupOf(req, "consumerGroup"); err == nil {
		g.wake()
	}
	return nil
}

func (c *Client) resetOffsets(req *remoting.Request, _ *remoting.Response) error {
	g, err := c.groupOf(req, "group")
	if err != nil {
		return err
	}
	var body protocol.ResetOffsetBody
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return err
	}
	for _, e := range body.OffsetTable {
		if s := g.source(queueOf(e.Queue)); s != nil {
			s.seek(e.Value)
		}
	}
	return g.commitAll(g.ctx)
}

type statusBody struct {
	ConsumerTable     map[string]string          `json:"consumerTable"`
	MessageQueueTable protocol.QueueTable[int64] `json:"messageQueueTable"`
}

func (c *Client) consumerStatus(req *remoting.Request, resp *remoting.Response) error {
	g, err := c.groupOf(req, "group")
	if err != nil {
		return err
	}
	topic, _ := req.Get("topic")
	body := statusBody{ConsumerTable: map[string]string{}, MessageQueueTable: protocol.QueueTable[int64]{}}
	for _, s := range g.list() {
		if at, _, known := s.position(); known && s.q.Topic == string(topic) {
			body.MessageQueueTable = append(body.MessageQueueTable, protocol.QueueEntry[int64]{Queue: s.q.wire(), Value: at})
		}
	}
	resp.Body.Bytes, err = fastjson.Marshal(&body)
	return err
}

// queueInfo is what tools show of one queue of a consumer; the spelling of one field is RocketMQ's.
type queueInfo struct {
	CachedMsgCount          int   `json:"cachedMsgCount"`
	CachedMsgMaxOffset      int64 `json:"cachedMsgMaxOffset"`
	CachedMsgMinOffset      int64 `json:"cachedMsgMinOffset"`
	CachedMsgSizeInMiB      int64 `json:"cachedMsgSizeInMiB"`
	CommitOffset            int64 `json:"commitOffset"`
	Dropped                 bool  `json:"droped"`
	LastConsumeTimestamp    int64 `json:"lastConsumeTimestamp"`
	LastLockTimestamp       int64 `json:"lastLockTimestamp"`
	LastPullTimestamp       int64 `json:"lastPullTimestamp"`
	Locked                  bool  `json:"locked"`
	TransactionMsgCount     int   `json:"transactionMsgCount"`
	TransactionMsgMaxOffset int64 `json:"transactionMsgMaxOffset"`
	TransactionMsgMinOffset int64 `json:"transactionMsgMinOffset"`
	TryUnlockTimes          int64 `json:"tryUnlockTimes"`
}

type runningInfo struct {
	MQPopTable       protocol.QueueTable[queueInfo] `json:"mqPopTable"`
	MQTable          protocol.QueueTable[queueInfo] `json:"mqTable"`
	Properties       map[string]string              `json:"properties"`
	StatusTable      map[string]struct{}            `json:"statusTable"`
	SubscriptionSet  []protocol.SubscriptionData    `json:"subscriptionSet,set"`
	UserConsumerInfo map[string]string              `json:"userConsumerInfo"`
}

func (s *source) info() queueInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := queueInfo{CommitOffset: s.positionLocked(), CachedMsgCount: len(s.window), CachedMsgSizeInMiB: s.bytes >> 20, Dropped: s.halted,
		Locked: s.g.needsLocks() && s.lockFreshLocked()}
	if n := len(s.window); n > 0 {
		i.CachedMsgMinOffset, i.CachedMsgMaxOffset = s.window[0].QueueOffset, s.window[n-1].QueueOffset
	}
	if !s.fetched.IsZero() {
		i.LastPullTimestamp = s.fetched.UnixMilli()
	}
	if i.Locked {
		i.LastLockTimestamp = s.lockedAt.UnixMilli()
	}
	return i
}

func (c *Client) runningInfo(req *remoting.Request, resp *remoting.Response) error {
	g, err := c.groupOf(req, "consumerGroup")
	if err != nil {
		return err
	}
	d, _ := g.describe()
	info := runningInfo{MQPopTable: protocol.QueueTable[queueInfo]{}, MQTable: protocol.QueueTable[queueInfo]{},
		StatusTable: map[string]struct{}{}, SubscriptionSet: d.SubscriptionDataSet, UserConsumerInfo: map[string]string{},
		Properties: map[string]string{
			"PROP_CONSUMEORDERLY": strconv.FormatBool(g.cfg.ordered), "PROP_CONSUME_TYPE": string(d.ConsumeType),
			"PROP_CLIENT_VERSION": protocol.VersionName(protocol.Version), "PROP_NAMESERVER_ADDR": joinAddrs(c.cfg.NameServers),
			"PROP_THREADPOOL_CORE_SIZE": "-1", "PROP_CONSUMER_START_TIMESTAMP": strconv.FormatInt(g.started.UnixMilli(), 10),
		}}
	for _, s := range g.list() {
		info.MQTable = append(info.MQTable, protocol.QueueEntry[queueInfo]{Queue: s.q.wire(), Value: s.info()})
	}
	resp.Body.Bytes, err = fastjson.Marshal(&info)
	return err
}

type directResult struct {
	AutoCommit     bool   `json:"autoCommit"`
	ConsumeResult  string `json:"consumeResult"`
	Order          bool   `json:"order"`
	Remark         string `json:"remark,omitempty"`
	SpentTimeMills int64  `json:"spentTimeMills"`
}

func (c *Client) consumeDirectly(req *remoting.Request, resp *remoting.Response) error {
	g, err := c.groupOf(req, "consumerGroup")
	if err != nil {
		return err
	}
	if g.direct == nil {
		return protocol.Errorf(protocol.SystemError, "group %s has no function to hand messages to", g.cfg.name)
	}
	list, err := ParseRecords(append([]byte(nil), req.Body...), Queue{})
	if err != nil || len(list) == 0 {
		return protocol.Errorf(protocol.SystemError, "request holds no message: %v", err)
	}
	broker, _ := req.Get("brokerName")
	list[0].Queue.Broker = string(broker)
	out := directResult{AutoCommit: true, ConsumeResult: "CR_SUCCESS", Order: g.cfg.ordered}
	started := time.Now()
	if err := g.direct(&list[0]); err != nil {
		out.ConsumeResult, out.Remark = "CR_LATER", err.Error()
	}
	out.SpentTimeMills = time.Since(started).Milliseconds()
	resp.Body.Bytes, err = fastjson.Marshal(&out)
	return err
}

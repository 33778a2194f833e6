// Package fakebroker is a name server and brokers in memory, for tests of the client library.
//
// Its main type is Cluster. It speaks the protocol over loopback connections, keeps messages in slices, and fails on demand. It is
// no model of RocketMQ's rules beyond what the tests need.
package fakebroker

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Fault is what a hook makes of a request: nil leaves it alone, an error is answered, Drop closes the connection, Swallow answers nothing.
type Fault error

// Special faults.
var (
	Drop    Fault = protocol.Errorf(-1, "drop")
	Swallow Fault = protocol.Errorf(-2, "swallow")
)

type queueKey struct {
	topic string
	id    int32
}

type queue struct {
	records [][]byte
	first   int64 // offset of records[0]
	waiting []parked
}

type parked struct {
	pending remoting.Pending
	offset  int64
	tags    []string
}

// Broker is one broker group with a master.
type Broker struct {
	Name string

	c      *Cluster
	server *remoting.Server
	addr   string
	log    [][]byte // all records by log offset, which is an index here
	queues map[queueKey]*queue
	fault  func(code int32, req *remoting.Request) Fault
	counts map[int32]int
	subs   map[string]map[string]bool // group -> topics, from heartbeats
}

// Cluster is a name server with brokers.
type Cluster struct {
	t  testing.TB
	ns *remoting.Server

	mu      sync.Mutex
	brokers map[string]*Broker
	topics  map[string]int32             // queues at each broker
	only    map[string]string            // topic -> the one broker that has it
	members map[string]map[string]*conns // group -> client id
	offsets map[string]map[string]int64  // group -> topic/queue/broker -> offset
	locks   map[string]string            // group/queue -> client id
	Create  bool                         // topics are created on send
	dead    []string                     // ids of messages in dead letter topics
}

type conns struct{ c *remoting.Conn }

// New starts a cluster with these brokers; it ends with the test.
func New(t testing.TB, brokers ...string) *Cluster {
	c := &Cluster{t: t, brokers: map[string]*Broker{}, topics: map[string]int32{}, only: map[string]string{}, members: map[string]map[string]*conns{},
		offsets: map[string]map[string]int64{}, locks: map[string]string{}}
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqGetRouteInfoByTopic, remoting.Inline, c.route)
	mux.Handle(protocol.ReqGetBrokerClusterInfo, remoting.Inline, c.clusterInfo)
	c.ns = serve(t, mux, "127.0.0.1", 0)
	for _, name := range brokers {
		b := &Broker{Name: name, c: c, queues: map[queueKey]*queue{}, counts: map[int32]int{}, subs: map[string]map[string]bool{}}
		c.brokers[name] = b
		b.start(0)
	}
	t.Cleanup(func() {
		for _, b := range c.brokers {
			b.Stop()
		}
		if err := c.ns.Close(); err != nil {
			t.Errorf("close name server: %v", err)
		}
	})
	return c
}

func serve(t testing.TB, mux *remoting.Mux, host string, port int) *remoting.Server {
	t.Helper()
	s := remoting.NewServer(remoting.ServerConfig{BindAddress: host, Port: port}, mux, nil, slog.New(slog.DiscardHandler))
	if err := s.Start(); err != nil {
		t.Fatalf("start server: %v", err)
	}
	return s
}

// NameServer is its address.
func (c *Cluster) NameServer() string { return c.ns.Addr().String() }

// Topic creates a topic with queues at every broker, or at one only.
func (c *Cluster) Topic(name string, queues int32, broker ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[name] = queues
	if len(broker) > 0 {
		c.only[name] = broker[0]
	}
}

// DropTopic removes a topic from the routes.
func (c *Cluster) DropTopic(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, name)
}

// Broker returns a broker by name.
func (c *Cluster) Broker(name string) *Broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokers[name]
}

// Committed returns a group's stored offset; -1 for none.
func (c *Cluster) Committed(group, topic, broker string, id int32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	off, ok := c.offsets[group][offsetKey(topic, broker, id)]
	if !ok {
		return -1
	}
	return off
}

// SetOffset stores a group's offset.
func (c *Cluster) SetOffset(group, topic, broker string, id int32, off int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setOffsetLocked(group, offsetKey(topic, broker, id), off)
}

func (c *Cluster) setOffsetLocked(group, key string, off int64) {
	if c.offsets[group] == nil {
		c.offsets[group] = map[string]int64{}
	}
	c.offsets[group][key] = off
}

func offsetKey(topic, broker string, id int32) string {
	return topic + "/" + broker + "/" + strconv.Itoa(int(id))
}

// Members lists the clients of a consumer group.
func (c *Cluster) Members(group string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.membersLocked(group)
}

func (c *Cluster) membersLocked(group string) []string {
	out := []string{}
	for id := range c.members[group] {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Dead lists the bodies of dead letters.
func (c *Cluster) Dead() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.dead)
}

func (c *Cluster) route(req *remoting.Request, resp *remoting.Response) error {
	topic, _ := req.Get("topic")
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.topics[string(topic)]
	if !ok && string(topic) == message.TopicDefault && c.Create {
		n, ok = 8, true
	}
	if !ok {
		return protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s", topic)
	}
	var data protocol.TopicRouteData
	for _, b := range c.brokers {
		if one := c.only[string(topic)]; b.addr == "" || one != "" && one != b.Name {
			continue
		}
		data.BrokerDatas = append(data.BrokerDatas, protocol.BrokerData{BrokerName: b.Name, Cluster: "c", BrokerAddrs: map[int64]string{0: b.addr}})
		data.QueueDatas = append(data.QueueDatas, protocol.QueueData{BrokerName: b.Name, Perm: 6, ReadQueueNums: n, WriteQueueNums: n})
	}
	body, err := data.Encode(false)
	resp.Body.Bytes = body
	return err
}

func (c *Cluster) clusterInfo(_ *remoting.Request, resp *remoting.Response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := protocol.ClusterInfo{BrokerAddrTable: map[string]protocol.BrokerData{}, ClusterAddrTable: map[string][]string{"c": {}}}
	for _, b := range c.brokers {
		info.BrokerAddrTable[b.Name] = protocol.BrokerData{BrokerName: b.Name, Cluster: "c", BrokerAddrs: map[int64]string{0: b.addr}}
		info.ClusterAddrTable["c"] = append(info.ClusterAddrTable["c"], b.Name)
	}
	body, err := fastjson.Marshal(&info)
	resp.Body.Bytes = body
	return err
}

// Stop closes a broker's port and all its connections; its messages stay.
func (b *Broker) Stop() {
	b.c.mu.Lock()
	s := b.server
	b.server, b.addr = nil, ""
	b.subs = map[string]map[string]bool{}
	b.c.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			b.c.t.Errorf("close broker %s: %v", b.Name, err)
		}
	}
}

// Kill is Stop, but the name server still names the old address.
func (b *Broker) Kill() {
	b.c.mu.Lock()
	s := b.server
	b.server = nil
	b.subs = map[string]map[string]bool{}
	b.c.mu.Unlock()
	if s != nil {
		if err := s.Close(); err != nil {
			b.c.t.Errorf("close broker %s: %v", b.Name, err)
		}
	}
}

// Restart opens a port, another one than before.
func (b *Broker) Restart() { b.start(0) }

func (b *Broker) start(port int) {
	mux := remoting.NewMux()
	for code, h := range map[int32]remoting.Handler{
		protocol.ReqSendMessageV2: b.send, protocol.ReqSendBatchMessage: b.send, protocol.ReqPullMessage: b.pull,
		protocol.ReqLitePullMessage: b.pull, protocol.ReqHeartBeat: b.heartbeat, protocol.ReqUnregisterClient: b.unregister,
		protocol.ReqGetConsumerListByGroup: b.listMembers, protocol.ReqQueryConsumerOffset: b.queryOffset,
		protocol.ReqUpdateConsumerOffset: b.updateOffset, protocol.ReqGetMaxOffset: b.bound, protocol.ReqGetMinOffset: b.bound,
		protocol.ReqSearchOffsetByTimestamp: b.search, protocol.ReqLockBatchMQ: b.lock, protocol.ReqUnlockBatchMQ: b.unlock,
		protocol.ReqConsumerSendMsgBack: b.sendBack, protocol.ReqViewMessageByID: b.view,
	} {
		mux.Handle(code, remoting.Inline, func(req *remoting.Request, resp *remoting.Response) error {
			b.c.mu.Lock()
			b.counts[code]++
			fault := b.fault
			b.c.mu.Unlock()
			if fault != nil {
				switch err := fault(code, req); err {
				case nil:
				case Drop:
					req.Conn().Close()
					return remoting.Later
				case Swallow:
					return remoting.Later
				default:
					return err
				}
			}
			return h(req, resp)
		})
	}
	s := serve(b.c.t, mux, "127.0.0.1", port)
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.server, b.addr = s, s.Addr().String()
}

// Addr is where it listens.
func (b *Broker) Addr() string {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.addr
}

// Fail sets the hook that sees every request; nil removes it.
func (b *Broker) Fail(fn func(code int32, req *remoting.Request) Fault) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	b.fault = fn
}

// Count is how many requests of a code came.
func (b *Broker) Count(code int32) int {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return b.counts[code]
}

// Messages returns the bodies of a queue.
func (b *Broker) Messages(topic string, id int32) []string {
	var out []string
	for _, r := range b.Records(topic, id) {
		out = append(out, string(r.Body))
	}
	return out
}

// Records returns the records of a queue.
func (b *Broker) Records(topic string, id int32) []message.Record {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	q := b.queueLocked(topic, id)
	out := make([]message.Record, len(q.records))
	for i, raw := range q.records {
		if err := message.Parse(raw, &out[i]); err != nil {
			b.c.t.Errorf("stored record: %v", err)
		}
	}
	return out
}

// Trim forgets the messages of a queue below an offset.
func (b *Broker) Trim(topic string, id int32, to int64) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	q := b.queueLocked(topic, id)
	q.records = q.records[to-q.first:]
	q.first = to
}

// Put stores a message, as if a producer had sent it.
func (b *Broker) Put(topic string, id int32, body string, props map[string]string) {
	b.c.mu.Lock()
	woken := b.putLocked(&message.Message{Topic: []byte(topic), QueueID: id, Body: []byte(body), Properties: message.EncodeProperties(props)})
	b.c.mu.Unlock()
	woken()
}

func (b *Broker) queueLocked(topic string, id int32) *queue {
	k := queueKey{topic, id}
	if b.queues[k] == nil {
		b.queues[k] = &queue{}
	}
	return b.queues[k]
}

// putLocked stores and returns what answers the pulls that waited, to be called without the lock.
func (b *Broker) putLocked(m *message.Message) func() {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	m.BornHost, m.StoreHost = host, host
	m.BornTime = time.Now().UnixMilli()
	raw, err := message.AppendRecord(nil, m)
	if err != nil {
		b.c.t.Errorf("store message: %v", err)
		return func() {}
	}
	q := b.queueLocked(string(m.Topic), m.QueueID)
	message.Patch(raw, message.QueueOffset(q.first+int64(len(q.records))), message.LogOffset(len(b.log)), time.Now().UnixMilli())
	q.records = append(q.records, raw)
	b.log = append(b.log, raw)
	waiting := q.waiting
	q.waiting = nil
	return func() {
		for _, w := range waiting {
			var resp remoting.Response
			b.c.mu.Lock()
			b.readLocked(q, w.offset, 32, &resp)
			b.c.mu.Unlock()
			w.pending.Reply(&resp)
		}
	}
}

func str(req *remoting.Request, name string) string {
	v, _ := req.Get(name)
	return string(v)
}

func num(req *remoting.Request, name string) int64 {
	n, err := strconv.ParseInt(str(req, name), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (b *Broker) send(req *remoting.Request, resp *remoting.Response) error {
	topic, id := str(req, "b"), int32(num(req, "e"))
	base := message.Message{Topic: []byte(topic), QueueID: id, SysFlag: int32(num(req, "f")), Flag: int32(num(req, "h")),
		ReconsumeTimes: int32(max(num(req, "j"), 0)), Properties: []byte(str(req, "i")), Body: slices.Clone(req.Body)}
	b.c.mu.Lock()
	if _, ok := b.c.topics[topic]; !ok {
		if !b.c.Create && !message.IsRetryTopic(topic) {
			b.c.mu.Unlock()
			return protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist", topic)
		}
		b.c.topics[topic] = int32(num(req, "d"))
	}
	q := b.queueLocked(topic, id)
	resp.Ext.AddInt("queueId", int64(id))
	resp.Ext.AddInt("queueOffset", q.first+int64(len(q.records)))
	resp.Ext.Add("msgId", string(message.AppendID(nil, netip.MustParseAddrPort("127.0.0.1:10911"), message.LogOffset(len(b.log)))))
	var woken []func()
	var err error
	if str(req, "m") == "true" {
		err = message.EachBatchItem(base.Body, func(it *message.BatchItem) error {
			m := base
			m.Body, m.Properties, m.Flag = it.Body, it.Properties, it.Flag
			woken = append(woken, b.putLocked(&m))
			return nil
		})
	} else {
		woken = append(woken, b.putLocked(&base))
	}
	b.c.mu.Unlock()
	for _, fn := range woken {
		fn()
	}
	return err
}

// readLocked fills the answer to a pull.
func (b *Broker) readLocked(q *queue, offset, most int64, resp *remoting.Response) {
	end := q.first + int64(len(q.records))
	next := offset
	switch {
	case offset < q.first:
		resp.Code, next = protocol.PullOffsetMoved, q.first
	case offset > end:
		resp.Code, next = protocol.PullOffsetMoved, end
	case offset == end:
		resp.Code = protocol.PullNotFound
	default:
		for next < end && next-offset < most {
			resp.Body.Bytes = append(resp.Body.Bytes, q.records[next-q.first]...)
			next++
		}
	}
	resp.Ext.AddInt("suggestWhichBrokerId", 0)
	resp.Ext.AddInt("nextBeginOffset", next)
	resp.Ext.AddInt("minOffset", q.first)
	resp.Ext.AddInt("maxOffset", end)
}

func (b *Broker) pull(req *remoting.Request, resp *remoting.Response) error {
	group, topic, id, flags := str(req, "consumerGroup"), str(req, "topic"), int32(num(req, "queueId")), num(req, "sysFlag")
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if flags&4 == 0 && !b.subs[group][topic] {
		return protocol.Errorf(protocol.SubscriptionNotExist, "the consumer's subscription not exist")
	}
	if flags&1 != 0 {
		b.c.setOffsetLocked(group, offsetKey(topic, b.Name, id), num(req, "commitOffset"))
	}
	q := b.queueLocked(topic, id)
	offset := num(req, "queueOffset")
	if offset == q.first+int64(len(q.records)) && flags&2 != 0 {
		q.waiting = append(q.waiting, parked{pending: req.Defer(), offset: offset})
		return remoting.Later
	}
	b.readLocked(q, offset, num(req, "maxMsgNums"), resp)
	return nil
}

func (b *Broker) heartbeat(req *remoting.Request, _ *remoting.Response) error {
	var h protocol.HeartbeatData
	if err := fastjson.Unmarshal(req.Body, &h); err != nil {
		return err
	}
	var tell []*remoting.Conn
	b.c.mu.Lock()
	for _, d := range h.ConsumerDataSet {
		if b.c.members[d.GroupName] == nil {
			b.c.members[d.GroupName] = map[string]*conns{}
		}
		if b.c.members[d.GroupName][h.ClientID] == nil {
			for _, m := range b.c.members[d.GroupName] {
				tell = append(tell, m.c)
			}
			b.c.members[d.GroupName][h.ClientID] = &conns{req.Conn()}
		}
		b.subs[d.GroupName] = map[string]bool{}
		for _, s := range d.SubscriptionDataSet {
			b.subs[d.GroupName][s.Topic] = true
			if message.IsRetryTopic(s.Topic) {
				b.c.topics[s.Topic] = 1
			}
		}
	}
	b.c.mu.Unlock()
	for _, c := range tell {
		for _, d := range h.ConsumerDataSet {
			notify(c, d.GroupName)
		}
	}
	return nil
}

// notify may fail: the peer may be gone.
func notify(c *remoting.Conn, group string) {
	if err := c.Oneway(protocol.NewRequest(protocol.ReqNotifyConsumerIDsChanged, map[string]string{"consumerGroup": group}, nil)); err != nil {
		return
	}
}

func (b *Broker) unregister(req *remoting.Request, _ *remoting.Response) error {
	group, id := str(req, "consumerGroup"), str(req, "clientID")
	b.c.mu.Lock()
	delete(b.c.members[group], id)
	var tell []*remoting.Conn
	for _, m := range b.c.members[group] {
		tell = append(tell, m.c)
	}
	for key, holder := range b.c.locks {
		if holder == id {
			delete(b.c.locks, key)
		}
	}
	b.c.mu.Unlock()
	for _, c := range tell {
		notify(c, group)
	}
	return nil
}

func (b *Broker) listMembers(req *remoting.Request, resp *remoting.Response) error {
	list := b.c.Members(str(req, "consumerGroup"))
	if len(list) == 0 {
		return protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", str(req, "consumerGroup"))
	}
	body, err := json.Marshal(protocol.ConsumerList{ConsumerIDList: list})
	resp.Body.Bytes = body
	return err
}

func (b *Broker) queryOffset(req *remoting.Request, resp *remoting.Response) error {
	off := b.c.Committed(str(req, "consumerGroup"), str(req, "topic"), b.Name, int32(num(req, "queueId")))
	if off < 0 {
		return protocol.Errorf(protocol.QueryNotFound, "Not found")
	}
	resp.Ext.AddInt("offset", off)
	return nil
}

func (b *Broker) updateOffset(req *remoting.Request, _ *remoting.Response) error {
	b.c.SetOffset(str(req, "consumerGroup"), str(req, "topic"), b.Name, int32(num(req, "queueId")), num(req, "commitOffset"))
	return nil
}

func (b *Broker) bound(req *remoting.Request, resp *remoting.Response) error {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	q := b.queueLocked(str(req, "topic"), int32(num(req, "queueId")))
	if req.Code == protocol.ReqGetMinOffset {
		resp.Ext.AddInt("offset", q.first)
		return nil
	}
	resp.Ext.AddInt("offset", q.first+int64(len(q.records)))
	return nil
}

func (b *Broker) search(req *remoting.Request, resp *remoting.Response) error {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	q := b.queueLocked(str(req, "topic"), int32(num(req, "queueId")))
	at := num(req, "timestamp")
	off := q.first
	for _, raw := range q.records {
		if message.StoreTimeAt(raw) >= at {
			break
		}
		off++
	}
	resp.Ext.AddInt("offset", off)
	return nil
}

func (b *Broker) lock(req *remoting.Request, resp *remoting.Response) error {
	var body protocol.LockBatchRequestBody
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return err
	}
	out := protocol.LockBatchResponseBody{LockOKMQSet: []protocol.MessageQueue{}}
	b.c.mu.Lock()
	for _, q := range body.MQSet {
		key := body.ConsumerGroup + "/" + offsetKey(q.Topic, q.BrokerName, q.QueueID)
		if h := b.c.locks[key]; h == "" || h == body.ClientID {
			b.c.locks[key] = body.ClientID
			out.LockOKMQSet = append(out.LockOKMQSet, q)
		}
	}
	b.c.mu.Unlock()
	data, err := fastjson.Marshal(&out)
	resp.Body.Bytes = data
	return err
}

func (b *Broker) unlock(req *remoting.Request, _ *remoting.Response) error {
	var body protocol.LockBatchRequestBody
	if err := fastjson.Unmarshal(req.Body, &body); err != nil {
		return err
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	for _, q := range body.MQSet {
		key := body.ConsumerGroup + "/" + offsetKey(q.Topic, q.BrokerName, q.QueueID)
		if b.c.locks[key] == body.ClientID {
			delete(b.c.locks, key)
		}
	}
	return nil
}

// sendBack delivers again at once instead of after a delay.
func (b *Broker) sendBack(req *remoting.Request, _ *remoting.Response) error {
	b.c.mu.Lock()
	off := num(req, "offset")
	if off < 0 || off >= int64(len(b.log)) {
		b.c.mu.Unlock()
		return protocol.Errorf(protocol.SystemError, "look message by offset failed, %d", off)
	}
	var rec message.Record
	if err := message.Parse(b.log[off], &rec); err != nil {
		b.c.mu.Unlock()
		return err
	}
	most := num(req, "maxReconsumeTimes")
	if most < 0 {
		most = 16
	}
	if num(req, "delayLevel") < 0 || int64(rec.ReconsumeTimes) >= most {
		b.c.dead = append(b.c.dead, string(rec.Body))
		b.c.mu.Unlock()
		return nil
	}
	props := message.DecodeProperties(rec.Properties)
	if props[message.PropRetryTopic] == "" {
		props[message.PropRetryTopic] = string(rec.Topic)
	}
	retry := message.RetryTopic(str(req, "group"))
	b.c.topics[retry] = 1
	woken := b.putLocked(&message.Message{Topic: []byte(retry), Body: slices.Clone(rec.Body), ReconsumeTimes: rec.ReconsumeTimes + 1,
		SysFlag: rec.SysFlag, Properties: message.EncodeProperties(props)})
	b.c.mu.Unlock()
	woken()
	return nil
}

func (b *Broker) view(req *remoting.Request, resp *remoting.Response) error {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	off := num(req, "offset")
	if off < 0 || off >= int64(len(b.log)) {
		return protocol.Errorf(protocol.SystemError, "can not find message by the offset, %d", off)
	}
	resp.Body.Bytes = slices.Clone(b.log[off])
	return nil
}

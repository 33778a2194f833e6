package admin

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/internal/fakebroker"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ctxFor(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newAdmin(t *testing.T, nameServer string) *Admin {
	t.Helper()
	c, err := client.New(client.Config{NameServers: []string{nameServer}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return New(c)
}

// stub is one server that is name server and broker, with canned answers; it notes what it was asked.
type stub struct {
	addr string

	mu      sync.Mutex
	answers map[int32]*protocol.Command
	asked   map[int32][]map[string]string
	bodies  map[int32]string
}

func newStub(t *testing.T) (*stub, *Admin) {
	t.Helper()
	s := &stub{answers: map[int32]*protocol.Command{}, asked: map[int32][]map[string]string{}, bodies: map[int32]string{}}
	mux := remoting.NewMux()
	mux.Default(remoting.Inline, func(req *remoting.Request, resp *remoting.Response) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		ext := map[string]string{}
		req.Each(func(name, value []byte) bool {
			ext[string(name)] = string(value)
			return true
		})
		s.asked[req.Code] = append(s.asked[req.Code], ext)
		s.bodies[req.Code] = string(req.Body)
		a := s.answers[req.Code]
		if a == nil {
			return nil
		}
		for k, v := range a.Ext {
			resp.Ext.Add(k, v)
		}
		resp.Body.Bytes = a.Body
		if a.Code != 0 {
			return protocol.Errorf(a.Code, "%s", a.Remark)
		}
		return nil
	})
	srv := remoting.NewServer(remoting.ServerConfig{BindAddress: "127.0.0.1"}, mux, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, srv.Start())
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	s.addr = srv.Addr().String()
	s.body(protocol.ReqGetRouteInfoByTopic, `{"brokerDatas":[{"brokerAddrs":{0:"`+s.addr+`"},"brokerName":"b","cluster":"c"}],
		"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":2}]}`)
	s.body(protocol.ReqGetBrokerClusterInfo, `{"brokerAddrTable":{"b":{"brokerAddrs":{0:"`+s.addr+`"},"brokerName":"b","cluster":"c"}},
		"clusterAddrTable":{"c":["b"]}}`)
	return s, newAdmin(t, s.addr)
}

func (s *stub) set(code int32, a *protocol.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[code] = a
}

func (s *stub) body(code int32, text string) { s.set(code, &protocol.Command{Body: []byte(text)}) }

func (s *stub) last(code int32) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.asked[code]); n > 0 {
		return s.asked[code][n-1]
	}
	return nil
}

func TestTopicCalls(t *testing.T) {
	s, a := newStub(t)
	topic := NewTopic("T", 8)
	topic.Attributes = map[string]string{"message.type": "FIFO", "-cleanup.policy": ""}
	require.NoError(t, a.PutTopic(ctxFor(t), Target{Cluster: "c"}, topic))
	assert.Equal(t, map[string]string{"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "attributes": "-cleanup.policy,+message.type=FIFO"},
		s.last(protocol.ReqUpdateAndCreateTopic))
	require.Error(t, a.PutTopic(ctxFor(t), Target{}, NewTopic("a b", 1)))
	require.ErrorContains(t, a.PutTopic(ctxFor(t), Target{Cluster: "nosuch"}, topic), "there are: c")

	s.body(protocol.ReqGetAllTopicListFromNameServer, `{"topicList":["b","a","b"]}`)
	names, err := a.Topics(ctxFor(t), "")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, names)

	s.body(protocol.ReqGetTopicConfig, `{"topicName":"T","readQueueNums":3,"writeQueueNums":4,"perm":4,"order":true}`)
	got, err := a.GetTopic(ctxFor(t), s.addr, "T")
	require.NoError(t, err)
	assert.Equal(t, int32(3), got.ReadQueues)
	assert.True(t, got.Order)

	s.body(protocol.ReqGetTopicStatsInfo, `{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"maxOffset":5,"minOffset":2},
		{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":7,"minOffset":0}}}`)
	st, err := a.TopicStatus(ctxFor(t), "T")
	require.NoError(t, err)
	require.Len(t, st, 2)
	assert.Equal(t, int64(7), st[0].MaxOffset)

	require.NoError(t, a.DeleteTopic(ctxFor(t), Target{}, "T"))
	assert.NotNil(t, s.last(protocol.ReqDeleteTopicInBroker))
	assert.NotNil(t, s.last(protocol.ReqDeleteTopicInNamesrv))
}

func TestBrokerTopicsInPages(t *testing.T) {
	s, a := newStub(t)
	s.set(protocol.ReqGetAllTopicConfig, &protocol.Command{Ext: map[string]string{"totalTopicNum": "2"},
		Body: []byte(`{"dataVersion":{"counter":1},"topicConfigTable":{"A":{"topicName":"A"}}}`)})
	got, err := a.BrokerTopics(ctxFor(t), s.addr) // the same page twice: two of two
	require.NoError(t, err)
	assert.Len(t, got, 1)
	assert.Equal(t, "1", s.last(protocol.ReqGetAllTopicConfig)["topicSeq"])
	assert.Contains(t, s.last(protocol.ReqGetAllTopicConfig)["dataVersion"], `"counter":1`)
	s.body(protocol.ReqGetAllTopicConfig, `{"topicConfigTable":{"A":{},"B":null}}`)
	got, err = a.BrokerTopics(ctxFor(t), s.addr)
	require.NoError(t, err)
	assert.Len(t, got, 1)
}

func TestGroupCalls(t *testing.T) {
	s, a := newStub(t)
	require.NoError(t, a.PutGroup(ctxFor(t), Target{Addr: s.addr}, protocol.NewSubscriptionGroupConfig("g")))
	assert.Contains(t, s.bodies[protocol.ReqUpdateAndCreateSubscriptionGroup], `"retryMaxTimes":16`)
	s.body(protocol.ReqGetAllSubscriptionGroupConfig, `{"subscriptionGroupTable":{"g":{"groupName":"g"},"f":{"groupName":"f"}}}`)
	names, err := a.Groups(ctxFor(t), Target{})
	require.NoError(t, err)
	assert.Equal(t, []string{"f", "g"}, names)

	s.body(protocol.ReqGetConsumeStats, `{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"brokerOffset":10,"consumerOffset":4},
		{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset":3,"consumerOffset":8}}}`)
	p, err := a.Progress(ctxFor(t), "g", "T")
	require.NoError(t, err)
	assert.Equal(t, int64(6), p.Lag(), "an offset beyond the end is no negative lag")
	assert.InDelta(t, 1.5, p.TPS, 0)

	s.body(protocol.ReqInvokeBrokerToResetOffset, `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}`)
	at := int64(5)
	off, err := a.ResetOffset(ctxFor(t), Reset{Group: "g", Topic: "T", Queue: 0, Offset: &at, Force: true})
	require.NoError(t, err)
	assert.Equal(t, []QueueOffset{{client.Queue{Topic: "T", Broker: "b"}, 5}}, off)
	assert.Equal(t, "5", s.last(protocol.ReqInvokeBrokerToResetOffset)["offset"])

	require.NoError(t, a.SetOffset(ctxFor(t), "g", client.Queue{Topic: "T", Broker: "b", ID: 1}, 9))
	assert.Equal(t, "9", s.last(protocol.ReqUpdateConsumerOffset)["commitOffset"])
	require.NoError(t, a.CloneOffsets(ctxFor(t), "g", "h", "", true))
	require.NoError(t, a.DeleteGroup(ctxFor(t), Target{}, "g", true))
	assert.Equal(t, "%DLQ%g", s.last(protocol.ReqDeleteTopicInNamesrv)["topic"])

	s.set(protocol.ReqGetConsumerConnectionList, &protocol.Command{Code: protocol.ConsumerNotOnline, Remark: "the consumer group[g] not online"})
	_, err = a.Consumers(ctxFor(t), "g")
	require.Error(t, err)
	assert.True(t, NotFound(err))
}

func TestBrokerCalls(t *testing.T) {
	s, a := newStub(t)
	s.body(protocol.ReqGetBrokerConfig, "# comment\na=1\nb = x=y \n\n")
	cfg, err := a.BrokerConfig(ctxFor(t), s.addr)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "1", "b": "x=y"}, cfg)
	require.NoError(t, a.UpdateBrokerConfig(ctxFor(t), s.addr, map[string]string{"b": "2", "a": "1"}))
	assert.Equal(t, "a=1\nb=2\n", s.bodies[protocol.ReqUpdateBrokerConfig])
	s.body(protocol.ReqGetBrokerRuntimeInfo, `{"table":{"k":"v"}}`)
	info, err := a.RuntimeInfo(ctxFor(t), s.addr)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"k": "v"}, info)
	s.set(protocol.ReqWipeWritePermOfBroker, &protocol.Command{Ext: map[string]string{"wipeTopicCount": "3"}})
	n, err := a.SetWritePerm(ctxFor(t), "b", false)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	s.set(protocol.ReqGetKVConfig, &protocol.Command{Ext: map[string]string{"value": "v"}})
	v, err := a.GetKV(ctxFor(t), "n", "k")
	require.NoError(t, err)
	assert.Equal(t, "v", v)
	require.NoError(t, a.PutKV(ctxFor(t), []string{s.addr}, "n", "k", "v"))
	require.NoError(t, a.DeleteKV(ctxFor(t), []string{s.addr}, "n", "k"))
	require.NoError(t, a.CleanExpiredQueues(ctxFor(t), s.addr))
	require.NoError(t, a.CleanUnusedTopics(ctxFor(t), s.addr))
	require.NoError(t, a.DeleteExpiredLog(ctxFor(t), s.addr))
}

func TestMessages(t *testing.T) {
	s, a := newStub(t)
	host := netip.MustParseAddrPort(s.addr)
	record := func(body, keys, id string, at int64) []byte {
		raw, err := message.AppendRecord(nil, &message.Message{Topic: []byte("T"), Body: []byte(body), BornHost: host, StoreHost: host,
			Properties: message.EncodeProperties(map[string]string{"KEYS": keys, "UNIQ_KEY": id})})
		require.NoError(t, err)
		message.Patch(raw, 3, 100, at)
		return raw
	}
	s.set(protocol.ReqViewMessageByID, &protocol.Command{Body: record("x", "k", "id", 1)})
	m, err := a.ByID(ctxFor(t), string(message.AppendID(nil, host, 100)))
	require.NoError(t, err)
	assert.Equal(t, "x", string(m.Body))
	assert.Equal(t, "100", s.last(protocol.ReqViewMessageByID)["offset"])
	_, err = a.ByID(ctxFor(t), "nonsense")
	require.Error(t, err)

	s.set(protocol.ReqQueryMessage, &protocol.Command{Body: append(append(record("old", "k other", "1", 1), record("new", "k", "2", 2)...),
		record("same hash", "notk", "3", 3)...)})
	list, err := a.ByKey(ctxFor(t), KeyQuery{Topic: "T", Key: "k"})
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "new", string(list[0].Body))
	list, err = a.ByKey(ctxFor(t), KeyQuery{Topic: "T", Key: "1", Unique: true})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "true", s.last(protocol.ReqQueryMessage)["_UNIQUE_KEY_QUERY"])
	s.set(protocol.ReqQueryMessage, &protocol.Command{Code: protocol.QueryNotFound, Remark: "can not find message"})
	list, err = a.ByKey(ctxFor(t), KeyQuery{Topic: "T", Key: "1"})
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestByOffset(t *testing.T) {
	c := fakebroker.New(t, "b")
	c.Topic("T", 1)
	for i := range 3 {
		c.Broker("b").Put("T", 0, strconv.Itoa(i), nil)
	}
	a := newAdmin(t, c.NameServer())
	q := client.Queue{Topic: "T", Broker: "b"}
	m, err := a.ByOffset(ctxFor(t), q, 1)
	require.NoError(t, err)
	assert.Equal(t, "1", string(m.Body))
	_, err = a.ByOffset(ctxFor(t), q, 3)
	require.ErrorContains(t, err, "from 0 to before 3")
	assert.True(t, NotFound(err))
	masters, err := a.Masters(ctxFor(t), Target{})
	require.NoError(t, err)
	assert.Equal(t, []string{c.Broker("b").Addr()}, masters)
}

func FuzzProperties(f *testing.F) {
	f.Add([]byte("a=1\n# c\nb\n=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for k, v := range properties(text) {
			_, _ = k, v
		}
	})
}

package namesrv

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// codes of the captured requests.
var goldenCodes = []int32{protocol.ReqRegisterBroker, protocol.ReqUnregisterBroker, protocol.ReqBrokerHeartbeat, protocol.ReqQueryDataVersion,
	protocol.ReqGetRouteInfoByTopic, protocol.ReqGetBrokerClusterInfo, protocol.ReqGetBrokerMemberGroup, protocol.ReqWipeWritePermOfBroker,
	protocol.ReqAddWritePermOfBroker, protocol.ReqGetAllTopicListFromNameServer, protocol.ReqDeleteTopicInNamesrv, protocol.ReqRegisterTopicInNamesrv,
	protocol.ReqGetTopicsByCluster, protocol.ReqGetSystemTopicListFromNS, protocol.ReqGetUnitTopicList, protocol.ReqGetHasUnitSubTopicList,
	protocol.ReqGetHasUnitSubUnUnitTopicList, protocol.ReqPutKVConfig, protocol.ReqGetKVConfig, protocol.ReqDeleteKVConfig,
	protocol.ReqGetKVListByNamespace, protocol.ReqGetNamesrvConfig, protocol.ReqUpdateNamesrvConfig, 9999}

// TestGoldenFrames sends every captured request, byte for byte, and compares the answers with those of the Java name server.
func TestGoldenFrames(t *testing.T) {
	for _, name := range []string{"client-json", "client-rocketmq"} {
		t.Run(name, func(t *testing.T) {
			w := start(t, t.TempDir(), "")
			peers := map[int]*wiretest.Peer{}
			n := 0
			for _, pair := range wiretest.Pairs(t, "testdata/"+name+".jsonl.gz", goldenCodes...) {
				if pair.Answer == nil {
					continue
				}
				want := pair.Answer.Decode(t)
				w.fill(pair.Request.Decode(t), want)
				p := peers[pair.Request.Conn]
				if p == nil {
					p = w.dial()
					peers[pair.Request.Conn] = p
				}
				p.Write(pair.Request.Bytes)
				w.compare(pair, want, p.Read())
				n++
			}
			require.Greater(t, n, 30)
		})
	}
}

// fill makes up for registrations and farewells that were not captured: what the answer shows and the table does not know is registered.
func (w *world) fill(req, want *protocol.Command) {
	if want.Code != protocol.Success {
		return
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	add := func(topics ...string) {
		var queues []protocol.QueueData
		for broker := range w.s.table.groups {
			queues = append(queues, protocol.QueueData{BrokerName: broker, ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6})
		}
		for _, topic := range topics {
			if w.s.table.topics[topic] == nil {
				w.s.table.RegisterTopic(topic, queues)
			}
		}
	}
	switch req.Code {
	case protocol.ReqGetRouteInfoByTopic:
		var r protocol.TopicRouteData
		require.NoError(w.t, fastjson.Unmarshal(want.Body, &r))
		w.s.table.RegisterTopic(req.Ext["topic"], r.QueueDatas)
	case protocol.ReqGetAllTopicListFromNameServer, protocol.ReqGetTopicsByCluster:
		var l protocol.TopicList
		require.NoError(w.t, fastjson.Unmarshal(want.Body, &l))
		add(l.TopicList...)
	case protocol.ReqGetSystemTopicListFromNS: // whose farewell was not captured
		for name := range w.s.table.groups {
			if !strings.Contains(string(want.Body), `"`+name+`"`) {
				w.s.table.dropGroup(name)
			}
		}
	case protocol.ReqGetBrokerMemberGroup:
		var b protocol.BrokerMemberGroupBody
		require.NoError(w.t, fastjson.Unmarshal(want.Body, &b))
		m := b.BrokerMemberGroup
		for id, addr := range m.BrokerAddrs {
			if g := w.s.table.groups[m.BrokerName]; g == nil || g.data.BrokerAddrs[id] == "" {
				_, err := w.s.table.Register(&Registration{Cluster: m.Cluster, Broker: m.BrokerName, Addr: addr, ID: id, Body: &protocol.RegisterBrokerBody{}}, w.s.started)
				require.NoError(w.t, err)
			}
		}
	case protocol.ReqQueryDataVersion: // the version of the last registration, which was not captured
		var v protocol.DataVersion
		require.NoError(w.t, fastjson.Unmarshal(want.Body, &v))
		w.s.table.live[member{req.Ext["clusterName"], req.Ext["brokerName"], req.Ext["brokerAddr"]}].version = v
	}
}

func (w *world) compare(pair wiretest.Pair, want, got *protocol.Command) {
	t := w.t
	about := pair.Request.Scenario + " " + protocol.RequestName(pair.Request.Code)
	require.Equal(t, want.Code, got.Code, "%s: %s", about, got.Remark)
	require.Equal(t, want.Opaque, got.Opaque, about)
	require.Equal(t, want.Form, got.Form, about)
	require.Equal(t, want.Flag, got.Flag, about)
	if len(want.Ext)+len(got.Ext) > 0 {
		require.Equal(t, want.Ext, got.Ext, about)
	}
	// The second line of the Java remark is a link to Java's documentation; "not set any response code" beside success is an oversight there.
	line := func(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }
	if want.Remark != "not set any response code" {
		require.Equal(t, line(want.Remark), line(got.Remark), about)
	}
	switch pair.Request.Code {
	case protocol.ReqGetAllTopicListFromNameServer, protocol.ReqGetTopicsByCluster, protocol.ReqGetSystemTopicListFromNS:
		require.Equal(t, sortedTopics(t, want.Body), sortedTopics(t, got.Body), about) // Java's order is that of a hash table
	case protocol.ReqGetNamesrvConfig:
		a, err := conf.ParseProperties(want.Body)
		require.NoError(t, err)
		b, err := conf.ParseProperties(got.Body)
		require.NoError(t, err)
		for key := range a {
			require.Contains(t, b, key, about)
		}
	default:
		require.Equal(t, string(want.Body), string(got.Body), about)
	}
}

func sortedTopics(t *testing.T, body []byte) string {
	var l protocol.TopicList
	require.NoError(t, fastjson.Unmarshal(body, &l))
	slices.Sort(l.TopicList)
	b, err := json.Marshal(l)
	require.NoError(t, err)
	return string(b)
}

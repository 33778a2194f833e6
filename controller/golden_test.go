package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// TestGoldenRun plays what three Java brokers and mqadmin sent to a Java controller, and wants its answers: code, remark,
// fields and body. Heartbeats that the capture left out are sent after each registration.
func TestGoldenRun(t *testing.T) {
	told := newBrokers(t)
	g := newGroup(t, 1, func(_ int, o *Options) {
		o.Dial = told.dial(func(addr string) bool { return strings.HasPrefix(addr, "127.0.0.1:195") })
	})
	g.start(0)
	defer g.stop()
	_, c := g.leader()
	same := strings.NewReplacer("127.0.0.1:19502", c.Addr())

	conns := map[int]*wiretest.Peer{}
	scenario := ""
	drop := func(conn int, set string, id int64) {
		require.NoError(t, conns[conn].Conn.Close())
		require.Eventually(t, func() bool {
			e, ok := c.live.get(brokerKey{"GoldenCluster", set, id}, time.Now())
			return ok && e.state == closed
		}, 10*time.Second, time.Millisecond)
	}
	pairs := wiretest.Pairs(t, "testdata/controller-ha-json.jsonl", 904, 1001, 1002, 1003, 1004, 1005, 1006, 1008, 1009, 1010, 1011, 1012, 1013)
	require.Equal(t, 46, len(pairs))
	answered := 0
	for _, p := range pairs {
		if p.Request.Scenario != scenario {
			scenario = p.Request.Scenario
			switch scenario {
			case "kill9-n1":
				drop(152, "golden-ha", 1)
				require.Eventually(t, func() bool { return len(told.with("2")) == 3 }, 10*time.Second, time.Millisecond, "all replicas are told")
			case "clean-broker-data":
				drop(312, "golden-ha", 3)
			}
		}
		want := p.Request.Decode(t)
		if want.Code == protocol.ReqNotifyBrokerRoleChanged {
			require.Eventually(t, func() bool { return len(told.with(want.Ext["masterEpoch"])) > 0 }, 10*time.Second, time.Millisecond)
			got := told.with(want.Ext["masterEpoch"])[0]
			require.Equal(t, want.Ext, got.Ext)
			require.Equal(t, string(want.Body), string(got.Body))
			require.True(t, got.Flag&protocol.FlagOneway != 0)
			continue
		}
		conn := conns[p.Request.Conn]
		if conn == nil {
			conn = wiretest.Dial(t, c.Addr())
			conns[p.Request.Conn] = conn
		}
		conn.Write(p.Request.Bytes)
		if p.Answer == nil {
			continue
		}
		expect, got := p.Answer.Decode(t), conn.Read()
		where := scenario + " " + protocol.RequestName(want.Code)
		require.Equal(t, want.Opaque, got.Opaque, where)
		require.Equal(t, expect.Code, got.Code, where+" "+got.Remark)
		require.Equal(t, expect.Remark, got.Remark, where)
		answered++
		if want.Code == protocol.ReqGetControllerConfig {
			compareConfig(t, string(expect.Body), string(got.Body))
			continue
		}
		for k, v := range expect.Ext {
			expect.Ext[k] = same.Replace(v)
		}
		require.Equal(t, expect.Ext, got.Ext, where)
		require.Equal(t, same.Replace(string(expect.Body)), string(got.Body), where)
		if want.Code == protocol.ReqControllerRegisterBroker {
			beat := protocol.NewRequest(protocol.ReqBrokerHeartbeat, map[string]string{"brokerId": want.Ext["brokerId"], "clusterName": "GoldenCluster",
				"brokerName": "golden-ha", "brokerAddr": want.Ext["brokerAddress"], "epoch": "0", "maxOffset": "0", "heartbeatTimeoutMills": "60000"}, nil)
			beat.Flag |= protocol.FlagOneway
			conn.Send(beat)
			require.Equal(t, int32(0), conn.Call(protocol.ReqControllerGetMetadataInfo, nil, nil).Code, "the heartbeat was handled")
		}
	}
	require.Equal(t, 37, answered)
}

// compareConfig wants every key of the Java controller.
func compareConfig(t *testing.T, java, ours string) {
	keys := func(text string) map[string]string {
		m, err := conf.ParseProperties([]byte(text))
		require.NoError(t, err)
		return m
	}
	have := keys(ours)
	for k := range keys(java) {
		if k == "jraftConfig" { // the name of a Java object
			continue
		}
		require.Contains(t, have, k)
	}
}

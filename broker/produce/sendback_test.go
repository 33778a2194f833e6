package produce

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func backExt(off message.LogOffset, level string, changes ...string) map[string]string {
	m := map[string]string{"offset": fmt.Sprint(off), "group": "G", "delayLevel": level, "originMsgId": "x", "originTopic": "GoldenTopic", "unitMode": "false", "bname": "golden-a"}
	for i := 0; i < len(changes); i += 2 {
		m[changes[i]] = changes[i+1]
	}
	return m
}

// sent stores a message and returns its log offset.
func sent(w *world, p *wiretest.Peer, changes ...string) message.LogOffset {
	got := p.Call(protocol.ReqSendMessageV2, v2(changes...), []byte("body"))
	require.Equal(w.t, protocol.Success, got.Code, got.Remark)
	_, off, err := message.ParseID(got.Ext["msgId"])
	require.NoError(w.t, err)
	return off
}

func TestSendBack(t *testing.T) {
	w := newWorld(t)
	p := w.dial()
	off := sent(w, p)
	back := func(off message.LogOffset, level string, changes ...string) *message.Record {
		t.Helper()
		got := p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, level, changes...), nil)
		require.Equal(t, protocol.Success, got.Code, got.Remark)
		require.Empty(t, got.Ext)
		return w.last()
	}
	r := back(off, "0")
	require.Equal(t, topic.ScheduleTopic, string(r.Topic))
	require.EqualValues(t, 2, r.QueueID, "level 3 is the first step")
	require.EqualValues(t, 1, r.ReconsumeTimes)
	require.EqualValues(t, 7, r.Flag)
	require.EqualValues(t, 1796116261792, r.BornTime)
	require.Equal(t, p.Conn.LocalAddr().String(), r.BornHost.String())
	require.Equal(t, "body", string(r.Body))
	first := string(message.AppendID(nil, storeHost, off))
	require.Equal(t, map[string]string{"KEYS": "k1", "UNIQ_KEY": "U1", "TAGS": "TagA", "MSG_REGION": "DefaultRegion", "CLUSTER": "GoldenCluster", "TRACE_ON": "true",
		"RETRY_TOPIC": "GoldenTopic", "ORIGIN_MESSAGE_ID": first, "WAIT": "false", "DELAY": "3", "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0"},
		message.DecodeProperties(r.Properties))
	require.NotNil(t, w.topics.Lookup("%RETRY%G"))

	require.EqualValues(t, 0, back(off, "1").QueueID, "an explicit level")
	require.EqualValues(t, 17, back(off, "99").QueueID, "the highest there is")
	again := back(r.LogOffset, "0") // what a delivered copy would look like
	require.EqualValues(t, 2, again.ReconsumeTimes)
	require.EqualValues(t, 3, again.QueueID)
	require.Equal(t, first, message.DecodeProperties(again.Properties)["ORIGIN_MESSAGE_ID"])
	require.Equal(t, "GoldenTopic", message.DecodeProperties(again.Properties)["RETRY_TOPIC"])

	// CL-07: the last failure goes straight to the dead letters.
	dead := func(r *message.Record) {
		t.Helper()
		require.Equal(t, "%DLQ%G", string(r.Topic))
		require.Zero(t, r.QueueID)
		require.Equal(t, "0", message.DecodeProperties(r.Properties)["DELAY"])
	}
	dead(back(off, "-1"))
	dead(back(again.LogOffset, "2", "maxReconsumeTimes", "2"))
	g := w.groups.Lookup("G").Clone()
	g.RetryMaxTimes = 1
	require.NoError(t, w.groups.Update(g))
	dead(back(r.LogOffset, "2"))
	require.EqualValues(t, 1, w.topics.Lookup("%DLQ%G").ReadQueueNums)

	g = g.Clone()
	g.RetryQueueNums = 0
	require.NoError(t, w.groups.Update(g))
	n := w.count()
	require.Equal(t, protocol.Success, p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0"), nil).Code)
	require.Equal(t, n, w.count(), "no retry queue: nothing is stored")
}

// CL-11: an offset that is no message stores nothing.
func TestSendBackRefusals(t *testing.T) {
	w := newWorld(t)
	p := w.dial()
	off := sent(w, p)
	n := w.count()
	for _, bad := range []message.LogOffset{off + 1, off + 40, w.st.Log().End(), 99999999, -5} {
		got := p.Call(protocol.ReqConsumerSendMsgBack, backExt(bad, "0"), nil)
		require.Equal(t, protocol.SystemError, got.Code)
		require.Equal(t, fmt.Sprintf("look message by offset failed, %d", bad), got.Remark)
	}
	w.autoGroup.Store(false)
	require.Equal(t, protocol.SubscriptionGroupNotExist, p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0", "group", "unknown"), nil).Code)
	require.Equal(t, protocol.SystemError, p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0", "group", ""), nil).Code)
	require.Equal(t, protocol.SystemError, p.Call(protocol.ReqConsumerSendMsgBack, map[string]string{"group": "G"}, nil).Code)
	w.autoGroup.Store(true)
	retry := topic.NewConfig("%RETRY%G", 1)
	retry.Perm = topic.PermRead
	require.NoError(t, w.topics.Update(retry))
	require.Equal(t, protocol.NoPermission, p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0"), nil).Code)
	cfg := testConfig()
	cfg.BrokerPermission = topic.PermRead
	w.h.Apply(cfg)
	require.Equal(t, protocol.NoPermission, p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0"), nil).Code)
	require.Equal(t, n, w.count())
}

// CL-12: the largest message with large properties grows when it is sent back, and is stored all the same.
func TestSendBackOfLargest(t *testing.T) {
	w := newWorld(t)
	p := w.dial()
	got := p.Call(protocol.ReqSendMessageV2, v2("i", string(text("UNIQ_KEY=u;big="+strings.Repeat("p", 30<<10)))), make([]byte, 65536))
	require.Equal(t, protocol.Success, got.Code, got.Remark)
	_, off, err := message.ParseID(got.Ext["msgId"])
	require.NoError(t, err)
	got = p.Call(protocol.ReqConsumerSendMsgBack, backExt(off, "0"), nil)
	require.Equal(t, protocol.Success, got.Code, got.Remark)
	require.Len(t, w.last().Body, 65536)
}

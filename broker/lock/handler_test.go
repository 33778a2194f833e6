package lock

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T) *wiretest.Peer {
	h := NewHandler(NewTable(0), func(group string, q Queue) bool { return group != "unknown" && q.ID < 1000 })
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqLockBatchMQ, remoting.Inline, h.Lock)
	mux.Handle(protocol.ReqUnlockBatchMQ, remoting.Inline, h.Unlock)
	return wiretest.Dial(t, wiretest.Serve(t, mux))
}

func body(client string, ids ...string) []byte {
	var qs []string
	for _, id := range ids {
		qs = append(qs, `{"brokerName":"b","queueId":`+id+`,"topic":"T"}`)
	}
	return []byte(`{"clientId":"` + client + `","consumerGroup":"G","mqSet":[` + strings.Join(qs, ",") + `],"onlyThisBroker":false}`)
}

func TestHandler(t *testing.T) {
	p := serve(t)
	got := p.Call(protocol.ReqLockBatchMQ, nil, body("a", "0", "1"))
	require.Equal(t, protocol.Success, got.Code)
	require.JSONEq(t, `{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"},{"brokerName":"b","queueId":1,"topic":"T"}]}`, string(got.Body))
	got = p.Call(protocol.ReqLockBatchMQ, nil, body("b", "1", "2"))
	require.JSONEq(t, `{"lockOKMQSet":[{"brokerName":"b","queueId":2,"topic":"T"}]}`, string(got.Body))
	require.Equal(t, protocol.Success, p.Call(protocol.ReqUnlockBatchMQ, nil, body("a", "1")).Code)
	got = p.Call(protocol.ReqLockBatchMQ, nil, body("b", "0", "1"))
	require.JSONEq(t, `{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}`, string(got.Body))
	require.JSONEq(t, `{"lockOKMQSet":[]}`, string(p.Call(protocol.ReqLockBatchMQ, nil, body("b")).Body))
	require.JSONEq(t, `{"lockOKMQSet":[]}`, string(p.Call(protocol.ReqLockBatchMQ, nil, body("b", "1000")).Body), "no such queue")
	got = p.Call(protocol.ReqLockBatchMQ, nil, body("b", strings.Split(strings.Repeat("7,", 1000)+"7", ",")...))
	require.JSONEq(t, `{"lockOKMQSet":[{"brokerName":"b","queueId":7,"topic":"T"}]}`, string(got.Body), "named again and again")
	got = p.Call(protocol.ReqLockBatchMQ, nil, []byte(`{"clientId":"a","consumerGroup":"unknown","mqSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}`))
	require.JSONEq(t, `{"lockOKMQSet":[]}`, string(got.Body), "no such group")
	require.Equal(t, protocol.SystemError, p.Call(protocol.ReqLockBatchMQ, nil, body(strings.Repeat("c", 256), "1")).Code)
	for _, bad := range []string{"", "x", "{}", `{"clientId":"a"}`, `[]`, `{"clientId":"a","consumerGroup":"G","mqSet":5}`} {
		require.Equal(t, protocol.SystemError, p.Call(protocol.ReqLockBatchMQ, nil, []byte(bad)).Code, "%q", bad)
	}
}

func TestGoldenFrames(t *testing.T) {
	for _, file := range []string{"client-json", "client-rocketmq"} {
		p := serve(t)
		pairs := wiretest.Pairs(t, "testdata/"+file+".jsonl.gz", protocol.ReqLockBatchMQ, protocol.ReqUnlockBatchMQ)
		require.NotEmpty(t, pairs)
		for _, pair := range pairs {
			p.Write(pair.Request.Bytes)
			if pair.Answer == nil {
				continue
			}
			got, want := p.Read(), pair.Answer.Decode(t)
			require.Equal(t, want.Code, got.Code)
			require.Equal(t, want.Flag, got.Flag)
			require.Equal(t, want.Ext, got.Ext)
			if len(want.Body) == 0 {
				require.Empty(t, got.Body)
				continue
			}
			var g, x any
			require.NoError(t, json.Unmarshal(got.Body, &g))
			require.NoError(t, json.Unmarshal(want.Body, &x))
			require.Equal(t, x, g)
		}
	}
}

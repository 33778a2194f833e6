package client

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/client/internal/fakebroker"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// ask calls a callback as if a broker had sent the request.
func ask(t *testing.T, h remoting.Handler, code int32, ext map[string]string, body []byte) (*remoting.Response, error) {
	t.Helper()
	req, err := remoting.NewRequest(nil, protocol.NewRequest(code, ext, body))
	require.NoError(t, err)
	resp := &remoting.Response{}
	return resp, h(req, resp)
}

func TestCallbacks(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	fill(c, []string{"a"}, 1, 10)
	var got tally
	cl := newClient(t, c)
	newConsumer(t, cl, func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		if string(msgs[0].Body) == "bad" {
			return errors.New("cannot")
		}
		return nil
	})
	eventually(t, func() bool { return got.distinct() == 10 }, "consumed")
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 0) == 10 }, "committed")

	t.Run("unknown group", func(t *testing.T) {
		_, err := ask(t, cl.runningInfo, protocol.ReqGetConsumerRunningInfo, map[string]string{"consumerGroup": "other"}, nil)
		var e *protocol.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, int32(protocol.SystemError), e.Code)
	})
	t.Run("running info", func(t *testing.T) {
		resp, err := ask(t, cl.runningInfo, protocol.ReqGetConsumerRunningInfo, map[string]string{"consumerGroup": "cg"}, nil)
		require.NoError(t, err)
		var info runningInfo
		require.NoError(t, fastjson.Unmarshal(resp.Body.Bytes, &info))
		assert.Len(t, info.SubscriptionSet, 2)
		assert.Equal(t, "CONSUME_PASSIVELY", info.Properties["PROP_CONSUME_TYPE"])
		offsets := map[string]int64{}
		for _, e := range info.MQTable {
			offsets[e.Queue.Topic] = e.Value.CommitOffset
		}
		assert.Equal(t, int64(10), offsets["T"])
	})
	t.Run("consumer status", func(t *testing.T) {
		resp, err := ask(t, cl.consumerStatus, protocol.ReqGetConsumerStatusFromClient, map[string]string{"group": "cg", "topic": "T"}, nil)
		require.NoError(t, err)
		assert.Equal(t, `{"consumerTable":{},"messageQueueTable":{{"brokerName":"a","queueId":0,"topic":"T"}:10}}`, string(resp.Body.Bytes))
	})
	t.Run("reset offsets", func(t *testing.T) {
		body, err := fastjson.Marshal(&protocol.ResetOffsetBody{OffsetTable: protocol.QueueTable[int64]{
			{Queue: protocol.MessageQueue{BrokerName: "a", Topic: "T"}, Value: 7}}})
		require.NoError(t, err)
		_, err = ask(t, cl.resetOffsets, protocol.ReqResetConsumerClientOffset, map[string]string{"group": "cg", "topic": "T"}, body)
		require.NoError(t, err)
		eventually(t, func() bool { return got.times("a-0-7") == 2 && got.times("a-0-9") == 2 }, "read again")
		assert.Equal(t, 1, got.times("a-0-6"))
		_, err = ask(t, cl.resetOffsets, protocol.ReqResetConsumerClientOffset, map[string]string{"group": "cg"}, []byte("{"))
		require.Error(t, err)
	})
	t.Run("consume directly", func(t *testing.T) {
		for body, want := range map[string]string{"good": "CR_SUCCESS", "bad": "CR_LATER"} {
			raw, err := message.AppendRecord(nil, &message.Message{Topic: []byte("T"), Body: []byte(body), BornHost: addr, StoreHost: addr})
			require.NoError(t, err)
			resp, err := ask(t, cl.consumeDirectly, protocol.ReqConsumeMessageDirectly, map[string]string{"consumerGroup": "cg", "brokerName": "a"}, raw)
			require.NoError(t, err)
			var out directResult
			require.NoError(t, fastjson.Unmarshal(resp.Body.Bytes, &out))
			assert.Equal(t, want, out.ConsumeResult)
		}
		_, err := ask(t, cl.consumeDirectly, protocol.ReqConsumeMessageDirectly, map[string]string{"consumerGroup": "cg"}, []byte("garbage"))
		require.Error(t, err)
	})
	t.Run("members changed", func(t *testing.T) {
		_, err := ask(t, cl.membersChanged, protocol.ReqNotifyConsumerIDsChanged, map[string]string{"consumerGroup": "cg"}, nil)
		require.NoError(t, err)
		_, err = ask(t, cl.membersChanged, protocol.ReqNotifyConsumerIDsChanged, map[string]string{"consumerGroup": "other"}, nil)
		require.NoError(t, err)
	})
}

func TestCredentialsSeeEveryRequest(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	seen := make(chan int32, 1000)
	cl := newClient(t, c, func(cfg *Config) {
		cfg.BinaryHeaders = true
		cfg.Credentials = func(_ string, cmd *protocol.Command) {
			seen <- cmd.Code
			if cmd.Fields != nil {
				cmd.Fields.Add("AccessKey", "me")
			} else {
				cmd.Set("AccessKey", "me")
			}
		}
	})
	c.Broker("a").Fail(func(code int32, req *remoting.Request) fakebroker.Fault {
		if key, _ := req.Get("AccessKey"); string(key) != "me" {
			t.Errorf("request %d without credentials", code)
		}
		return nil
	})
	p := newProducer(t, cl)
	_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	var got tally
	newConsumer(t, cl, func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	eventually(t, func() bool { return got.times("x") == 1 }, "consumed")
	codes := map[int32]bool{}
	for len(seen) > 0 {
		codes[<-seen] = true
	}
	for _, code := range []int32{protocol.ReqGetRouteInfoByTopic, protocol.ReqSendMessageV2, protocol.ReqHeartBeat, protocol.ReqPullMessage} {
		assert.True(t, codes[code], code)
	}
}

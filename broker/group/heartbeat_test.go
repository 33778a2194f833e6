package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/fastjson"
)

func TestHeartbeatSpellings(t *testing.T) {
	for text, want := range map[string]string{`"CONSUME_PASSIVELY"`: ConsumePassively, `"PUSH"`: ConsumePassively, `"PULL"`: ConsumeActively, `"POP"`: ConsumePop,
		`1`: ConsumePassively, `0`: ConsumeActively, `null`: ""} {
		var e consumerEntry
		require.NoError(t, fastjson.Unmarshal([]byte(`{"consumeType":`+text+`}`), &e), text)
		require.Equal(t, want, string(e.Type), text)
	}
	for _, text := range []string{`"SIDEWAYS"`, `9`, `[]`, `-1`} {
		var e consumerEntry
		require.Error(t, fastjson.Unmarshal([]byte(`{"consumeType":`+text+`}`), &e), text)
	}
}

func TestSubscriptionIsCompleted(t *testing.T) {
	e := subscriptionEntry{Topic: "T", Expression: " TagA || TagB ||"}
	s := e.subscription()
	require.Equal(t, []string{"TagA", "TagB"}, s.Tags)
	require.Equal(t, []int32{2598919, 2598920}, s.Codes)
	require.Equal(t, ExpressionTag, s.Type)
	all := subscriptionEntry{Topic: "T", Expression: "*"}
	require.Empty(t, all.subscription().Codes)
}

func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(`{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",
		"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA || 标签","subVersion":"5","tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],
		"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"P"}],"withoutSub":false}`))
	f.Add([]byte(`{"clientID":1,"consumerDataSet":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var hb heartbeat
		if fastjson.Unmarshal(data, &hb) != nil {
			return
		}
		for i := range hb.Consumers {
			for j := range hb.Consumers[i].Subs {
				s := hb.Consumers[i].Subs[j].subscription()
				require.LessOrEqual(t, len(s.Tags), len(data))
			}
		}
	})
}

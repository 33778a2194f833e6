package broker_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// pair is a request to a Java broker and its answer.
type pair struct {
	Scenario        string
	Code            int32
	Request, Answer string
}

func (p *pair) decode(t *testing.T) (request, answer *protocol.Command) {
	t.Helper()
	one := func(text string) *protocol.Command {
		raw, err := hex.DecodeString(text)
		require.NoError(t, err)
		c, err := protocol.DecodeCommand(raw[4:])
		require.NoError(t, err)
		return c
	}
	return one(p.Request), one(p.Answer)
}

// different lists answers that are not compared, and why.
var different = map[string]string{
	"46 err-check-client-config": "SQL92 is not part of this version",
	"46 sql92-consumer":          "SQL92 is not part of this version",
	"14 push-consumer":           "depends on what was stored",
	"14 heartbeat-v2":            "depends on what was stored",
	"14 orderly-consumer":        "depends on what was stored",
	"354 mqadmin checkRocksdbCqWriteProgress -n 127.0.0.1:19700 -c Go": "the Java broker asked had a check in progress; here there is nothing to check",
	"353 broker-admin": "the remark is an empty text there and none here: clients see no difference",
}

// TestAnswersOfTheJavaBroker sends what was sent to a Java broker in about the same state and compares code, remark, names
// of header fields, and the shape of the body.
func TestAnswersOfTheJavaBroker(t *testing.T) {
	w := start(t, t.TempDir(), "brokerName", "golden-a", "brokerClusterName", "GoldenCluster", "traceTopicEnable", "true")
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqGetConsumerStatusFromClient, remoting.Inline, func(_ *remoting.Request, resp *remoting.Response) error {
		resp.Body.Bytes = []byte(`{"messageQueueTable":{{"brokerName":"golden-a","queueId":0,"topic":"GoldenTopic"}:1}}`)
		return nil
	})
	consumer := remoting.NewClient(remoting.ClientConfig{}, mux, nil)
	defer consumer.Close()
	file, err := os.Open("testdata/java-answers.jsonl")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	ready := false
	for lines.Scan() {
		var p pair
		require.NoError(t, json.Unmarshal(lines.Bytes(), &p))
		request, want := p.decode(t)
		if !ready && p.Code != protocol.ReqUpdateAndCreateTopic && p.Code != protocol.ReqUpdateAndCreateSubscriptionGroup {
			ready = true
			prepare(t, w, consumer)
		}
		name := strconv.Itoa(int(p.Code)) + " " + p.Scenario
		t.Run(name, func(t *testing.T) {
			if why := different[name]; why != "" {
				t.Skip(why)
			}
			from := w.client
			if p.Code == protocol.ReqHeartBeat || p.Code == protocol.ReqUnregisterClient {
				from = remoting.NewClient(remoting.ClientConfig{}, nil, nil)
				defer from.Close()
			}
			got, err := from.Call(context.Background(), w.addr, request)
			require.NoError(t, err)
			require.Equal(t, want.Code, got.Code, got.Remark)
			if remark := strings.TrimSuffix(want.Remark, "not set any response code"); want.Code != 0 || remark != "" {
				remark, _, java := strings.Cut(strings.TrimPrefix(remark, "java.lang.RuntimeException: "), ", org.apache")
				require.Equal(t, remark, got.Remark, "java=%v", java)
			}
			require.Equal(t, slices.Sorted(maps.Keys(want.Ext)), slices.Sorted(maps.Keys(got.Ext)))
			if p.Code == protocol.ReqGetBrokerConfig {
				return // lines, compared by TestEveryKeyOfTheJavaBrokerIsKnown
			}
			require.Equal(t, shapeOf(t, want.Body), shapeOf(t, got.Body))
		})
	}
	require.NoError(t, lines.Err())
}

// prepare brings the broker into the state of the captured one: messages, a consumer, offsets.
func prepare(t *testing.T, w *world, consumer *remoting.Client) {
	for q := range 4 {
		for range 3 {
			w.send("GoldenTopic", strconv.Itoa(q), "hello")
		}
		w.ok(protocol.ReqUpdateConsumerOffset, "", "consumerGroup", "GoldenCG", "topic", "GoldenTopic", "queueId", strconv.Itoa(q), "commitOffset", "2")
	}
	w.send("GoldenAuto", "0", "hello")
	w.createGroup("GoldenPopOrdCG")
	a, err := consumer.Call(context.Background(), w.addr, protocol.NewRequest(protocol.ReqHeartBeat, nil, []byte(
		`{"clientID":"192.0.2.2@GoldenCG@c","consumerDataSet":[{"groupName":"GoldenCG","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",
		"subscriptionDataSet":[{"topic":"GoldenTopic","subString":"TagA || Zip","tagsSet":["TagA","Zip"],"codeSet":[1,2],"subVersion":1,"expressionType":"TAG"}]}],"producerDataSet":[{"groupName":"GoldenPG"}]}`)))
	require.NoError(t, err)
	require.True(t, a.Success())
}

// tables are the fields whose keys are names of things, not of fields.
var tables = map[string]bool{"topicConfigTable": true, "subscriptionGroupTable": true, "forbiddenTable": true, "offsetTable": true, "groupTopicMap": true,
	"subscriptionTable": true, "data": true, "consumerTable": true, "messageQueueTable": true, "consumeStatsList": true, "correctionOffsets": true, "table": true,
	"attributes": true, "filterData": true}

// shapeOf is every path to a field of a body.
func shapeOf(t *testing.T, body []byte) []string {
	t.Helper()
	if len(body) == 0 {
		return nil
	}
	n, err := fastjson.Parse(body)
	require.NoError(t, err, "%s", body)
	set := map[string]bool{}
	var walk func(path string, n *fastjson.Node, table bool)
	walk = func(path string, n *fastjson.Node, table bool) {
		set[path] = true
		for _, item := range n.Items {
			walk(path+"[]", item, table)
		}
		for _, m := range n.Members {
			if table || m.Key.Kind != fastjson.String {
				walk(path+".*", m.Value, false)
				if m.Key.Kind == fastjson.Object {
					walk(path+".key", m.Key, false)
				}
				continue
			}
			walk(path+"."+m.Key.Text, m.Value, tables[m.Key.Text])
		}
	}
	walk("", n, false)
	return slices.Sorted(maps.Keys(set))
}

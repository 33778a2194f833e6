package broker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker in this process and a client of it.
type world struct {
	t      testing.TB
	dir    string
	b      *broker.Broker
	client *remoting.Client
	addr   string
}

func settings(t testing.TB, dir string, more ...string) map[string]string {
	t.Helper()
	m := map[string]string{"storePathRootDir": dir, "brokerName": "broker-a", "brokerClusterName": "C", "brokerIP1": "127.0.0.1", "listenPort": "0",
		"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "500", "maxIndexNum": "2000",
		"bindAddress": "127.0.0.1"}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func start(t testing.TB, dir string, more ...string) *world {
	t.Helper()
	set, err := broker.NewSettings(nil)
	require.NoError(t, err)
	for k, v := range settings(t, dir, more...) {
		require.True(t, set.Put(k, v), k)
	}
	b, err := broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w := &world{t: t, dir: dir, b: b, client: remoting.NewClient(remoting.ClientConfig{}, nil, nil)}
	require.NoError(t, b.Start(context.Background()))
	w.addr = b.Addresses().Advertised
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	w.client.Close()
	require.NoError(w.t, w.b.Close())
}

func (w *world) call(code int32, body string, ext ...string) *protocol.Command {
	w.t.Helper()
	m := map[string]string{}
	for i := 0; i+1 < len(ext); i += 2 {
		m[ext[i]] = ext[i+1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	answer, err := w.client.Call(ctx, w.addr, protocol.NewRequest(code, m, []byte(body)))
	require.NoError(w.t, err)
	return answer
}

func (w *world) ok(code int32, body string, ext ...string) *protocol.Command {
	w.t.Helper()
	answer := w.call(code, body, ext...)
	require.Equal(w.t, protocol.Success, answer.Code, answer.Remark)
	return answer
}

// send stores one message and waits until its queue shows it: an acknowledged message reaches the queue a moment later.
func (w *world) send(topic, queue, body string) *protocol.Command {
	w.t.Helper()
	a := w.ok(protocol.ReqSendMessageV2, body, "a", "PG", "b", topic, "c", "TBW102", "d", "4", "e", queue, "f", "0",
		"g", "1700000000000", "h", "0", "i", "TAGS\x01TagA\x02KEYS\x01k1\x02UNIQ_KEY\x01"+strings.Repeat("A", 32)+"\x02", "j", "0", "k", "false", "m", "false")
	at, err := strconv.ParseInt(a.Ext["queueOffset"], 10, 64)
	require.NoError(w.t, err)
	w.until(topic, a.Ext["queueId"], at+1)
	return a
}

// until waits until a queue holds what lies before offset.
func (w *world) until(topic, queue string, offset int64) {
	w.t.Helper()
	for give := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		a := w.ok(protocol.ReqGetMaxOffset, "", "topic", topic, "queueId", queue)
		n, err := strconv.ParseInt(a.Ext["offset"], 10, 64)
		require.NoError(w.t, err)
		if n >= offset {
			return
		}
		require.True(w.t, time.Now().Before(give), "%s/%s holds %d messages, not %d", topic, queue, n, offset)
	}
}

func (w *world) createTopic(name, queues string) {
	w.t.Helper()
	w.ok(protocol.ReqUpdateAndCreateTopic, "", "topic", name, "defaultTopic", "TBW102", "readQueueNums", queues, "writeQueueNums", queues,
		"perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false", "attributes", "")
}

func (w *world) createGroup(name string) {
	w.t.Helper()
	w.ok(protocol.ReqUpdateAndCreateSubscriptionGroup, `{"groupName":"`+name+`"}`)
}

func (w *world) offset(g, topic, queue string) (string, *protocol.Command) {
	w.t.Helper()
	a := w.call(protocol.ReqQueryConsumerOffset, "", "consumerGroup", g, "topic", topic, "queueId", queue)
	return a.Ext["offset"], a
}

func TestProduceAndPull(t *testing.T) {
	w := start(t, t.TempDir())
	a := w.send("orders", "1", "hello")
	require.Equal(t, "0", a.Ext["queueOffset"])
	a = w.send("orders", "1", "world")
	require.Equal(t, "1", a.Ext["queueOffset"])
	require.NoError(t, w.b.Store().Dispatched().Wait(context.Background(), int64(w.b.Store().Log().End()))) // readers see it a moment after the answer
	pulled := w.ok(protocol.ReqPullMessage, "", "consumerGroup", "G", "topic", "orders", "queueId", "1", "queueOffset", "0", "maxMsgNums", "32",
		"sysFlag", "6", "commitOffset", "0", "suspendTimeoutMillis", "5000", "subscription", "*", "subVersion", "0", "expressionType", "TAG")
	require.Equal(t, "2", pulled.Ext["nextBeginOffset"])
	var r message.Record
	require.NoError(t, message.Parse(pulled.Body, &r))
	require.Equal(t, "hello", string(r.Body))

	view := w.ok(protocol.ReqViewMessageByID, "", "offset", "0", "topic", "orders")
	require.NoError(t, message.Parse(view.Body, &r))
	stats := w.ok(protocol.ReqGetTopicStatsInfo, "", "topic", "orders")
	require.Contains(t, string(stats.Body), `{"brokerName":"broker-a","queueId":1,"topic":"orders"}:{"lastUpdateTimestamp":`)
	require.Contains(t, string(stats.Body), `"maxOffset":2,"minOffset":0}`)
}

// Names that nothing can have are refused wherever a request would keep them.
func TestNamesThatNothingHas(t *testing.T) {
	w := start(t, t.TempDir())
	w.createTopic("orders", "4")
	w.createGroup("G")
	for _, name := range []string{"..", "../../x", "a/b", "a\\b", "x\x00y", "a\nb", strings.Repeat("L", 300), "%RETRY%", "%DLQ%"} {
		require.NotEqual(t, protocol.Success, w.call(protocol.ReqUpdateAndCreateTopic, "", "topic", name, "readQueueNums", "1", "writeQueueNums", "1", "perm", "6").Code, "create %q", name)
		require.NotEqual(t, protocol.Success, w.call(protocol.ReqSendMessageV2, "x", "a", "P", "b", name, "c", "TBW102", "d", "1", "e", "0", "f", "0", "g", "1", "h", "0").Code, "send %q", name)
		require.NotEqual(t, protocol.Success, w.call(protocol.ReqUpdateAndGetGroupForbidden, "", "group", "G", "topic", name, "readable", "false").Code, "forbid %q", name)
		if name[0] == '%' { // a group may be called so
			continue
		}
		require.NotEqual(t, protocol.Success, w.call(protocol.ReqUpdateAndGetGroupForbidden, "", "group", name, "topic", "orders", "readable", "false").Code, "forbid group %q", name)
		require.NotEqual(t, protocol.Success, w.call(protocol.ReqCloneGroupOffset, "", "srcGroup", "G", "destGroup", name, "offline", "true").Code, "clone to %q", name)
	}
}

func TestOffsetsSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	w := start(t, dir)
	w.createTopic("orders", "4")
	w.createGroup("G")
	_, a := w.offset("G", "orders", "0")
	require.Equal(t, protocol.QueryNotFound, a.Code)
	w.ok(protocol.ReqUpdateConsumerOffset, "", "consumerGroup", "G", "topic", "orders", "queueId", "0", "commitOffset", "17")
	off, _ := w.offset("G", "orders", "0")
	require.Equal(t, "17", off)
	for name, c := range map[string]struct {
		code int32
		ext  []string
	}{
		"group": {protocol.SubscriptionGroupNotExist, []string{"consumerGroup", "H", "topic", "orders", "queueId", "0", "commitOffset", "1"}},
		"topic": {protocol.TopicNotExist, []string{"consumerGroup", "G", "topic", "none", "queueId", "0", "commitOffset", "1"}},
		"queue": {protocol.InvalidParameter, []string{"consumerGroup", "G", "topic", "orders", "commitOffset", "1"}},
		"value": {protocol.InvalidParameter, []string{"consumerGroup", "G", "topic", "orders", "queueId", "0"}},
		"below": {protocol.InvalidParameter, []string{"consumerGroup", "G", "topic", "orders", "queueId", "-1", "commitOffset", "1"}},
		"above": {protocol.InvalidParameter, []string{"consumerGroup", "G", "topic", "orders", "queueId", "4", "commitOffset", "1"}},
	} {
		require.Equal(t, c.code, w.call(protocol.ReqUpdateConsumerOffset, "", c.ext...).Code, name)
	}
	// A one-way commit and a query right behind it on the same connection.
	require.NoError(t, w.client.Oneway(context.Background(), w.addr, protocol.NewRequest(protocol.ReqUpdateConsumerOffset,
		map[string]string{"consumerGroup": "G", "topic": "orders", "queueId": "0", "commitOffset": "18"}, nil)))
	off, _ = w.offset("G", "orders", "0")
	require.Equal(t, "18", off)
	_, err := os.Stat(dir + "/config/consumerOffset.json")
	require.Error(t, err, "only the journal has it")

	// What a killed broker leaves behind.
	killed := t.TempDir()
	require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))
	w2 := start(t, killed)
	off, _ = w2.offset("G", "orders", "0")
	require.Equal(t, "18", off)
	w2.ok(protocol.ReqDeleteTopicInBroker, "", "topic", "orders")
	w2.createTopic("orders", "4")
	_, a = w2.offset("G", "orders", "0")
	require.Equal(t, protocol.QueryNotFound, a.Code, "nothing is left of the old topic")
}

func TestHeartbeatsAndLists(t *testing.T) {
	w := start(t, t.TempDir())
	hb := w.ok(protocol.ReqHeartBeat, `{"clientID":"c1","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",
		"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"topic":"orders","subString":"A || B","subVersion":"5"}]}],"producerDataSet":[{"groupName":"PG"}]}`)
	require.Equal(t, map[string]string{"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}, hb.Ext)
	require.Equal(t, `{"consumerIdList":["c1"]}`, string(w.ok(protocol.ReqGetConsumerListByGroup, "", "consumerGroup", "G").Body))
	conn := string(w.ok(protocol.ReqGetConsumerConnectionList, "", "consumerGroup", "G").Body)
	require.Contains(t, conn, `"codeSet":[65,66],"expressionType":"TAG","subString":"A || B","subVersion":5,"tagsSet":["A","B"],"topic":"orders"`)
	require.Contains(t, conn, `"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING"`)
	require.Contains(t, string(w.ok(protocol.ReqGetProducerConnectionList, "", "producerGroup", "PG").Body), `"clientId":"c1"`)
	require.Contains(t, string(w.ok(protocol.ReqGetTopicConfig, "", "topic", "%RETRY%G").Body), `"writeQueueNums":1`)
	require.Equal(t, protocol.InvalidParameter, w.call(protocol.ReqHeartBeat, `{"clientID":"c1","consumerDataSet":[{"groupName":"G","consumeType":"SIDEWAYS"}]}`).Code)
	require.Equal(t, protocol.SystemError, w.call(protocol.ReqHeartBeat, `{{{`).Code)
	for _, body := range []string{`{"clientID":"c1"}`, `{"clientID":"c1","consumerDataSet":[{"groupName":"G2","consumeType":"PUSH","subscriptionDataSet":null,"unknown":1}]}`} {
		w.ok(protocol.ReqHeartBeat, body)
	}
	w.ok(protocol.ReqUnregisterClient, "", "clientID", "c1", "consumerGroup", "G", "producerGroup", "PG")
	w.ok(protocol.ReqUnregisterClient, "", "clientID", "c1", "consumerGroup", "G", "producerGroup", "PG")
	w.ok(protocol.ReqUnregisterClient, "", "clientID", "c1")
	a := w.call(protocol.ReqGetConsumerListByGroup, "", "consumerGroup", "G")
	require.Equal(t, "no consumer for this group, G", a.Remark)
	a = w.call(protocol.ReqGetConsumerConnectionList, "", "consumerGroup", "G")
	require.Equal(t, []any{protocol.ConsumerNotOnline, "the consumer group[G] not online"}, []any{a.Code, a.Remark})
}

func TestClosedConnectionLeavesItsGroups(t *testing.T) {
	w := start(t, t.TempDir())
	told := make(chan string, 16)
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqNotifyConsumerIDsChanged, remoting.Inline, func(req *remoting.Request, _ *remoting.Response) error {
		told <- req.String("consumerGroup")
		return nil
	})
	stays := remoting.NewClient(remoting.ClientConfig{}, mux, nil)
	defer stays.Close()
	body := `{"clientID":"%","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}`
	_, err := stays.Call(context.Background(), w.addr, protocol.NewRequest(protocol.ReqHeartBeat, nil, []byte(strings.Replace(body, "%", "c1", 1))))
	require.NoError(t, err)
	require.Equal(t, "G", <-told)
	w.ok(protocol.ReqHeartBeat, strings.Replace(body, "%", "c2", 1))
	require.Equal(t, "G", <-told)
	w.client.CloseAddr(w.addr)
	require.Equal(t, "G", <-told, "the other one has gone")
	require.Equal(t, `{"consumerIdList":["c1"]}`, string(w.ok(protocol.ReqGetConsumerListByGroup, "", "consumerGroup", "G").Body))
}

func TestResetOnTheServer(t *testing.T) {
	w := start(t, t.TempDir())
	for range 5 {
		w.send("orders", "0", "x")
	}
	w.createGroup("G")
	w.ok(protocol.ReqUpdateConsumerOffset, "", "consumerGroup", "G", "topic", "orders", "queueId", "0", "commitOffset", "5")
	reset := func(ext ...string) *protocol.Command {
		return w.call(protocol.ReqInvokeBrokerToResetOffset, "", append([]string{"topic", "orders", "group", "G", "isForce", "true"}, ext...)...)
	}
	a := reset("timestamp", "0", "queueId", "0", "offset", "2")
	require.Equal(t, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:2}}`, string(a.Body))
	off, _ := w.offset("G", "orders", "0")
	require.Equal(t, "2", off)
	a = w.call(protocol.ReqUpdateConsumerOffset, "", "consumerGroup", "G", "topic", "orders", "queueId", "0", "commitOffset", "5")
	require.Equal(t, "Offset has been previously reset", a.Remark)
	a = reset("timestamp", "0", "queueId", "0", "offset", "99")
	require.Equal(t, "Target offset 99 not in consume queue range [0-5]", a.Remark)
	a = reset("timestamp", "-1")
	require.Contains(t, string(a.Body), `"queueId":0,"topic":"orders"}:5`)
	a = w.call(protocol.ReqInvokeBrokerToResetOffset, "", "topic", "orders", "group", "NoG", "timestamp", "0", "isForce", "true")
	require.Equal(t, []any{protocol.SubscriptionGroupNotExist, "Group NoG does not exist"}, []any{a.Code, a.Remark})
	a = w.call(protocol.ReqInvokeBrokerToResetOffset, "", "topic", "no", "group", "G", "timestamp", "0", "isForce", "true")
	require.Equal(t, []any{protocol.TopicNotExist, "Topic no does not exist"}, []any{a.Code, a.Remark})
}

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/broker.conf"
	require.NoError(t, os.WriteFile(file, []byte("# mine\nbrokerName=broker-a\n\ndefaultQueryMaxNum=32\n"), 0o644))
	set, err := broker.NewSettings(nil)
	require.NoError(t, err)
	require.NoError(t, set.Load(file))
	for k, v := range settings(t, dir) {
		set.Put(k, v)
	}
	b, err := broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w := &world{t: t, b: b, client: remoting.NewClient(remoting.ClientConfig{}, nil, nil)}
	require.NoError(t, b.Start(context.Background()))
	t.Cleanup(w.close)
	w.addr = b.Addresses().Advertised

	a := w.ok(protocol.ReqGetBrokerConfig, "")
	require.Contains(t, a.Ext["version"], `{"counter":0,"stateVersion":0,"timestamp":`)
	require.Contains(t, string(a.Body), "\ndefaultQueryMaxNum=32\n")
	w.ok(protocol.ReqUpdateBrokerConfig, "defaultQueryMaxNum=16\nnoSuchKey=1\nautoCreateTopicEnable=false\n")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "# mine\nbrokerName=broker-a\n\ndefaultQueryMaxNum=16\n")
	require.NotContains(t, string(text), "flushDiskType")
	require.Contains(t, string(w.ok(protocol.ReqGetBrokerConfig, "").Body), "\ndefaultQueryMaxNum=16\n")
	no := w.call(protocol.ReqSendMessageV2, "x", "a", "PG", "b", "other", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1", "h", "0", "i", "", "j", "0")
	require.Equal(t, protocol.TopicNotExist, no.Code, "it acts at once")

	for _, body := range []string{"rocketmqHome=/tmp/evil; touch /tmp/x\nfilterServerNums=1\n", "brokerConfigPath=x", "configBlackList=\ntraceOn=false",
		"storePathRootDir=/tmp/evil", "StorePathCommitLog=/tmp/evil", "readOnlyCommitLogStorePaths=/etc"} {
		a = w.call(protocol.ReqUpdateBrokerConfig, body)
		require.Equal(t, []any{protocol.NoPermission, "Can not update config in black list."}, []any{a.Code, a.Remark})
	}
	require.Contains(t, string(w.ok(protocol.ReqGetBrokerConfig, "").Body), "\ntraceOn=true\n")
	for _, body := range []string{"brokerPermission=99", "messageDelayLevel=5x", "defaultTopicQueueNums=many",
		"waitTimeMillsInSendQueue=-1", "osPageCacheBusyTimeOutMills=-9223372036854775808"} {
		require.Equal(t, protocol.InvalidParameter, w.call(protocol.ReqUpdateBrokerConfig, body).Code, body)
	}
	w.ok(protocol.ReqUpdateBrokerConfig, "")
	w.ok(protocol.ReqUpdateBrokerConfig, "messageDelayLevel=1s  2s 3s 1m 2h 1d")
	require.Contains(t, string(w.ok(protocol.ReqGetBrokerConfig, "").Body), "\nmessageDelayLevel=1s  2s 3s 1m 2h 1d\n")
	again, err := broker.NewSettings(nil)
	require.NoError(t, err)
	require.NoError(t, again.Load(file))
	var levels store.Config
	again.Value(&levels)
	require.Equal(t, "1s  2s 3s 1m 2h 1d", levels.MessageDelayLevel)
}

func TestGroupsAndTheirRetryTopics(t *testing.T) {
	w := start(t, t.TempDir())
	w.createGroup("G")
	w.ok(protocol.ReqGetTopicConfig, "", "topic", "%RETRY%G")
	w.ok(protocol.ReqUpdateConsumerOffset, "", "consumerGroup", "G", "topic", "%RETRY%G", "queueId", "0", "commitOffset", "0")
	w.ok(protocol.ReqDeleteSubscriptionGroup, "", "groupName", "G", "cleanOffset", "true")
	require.Equal(t, protocol.TopicNotExist, w.call(protocol.ReqGetTopicConfig, "", "topic", "%RETRY%G").Code)
	require.Equal(t, `{"groupList":[]}`, string(w.ok(protocol.ReqQueryTopicConsumeByWho, "", "topic", "%RETRY%G").Body))
	w.ok(protocol.ReqDeleteSubscriptionGroup, "", "groupName", "G")
	require.Equal(t, protocol.SystemError, w.call(protocol.ReqUpdateAndCreateSubscriptionGroup, "not json").Code)
	require.Equal(t, protocol.InvalidParameter, w.call(protocol.ReqUpdateAndCreateSubscriptionGroup, `{"groupName":""}`).Code)
}

func TestPages(t *testing.T) {
	w := start(t, t.TempDir())
	for _, name := range []string{"a1", "a2", "a3"} {
		w.createTopic(name, "1")
	}
	all := w.ok(protocol.ReqGetAllTopicConfig, "")
	require.Empty(t, all.Ext)
	part := w.ok(protocol.ReqGetAllTopicConfig, "", "topicSeq", "0", "maxTopicNum", "2")
	require.NotEmpty(t, part.Ext["totalTopicNum"])
	require.Equal(t, 2, strings.Count(string(part.Body), "topicName"))
	rest := w.ok(protocol.ReqGetAllTopicConfig, "", "topicSeq", "2", "maxTopicNum", "2000")
	require.Equal(t, strings.Count(string(all.Body), "topicName"), 2+strings.Count(string(rest.Body), "topicName"))
	require.Equal(t, 2, strings.Count(string(w.ok(protocol.ReqGetAllSubscriptionGroupConfig, "", "groupSeq", "0", "maxGroupNum", "2").Body), "groupName"))
}

func TestRuntimeInfo(t *testing.T) {
	w := start(t, t.TempDir())
	w.send("orders", "0", "x")
	var body struct{ Table map[string]string }
	require.NoError(t, json.Unmarshal(w.ok(protocol.ReqGetBrokerRuntimeInfo, "").Body, &body))
	golden, err := os.ReadFile("testdata/java-runtime-keys.txt")
	require.NoError(t, err)
	for _, key := range strings.Fields(string(golden)) {
		require.Contains(t, body.Table, key)
	}
	require.Equal(t, "1", body.Table["putMessageTimesTotal"])
	require.Equal(t, "V5_3_3", body.Table["brokerVersionDesc"])
}

func TestEveryKeyOfTheJavaBrokerIsKnown(t *testing.T) {
	golden, err := os.ReadFile("testdata/java-config-keys.txt")
	require.NoError(t, err)
	set, err := broker.NewSettings(nil)
	require.NoError(t, err)
	known := map[string]bool{}
	for _, k := range set.Keys() {
		known[k.Name] = true
		require.True(t, k.Effect == "honoured" || strings.HasPrefix(k.Effect, "honoured by") || strings.HasPrefix(k.Effect, "none: "), "%s: %s", k.Name, k.Effect)
	}
	for _, key := range strings.Fields(string(golden)) {
		require.True(t, known[key], key)
	}
}

func TestRefusedRoles(t *testing.T) {
	for _, kv := range [][2]string{{"brokerRole", "SLAVE"}, {"enableControllerMode", "true"}, {"enableDLegerCommitLog", "true"}, {"inSyncReplicas", "2"}} {
		set, err := broker.NewSettings(nil)
		require.NoError(t, err)
		for k, v := range settings(t, t.TempDir(), kv[0], kv[1]) {
			set.Put(k, v)
		}
		_, err = broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
		var no *store.UnsupportedError
		require.ErrorAs(t, err, &no, kv[0])
		require.Contains(t, no.What, kv[0])
	}
}

func TestSystemTopicsAndBadNames(t *testing.T) {
	w := start(t, t.TempDir())
	create := func(name string) *protocol.Command {
		return w.call(protocol.ReqUpdateAndCreateTopic, "", "topic", name, "defaultTopic", "TBW102", "readQueueNums", "1", "writeQueueNums", "1",
			"perm", "6", "topicFilterType", "SINGLE_TAG")
	}
	for _, name := range []string{"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
		"SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_C", "C", "broker-a"} {
		want := "The topic[" + name + "] is conflict with system topic."
		require.Equal(t, want, create(name).Remark)
		require.Equal(t, want, w.call(protocol.ReqDeleteTopicInBroker, "", "topic", name).Remark)
	}
	require.Equal(t, protocol.InvalidParameter, w.call(protocol.ReqDeleteSubscriptionGroup, "", "groupName", "CID_RMQ_SYS_TRANS").Code)
	for _, name := range []string{"../../../tmp/pwn", "..", ".", "a/b", `a\b`, "/abs", "x\x00y", "", strings.Repeat("x", 300)} {
		require.Equal(t, protocol.InvalidParameter, create(name).Code, "%q", name)
	}
	require.Equal(t, "The specified topic is blank.", create("").Remark)
	require.Equal(t, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$", create("bad name").Remark)
	require.Equal(t, protocol.RequestCodeNotSupported, w.call(protocol.ReqUpdateAndCreateStaticTopic, "{}", "topic", "x").Code)
	a := w.call(9999, "")
	require.Equal(t, []any{protocol.RequestCodeNotSupported, " request type 9999 not supported"}, []any{a.Code, a.Remark})
}

func TestSeveralBrokersInOneProcess(t *testing.T) {
	a, b := start(t, t.TempDir()), start(t, t.TempDir(), "brokerName", "broker-b")
	a.send("t", "0", "x")
	b.send("t", "0", "y")
	require.NotEqual(t, a.addr, b.addr)
}

func TestStartAndStop(t *testing.T) {
	dir := t.TempDir()
	w := start(t, dir)
	require.NoError(t, w.b.Close())
	require.NoError(t, w.b.Close())
	require.Error(t, w.b.Start(context.Background()))
	_, err := os.Stat(dir + "/abort")
	require.ErrorIs(t, err, os.ErrNotExist)
	w = start(t, dir)
	set, err := broker.NewSettings(nil)
	require.NoError(t, err)
	for k, v := range settings(t, dir) {
		set.Put(k, v)
	}
	_, err = broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.Error(t, err, "the folder is in use")
}

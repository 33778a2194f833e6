package pull

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// noFile is a file that keeps nothing.
type noFile struct{}

func (noFile) Load(func([]byte) error) (bool, error) { return false, nil }
func (noFile) Save([]byte) error                     { return nil }

// testStore can pretend that nothing is in memory, and can let something happen between a read and what follows it.
type testStore struct {
	*store.Store
	cold  atomic.Bool
	after atomic.Pointer[func()]
}

func (s *testStore) Get(q *store.Query, r *store.Result) error {
	err := s.Store.Get(q, r)
	if err == nil && s.cold.Load() && q.HotOnly && r.Count > 0 {
		r.Release()
		r.Cold = true
	}
	if fn := s.after.Swap(nil); fn != nil {
		(*fn)()
	}
	return err
}

// offsets records what it is told.
type offsets struct {
	mu     sync.Mutex
	staged map[string]message.QueueOffset
	pulled map[string]message.QueueOffset
	reset  map[string]message.QueueOffset
}

func key(group, topic []byte, q int32) string { return fmt.Sprintf("%s@%s/%d", group, topic, q) }

func (o *offsets) Stage(group, topic []byte, q int32, off message.QueueOffset) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.staged[key(group, topic, q)] = off
	return nil
}

func (o *offsets) Pulled(group, topic []byte, q int32, next message.QueueOffset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pulled[string(topic)] = next
}

func (o *offsets) PendingReset(group, topic []byte, q int32) (message.QueueOffset, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.reset) == 0 {
		return 0, false
	}
	off, ok := o.reset[key(group, topic, q)]
	return off, ok
}

func (o *offsets) TakeReset(group, topic []byte, q int32, asked message.QueueOffset) (message.QueueOffset, bool) {
	off, ok := o.PendingReset(group, topic, q)
	if ok && off == asked {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.reset, key(group, topic, q))
	}
	return off, ok && off != asked
}

// committed is what was staged for group G on T/0.
func (o *offsets) committed() (message.QueueOffset, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	off, ok := o.staged["G@T/0"]
	return off, ok
}

func (o *offsets) assignReset(off message.QueueOffset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reset["G@T/0"] = off
}

func (o *offsets) pullOffset() message.QueueOffset {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pulled["T"]
}

type stats struct{ got atomic.Int64 }

func (s *stats) Got(_, _ []byte, _ int32, msgs, _ int) { s.got.Add(int64(msgs)) }

type peer struct{}

func (peer) Addr() string         { return "127.0.0.1:1" }
func (peer) NotifyChanged(string) {}
func (peer) CloseBecause(string)  {}

type world struct {
	t       testing.TB
	st      *testStore
	topics  *topic.Table
	groups  *group.Configs
	online  *group.Registry
	offsets *offsets
	stats   stats
	hub     Hub
	h       *Handler
	addr    string

	autoGroup atomic.Bool
}

func testConfig() Config {
	return Config{BrokerPermission: 6, LitePullMessageEnable: true, LongPollingEnable: true, ShortPollingTime: time.Second, BrokerIP: "127.0.0.1"}
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, st: &testStore{}, online: group.NewRegistry(group.RegistryOptions{}),
		offsets: &offsets{staged: map[string]message.QueueOffset{}, pulled: map[string]message.QueueOffset{}, reset: map[string]message.QueueOffset{}}}
	w.autoGroup.Store(true)
	cfg := store.Defaults()
	cfg.StorePathRootDir = t.TempDir()
	cfg.MappedFileSizeCommitLog = 1 << 24
	cfg.MappedFileSizeConsumeQueue = 20000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 500, 2000
	var err error
	w.st.Store, err = store.Open(mappedfile.OS, cfg, store.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.st.OnArrival(w.hub.Arrived)
	w.topics, err = topic.Open(topic.Options{File: noFile{}, BrokerName: "golden-a", ClusterName: "GoldenCluster",
		AutoCreateTopic: func() bool { return true }, DefaultTopicQueues: func() int32 { return 8 }})
	require.NoError(t, err)
	w.groups, err = group.OpenConfigs(group.Options{File: noFile{}, AutoCreate: w.autoGroup.Load})
	require.NoError(t, err)
	require.NoError(t, w.topics.Update(topic.NewConfig("T", 4)))
	w.h = New(testConfig(), Deps{Store: w.st, Topics: w.topics, Groups: w.groups, Consumers: w.online, Offsets: w.offsets, Stats: &w.stats})
	w.hub.Register(w.h.Arrived)
	w.st.Start()
	t.Cleanup(func() { require.NoError(t, w.st.Close()) })
	w.h.Start()
	t.Cleanup(w.h.Close)
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqPullMessage, remoting.Inline, w.h.Pull)
	mux.Handle(protocol.ReqLitePullMessage, remoting.Inline, w.h.Pull)
	w.addr = wiretest.ServeEvents(t, mux, gone{w.h})
	return w
}

// gone tells the handler of closed connections, as the broker does.
type gone struct{ h *Handler }

func (gone) Opened(*remoting.Conn)              {}
func (g gone) Closed(c *remoting.Conn, _ error) { g.h.Gone(c) }

func (w *world) dial() *wiretest.Peer { return wiretest.Dial(w.t, w.addr) }

// put stores messages with these tags in T/queue and waits until they can be read, unless async.
func (w *world) put(queue int32, size int, tags ...string) {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	b := w.st.NewBatch()
	for _, tag := range tags {
		m := &message.Message{Topic: []byte("T"), QueueID: queue, Body: make([]byte, size), BornHost: host, StoreHost: host}
		if tag != "" {
			m.Properties = message.AppendProperty(nil, message.PropTags, tag)
		}
		require.NoError(w.t, b.Add(m))
	}
	p, err := w.st.Append(b)
	require.NoError(w.t, err)
	require.NoError(w.t, w.st.Write(p.End))
	require.NoError(w.t, w.st.Dispatched().Wait(w.t.Context(), int64(p.End)))
}

func repeat(n int, tag string) []string { return slices.Repeat([]string{tag}, n) }

// ext is the header of a pull, changed by name, value pairs; an empty value removes a field.
func ext(changes ...string) map[string]string {
	m := map[string]string{"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
		"suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "262144", "bname": "b"}
	for i := 0; i < len(changes); i += 2 {
		if m[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(m, changes[i])
		}
	}
	return m
}

func messages(t testing.TB, body []byte) (out []message.QueueOffset) {
	for len(body) > 0 {
		var r message.Record
		require.NoError(t, message.Parse(body, &r))
		require.True(t, r.BodyValid())
		out = append(out, r.QueueOffset)
		body = body[r.Size:]
	}
	return out
}

func offsetsFrom(from, n int) (out []message.QueueOffset) {
	for i := range n {
		out = append(out, message.QueueOffset(from+i))
	}
	return out
}

func (w *world) pull(p *wiretest.Peer, changes ...string) *protocol.Command {
	return p.Call(protocol.ReqPullMessage, ext(changes...), nil)
}

func TestPull(t *testing.T) {
	w := newWorld(t)
	w.put(0, 100, repeat(50, "A")...)
	p := w.dial()
	for _, form := range []protocol.Form{protocol.JSON, protocol.Binary} {
		cmd := protocol.NewRequest(protocol.ReqPullMessage, ext(), nil)
		cmd.Form = form
		p.Send(cmd)
		got := p.Read()
		require.Equal(t, protocol.Success, got.Code)
		require.Equal(t, "FOUND", got.Remark)
		require.Equal(t, map[string]string{"suggestWhichBrokerId": "0", "nextBeginOffset": "32", "minOffset": "0", "maxOffset": "50", "topicSysFlag": "0", "groupSysFlag": "0"}, got.Ext)
		require.Equal(t, offsetsFrom(0, 32), messages(t, got.Body))
	}
	require.Equal(t, message.QueueOffset(32), w.offsets.pullOffset())
	require.EqualValues(t, 64, w.stats.got.Load())
	for _, c := range []struct {
		changes []string
		n       int
	}{
		{[]string{"maxMsgNums", "1"}, 1}, {[]string{"maxMsgNums", "1024"}, 32}, {[]string{"maxMsgNums", "0"}, 1}, {[]string{"maxMsgNums", "-1"}, 1},
		{[]string{"maxMsgBytes", "500"}, 2}, {[]string{"maxMsgBytes", "1"}, 1}, {[]string{"maxMsgBytes", ""}, 32}, {[]string{"queueOffset", "40"}, 10},
		{[]string{"expressionType", ""}, 32}, {[]string{"subscription", ""}, 32}, {[]string{"subscription", "A || B"}, 32},
	} {
		got := w.pull(p, c.changes...)
		require.Equal(t, protocol.Success, got.Code, "%v: %s", c.changes, got.Remark)
		require.Len(t, messages(t, got.Body), c.n, "%v", c.changes)
	}
	got := p.Call(protocol.ReqLitePullMessage, ext("sysFlag", "20"), nil)
	require.Equal(t, protocol.Success, got.Code)

	// Cold data is read elsewhere, and is the same.
	w.st.cold.Store(true)
	got = w.pull(p)
	require.Equal(t, protocol.Success, got.Code)
	require.Equal(t, offsetsFrom(0, 32), messages(t, got.Body))
}

// ST-19: what a wrong offset is answered.
func TestOffsets(t *testing.T) {
	w := newWorld(t)
	w.put(0, 10, repeat(50, "A")...)
	p := w.dial()
	for _, c := range []struct {
		queue, offset string
		code          int32
		remark, next  string
	}{
		{"0", "-1", protocol.PullOffsetMoved, "OFFSET_TOO_SMALL", "0"}, {"0", "0", protocol.Success, "FOUND", "32"}, {"0", "49", protocol.Success, "FOUND", "50"},
		{"0", "50", protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", "50"}, {"0", "51", protocol.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", "50"},
		{"0", "9223372036854775807", protocol.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", "50"},
		{"1", "0", protocol.PullNotFound, "NO_MATCHED_LOGIC_QUEUE", "0"}, {"1", "7", protocol.PullOffsetMoved, "NO_MATCHED_LOGIC_QUEUE", "0"},
	} {
		got := w.pull(p, "queueId", c.queue, "queueOffset", c.offset)
		require.Equal(t, c.code, got.Code, "%v: %s", c, got.Remark)
		require.Equal(t, c.remark, got.Remark)
		require.Equal(t, c.next, got.Ext["nextBeginOffset"], "%v", c)
		require.Contains(t, got.Ext, "minOffset")
		require.Contains(t, got.Ext, "maxOffset")
	}
	got := w.pull(p, "subscription", "B")
	require.Equal(t, protocol.PullRetryImmediately, got.Code)
	require.Equal(t, "NO_MATCHED_MESSAGE", got.Remark)
	require.Equal(t, "50", got.Ext["nextBeginOffset"])
	known := w.st.Topics()
	require.Equal(t, []string{"T"}, known)
	_, _, ok := w.st.Bounds([]byte("T"), 1)
	require.False(t, ok, "a pull creates no queue")
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	p := w.dial()
	const faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
	closed := topic.NewConfig("WriteOnly", 1)
	closed.Perm = topic.PermWrite
	require.NoError(t, w.topics.Update(closed))
	off := group.NewConfig("Off")
	off.ConsumeEnable = false
	noBroadcast := group.NewConfig("NoBroadcast")
	noBroadcast.ConsumeBroadcastEnable = false
	require.NoError(t, w.groups.Update(off, noBroadcast, group.NewConfig("Forbidden")))
	require.NoError(t, w.groups.SetForbidden("Forbidden", "T", group.ForbiddenRead, true))
	join := func(name, model string, subs ...*group.Subscription) {
		w.online.Join(group.Client{ID: name + "@1", Peer: peer{}}, &group.Joining{Group: name, Model: model, Type: group.ConsumePassively, Subscriptions: subs})
	}
	join("Online", group.Clustering, &group.Subscription{Topic: "T", Expression: "A", Type: "TAG", Version: 5})
	join("Sql", group.Clustering, &group.Subscription{Topic: "T", Expression: "a > 1", Type: "SQL92", Version: 5})
	join("NoBroadcast", group.Broadcasting, &group.Subscription{Topic: "T", Expression: "A", Type: "TAG", Version: 5})
	join("Forbidden", group.Clustering, &group.Subscription{Topic: "T", Expression: "A", Type: "TAG", Version: 5})
	w.autoGroup.Store(false)
	for _, c := range []struct {
		name   string
		ext    map[string]string
		code   int32
		remark string
		kind   string
	}{
		{"unknown group", ext("consumerGroup", "unknown"), protocol.SubscriptionGroupNotExist, "subscription group [unknown] does not exist," + faq, ""},
		{"closed group", ext("consumerGroup", "Off"), protocol.NoPermission, "subscription group no permission, Off", "2"},
		{"unknown topic", ext("consumerGroup", "Forbidden", "topic", "NoSuchTopic"), protocol.TopicNotExist, "topic[NoSuchTopic] not exist, apply first please! " + faq, ""},
		{"path", ext("consumerGroup", "Forbidden", "topic", "../../pwn"), protocol.TopicNotExist, "", ""},
		{"write only topic", ext("consumerGroup", "Forbidden", "topic", "WriteOnly"), protocol.NoPermission, "the topic[WriteOnly] pulling message is forbidden", "3"},
		{"queue beyond", ext("consumerGroup", "Forbidden", "queueId", "77"), protocol.InvalidParameter, "queueId[77] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/" + p.Conn.LocalAddr().String() + "]", ""},
		{"negative queue", ext("consumerGroup", "Forbidden", "queueId", "-1"), protocol.InvalidParameter, "", ""},
		{"subscription", ext("consumerGroup", "Forbidden", "subscription", "||"), protocol.SubscriptionParseFailed, "parse the consumer's subscription failed", ""},
		{"sql", ext("consumerGroup", "Forbidden", "expressionType", "SQL92"), protocol.SystemError, "The broker does not support consumer to filter message by SQL92", ""},
		{"offline", ext("consumerGroup", "Off2", "sysFlag", "0"), protocol.SubscriptionGroupNotExist, "", ""},
		{"forbidden", ext("consumerGroup", "Forbidden", "sysFlag", "0"), protocol.NoPermission, "the consumer group[Forbidden] is forbidden for topic[T]", "5"},
		{"broadcast", ext("consumerGroup", "NoBroadcast", "sysFlag", "0"), protocol.NoPermission, "the consumer group[NoBroadcast] can not consume by broadcast way", "4"},
		{"no field", ext("consumerGroup", ""), protocol.SystemError, "", ""},
		{"no number", ext("queueOffset", "x"), protocol.SystemError, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := p.Call(protocol.ReqPullMessage, c.ext, nil)
			require.Equal(t, c.code, got.Code, got.Remark)
			if c.remark != "" {
				require.Equal(t, c.remark, got.Remark)
			}
			require.Equal(t, c.kind, got.Ext["forbiddenType"])
		})
	}
	w.autoGroup.Store(true)
	require.Equal(t, "the consumer's group info not exist"+faq, w.pull(p, "sysFlag", "0", "consumerGroup", "New").Remark)
	require.NotNil(t, w.groups.Lookup("New"))
	require.NoError(t, w.topics.Update(topic.NewConfig("U", 1)))
	require.Equal(t, "the consumer's subscription not exist"+faq, w.pull(p, "sysFlag", "0", "consumerGroup", "Online", "topic", "U").Remark)
	require.Equal(t, protocol.SubscriptionNotLatest, w.pull(p, "sysFlag", "0", "consumerGroup", "Online", "subVersion", "6").Code)
	require.Equal(t, protocol.SystemError, w.pull(p, "sysFlag", "0", "consumerGroup", "Sql").Code)
	w.put(0, 10, "B", "A")
	require.Equal(t, []message.QueueOffset{1}, messages(t, w.pull(p, "sysFlag", "0", "consumerGroup", "Online", "subVersion", "5").Body))

	cfg := testConfig()
	cfg.LitePullMessageEnable = false
	w.h.Apply(cfg)
	require.Equal(t, protocol.NoPermission, p.Call(protocol.ReqLitePullMessage, ext(), nil).Code)
	require.Equal(t, protocol.Success, w.pull(p).Code)
	cfg.BrokerPermission = topic.PermWrite
	w.h.Apply(cfg)
	got := w.pull(p)
	require.Equal(t, protocol.NoPermission, got.Code)
	require.Equal(t, "1", got.Ext["forbiddenType"])
}

func TestLongPoll(t *testing.T) {
	w := newWorld(t)
	p, q := w.dial(), w.dial()
	p.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6"), nil))
	q.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6", "subscription", "B"), nil))
	require.Eventually(t, func() bool { return w.h.Parked() == 2 }, wiretest.Timeout, time.Millisecond)
	w.put(1, 10, "A") // another queue wakes nobody
	require.Equal(t, 2, w.h.Parked())
	w.put(0, 10, "A")
	got := p.Read()
	require.Equal(t, protocol.Success, got.Code)
	require.Equal(t, "1", got.Ext["nextBeginOffset"])
	require.Equal(t, 1, w.h.Parked(), "the tag is not wanted")
	w.put(0, 10, "B")
	got = q.Read()
	require.Equal(t, []message.QueueOffset{1}, messages(t, got.Body))
	require.Zero(t, w.h.Parked())

	// Time runs out; no flag, no waiting; a commit is stored even if nothing is found.
	require.Equal(t, protocol.PullNotFound, w.pull(p, "sysFlag", "6", "queueOffset", "2", "suspendTimeoutMillis", "5").Code)
	require.Equal(t, protocol.PullNotFound, w.pull(p, "queueOffset", "2").Code)
	_, ok := w.offsets.committed()
	require.False(t, ok, "no flag, no commit")
	require.Equal(t, protocol.PullNotFound, w.pull(p, "sysFlag", "5", "queueOffset", "2", "commitOffset", "2").Code)
	off, _ := w.offsets.committed()
	require.EqualValues(t, 2, off)
	cfg := testConfig()
	cfg.LongPollingEnable, cfg.ShortPollingTime = false, 5*time.Millisecond
	w.h.Apply(cfg)
	require.Equal(t, protocol.PullNotFound, w.pull(p, "sysFlag", "6", "queueOffset", "2").Code)
	w.h.Apply(testConfig())

	// A reset is told at once, not after the wait.
	w.offsets.assignReset(1)
	got = w.pull(p, "sysFlag", "7", "queueOffset", "2", "commitOffset", "3")
	require.Equal(t, protocol.PullOffsetMoved, got.Code)
	require.Equal(t, "OFFSET_RESET", got.Remark)
	require.Equal(t, "1", got.Ext["nextBeginOffset"])
	off, _ = w.offsets.committed()
	require.EqualValues(t, 2, off, "what a pull commits is older than the reset")
	require.Equal(t, []message.QueueOffset{1}, messages(t, w.pull(p, "sysFlag", "6", "queueOffset", "1").Body), "it is followed")

	// A pull that waits hears of a reset at once.
	p.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6", "queueOffset", "2"), nil))
	require.Eventually(t, func() bool { return w.h.Parked() == 1 }, wiretest.Timeout, time.Millisecond)
	w.offsets.assignReset(0)
	w.h.Wake("T", 0)
	require.Equal(t, "0", p.Read().Ext["nextBeginOffset"])
	w.pull(p, "queueOffset", "0")

	// A woken pull that turns out cold is still answered; so is what waits when the broker stops.
	p.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6", "queueOffset", "2"), nil))
	require.Eventually(t, func() bool { return w.h.Parked() == 1 }, wiretest.Timeout, time.Millisecond)
	w.st.cold.Store(true)
	w.put(0, 10, "A")
	require.Equal(t, []message.QueueOffset{2}, messages(t, p.Read().Body))
	q.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6", "queueOffset", "3"), nil))
	p.Send(protocol.NewRequest(protocol.ReqPullMessage, ext("sysFlag", "6", "queueOffset", "3"), nil))
	require.Eventually(t, func() bool { return w.h.Parked() == 2 }, wiretest.Timeout, time.Millisecond)
	require.NoError(t, q.Conn.Close())
	w.h.Close()
	require.Equal(t, protocol.PullNotFound, p.Read().Code)
	require.Zero(t, w.h.held.Load())
	require.Equal(t, protocol.PullNotFound, w.pull(p, "sysFlag", "6", "queueOffset", "3").Code, "nobody waits for a broker that stops")
}

// CL-21: a message that arrives between the read and the parking is not missed.
func TestNoLostWakeUp(t *testing.T) {
	w := newWorld(t)
	p := w.dial()
	put := func() { w.put(0, 10, "A") }
	w.st.after.Store(&put) // right after the store said that there is nothing
	got := w.pull(p, "sysFlag", "6", "suspendTimeoutMillis", "600000")
	require.Equal(t, protocol.Success, got.Code)
	require.Len(t, messages(t, got.Body), 1)

	// And at random: each message is seen by a pull that waits for ever.
	const n = 300
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			w.put(0, 10, "A")
			if i%7 == 0 {
				runtime.Gosched()
			}
		}
	}()
	next := "1"
	for next != fmt.Sprint(1+n) {
		got := w.pull(p, "sysFlag", "6", "queueOffset", next, "suspendTimeoutMillis", "600000")
		require.Equal(t, protocol.Success, got.Code, got.Remark)
		next = got.Ext["nextBeginOffset"]
	}
	<-done
}

// TestGoldenFrames replays the pulls of Java clients and compares the shape of the answers with the Java broker's.
func TestGoldenFrames(t *testing.T) {
	for _, file := range []string{"client-json", "client-rocketmq"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{"GoldenTopic", "GoldenOrder", "GoldenSql", "GoldenTx", "GoldenReq", "GoldenDelay"} {
				require.NoError(t, w.topics.Update(topic.NewConfig(name, 4)))
			}
			p := w.dial()
			codes := map[int32]int{}
			for _, pair := range wiretest.Pairs(t, "testdata/"+file+".jsonl.gz", protocol.ReqPullMessage, protocol.ReqLitePullMessage) {
				if pair.Answer == nil {
					continue
				}
				req, want := pair.Request.Decode(t), pair.Answer.Decode(t)
				switch {
				case strings.HasPrefix(want.Remark, "java.lang."), req.Ext["expressionType"] == "SQL92":
					continue
				case want.Ext["nextBeginOffset"] != "": // the store's part: only that the answer has the same fields
					req.Ext["sysFlag"], req.Ext["subscription"] = "4", "*"
					if _, err := w.topics.Ensure(req.Ext["topic"], 4, 6, 0, false); err != nil {
						t.Fatal(err)
					}
				}
				p.Send(req)
				got := p.Read()
				require.Equal(t, slices.Sorted(maps.Keys(want.Ext)), slices.Sorted(maps.Keys(got.Ext)), "%s %d", pair.Request.Scenario, want.Code)
				if want.Ext["nextBeginOffset"] == "" {
					if want.Code == protocol.SubscriptionNotLatest { // needs the heartbeats of the capture
						continue
					}
					require.Equal(t, want.Code, got.Code, "%s: %s", pair.Request.Scenario, got.Remark)
					cut := func(s string) string { s, _, _ = strings.Cut(s, " consumer:["); return s }
					require.Equal(t, cut(want.Remark), cut(got.Remark))
				}
				codes[want.Code]++
			}
			require.GreaterOrEqual(t, len(codes), 5, "%v", codes)
		})
	}
}

// A pull of 32 from the page cache allocates nothing per message.
func TestPullAllocatesNothing(t *testing.T) {
	if testing.CoverMode() != "" || raceOn {
		t.Skip("the counts of coverage and race detector allocate")
	}
	w := newWorld(t)
	w.put(0, 1000, repeat(32, "A")...)
	p := w.dial()
	req := protocol.NewRequest(protocol.ReqPullMessage, ext("subscription", "A || B"), nil).Append(nil)
	p.Write(req)
	size := len(p.Frame())
	in := make([]byte, size)
	round := func(n int) {
		for range n {
			_, err := p.Conn.Write(req)
			require.NoError(t, err)
			for got := 0; got < size; {
				n, err := p.Conn.Read(in[got:])
				require.NoError(t, err)
				got += n
			}
		}
	}
	round(200)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 2000
	round(rounds)
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / rounds
	t.Logf("%.3f allocations a pull of 32", per)
	require.Less(t, per, 1.5) // one object a read is the input buffer of the connection
}

func TestGate(t *testing.T) {
	w := newWorld(t)
	w.h.Gate = func() error { return &protocol.Error{Code: protocol.SystemBusy, Remark: "[REJECTREQUEST] slave"} }
	got := w.dial().Call(protocol.ReqPullMessage, nil, nil)
	require.Equal(t, []any{protocol.SystemBusy, "[REJECTREQUEST] slave"}, []any{got.Code, got.Remark})
}

package produce

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var storeHost = netip.MustParseAddrPort("127.0.0.1:19110")

// noFile is a file that keeps nothing.
type noFile struct{}

func (noFile) Load(func([]byte) error) (bool, error) { return false, nil }
func (noFile) Save([]byte) error                     { return nil }

// testStore is a store whose marks and errors a test can take over.
type testStore struct {
	*store.Store
	busy     atomic.Int64
	writeErr atomic.Pointer[error]
	mark     *watermark.Mark // nil: the store's own, without sync flush
}

func (s *testStore) Busy() time.Duration { return time.Duration(s.busy.Load()) }

func (s *testStore) Write(to message.LogOffset) error {
	if e := s.writeErr.Load(); e != nil {
		return *e
	}
	return s.Store.Write(to)
}

func (s *testStore) SyncFlush() bool { return s.mark != nil || s.Store.SyncFlush() }

func (s *testStore) Flushed() *watermark.Mark {
	if s.mark != nil {
		return s.mark
	}
	return s.Store.Flushed()
}

type testDoor struct{ st *store.Store }

func (d testDoor) Put(_ context.Context, m *message.Message) error {
	b := d.st.NewBatch()
	if err := b.Add(m); err != nil {
		return err
	}
	p, err := d.st.Append(b)
	if err != nil {
		return err
	}
	return d.st.Write(p.End)
}

// ordered is the set of groups that hold queue locks.
// replicas say what a test tells them.
type replicas struct {
	mark   atomic.Pointer[watermark.Mark]
	refuse atomic.Pointer[protocol.Error]
	slave  atomic.Bool
}

func (r *replicas) Accepting() error {
	if r.slave.Load() {
		return &protocol.Error{Code: protocol.SystemBusy, Remark: "[REJECTREQUEST]"}
	}
	return nil
}

func (r *replicas) Need() (*watermark.Mark, error) {
	if e := r.refuse.Load(); e != nil {
		return nil, e
	}
	return r.mark.Load(), nil
}

type ordered struct {
	mu     sync.Mutex
	groups map[string]bool
}

func (o *ordered) Held(g []byte, _ time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.groups[string(g)]
}

type noStats struct{}

func (noStats) Put([]byte, int32, int, int, int) {}
func (noStats) SendBack(string, string)          {}
func (noStats) DeadLetter(string, string)        {}

// world is a handler on a real store behind a real socket.
type world struct {
	t      testing.TB
	st     *testStore
	topics *topic.Table
	groups *group.Configs
	locks  ordered
	copies replicas
	h      *Handler
	addr   string

	autoTopic, autoGroup atomic.Bool
}

func testConfig() Config {
	return Config{BrokerClusterName: "GoldenCluster", RegionID: "DefaultRegion", TraceOn: true, BrokerPermission: 6, FastFailure: true,
		WaitInQueue: time.Minute, PageCacheBusy: time.Second, SyncFlushTimeout: 10 * time.Second, SlaveTimeout: 10 * time.Second, MaxMessageSize: 65536,
		MaxDelayLevel: 18, StoreHost: storeHost}
}

func newWorld(t testing.TB, edit ...func(*world, *store.Config)) *world {
	w := &world{t: t, st: &testStore{}}
	w.autoGroup.Store(true)
	cfg := store.Defaults()
	cfg.StorePathRootDir = t.TempDir()
	cfg.MappedFileSizeCommitLog = 1 << 22
	cfg.MappedFileSizeConsumeQueue = 20000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 500, 2000
	cfg.MaxMessageSize = 65536
	for _, fn := range edit {
		fn(w, &cfg)
	}
	var err error
	w.st.Store, err = store.Open(mappedfile.OS, cfg, store.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w.st.Start()
	t.Cleanup(func() { require.NoError(t, w.st.Close()) })
	w.topics, err = topic.Open(topic.Options{File: noFile{}, BrokerName: "golden-a", ClusterName: "GoldenCluster",
		AutoCreateTopic: w.autoTopic.Load, DefaultTopicQueues: func() int32 { return 8 }})
	require.NoError(t, err)
	def := topic.NewConfig(topic.DefaultTopic, 8)
	def.Perm |= topic.PermInherit
	require.NoError(t, w.topics.Update(def))
	w.groups, err = group.OpenConfigs(group.Options{File: noFile{}, AutoCreate: w.autoGroup.Load})
	require.NoError(t, err)
	for _, name := range []string{"GoldenTopic", "GoldenDelay", "GoldenOrder", "GoldenSql", "GoldenReq", "GoldenTx", "GoldenFilter"} {
		w.topic(name, 4)
	}
	w.h = New(testConfig(), Deps{Store: w.st, Replicas: &w.copies, Topics: w.topics, Groups: w.groups, Locks: &w.locks, Door: testDoor{w.st.Store},
		Stats: noStats{}, IDs: message.NewUniqIDs(storeHost.Addr(), 1)})
	w.h.Start()
	t.Cleanup(w.h.Close)
	mux := remoting.NewMux()
	for _, code := range []int32{protocol.ReqSendMessage, protocol.ReqSendMessageV2, protocol.ReqSendBatchMessage} {
		mux.Handle(code, remoting.Inline, w.h.Send)
	}
	mux.Handle(protocol.ReqConsumerSendMsgBack, remoting.Slow(remoting.NewClass("send-back", 2, 100, 0)), w.h.SendBack)
	w.addr = wiretest.Serve(t, mux, w.h.BatchEnd)
	return w
}

func (w *world) topic(name string, queues int32) {
	_, err := w.topics.Ensure(name, queues, topic.PermRead|topic.PermWrite, 0, false)
	require.NoError(w.t, err)
}

func (w *world) dial() *wiretest.Peer { return wiretest.Dial(w.t, w.addr) }

// record reads the stored message of an offset message id.
func (w *world) record(id string) *message.Record {
	host, off, err := message.ParseID(id)
	require.NoError(w.t, err)
	require.Equal(w.t, storeHost, host)
	return w.at(off)
}

func (w *world) at(off message.LogOffset) *message.Record {
	v, err := w.st.View(off)
	require.NoError(w.t, err)
	defer v.Release()
	var r message.Record
	require.NoError(w.t, message.Parse(append([]byte(nil), v.Bytes()...), &r))
	require.True(w.t, r.BodyValid())
	return &r
}

// last is the newest record.
func (w *world) last() *message.Record {
	off := w.st.Log().Min()
	for {
		r := w.at(off)
		if off += message.LogOffset(r.Size); off >= w.st.Log().End() {
			return r
		}
	}
}

// stored is the number of messages in GoldenTopic/1, written or not.
func (w *world) stored() int { return int(w.st.MaxOffset([]byte("GoldenTopic"), 1, false)) }

func (w *world) count() (n int) {
	for off := w.st.Log().Min(); off < w.st.Log().End(); n++ {
		off += message.LogOffset(w.at(off).Size)
	}
	return n
}

// v2 is the header of a send, changed by name, value pairs; an empty value removes a field.
func v2(changes ...string) map[string]string {
	m := map[string]string{"a": "PG", "b": "GoldenTopic", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1796116261792", "h": "7",
		"i": string(text("KEYS=k1;UNIQ_KEY=U1;WAIT=true;TAGS=TagA;"))}
	for i := 0; i < len(changes); i += 2 {
		if m[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(m, changes[i])
		}
	}
	return m
}

// v1 is v2 under the long names.
func v1(changes ...string) map[string]string {
	out := map[string]string{}
	long := map[string]string{"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag",
		"g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname"}
	for k, v := range v2(changes...) {
		out[long[k]] = v
	}
	return out
}

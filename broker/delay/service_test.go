package delay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memFile is a File in memory.
type memFile struct {
	mu    sync.Mutex
	data  []byte
	saves int
}

func (f *memFile) Load(parse func([]byte) error) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data == nil {
		return false, nil
	}
	return true, parse(f.data)
}

func (f *memFile) Save(data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.saves = data, f.saves+1
	return nil
}

// door puts into the store, after refusing what fail says.
type door struct {
	st   *store.Store
	mu   sync.Mutex
	fail int // so many calls
}

var host = netip.MustParseAddrPort("127.0.0.1:10911")

var errDoor = errors.New("refused")

func (d *door) PutAll(ctx context.Context, ms []*message.Message) (int, error) {
	d.mu.Lock()
	refuse := d.fail > 0
	d.fail--
	d.mu.Unlock()
	if refuse {
		return 0, errDoor
	}
	b := d.st.NewBatch()
	for _, m := range ms {
		m.BornHost, m.StoreHost = host, host
		if err := b.Add(m); err != nil {
			return 0, err
		}
	}
	p, err := d.st.Append(b)
	if err != nil {
		return 0, err
	}
	return len(ms), d.st.Write(p.End)
}

type world struct {
	t    *testing.T
	st   *store.Store
	file memFile
	door door

	mu   sync.Mutex
	svc  *Service
	ends map[string]*watermark.Mark // by topic: the largest offset that arrived
}

func newWorld(t *testing.T) *world {
	cfg := store.Defaults()
	cfg.StorePathRootDir = t.TempDir()
	cfg.MappedFileSizeCommitLog = 1 << 20
	cfg.MappedFileSizeConsumeQueue = 20000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 500, 2000
	st, err := store.Open(mappedfile.OS, cfg, store.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w := &world{t: t, st: st, ends: map[string]*watermark.Mark{}}
	w.door.st = st
	st.OnArrival(func(a store.Arrival) {
		w.mark(a.Topic).Advance(int64(a.Offset))
		w.mu.Lock()
		svc := w.svc
		w.mu.Unlock()
		if svc != nil {
			svc.Arrived(a)
		}
	})
	st.Start()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return w
}

func (w *world) mark(topic string) *watermark.Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.ends[topic]
	if m == nil {
		m = watermark.New(0)
		w.ends[topic] = m
	}
	return m
}

// wait returns when n messages of the topic's queue 0 can be read.
func (w *world) wait(topic string, n int64) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(w.t, w.mark(topic).Wait(ctx, n), "%s has %d messages", topic, w.mark(topic).Load())
}

func (w *world) start(levels string) *Service {
	l, err := ParseLevels(levels)
	require.NoError(w.t, err)
	s := New(Config{FlushInterval: time.Hour, VersionStep: 2}, l, w.st, &w.door, &w.file, slog.New(slog.DiscardHandler))
	w.mu.Lock()
	w.svc = s
	w.mu.Unlock()
	require.NoError(w.t, s.Start())
	w.t.Cleanup(func() { require.NoError(w.t, s.Close()) })
	return s
}

// put stores n delayed messages for topic "T", numbered from first.
func (w *world) put(level, first, n int) {
	var ms []*message.Message
	for i := first; i < first+n; i++ {
		props := message.AppendProperty(nil, message.PropDelay, strconv.Itoa(level))
		props = message.AppendProperty(props, message.PropRealTopic, "T")
		props = message.AppendProperty(props, message.PropRealQueueID, "0")
		ms = append(ms, &message.Message{Topic: []byte(topic.ScheduleTopic), QueueID: int32(level - 1), Body: fmt.Appendf(nil, "m%d", i), Properties: props})
	}
	_, err := (&door{st: w.st}).PutAll(context.Background(), ms)
	require.NoError(w.t, err)
}

// bodies reads all of T/0.
func (w *world) bodies() (out []string) {
	var r store.Result
	for q := (store.Query{Topic: []byte("T"), MaxMsgs: 32}); ; {
		require.NoError(w.t, w.st.Get(&q, &r))
		for _, v := range r.Views {
			for b := v.Bytes(); len(b) > 0; {
				var rec message.Record
				require.NoError(w.t, message.Parse(b, &rec))
				require.True(w.t, rec.BodyValid())
				out = append(out, string(rec.Body))
				b = b[rec.Size:]
			}
		}
		q.Offset = r.Next
		found := r.Count > 0
		r.Release()
		if !found {
			return out
		}
	}
}

func numbered(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("m", i))
	}
	return out
}

func TestDeliver(t *testing.T) {
	w := newWorld(t)
	w.put(1, 0, 100)
	s := w.start("0s 1h")
	w.wait("T", 100)
	w.put(1, 100, 50) // the loop sleeps: arrival wakes it
	w.wait("T", 150)
	require.NoError(t, s.Close())
	require.Equal(t, numbered(150), w.bodies())
	st, err := decodeState(w.file.data)
	require.NoError(t, err)
	require.EqualValues(t, 150, st.offsets[1])
	require.Positive(t, st.version.Counter)

	// A stop repeats nothing.
	s = w.start("0s 1h")
	w.put(1, 150, 1)
	w.wait("T", 151)
	require.NoError(t, s.Close())
	require.Equal(t, numbered(151), w.bodies())
}

func TestRefusedPutIsRetried(t *testing.T) {
	w := newWorld(t)
	w.door.fail = 3
	w.put(1, 0, 10)
	s := w.start("0s")
	w.wait("T", 10)
	require.NoError(t, s.Close())
	require.Equal(t, numbered(10), w.bodies())
}

func TestNotDueUntilLevelsChange(t *testing.T) {
	w := newWorld(t)
	w.put(2, 0, 5)
	s := w.start("0s 1h")
	l, err := ParseLevels("0s 0s 1h")
	require.NoError(t, err)
	require.Zero(t, w.mark("T").Load())
	s.SetLevels(l)
	w.wait("T", 5)
	w.put(3, 5, 1) // a level that did not exist at start
	s.SetLevels(func() *Levels { l, _ := ParseLevels("0s 0s 0s"); return l }())
	w.wait("T", 6)
	require.NoError(t, s.Close())
	require.Equal(t, numbered(6), w.bodies())
}

// ST-25: positions outside of their queue are corrected, and the correction is saved at once.
func TestCorrectedPositions(t *testing.T) {
	w := newWorld(t)
	w.put(3, 0, 2)
	w.wait(topic.ScheduleTopic, 2)
	w.file.data = []byte(`{"offsetTable":{3:100000,4:-5}}`)
	s := w.start("1h 1h 0s 0s")
	require.Equal(t, 1, w.file.saves)
	st, err := decodeState(w.file.data)
	require.NoError(t, err)
	require.Equal(t, map[int32]message.QueueOffset{3: 2, 4: 0}, st.offsets)
	w.put(3, 0, 1)
	w.put(4, 1, 1)
	w.wait("T", 2)
	require.NoError(t, s.Close())
	require.ElementsMatch(t, numbered(2), w.bodies())
}

func TestRecordWithoutTargetIsDropped(t *testing.T) {
	w := newWorld(t)
	bad := &message.Message{Topic: []byte(topic.ScheduleTopic), QueueID: 0, Body: []byte("x"), Properties: message.AppendProperty(nil, message.PropDelay, "1")}
	half := &message.Message{Topic: []byte(topic.ScheduleTopic), QueueID: 0, Body: []byte("x"),
		Properties: message.EncodeProperties(map[string]string{message.PropRealTopic: topic.HalfTopic, message.PropRealQueueID: "0"})}
	_, err := w.door.PutAll(context.Background(), []*message.Message{bad})
	require.NoError(t, err)
	w.put(1, 0, 1)
	_, err = w.door.PutAll(context.Background(), []*message.Message{half})
	require.NoError(t, err)
	w.put(1, 1, 1)
	s := w.start("0s")
	w.wait("T", 2)
	require.NoError(t, s.Close())
	require.Equal(t, numbered(2), w.bodies())
	st, err := decodeState(w.file.data)
	require.NoError(t, err)
	require.EqualValues(t, 4, st.offsets[1])
}

func TestBrokenFileIsRefused(t *testing.T) {
	w := newWorld(t)
	w.file.data = []byte(`{"offsetTable":{`)
	l, err := ParseLevels("1s")
	require.NoError(t, err)
	s := New(Config{FlushInterval: time.Hour}, l, w.st, &w.door, &w.file, slog.New(slog.DiscardHandler))
	require.Error(t, s.Start())
	require.NoError(t, s.Close())
}

package query

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	t  *testing.T
	st *store.Store
	p  *wiretest.Peer
}

func newWorld(t *testing.T) *world {
	cfg := store.Defaults()
	cfg.StorePathRootDir = t.TempDir()
	cfg.MappedFileSizeCommitLog = 1 << 20
	cfg.MappedFileSizeConsumeQueue = 20000
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 500, 2000
	st, err := store.Open(mappedfile.OS, cfg, store.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	st.Start()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	h := New(st, func() int { return 32 })
	mux := remoting.NewMux()
	slow := remoting.Slow(remoting.NewClass("query", 2, 100, 0))
	mux.Handle(protocol.ReqQueryMessage, slow, h.ByKey)
	mux.Handle(protocol.ReqViewMessageByID, slow, h.ByOffset)
	mux.Handle(protocol.ReqSearchOffsetByTimestamp, slow, h.OffsetByTime)
	mux.Handle(protocol.ReqGetMaxOffset, slow, h.MaxOffset)
	mux.Handle(protocol.ReqGetMinOffset, slow, h.MinOffset)
	mux.Handle(protocol.ReqGetEarliestMsgStoreTime, slow, h.EarliestTime)
	return &world{t, st, wiretest.Dial(t, wiretest.Serve(t, mux))}
}

// put stores n messages in one batch, so with one store time, which it returns.
func (w *world) put(n int, props map[string]string) int64 {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	b := w.st.NewBatch()
	for i := range n {
		require.NoError(w.t, b.Add(&message.Message{Topic: []byte("T"), Body: fmt.Appendf(nil, "m%d", i), BornHost: host, StoreHost: host,
			Properties: message.EncodeProperties(props)}))
	}
	p, err := w.st.Append(b)
	require.NoError(w.t, err)
	require.NoError(w.t, w.st.Write(p.End))
	require.NoError(w.t, w.st.Dispatched().Wait(w.t.Context(), int64(p.End)))
	return p.StoreTime
}

func (w *world) ask(code int32, pairs ...string) *protocol.Command {
	ext := map[string]string{"topic": "T", "queueId": "0"}
	for i := 0; i < len(pairs); i += 2 {
		ext[pairs[i]] = pairs[i+1]
	}
	return w.p.Call(code, ext, nil)
}

func records(t *testing.T, body []byte) (out []string) {
	for len(body) > 0 {
		var r message.Record
		require.NoError(t, message.Parse(body, &r))
		out = append(out, string(r.Body))
		body = body[r.Size:]
	}
	return out
}

// ST-11, ST-12: offsets by time, between and around batches of one store time each.
func TestOffsetByTime(t *testing.T) {
	w := newWorld(t)
	var times []int64
	for range 3 {
		times = append(times, w.put(50, nil))
		for time.Now().UnixMilli() < times[len(times)-1]+3 { // so that batches differ in store time
			time.Sleep(time.Millisecond)
		}
	}
	search := func(ms int64, boundary string) string {
		got := w.ask(protocol.ReqSearchOffsetByTimestamp, "timestamp", fmt.Sprint(ms), "boundaryType", boundary)
		require.Equal(t, protocol.Success, got.Code, got.Remark)
		return got.Ext["offset"]
	}
	for i, ms := range times {
		require.Equal(t, fmt.Sprint(50*i), search(ms, "lower"))
		require.Equal(t, fmt.Sprint(50*i), search(ms, ""))
		require.Equal(t, fmt.Sprint(50*i+49), search(ms, "UPPER"))
	}
	require.Equal(t, "50", search(times[0]+1, "LOWER"))
	require.Equal(t, "49", search(times[0]+1, "UPPER"))
	for _, late := range []int64{times[2] + 1, times[2] + 3600_000, math.MaxInt64} {
		require.Equal(t, "150", search(late, "lower"))
		require.Equal(t, "149", search(late, "upper"))
	}
	for _, early := range []int64{times[0] - 1, 0, -1} {
		require.Equal(t, "0", search(early, "lower"))
		require.Equal(t, "0", search(early, "upper"))
	}
}

func TestQueueQuestions(t *testing.T) {
	w := newWorld(t)
	at := w.put(7, nil)
	require.Equal(t, map[string]string{"offset": "7"}, w.ask(protocol.ReqGetMaxOffset, "committed", "true").Ext)
	require.Equal(t, map[string]string{"offset": "0"}, w.ask(protocol.ReqGetMinOffset).Ext)
	require.Equal(t, map[string]string{"timestamp": fmt.Sprint(at)}, w.ask(protocol.ReqGetEarliestMsgStoreTime).Ext)
	// SE-05: what does not exist is answered and not created.
	for _, topic := range []string{"None", "../../../tmp/pwn", "", "a\x00b"} {
		require.Equal(t, "0", w.ask(protocol.ReqGetMaxOffset, "topic", topic).Ext["offset"])
		require.Equal(t, "0", w.ask(protocol.ReqGetMinOffset, "topic", topic).Ext["offset"])
		require.Equal(t, "-1", w.ask(protocol.ReqGetEarliestMsgStoreTime, "topic", topic).Ext["timestamp"])
		require.Equal(t, "0", w.ask(protocol.ReqSearchOffsetByTimestamp, "topic", topic, "timestamp", "5").Ext["offset"])
	}
	require.Equal(t, "0", w.ask(protocol.ReqGetMaxOffset, "queueId", "-5").Ext["offset"])
	require.Equal(t, []string{"T"}, w.st.Topics())
	require.Equal(t, protocol.SystemError, w.ask(protocol.ReqGetMaxOffset, "queueId", "x").Code)
	require.Equal(t, protocol.SystemError, w.ask(protocol.ReqSearchOffsetByTimestamp).Code)
}

func TestByOffset(t *testing.T) {
	w := newWorld(t)
	w.put(3, nil)
	require.Equal(t, []string{"m0"}, records(t, w.ask(protocol.ReqViewMessageByID, "offset", "0").Body))
	for _, bad := range []string{"1", "77777777", "-1", "9223372036854775807"} {
		got := w.ask(protocol.ReqViewMessageByID, "offset", bad)
		require.Equal(t, protocol.SystemError, got.Code)
		require.Equal(t, "can not find message by the offset, "+bad, got.Remark)
	}
}

func TestByKey(t *testing.T) {
	w := newWorld(t)
	w.put(1, map[string]string{"KEYS": "k1 k2", "UNIQ_KEY": "U1"})
	w.put(40, map[string]string{"KEYS": "many", "UNIQ_KEY": "U2"})
	query := func(key, unique, limit string) *protocol.Command {
		return w.ask(protocol.ReqQueryMessage, "key", key, "maxNum", limit, "beginTimestamp", "0", "endTimestamp", "9223372036854775807", "_UNIQUE_KEY_QUERY", unique)
	}
	require.Eventually(t, func() bool { return query("U2", "true", "1").Code == protocol.Success }, wiretest.Timeout, time.Millisecond)
	require.Equal(t, []string{"m0"}, records(t, query("k2", "false", "5").Body))
	require.Equal(t, []string{"m0"}, records(t, query("U1", "true", "5").Body))
	require.Len(t, records(t, query("many", "false", "5").Body), 5)
	require.Len(t, records(t, query("U2", "true", "5").Body), 32, "maxNum is replaced")
	got := query("nokey", "false", "5")
	require.Equal(t, protocol.QueryNotFound, got.Code)
	require.Equal(t, "can not find message, maybe time range not correct", got.Remark)
	require.Equal(t, map[string]string{"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}, got.Ext)
	require.Equal(t, protocol.QueryNotFound, query("k2", "true", "5").Code, "no UNIQ_KEY")
	require.Equal(t, protocol.QueryNotFound, query("k2", "false", "-1").Code)
	require.Equal(t, protocol.SystemError, w.ask(protocol.ReqQueryMessage, "key", "k").Code)
}

// TestGoldenFrames compares codes that do not depend on what is stored, and fields in every case.
func TestGoldenFrames(t *testing.T) {
	for _, file := range []string{"client-json", "client-rocketmq"} {
		w := newWorld(t)
		n := 0
		for _, pair := range wiretest.Pairs(t, "testdata/"+file+".jsonl.gz", protocol.ReqQueryMessage, protocol.ReqSearchOffsetByTimestamp, protocol.ReqGetMaxOffset,
			protocol.ReqGetMinOffset, protocol.ReqGetEarliestMsgStoreTime, protocol.ReqViewMessageByID) {
			if pair.Answer == nil {
				continue
			}
			w.p.Write(pair.Request.Bytes)
			got, want := w.p.Read(), pair.Answer.Decode(t)
			require.Equal(t, slices.Sorted(maps.Keys(want.Ext)), slices.Sorted(maps.Keys(got.Ext)), "%s %d", pair.Request.Scenario, pair.Request.Code)
			require.Equal(t, want.Form, got.Form)
			if want.Code != protocol.Success {
				require.Equal(t, want.Code, got.Code)
				require.Equal(t, want.Remark, got.Remark)
			}
			n++
		}
		require.Greater(t, n, 5)
	}
}

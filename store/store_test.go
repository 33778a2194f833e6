package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func newSimStore(t *testing.T, change func(*Config)) (*Store, *mappedfile.Sim) {
	t.Helper()
	sim := mappedfile.NewSim(1)
	cfg := simConfig(AsyncFlush)
	if change != nil {
		change(&cfg)
	}
	s := mustOpen(t, sim, cfg, testOptions())
	s.Start()
	return s, sim
}

// put appends one message per body to topic/id, each in a batch of its own, and waits until they are dispatched.
func put(t testing.TB, s *Store, topic string, id int32, bodies ...string) []message.LogOffset {
	t.Helper()
	var at []message.LogOffset
	b := s.NewBatch()
	for _, body := range bodies {
		b.Reset()
		require.NoError(t, b.Add(testMessage(topic, id, body, body)))
		p, err := s.Append(b)
		require.NoError(t, err)
		at = append(at, p.Start)
	}
	settle(t, s)
	return at
}

func numbered(n int, size int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%d-%s", i, strings.Repeat("x", size))
	}
	return out
}

func get(t testing.TB, s *Store, topic string, id int32, at message.QueueOffset, change func(*Query)) *Result {
	t.Helper()
	q := Query{Topic: []byte(topic), QueueID: id, Offset: at, MaxMsgs: 32}
	if change != nil {
		change(&q)
	}
	r := new(Result)
	require.NoError(t, s.Get(&q, r))
	t.Cleanup(r.Release)
	return r
}

func TestConfigTags(t *testing.T) {
	c := Defaults()
	require.NoError(t, c.Validate())
	seen := map[string]bool{}
	v := reflect.TypeFor[Config]()
	for i := range v.NumField() {
		f := v.Field(i)
		key := f.Tag.Get("property")
		require.Equal(t, f.Name, strings.ToUpper(key[:1])+key[1:])
		require.False(t, seen[key], key)
		seen[key] = true
		require.Contains(t, []string{"true", "false"}, f.Tag.Get("live"), key)
		require.NotEmpty(t, f.Tag.Get("effect"), key)
	}
	require.GreaterOrEqual(t, len(seen), 191)
}

func TestConfigValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"flush type":    {func(c *Config) { c.FlushDiskType = "SOMETIMES" }, "flushDiskType"},
		"role":          {func(c *Config) { c.BrokerRole = "KING" }, "brokerRole"},
		"segment":       {func(c *Config) { c.MappedFileSizeCommitLog = 12 }, "mappedFileSizeCommitLog"},
		"delay level":   {func(c *Config) { c.MessageDelayLevel = "1s 5x" }, "5x"},
		"hour":          {func(c *Config) { c.DeleteWhen = "04;25" }, "deleteWhen"},
		"rocksdb":       {func(c *Config) { c.StoreType = "defaultRocksDB" }, "combineCQLoadingCQTypes"},
		"dledger":       {func(c *Config) { c.EnableDLegerCommitLog = true }, "enableDLegerCommitLog"},
		"light queues":  {func(c *Config) { c.EnableLmq = true }, "enableLmq"},
		"extended":      {func(c *Config) { c.EnableConsumeQueueExt = true }, "enableConsumeQueueExt"},
		"negative time": {func(c *Config) { c.FileReservedTime = -1 }, "fileReservedTime"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Defaults()
			c.change(&cfg)
			require.ErrorContains(t, cfg.Validate(), c.want)
		})
	}
}

func TestDelayLevels(t *testing.T) {
	got, err := ParseDelayLevels("1s 5s 1m 2h 1d")
	require.NoError(t, err)
	require.Equal(t, []int64{1000, 5000, 60000, 7200000, 86400000}, got)
	for _, bad := range []string{"s", "1", "-1s", "1w", "99999999999s"} {
		_, err := ParseDelayLevels(bad)
		require.Error(t, err, bad)
	}
}

func TestApplyConfig(t *testing.T) {
	s, _ := newSimStore(t, nil)
	next := s.Config()
	next.MaxMessageSize = 10
	next.MappedFileSizeCommitLog *= 2
	restart, err := s.ApplyConfig(next)
	require.NoError(t, err)
	require.Equal(t, []string{"mappedFileSizeCommitLog"}, restart)
	require.ErrorIs(t, s.NewBatch().Add(testMessage("a", 0, "more than ten bytes", "")), ErrTooLarge)
	next.FlushDiskType = "?"
	_, err = s.ApplyConfig(next)
	require.Error(t, err)
}

func TestRefusedFolders(t *testing.T) {
	for name, c := range map[string]struct{ file, hint string }{
		"rocksdb queues": {"consumequeue/CURRENT", "combineCQLoadingCQTypes"},
		"rocksdb config": {"config/rdb/CURRENT", "rocksDBConfigToJson"},
		"dledger":        {"raft-n0/data/00000000000000000000", "DLedger"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, filepath.FromSlash(c.file))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, nil, 0o644))
			cfg := Defaults()
			cfg.StorePathRootDir = dir
			_, err := Open(mappedfile.OS, cfg, testOptions())
			var refused *UnsupportedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.hint)
			require.NoFileExists(t, filepath.Join(dir, "abort"))
			require.NoDirExists(t, filepath.Join(dir, "commitlog"))
		})
	}
}

func TestLockedFolder(t *testing.T) {
	s, sim := newSimStore(t, nil)
	_, err := Open(sim, s.Config(), testOptions())
	require.ErrorIs(t, err, mappedfile.ErrLocked)
	require.NoError(t, s.Close())
	again := mustOpen(t, sim, simConfig(AsyncFlush), testOptions())
	require.True(t, again.Recovery().Clean)
}

func TestLimitsOfABatch(t *testing.T) {
	s, _ := newSimStore(t, nil)
	b := s.NewBatch()
	require.ErrorIs(t, b.Add(testMessage("t", 0, strings.Repeat("x", 2001), "")), ErrTooLarge)
	m := testMessage("t", 0, "x", "")
	m.Properties = make([]byte, message.MaxPropertiesLen+1)
	require.ErrorIs(t, b.Add(m), ErrPropertiesTooLong)
	require.ErrorIs(t, b.Add(testMessage("", 0, "x", "")), ErrIllegal)
	require.ErrorIs(t, b.Add(testMessage("a/b", 0, "x", "")), ErrIllegal)
	require.ErrorIs(t, b.Add(testMessage(strings.Repeat("t", 256), 0, "x", "")), ErrIllegal)
	require.NoError(t, b.Add(testMessage(strings.Repeat("t", 200), 0, "x", "")))
	require.Equal(t, 1, b.Len())
	_, err := s.Append(b)
	require.NoError(t, err)
}

// ST-19: what a queue answers around its ends.
func TestGetStatuses(t *testing.T) {
	for _, role := range []string{RoleAsyncMaster, RoleSlave} {
		t.Run(role, func(t *testing.T) {
			s, _ := newSimStore(t, func(c *Config) { c.BrokerRole = role; c.TravelCqFileNumWhenGetMessage = 9 })
			put(t, s, "t", 0, numbered(50, 10)...)
			_, err := s.Queue([]byte("never"), 0)
			require.NoError(t, err)
			for _, c := range []struct {
				topic string
				at    message.QueueOffset
				want  GetStatus
				next  message.QueueOffset
			}{
				{"unknown", 5, NoMatchedLogicQueue, 0},
				{"never", 0, NoMessageInQueue, 0},
				{"never", 7, NoMessageInQueue, 0},
				{"t", -1, OffsetTooSmall, 0},
				{"t", 50, OffsetOverflowOne, 50},
				{"t", 51, OffsetOverflowBadly, 50},
				{"t", math.MaxInt64, OffsetOverflowBadly, 50},
				{"t", 49, Found, 50},
			} {
				r := get(t, s, c.topic, 0, c.at, nil)
				require.Equal(t, c.want, r.Status, "%s@%d", c.topic, c.at)
				if role == RoleSlave && c.want != Found {
					c.next = c.at
				}
				require.Equal(t, c.next, r.Next, "%s@%d", c.topic, c.at)
			}
		})
	}
}

func TestGetLimits(t *testing.T) {
	s, _ := newSimStore(t, func(c *Config) { c.MappedFileSizeConsumeQueue = 20 * 1000; c.MappedFileSizeCommitLog = 1 << 20 })
	put(t, s, "t", 0, numbered(100, 200)...)
	size := get(t, s, "t", 0, 0, func(q *Query) { q.MaxMsgs = 1 }).Bytes
	for _, c := range []struct {
		name   string
		change func(*Query)
		want   int
	}{
		{"count", func(q *Query) { q.MaxMsgs = 7 }, 7},
		{"count in memory", func(q *Query) { q.MaxMsgs = 90 }, 32},
		{"bytes", func(q *Query) { q.MaxBytes = 3*size + 50 }, 3},
		{"first always", func(q *Query) { q.MaxBytes = 1 }, 1},
		{"none asked", func(q *Query) { q.MaxMsgs = 0 }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := get(t, s, "t", 0, 0, c.change)
			require.Equal(t, Found, r.Status)
			require.Equal(t, c.want, r.Count)
			require.EqualValues(t, c.want, r.Next)
			require.Len(t, r.Views, 1, "adjacent records share a view")
		})
	}
	s.ram = 100 * int64(size) / 40 * 10 // the last 10 records or so count as being in memory
	r := get(t, s, "t", 0, 0, nil)
	require.Equal(t, 8, r.Count, "count on disk")
	require.True(t, r.SuggestSlave)
	require.False(t, get(t, s, "t", 0, 99, nil).SuggestSlave)
}

type tagFilter struct {
	code  int64
	match func(*message.Record) bool
}

func (f tagFilter) MatchTags(code int64) bool          { return f.code == 0 || code == f.code }
func (f tagFilter) NeedsRecord() bool                  { return f.match != nil }
func (f tagFilter) MatchRecord(r *message.Record) bool { return f.match(r) }

func TestGetFilters(t *testing.T) {
	s, _ := newSimStore(t, func(c *Config) { c.MappedFileSizeConsumeQueue = 20 * 10000; c.MappedFileSizeCommitLog = 1 << 20 })
	bodies := numbered(1000, 1)
	put(t, s, "t", 0, bodies...)
	want := message.TagsCode([]byte("T" + bodies[790]))
	r := get(t, s, "t", 0, 0, func(q *Query) { q.Filter = tagFilter{code: want} })
	require.Equal(t, Found, r.Status)
	require.Equal(t, 1, r.Count)
	require.EqualValues(t, 800, r.Next, "a pull looks at 800 entries")
	r = get(t, s, "t", 0, 800, func(q *Query) { q.Filter = tagFilter{code: want} })
	require.Equal(t, NoMatchedMessage, r.Status)
	require.EqualValues(t, 1000, r.Next)
	r = get(t, s, "t", 0, 0, func(q *Query) {
		q.Filter = tagFilter{match: func(r *message.Record) bool { return strings.HasPrefix(string(r.Body), "m1") }}
	})
	require.Equal(t, 32, r.Count)
	for _, v := range r.Views {
		var rec message.Record
		require.NoError(t, message.Parse(v.Bytes(), &rec))
		require.True(t, strings.HasPrefix(string(rec.Body), "m1"))
	}
}

func TestGetCold(t *testing.T) {
	s, sim := newSimStore(t, func(c *Config) {
		c.MappedFileSizeCommitLog = 64 << 20
		c.MappedFileSizeConsumeQueue = 20 * 100000
		c.MessageIndexEnable = false
	})
	b := s.NewBatch()
	body := strings.Repeat("x", 1900)
	for range 40 {
		b.Reset()
		for range 500 {
			require.NoError(t, b.Add(testMessage("t", 0, body, "")))
		}
		_, err := s.Append(b)
		require.NoError(t, err)
	}
	settle(t, s)
	sim.SetCold(true)
	hotOnly := func(q *Query) { q.HotOnly = true }
	require.Equal(t, 32, get(t, s, "t", 0, 0, hotOnly).Count, "what was just written is not asked for")
	s.hot = 0
	r := get(t, s, "t", 0, 0, hotOnly)
	require.True(t, r.Cold)
	require.Zero(t, r.Count)
	require.Empty(t, r.Views)
	require.EqualValues(t, 0, r.Next)
	require.Equal(t, 32, get(t, s, "t", 0, 0, nil).Count, "asked off the hot path it is read")
	match := func(q *Query) {
		q.HotOnly = true
		q.Filter = tagFilter{match: func(r *message.Record) bool { return len(r.Body) == 1900 }}
	}
	require.True(t, get(t, s, "t", 0, 0, match).Cold)
	require.Equal(t, 32, get(t, s, "t", 0, 0, func(q *Query) { match(q); q.HotOnly = false }).Count, "filters read through the file")
	require.Equal(t, 32, get(t, s, "t", 0, 19000, hotOnly).Count, "the tail is hot")
	require.NoError(t, s.Close())
}

// ST-15, ST-17: keys with the same hash, repeated keys, one unique key twice.
func TestQueryKeys(t *testing.T) {
	s, _ := newSimStore(t, nil)
	add := func(topic, keys, unique string) message.LogOffset {
		b := s.NewBatch()
		m := testMessage(topic, 0, "x", keys)
		if unique != "" {
			m.Properties = message.AppendProperty(m.Properties, message.PropUniqKey, unique)
		}
		require.NoError(t, b.Add(m))
		p, err := s.Append(b)
		require.NoError(t, err)
		return p.Start
	}
	aa := add("AaTopic", "Aa", "")
	add("BBTopic", "BB", "")
	two := add("k", "k1 k1 k2", "u1")
	other := add("k", "one two three four five six seven eight", "u1")
	var many []message.LogOffset
	for range 100 {
		many = append(many, add("many", "same", ""))
	}
	settle(t, s)
	for _, c := range []struct {
		name, topic, key string
		unique           bool
		want             []message.LogOffset
	}{
		{"itself", "AaTopic", "Aa", false, []message.LogOffset{aa}},
		{"same hash, other key", "AaTopic", "BB", false, nil},
		{"same hash, other topic", "BBTopic", "Aa", false, nil},
		{"key twice in a message", "k", "k1", false, []message.LogOffset{two}},
		{"second key", "k", "k2", false, []message.LogOffset{two}},
		{"more keys than an entry holds", "k", "eight", false, []message.LogOffset{other}},
		{"unique key twice", "k", "u1", true, []message.LogOffset{two, other}},
		{"key is not the unique key", "k", "k1", true, nil},
		{"newest are kept, ascending", "many", "same", false, many[100-64:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := s.QueryKeys(c.topic, c.key, 64, 0, math.MaxInt64, c.unique)
			require.NoError(t, err)
			defer r.Release()
			var got []message.LogOffset
			for _, v := range r.Views {
				got = append(got, v.Offset())
			}
			require.Equal(t, c.want, got)
		})
	}
	r, err := s.QueryKeys("many", "same", 32, 0, math.MaxInt64, false)
	require.NoError(t, err)
	require.Len(t, r.Views, 32)
	r.Release()
	r, err = s.QueryKeys("many", "same", 32, 0, 1000, false)
	require.NoError(t, err)
	require.Empty(t, r.Views, "outside of the time asked for")
}

func TestViews(t *testing.T) {
	s, _ := newSimStore(t, nil)
	at := put(t, s, "t", 3, "hello", "world")
	id := message.AppendID(nil, host, at[1])
	v, from, err := s.ViewID(string(id))
	require.NoError(t, err)
	require.Equal(t, host, from)
	require.Equal(t, at[1], v.Offset())
	v.Release()
	for _, off := range []message.LogOffset{-1, at[1] + 1, at[0] + 50, s.log.End(), 1 << 40} {
		_, err := s.View(off)
		require.ErrorIs(t, err, ErrNoRecord, "%d", off)
	}
	require.Positive(t, s.StoreTime([]byte("t"), 3, 1))
	require.EqualValues(t, -1, s.StoreTime([]byte("t"), 3, 2))
	require.EqualValues(t, -1, s.StoreTime([]byte("t"), 4, 0))
	require.Equal(t, s.StoreTime([]byte("t"), 3, 0), s.Earliest([]byte("t"), 3))
	require.Equal(t, s.EarliestStoreTime(), s.Earliest([]byte("t"), 3))
	require.True(t, s.InMemory([]byte("t"), 3, 0))
}

// ST-11, ST-12: offsets by time, with equal times in a batch.
func TestOffsetByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSimStore(t, func(c *Config) { c.MappedFileSizeCommitLog = 1 << 20 })
		var times []int64
		for range 3 {
			b := s.NewBatch()
			for range 50 {
				require.NoError(t, b.Add(testMessage("t", 0, "x", "")))
			}
			p, err := s.Append(b)
			require.NoError(t, err)
			times = append(times, p.StoreTime)
			time.Sleep(20 * time.Millisecond)
		}
		settle(t, s)
		for _, c := range []struct {
			ms           int64
			lower, upper message.QueueOffset
		}{
			{times[0] - 1, 0, 0}, {times[0], 0, 49}, {times[1], 50, 99}, {times[2], 100, 149},
			{times[0] + 10, 50, 49}, {times[2] + 1, 150, 149}, {0, 0, 0}, {-1, 0, 0}, {math.MaxInt64, 150, 149},
		} {
			lower, err := s.OffsetByTime([]byte("t"), 0, c.ms, false)
			require.NoError(t, err)
			require.Equal(t, c.lower, lower, "lower %d", c.ms-times[0])
			upper, err := s.OffsetByTime([]byte("t"), 0, c.ms, true)
			require.NoError(t, err)
			require.Equal(t, c.upper, upper, "upper %d", c.ms-times[0])
		}
		require.NoError(t, s.Close())
	})
}

func TestDelayedMessagesCarryTheirTime(t *testing.T) {
	s, _ := newSimStore(t, func(c *Config) { c.MessageDelayLevel = "1s 5s" })
	for i, c := range []struct {
		level string
		want  int64
	}{{"1", 1000}, {"2", 5000}, {"9", 5000}} {
		b := s.NewBatch()
		m := testMessage("SCHEDULE_TOPIC_XXXX", 0, "x", "")
		m.Properties = message.AppendProperty(m.Properties, message.PropDelay, c.level)
		require.NoError(t, b.Add(m))
		p, err := s.Append(b)
		require.NoError(t, err)
		settle(t, s)
		u, ok, err := s.queues.Find("SCHEDULE_TOPIC_XXXX", 0).At(message.QueueOffset(i))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, p.StoreTime+c.want, u.Tags)
	}
}

func TestArrivals(t *testing.T) {
	s, _ := newSimStore(t, nil)
	var mu sync.Mutex
	next := map[int32]message.QueueOffset{}
	s.OnArrival(func(a Arrival) {
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, "t", a.Topic)
		require.Equal(t, next[a.QueueID]+message.QueueOffset(a.Count), a.Offset)
		next[a.QueueID] = a.Offset
		_, high, _ := s.Bounds([]byte("t"), a.QueueID)
		require.GreaterOrEqual(t, high, a.Offset, "what is told can be read")
	})
	put(t, s, "t", 0, numbered(20, 5)...)
	put(t, s, "t", 1, numbered(3, 5)...)
	require.NoError(t, s.Close())
	require.Equal(t, map[int32]message.QueueOffset{0: 20, 1: 3}, next)
}

// A first failed write or flush fences: waiters and writes fail with the cause, reads go on, Close says it.
func TestFence(t *testing.T) {
	for name, f := range map[string]mappedfile.Fault{
		"log write": {Op: mappedfile.OpWrite, Pattern: "00000000000000000000", Err: syscall.EIO},
		"log sync":  {Op: mappedfile.OpSync, Pattern: "00000000000000000000", Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			s, sim := newSimStore(t, func(c *Config) { c.FlushDiskType = SyncFlush })
			put(t, s, "t", 0, "kept")
			sim.Fail(f)
			b := s.NewBatch()
			require.NoError(t, b.Add(testMessage("t", 0, "lost", "")))
			p, err := s.Append(b)
			require.NoError(t, err)
			err = s.Flush(p.End)
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, s.Flushed().Wait(t.Context(), int64(p.End)), syscall.EIO)
			_, err = s.Append(b)
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, s.Writable(), syscall.EIO)
			require.False(t, s.Flags().Writable())
			r := get(t, s, "t", 0, 0, nil)
			require.Equal(t, 1, r.Count)
			require.ErrorIs(t, s.Close(), syscall.EIO)
			require.ErrorIs(t, s.Close(), syscall.EIO, "twice")
			sim.Heal()
			sim = sim.Crash()
			again := mustOpen(t, sim, simConfig(SyncFlush), testOptions())
			again.Start()
			settle(t, again)
			require.False(t, again.Recovery().Clean)
			require.Equal(t, 1, get(t, again, "t", 0, 0, nil).Count)
		})
	}
}

func TestFailedQueueWriteFences(t *testing.T) {
	s, sim := newSimStore(t, nil)
	put(t, s, "t", 0, "a")
	sim.Fail(mappedfile.Fault{Op: mappedfile.OpAllocate, Pattern: "00000000000000000000", Err: syscall.ENOSPC})
	require.ErrorIs(t, s.saver.now(), syscall.ENOSPC)
	<-s.saver.gone
	require.ErrorIs(t, s.Err(), ErrFenced)
	require.NotZero(t, s.Flags()&QueueError)
	require.ErrorIs(t, s.Close(), syscall.ENOSPC)
	sim.Heal()
	again := mustOpen(t, sim, simConfig(AsyncFlush), testOptions())
	again.Start()
	settle(t, again)
	require.Equal(t, 1, get(t, again, "t", 0, 0, nil).Count, "the queue is built again")
}

func TestFullLogRefusesAndRecovers(t *testing.T) {
	s, sim := newSimStore(t, nil)
	put(t, s, "t", 0, "a")
	sim.SetSpace(0)
	b := s.NewBatch()
	var err error
	for range 1000 {
		b.Reset()
		require.NoError(t, b.Add(testMessage("t", 0, strings.Repeat("x", 500), "")))
		if _, err = s.Append(b); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, ErrDiskFull)
	sim.SetSpace(-1)
	_, err = s.Append(b)
	require.NoError(t, err)
	settle(t, s)
	agree(t, s)
}

// usageFS is a disk that says how full it is.
type usageFS struct {
	mappedfile.FS
	mu    sync.Mutex
	avail int64
}

func (f *usageFS) Usage(string) (int64, int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 100, f.avail, nil
}

func (f *usageFS) set(avail int64) {
	f.mu.Lock()
	f.avail = avail
	f.mu.Unlock()
}

// ST-21: a full disk refuses writes with the ratios, and takes them again when space returns, without a restart.
func TestDiskLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &usageFS{FS: mappedfile.NewSim(1), avail: 50}
		cfg := simConfig(AsyncFlush)
		cfg.CleanFileForciblyEnable = false
		s := mustOpen(t, fs, cfg, testOptions())
		s.Start()
		put(t, s, "t", 0, "a")
		fs.set(5)
		time.Sleep(15 * time.Second)
		b := s.NewBatch()
		require.NoError(t, b.Add(testMessage("t", 0, "b", "")))
		_, err := s.Append(b)
		require.ErrorIs(t, err, ErrDiskFull)
		require.ErrorContains(t, err, "0.95")
		require.Equal(t, 1, get(t, s, "t", 0, 0, nil).Count, "consumption goes on")
		fs.set(12)
		time.Sleep(15 * time.Second)
		require.ErrorIs(t, s.Writable(), ErrDiskFull, "not before it is below the forced level")
		fs.set(50)
		time.Sleep(15 * time.Second)
		_, err = s.Append(b)
		require.NoError(t, err)
		require.InDelta(t, 0.5, s.Stats().Log[0].Ratio, 0.001)
		require.NoError(t, s.Close())
	})
}

// ST-20: a topic without messages left has minimum = maximum and takes new messages.
func TestRetention(t *testing.T) {
	s, _ := newSimStore(t, func(c *Config) {
		c.FileReservedTime = 0
		c.DeleteFileBatchMax = 100
		c.DeleteCommitLogFilesInterval = 0
	})
	put(t, s, "old", 0, numbered(30, 50)...)
	put(t, s, "new", 0, numbered(300, 200)...)
	require.Zero(t, s.log.Min())
	s.DeleteExpiredLog()
	for s.log.Min() == 0 || len(s.log.Segments()) > 1 {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, s.CleanExpired())
	low, high, _ := s.Bounds([]byte("old"), 0)
	require.EqualValues(t, 30, low)
	require.EqualValues(t, 30, high)
	require.Equal(t, OffsetOverflowOne, get(t, s, "old", 0, 30, nil).Status)
	require.Equal(t, OffsetTooSmall, get(t, s, "old", 0, 0, nil).Status)
	put(t, s, "old", 0, "again")
	require.Equal(t, 1, get(t, s, "old", 0, 30, nil).Count)
	low, high, _ = s.Bounds([]byte("new"), 0)
	require.Positive(t, low)
	require.EqualValues(t, 300, high)
	n := 0
	allRecords(t, s, "new", 0, func(message.QueueOffset, *message.Record) { n++ })
	require.EqualValues(t, high-low, n)
	require.NoError(t, s.Close())
}

// OP-10: a deleted topic goes with its files, does not come back after a kill, and starts again at 0.
func TestDeleteTopic(t *testing.T) {
	s, sim := newSimStore(t, nil)
	put(t, s, "gone", 0, numbered(40, 10)...)
	put(t, s, "stays", 0, numbered(5, 10)...)
	require.NoError(t, s.saver.now())
	require.NoError(t, s.DeleteTopic("gone"))
	_, _, known := s.Bounds([]byte("gone"), 0)
	require.False(t, known)
	put(t, s, "gone", 0, "first of the second life")
	_, high, _ := s.Bounds([]byte("gone"), 0)
	require.EqualValues(t, 1, high)

	killed := sim.Kill()
	again := mustOpen(t, killed, simConfig(AsyncFlush), testOptions())
	again.Start()
	settle(t, again)
	require.False(t, again.Recovery().Full)
	_, high, _ = again.Bounds([]byte("gone"), 0)
	require.EqualValues(t, 1, high)
	require.NoError(t, again.Close())

	lost := sim.Crash() // nothing was flushed but what Close and recovery flush: a full scan of both lives
	require.NoError(t, s.Close())
	full := mustOpen(t, lost, simConfig(AsyncFlush), testOptions())
	full.Start()
	settle(t, full)
	agree(t, full)
}

func TestFullScanPrefersTheNewLife(t *testing.T) {
	s, sim := newSimStore(t, nil)
	put(t, s, "t", 0, numbered(20, 10)...)
	require.NoError(t, s.DeleteTopic("t"))
	put(t, s, "t", 0, numbered(5, 10)...)
	require.NoError(t, s.Close())
	cfg := simConfig(AsyncFlush)
	for _, remove := range []string{"recovery.running", "recovery.durable"} {
		_ = sim.Remove("/store/epochmq/" + remove)
	}
	for range 2 { // with the queue's files, then without
		s = mustOpen(t, sim, cfg, testOptions())
		s.Start()
		settle(t, s)
		require.True(t, s.Recovery().Full)
		_, high, _ := s.Bounds([]byte("t"), 0)
		require.EqualValues(t, 5, high)
		agree(t, s)
		require.NoError(t, s.Close())
		_ = sim.Remove("/store/epochmq/recovery.durable")
		_ = sim.Remove("/store/epochmq/recovery.running")
		es, err := sim.ReadDir("/store/consumequeue/t/0")
		require.NoError(t, err)
		for _, e := range es {
			require.NoError(t, sim.Remove("/store/consumequeue/t/0/"+e.Name()))
		}
	}
}

// ST-23: a file in the middle of the log is missing: the hole is named, consumers go over it, later messages arrive.
func TestMissingLogFile(t *testing.T) {
	for _, abort := range []bool{false, true} {
		t.Run(fmt.Sprintf("abort=%v", abort), func(t *testing.T) {
			dir := t.TempDir()
			cfg := simConfig(AsyncFlush)
			cfg.StorePathRootDir = dir
			s := mustOpen(t, mappedfile.OS, cfg, testOptions())
			s.Start()
			put(t, s, "t", 0, numbered(200, 200)...)
			require.NoError(t, s.Close())
			require.NoError(t, os.Remove(filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", 2*8192))))
			if abort {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "abort"), []byte("1"), 0o644))
			}
			var buf syncBuffer
			o := testOptions()
			o.Log = slog.New(slog.NewTextHandler(&buf, nil))
			s = mustOpen(t, mappedfile.OS, cfg, o)
			s.Start()
			settle(t, s)
			require.Contains(t, buf.String(), "from=16384 to=24576")
			var at []message.QueueOffset
			allRecords(t, s, "t", 0, func(q message.QueueOffset, rec *message.Record) {
				require.Equal(t, q, rec.QueueOffset)
				at = append(at, q)
			})
			require.EqualValues(t, 0, at[0])
			require.EqualValues(t, 199, at[len(at)-1])
			require.Less(t, len(at), 200)
			put(t, s, "t", 0, "next")
			_, high, _ := s.Bounds([]byte("t"), 0)
			require.EqualValues(t, 201, high)
			require.NoError(t, s.Close())
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// ST-01, ST-02, ST-03, ST-04, ST-07: damage on disk under a store that was stopped or killed.
func TestDamage(t *testing.T) {
	const seg, cqFile = 8192, 320
	logName := func(i int64) string { return filepath.Join("commitlog", fmt.Sprintf("%020d", i*seg)) }
	cq := func(i int64) string { return filepath.Join("consumequeue", "t", "0", fmt.Sprintf("%020d", i*cqFile)) }
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string, last, end int64)
		lost   int    // messages that may be missing, at the end
		fails  string // start-up is refused with this
	}{
		"nothing":       {damage: func(*testing.T, string, int64, int64) {}},
		"no queues":     {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, "consumequeue") }},
		"no index":      {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, "index") }},
		"no checkpoint": {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, "checkpoint") }},
		"no own folder": {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, "epochmq") }},
		"nothing but log": {damage: func(t *testing.T, dir string, _, _ int64) {
			removeAll(t, dir, "epochmq", "checkpoint", "index", "consumequeue")
		}},
		"third queue file": {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, cq(2)) }},
		"first queue file": {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, cq(0)) }},
		"last queue file":  {damage: func(t *testing.T, dir string, _, _ int64) { removeAll(t, dir, cq(12)) }},
		"queue file of zeros behind, log tail gone": {lost: 3, damage: func(t *testing.T, dir string, last, end int64) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, cq(13)), make([]byte, cqFile), 0o644))
			patch(t, filepath.Join(dir, logName((end-1)/seg)), (end-1)%seg+1-600, make([]byte, 600))
		}},
		"empty files behind": {damage: func(t *testing.T, dir string, _, end int64) {
			es, err := os.ReadDir(filepath.Join(dir, "commitlog"))
			require.NoError(t, err)
			for _, f := range []string{logName(int64(len(es))), cq(13), "index/29991231000000000"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
			}
		}},
		"empty file in the middle": {fails: logName(2), damage: func(t *testing.T, dir string, _, _ int64) {
			require.NoError(t, os.Truncate(filepath.Join(dir, logName(2)), 0))
		}},
		"body bit": {lost: 1, damage: func(t *testing.T, dir string, last, _ int64) {
			patch(t, filepath.Join(dir, logName(last/seg)), last%seg+100, []byte{0xFF})
		}},
		"last 100 bytes": {lost: 1, damage: func(t *testing.T, dir string, last, end int64) {
			patch(t, filepath.Join(dir, logName(last/seg)), (end-1)%seg+1-100, make([]byte, 100))
		}},
		"huge size": {lost: 1, damage: func(t *testing.T, dir string, last, _ int64) {
			patch(t, filepath.Join(dir, logName(last/seg)), last%seg, []byte{0x7F, 0xFF, 0xFF, 0xFF})
		}},
		"size 8": {lost: 1, damage: func(t *testing.T, dir string, last, _ int64) {
			patch(t, filepath.Join(dir, logName(last/seg)), last%seg, []byte{0, 0, 0, 8})
		}},
		"topic length": {lost: 1, damage: func(t *testing.T, dir string, last, end int64) {
			f := filepath.Join(dir, logName(last/seg))
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			var rec message.Record
			require.NoError(t, message.Parse(b[last%seg:], &rec))
			patch(t, f, last%seg+int64(rec.Size)-int64(len(rec.Properties))-2-int64(len(rec.Topic))-1, []byte{0xFF})
		}},
		"damaged marks": {damage: func(t *testing.T, dir string, _, _ int64) {
			for _, m := range []string{"recovery.running", "recovery.durable"} {
				f := filepath.Join(dir, "epochmq", m)
				if b, err := os.ReadFile(f); err == nil {
					patch(t, f, int64(len(b)/2), []byte{^b[len(b)/2]})
				}
			}
		}},
	} {
		for _, killed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/killed=%v", name, killed), func(t *testing.T) {
				dir := t.TempDir()
				cfg := simConfig(AsyncFlush)
				cfg.StorePathRootDir = dir
				s := mustOpen(t, mappedfile.OS, cfg, testOptions())
				s.Start()
				at := put(t, s, "t", 0, numbered(200, 100)...)
				end := int64(s.log.End())
				copied := t.TempDir()
				if killed {
					require.NoError(t, s.saver.now())
					require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
				}
				require.NoError(t, s.Close())
				if !killed {
					require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
				}
				c.damage(t, copied, int64(at[len(at)-1]), end)
				cfg.StorePathRootDir = copied
				s, err := Open(mappedfile.OS, cfg, testOptions())
				if c.fails != "" {
					require.ErrorContains(t, err, c.fails)
					return
				}
				require.NoError(t, err)
				t.Cleanup(func() { _ = s.Close() })
				s.Start()
				settle(t, s)
				agree(t, s)
				low, high, _ := s.Bounds([]byte("t"), 0)
				require.Zero(t, low)
				require.LessOrEqual(t, int(high), 200)
				require.GreaterOrEqual(t, int(high), 200-c.lost)
				if c.lost == 1 {
					require.EqualValues(t, 199, high)
				}
				for _, i := range []int{0, 77, int(high) - 1} {
					r, err := s.QueryKeys("t", numbered(200, 100)[i], 10, 0, math.MaxInt64, false)
					require.NoError(t, err)
					require.Len(t, r.Views, 1, "key of message %d", i)
					r.Release()
				}
				put(t, s, "t", 0, numbered(5, 10)...)
				_, after, _ := s.Bounds([]byte("t"), 0)
				require.Equal(t, high+5, after)
				require.NoError(t, s.Close())
				s = mustOpen(t, mappedfile.OS, cfg, testOptions())
				require.True(t, s.Recovery().Clean)
				s.Start()
				settle(t, s)
				agree(t, s)
				n := 0
				allRecords(t, s, "t", 0, func(message.QueueOffset, *message.Record) { n++ })
				require.EqualValues(t, after, n)
			})
		}
	}
}

// TestGetPassesOverDamagedSizes: a reader gets whole records only, whatever the size field of one of them has become since recovery.
func TestGetPassesOverDamagedSizes(t *testing.T) {
	for name, which := range map[string][]int{"first": {0}, "middle": {4}, "last": {9}, "two": {4, 5}, "last two": {8, 9}} {
		for _, change := range []int32{-20, 20, -60, 1 << 20} {
			t.Run(fmt.Sprint(name, " ", change), func(t *testing.T) {
				dir := t.TempDir()
				cfg := simConfig(AsyncFlush)
				cfg.StorePathRootDir = dir
				s := mustOpen(t, mappedfile.OS, cfg, testOptions())
				s.Start()
				at := put(t, s, "t", 0, numbered(10, 100)...)
				settle(t, s)
				for _, i := range which {
					v, err := s.View(at[i])
					require.NoError(t, err)
					var size [4]byte
					binary.BigEndian.PutUint32(size[:], uint32(int32(v.Len())+change))
					v.Release()
					patch(t, filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", 0)), int64(at[i]), size[:])
				}
				var want, got []message.QueueOffset
				for i := range at {
					if !slices.Contains(which, i) {
						want = append(want, message.QueueOffset(i))
					}
				}
				for next := message.QueueOffset(0); next < 10; {
					r := get(t, s, "t", 0, next, nil)
					require.Greater(t, r.Next, next)
					next = r.Next
					for _, v := range r.Views {
						for b := v.Bytes(); len(b) > 0; {
							var rec message.Record
							require.NoError(t, message.Parse(b, &rec))
							got = append(got, rec.QueueOffset)
							b = b[binary.BigEndian.Uint32(b):]
						}
					}
				}
				require.Equal(t, want, got)
				require.NoError(t, s.Close())
			})
		}
	}
}

func removeAll(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, n)))
	}
}

func patch(t *testing.T, file string, off int64, p []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	if len(p) == 1 { // change at least one bit
		var was [1]byte
		_, err := f.ReadAt(was[:], off)
		require.True(t, err == nil || errors.Is(err, io.EOF))
		if was[0] == p[0] {
			p = []byte{^p[0]}
		}
	}
	_, err = f.WriteAt(p, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestManualConfirmGatesConsumers(t *testing.T) {
	sim := mappedfile.NewSim(1)
	o := testOptions()
	o.ManualConfirm = true
	s := mustOpen(t, sim, simConfig(AsyncFlush), o)
	s.Start()
	b := s.NewBatch()
	require.NoError(t, b.Add(testMessage("t", 0, "a", "")))
	p, err := s.Append(b)
	require.NoError(t, err)
	require.NoError(t, s.Flush(p.End))
	require.Equal(t, NoMessageInQueue, get(t, s, "t", 0, 0, nil).Status)
	require.EqualValues(t, 1, s.MaxOffset([]byte("t"), 0, false))
	require.Zero(t, s.MaxOffset([]byte("t"), 0, true))
	_, err = s.View(p.Start)
	require.ErrorIs(t, err, ErrNoRecord)
	s.SetConfirmed(p.End)
	require.NoError(t, s.Dispatched().Wait(t.Context(), int64(p.End)))
	require.Equal(t, 1, get(t, s, "t", 0, 0, nil).Count)
}

func TestClosedStore(t *testing.T) {
	s, _ := newSimStore(t, nil)
	put(t, s, "t", 0, "a")
	require.NoError(t, s.Close())
	b := s.NewBatch()
	require.NoError(t, b.Add(testMessage("t", 0, "b", "")))
	_, err := s.Append(b)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Get(&Query{Topic: []byte("t")}, new(Result)), ErrClosed)
	_, err = s.View(0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.QueryKeys("t", "a", 1, 0, math.MaxInt64, false)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.DeleteTopic("t"), ErrClosed)
	require.ErrorIs(t, s.CleanExpired(), ErrClosed)
}

func TestStats(t *testing.T) {
	s, _ := newSimStore(t, nil)
	put(t, s, "t", 0, numbered(10, 10)...)
	get(t, s, "t", 0, 0, nil)
	get(t, s, "t", 0, 10, nil)
	st := s.Stats()
	require.EqualValues(t, 10, st.Puts)
	require.EqualValues(t, 1, st.Found)
	require.EqualValues(t, 1, st.Miss)
	require.EqualValues(t, 10, st.Transferred)
	require.Equal(t, 1, st.Queues)
	require.Zero(t, st.DispatchBehind)
	require.NotEmpty(t, st.Log)
	require.Positive(t, st.EarliestStoreTime)
	var m sampler
	var c counters
	for range 61 {
		c.puts.Add(5)
		m.tick(&c)
	}
	m.fill(&st)
	require.Equal(t, [3]bool{true, true, false}, st.PutRate.Known)
	require.InDelta(t, 5, st.PutRate.PerSecond[1], 0.001)
}

// Neither appending nor reading allocates per message.
func TestAllocations(t *testing.T) {
	s, _ := newSimStore(t, func(c *Config) { c.MappedFileSizeCommitLog = 64 << 20; c.MappedFileSizeConsumeQueue = 20 * 100000 })
	b := s.NewBatch()
	m := testMessage("t", 0, strings.Repeat("x", 1024), "key")
	for range 100 {
		b.Reset()
		require.NoError(t, b.Add(m))
		p, err := s.Append(b)
		require.NoError(t, err)
		require.NoError(t, s.Write(p.End))
	}
	settle(t, s)
	q, r := &Query{Topic: []byte("t"), MaxMsgs: 32, HotOnly: true, Filter: tagFilter{}}, new(Result)
	require.NoError(t, s.Get(q, r))
	r.Release()
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if err := s.Get(q, r); err != nil || r.Count != 32 {
			t.Errorf("%v %d", err, r.Count)
		}
		r.Release()
	}))
	got := testing.AllocsPerRun(2000, func() {
		b.Reset()
		if err := b.Add(m); err != nil {
			t.Error(err)
		}
		p, err := s.Append(b)
		if err != nil {
			t.Error(err)
		}
		if err := s.Write(p.End); err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, got, 1.0, "dispatch runs beside and allocates per round, not per message")
}

package index

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/internal/goldenstore"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var small = Config{Dir: "/store/index", Slots: 16, Entries: 40}

func open(t testing.TB, fsys mappedfile.FS, cfg Config) *Index {
	t.Helper()
	x, err := Open(fsys, cfg)
	require.NoError(t, err)
	return x
}

func load(t testing.TB, x *Index, opt LoadOptions) Report {
	t.Helper()
	rep, err := x.Load(opt)
	require.NoError(t, err)
	return rep
}

// record is message n: 100 bytes each, one a second, keys k<n%5> and u<n>.
func record(n int) Record {
	return Record{Log: message.LogOffset(n * 100), StoreTime: 1_700_000_000_000 + int64(n)*1000,
		Hashes: AppendHashes(nil, []byte("T"), fmt.Appendf(nil, "u%d", n), fmt.Appendf(nil, "k%d", n%5))}
}

func records(from, to int) []Record {
	var rs []Record
	for n := from; n < to; n++ {
		rs = append(rs, record(n))
	}
	return rs
}

func find(t testing.TB, x *Index, key string, limit int) []message.LogOffset {
	t.Helper()
	got, err := x.Query(Query{Hash: Hash([]byte("T"), []byte(key)), Max: limit, End: math.MaxInt64}, nil)
	require.NoError(t, err)
	return got
}

// wantRecords checks that exactly messages [0, n) are found under their keys.
func wantRecords(t testing.TB, x *Index, n int) {
	t.Helper()
	byKey := map[string][]message.LogOffset{}
	for i := range n {
		byKey[fmt.Sprintf("u%d", i)] = []message.LogOffset{record(i).Log}
		k := fmt.Sprintf("k%d", i%5)
		byKey[k] = append(byKey[k], record(i).Log)
	}
	for i := range 5 {
		k := fmt.Sprintf("k%d", i)
		require.Equal(t, byKey[k], find(t, x, k, 1000), k)
	}
	for i := range n + 3 {
		k := fmt.Sprintf("u%d", i)
		require.Equal(t, byKey[k], find(t, x, k, 10), k)
	}
}

func TestHash(t *testing.T) {
	for _, c := range []struct {
		topic, key string
		want       int32
	}{
		{"TopicTest", "k1", 2746024},
		{"orders", "k1", 390723708},
		{"TopicTest", "AC1200010001", 1980279111},
		{"AaTopic", "BB", Hash([]byte("BBTopic"), []byte("Aa"))},
		{"t", "\U0001F600\u00e9\u4e2d", nonNegative(hashMore(0, []byte("t#\U0001F600\u00e9\u4e2d")))},
	} {
		require.Equal(t, c.want, Hash([]byte(c.topic), []byte(c.key)), c.topic+"#"+c.key)
	}
	require.Equal(t, int32(0), nonNegative(math.MinInt32))
	// a surrogate pair is two units: D83D DE00
	require.Equal(t, int32(31*0xD83D+0xDE00), hashMore(0, []byte("\U0001F600")))
	h := func(k string) int32 { return Hash([]byte("T"), []byte(k)) }
	require.Equal(t, []int32{h("U"), h("a"), h("b"), h("a")}, AppendHashes(nil, []byte("T"), []byte("U"), []byte(" a  b a ")))
	require.Empty(t, AppendHashes(nil, []byte("T"), nil, nil))
	require.Equal(t, int64(20000060), Layout{Slots: 5000000, Entries: 20000000}.EntryPos(1))
	require.Equal(t, int64(420000040), Layout{Slots: 5000000, Entries: 20000000}.FileSize())
	require.Equal(t, int64(10984136), Layout{Slots: 5000000}.slotPos(2746024))
}

func TestFileName(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 14, 52, 795_000_000, time.Local)
	require.Equal(t, "20261201091452795", FileName(at))
	back, err := ParseName("20261201091452795")
	require.NoError(t, err)
	require.True(t, at.Equal(back))
	for _, bad := range []string{"", "2026120109145279", "2026120109145279x", "20261301091452795"} {
		_, err := ParseName(bad)
		require.Error(t, err, bad)
	}
}

func TestPutAndQuery(t *testing.T) {
	for _, step := range []int{1, 4, 50} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			sim := mappedfile.NewSim(1)
			x := open(t, sim, small)
			load(t, x, LoadOptions{Clean: true})
			for n := 0; n < 100; n += step {
				require.NoError(t, x.Put(records(n, min(n+step, 100))))
				if n%3 == 0 {
					require.NoError(t, x.Drain())
				}
			}
			wantRecords(t, x, 100)
			require.Greater(t, len(x.files), 4)
			require.NoError(t, x.Put(records(0, 100))) // again: nothing changes
			wantRecords(t, x, 100)
			require.NoError(t, x.Close())
			require.NoError(t, x.Close())
			x = open(t, sim, small)
			rep := load(t, x, LoadOptions{Clean: true})
			require.Equal(t, message.LogOffset(math.MaxInt64), rep.Rebuild)
			wantRecords(t, x, 100)
			require.NoError(t, x.Put(records(50, 130)))
			wantRecords(t, x, 130)
		})
	}
}

func TestQueryLimits(t *testing.T) {
	x := open(t, mappedfile.NewSim(1), small)
	load(t, x, LoadOptions{Clean: true})
	rs := records(0, 60)
	rs[3].Hashes = append(rs[3].Hashes, rs[3].Hashes...) // a key twice in one message
	require.NoError(t, x.Put(rs[:40]))
	require.NoError(t, x.Drain())
	require.NoError(t, x.Put(rs[40:]))
	require.Equal(t, []message.LogOffset{4800, 5300, 5800}, find(t, x, "k3", 3), "the newest are kept")
	require.Equal(t, []message.LogOffset{300}, find(t, x, "u3", 10))
	require.Nil(t, find(t, x, "k3", 0))
	hash := Hash([]byte("T"), []byte("k3"))
	base := int64(1_700_000_000_000)
	got, err := x.Query(Query{Hash: hash, Max: 10, Begin: base + 13000, End: base + 23000}, nil)
	require.NoError(t, err)
	require.Equal(t, []message.LogOffset{1300, 1800, 2300}, got)
	// what does not match does not count
	var asked []message.LogOffset
	got, err = x.Query(Query{Hash: hash, Max: 2, End: math.MaxInt64}, func(at message.LogOffset) bool {
		asked = append(asked, at)
		return at < 1000
	})
	require.NoError(t, err)
	require.Equal(t, []message.LogOffset{300, 800}, got)
	require.True(t, slices.IsSortedFunc(asked, func(a, b message.LogOffset) int { return int(b - a) }))
}

func TestKeylessMessagesMoveLast(t *testing.T) {
	sim := mappedfile.NewSim(1)
	x := open(t, sim, small)
	load(t, x, LoadOptions{})
	require.NoError(t, x.Put([]Record{{Log: 700}}))
	require.NoError(t, x.Drain())
	s := x.State()
	require.Equal(t, State{EndLog: -1, Last: 700}, s)
	x = open(t, sim.Kill(), small)
	rep := load(t, x, LoadOptions{State: &s})
	require.Equal(t, message.LogOffset(700), rep.Rebuild)
	require.Equal(t, message.LogOffset(700), x.Last())
}

// Files built from the same messages are the same, byte by byte, as those of a Java broker.
func TestWriteWhatJavaWrites(t *testing.T) {
	for _, name := range []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean"} {
		t.Run(name, func(t *testing.T) {
			root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
			dir := filepath.Join(t.TempDir(), "index")
			x := open(t, mappedfile.OS, Config{Dir: dir, Slots: goldenstore.IndexSlots, Entries: goldenstore.IndexEntries})
			load(t, x, LoadOptions{})
			for i, msg := range m.Messages {
				if msg.SysFlag&message.TransactionMask == message.TransactionRollback {
					continue
				}
				require.NoError(t, x.Put([]Record{{Log: message.LogOffset(msg.PhysicalOffset), StoreTime: msg.StoreTimestamp,
					Hashes: AppendHashes(nil, []byte(msg.Topic), []byte(msg.Properties["UNIQ_KEY"]), []byte(msg.Properties["KEYS"]))}}))
				if i%100 == 0 {
					require.NoError(t, x.Drain())
				}
			}
			require.NoError(t, x.Close())
			want, got := content(t, filepath.Join(root, "index")), content(t, dir)
			require.Equal(t, len(want), len(got))
			require.Equal(t, DecodeHeader(want), DecodeHeader(got))
			for i := range want {
				if want[i] != got[i] {
					t.Fatalf("byte %d differs", i)
				}
			}
		})
	}
}

func content(t testing.TB, dir string) []byte {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	b, err := os.ReadFile(filepath.Join(dir, list[0].Name()))
	require.NoError(t, err)
	return b
}

func TestQueryJavaStores(t *testing.T) {
	for _, name := range []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean"} {
		t.Run(name, func(t *testing.T) {
			root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
			x := open(t, mappedfile.OS, Config{Dir: filepath.Join(root, "index"), Slots: goldenstore.IndexSlots, Entries: goldenstore.IndexEntries})
			require.Empty(t, load(t, x, LoadOptions{Clean: true}).Removed)
			for _, q := range m.IndexQueries {
				got, err := x.Query(Query{Hash: Hash([]byte(q.Topic), []byte(q.Key)), Max: 32, End: math.MaxInt64}, nil)
				require.NoError(t, err)
				var want []message.LogOffset
				for _, at := range q.PhysicalOffsets {
					want = append(want, message.LogOffset(at))
				}
				slices.Sort(want)
				require.Equal(t, want, got, "%s#%s", q.Topic, q.Key)
			}
			require.NoError(t, x.Close())
		})
	}
	t.Run("killed, as after a crash", func(t *testing.T) {
		root := goldenstore.Unpack(t, "killed")
		x := open(t, mappedfile.OS, Config{Dir: filepath.Join(root, "index"), Slots: goldenstore.IndexSlots, Entries: goldenstore.IndexEntries})
		rep := load(t, x, LoadOptions{})
		require.Len(t, rep.Removed, 1)
		require.Zero(t, rep.Rebuild)
		require.NoError(t, x.Close())
	})
}

func TestTruncateAbove(t *testing.T) {
	for _, keep := range []int{0, 1, 7, 19, 20, 21, 55, 60, 61, 70} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			sim := mappedfile.NewSim(1)
			x := open(t, sim, small)
			load(t, x, LoadOptions{Clean: true})
			require.NoError(t, x.Put(records(0, 60)))
			require.NoError(t, x.TruncateAbove(message.LogOffset(keep*100)))
			wantRecords(t, x, min(keep, 60))
			require.NoError(t, x.Put(records(min(keep, 60), 80)))
			wantRecords(t, x, 80)
			require.NoError(t, x.Close())
			x = open(t, sim, small)
			load(t, x, LoadOptions{Clean: true})
			wantRecords(t, x, 80)
		})
	}
}

func TestDeleteExpired(t *testing.T) {
	x := open(t, mappedfile.NewSim(1), small)
	load(t, x, LoadOptions{Clean: true})
	require.NoError(t, x.Put(records(0, 60)))
	files := len(x.files)
	n, err := x.DeleteExpired(3000)
	require.NoError(t, err)
	require.Positive(t, n)
	require.Empty(t, find(t, x, "u3", 10))
	require.Len(t, find(t, x, "u40", 10), 1)
	n2, err := x.DeleteExpired(math.MaxInt64)
	require.NoError(t, err)
	require.Equal(t, files-1, n+n2, "the newest stays")
	require.Len(t, find(t, x, "u59", 10), 1)
}

func TestOddFiles(t *testing.T) {
	sim := mappedfile.NewSim(1)
	x := open(t, sim, small)
	load(t, x, LoadOptions{Clean: true})
	require.NoError(t, x.Put(records(0, 30)))
	require.NoError(t, x.Close())
	require.NoError(t, sim.WriteFile("/store/index/29991231235959999", nil, 0o644)) // ST-04
	require.NoError(t, sim.WriteFile("/store/index/notes", []byte("x"), 0o644))
	x = open(t, sim, small)
	load(t, x, LoadOptions{Clean: true})
	wantRecords(t, x, 30)
	require.NoError(t, x.Close())
	require.NoError(t, sim.WriteFile("/store/index/29991231235959999", []byte("abc"), 0o644))
	_, err := open(t, sim, small).Load(LoadOptions{})
	var bad *mappedfile.CorruptError
	require.ErrorAs(t, err, &bad)
}

func TestClockGoesBack(t *testing.T) {
	sim := mappedfile.NewSim(1)
	x := open(t, sim, small)
	load(t, x, LoadOptions{Clean: true})
	x.w.Lock()
	require.NoError(t, x.create(time.Date(2100, 1, 1, 0, 0, 0, 0, time.Local)))
	x.w.Unlock()
	require.NoError(t, x.Put(records(0, 60)))
	require.True(t, slices.IsSortedFunc(x.files, func(a, b *file) int {
		if a.name < b.name {
			return -1
		}
		return 1
	}))
	wantRecords(t, x, 60)
}

func TestFullDisk(t *testing.T) {
	sim := mappedfile.NewSim(1)
	x := open(t, sim, small)
	load(t, x, LoadOptions{Clean: true})
	sim.SetSpace(10)
	require.Error(t, x.Put(records(0, 1)))
	list, err := sim.ReadDir("/store/index")
	require.NoError(t, err)
	require.Empty(t, list)
	sim.SetSpace(-1)
	require.NoError(t, x.Put(records(0, 1)))
	wantRecords(t, x, 1)
}

// TestCrash puts, drains, flushes, cuts and crashes at random, puts again what a mark does not cover, and compares.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sim := mappedfile.NewSim(rapid.Uint64().Draw(rt, "seed"))
		sim.SetTorn(rapid.Bool().Draw(rt, "torn"))
		x := open(t, sim, small)
		load(t, x, LoadOptions{})
		var log []Record
		empty := State{EndLog: -1, Last: -1}
		running, durable := empty, empty
		durableLen := 0
		safeTime := int64(0) // as a checkpoint file would have it
		clock := int64(1_700_000_000_000)
		reopen := func(s *State) {
			x = open(t, sim, small)
			rep := load(t, x, LoadOptions{State: s, SafeTime: safeTime})
			if err := x.TruncateAbove(message.LogOffset(len(log) * 100)); err != nil {
				rt.Fatal(err)
			}
			safeTime = x.FlushedTime()
			if rapid.Bool().Draw(rt, "repair first") {
				require.NoError(t, x.Repair())
			}
			for _, r := range log {
				if r.Log >= rep.Rebuild {
					require.NoError(t, x.Put([]Record{r}))
				}
			}
		}
		cut := func(rt *rapid.T) {
			log = log[:rapid.IntRange(durableLen, len(log)).Draw(rt, "log end")]
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(rt, "n") {
					r := Record{Log: message.LogOffset(len(log) * 100), StoreTime: clock,
						Hashes: rapid.SliceOfN(rapid.Int32Range(0, 40), 0, 4).Draw(rt, "keys")}
					clock += rapid.Int64Range(0, 3000).Draw(rt, "ms")
					log = append(log, r)
					require.NoError(t, x.Put([]Record{r}))
				}
			},
			"drain": func(*rapid.T) { require.NoError(t, x.Drain()) },
			"running mark": func(*rapid.T) {
				require.NoError(t, x.Drain())
				running = x.State()
			},
			"durable mark": func(*rapid.T) {
				require.NoError(t, x.Flush())
				running, durable, durableLen = x.State(), x.State(), len(log)
				safeTime = x.FlushedTime()
			},
			"kill": func(*rapid.T) {
				sim = sim.Kill()
				reopen(&running)
			},
			"power cut": func(rt *rapid.T) {
				sim = sim.Crash()
				cut(rt)
				reopen(&durable)
				running = durable
			},
			"power cut without mark": func(rt *rapid.T) {
				sim = sim.Crash()
				cut(rt)
				reopen(nil)
				running = empty
				durable = empty
			},
			"truncate": func(rt *rapid.T) {
				log = log[:rapid.IntRange(0, len(log)).Draw(rt, "log end")]
				require.NoError(t, x.TruncateAbove(message.LogOffset(len(log)*100)))
				require.NoError(t, x.Flush())
				running, durable, durableLen = x.State(), x.State(), len(log)
				safeTime = x.FlushedTime()
			},
			"clean restart": func(*rapid.T) {
				require.NoError(t, x.Close())
				running, durable, durableLen = x.State(), x.State(), len(log)
				x = open(t, sim, small)
				load(t, x, LoadOptions{Clean: true})
			},
			"": func(*rapid.T) {
				want := map[int32][]message.LogOffset{}
				for _, r := range log {
					for _, h := range r.Hashes {
						if !slices.Contains(want[h], r.Log) {
							want[h] = append(want[h], r.Log)
						}
					}
				}
				for h := range int32(41) {
					got, err := x.Query(Query{Hash: h, Max: 1 << 20, End: math.MaxInt64}, nil)
					if err != nil {
						rt.Fatal(err)
					}
					if !slices.Equal(got, want[h]) {
						rt.Fatalf("hash %d: %v instead of %v", h, got, want[h])
					}
				}
			},
		})
	})
}

func TestQueriesBesideWriter(t *testing.T) {
	x := open(t, mappedfile.OS, Config{Dir: filepath.Join(t.TempDir(), "index"), Slots: 64, Entries: 1000})
	load(t, x, LoadOptions{Clean: true})
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for last := 0; ; {
				got, err := x.Query(Query{Hash: Hash([]byte("T"), []byte("k1")), Max: 1 << 20, End: math.MaxInt64}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) < last {
					t.Errorf("%d after %d messages", len(got), last)
					return
				}
				last = len(got)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := 0; n < 3000; n += 10 {
		require.NoError(t, x.Put(records(n, n+10)))
		if n%50 == 0 {
			require.NoError(t, x.Drain())
		}
	}
	close(done)
	wg.Wait()
	require.Len(t, find(t, x, "k1", 1000), 600)
	require.NoError(t, x.Close())
}

func TestPutDoesNotAllocate(t *testing.T) {
	x := open(t, mappedfile.OS, Config{Dir: filepath.Join(t.TempDir(), "index"), Slots: 10000, Entries: 1 << 20})
	load(t, x, LoadOptions{Clean: true})
	hashes := make([]int32, 0, 8)
	topic, unique, keys := []byte("Topic"), []byte("AC1200010001"), []byte("order-17 customer-4")
	var one [1]Record
	n := 0
	put := func() {
		hashes = AppendHashes(hashes[:0], topic, unique, keys)
		one[0] = Record{Log: message.LogOffset(n * 100), StoreTime: 1_700_000_000_000, Hashes: hashes}
		n++
		if err := x.Put(one[:]); err != nil {
			t.Error(err)
		}
		if n%1000 == 0 {
			if err := x.Drain(); err != nil {
				t.Error(err)
			}
		}
	}
	for range 4000 {
		put()
	}
	require.Less(t, testing.AllocsPerRun(5000, put), 0.05)
	require.NoError(t, x.Close())
}

func FuzzLoad(f *testing.F) {
	sim := mappedfile.NewSim(1)
	x := open(f, sim, small)
	load(f, x, LoadOptions{Clean: true})
	require.NoError(f, x.Put(records(0, 15)))
	require.NoError(f, x.Close())
	list, err := sim.ReadDir("/store/index")
	require.NoError(f, err)
	good, err := sim.ReadFile("/store/index/" + list[0].Name())
	require.NoError(f, err)
	f.Add(good, int32(20), int64(500), true)
	f.Add(good, int32(31), int64(0), false)
	f.Add([]byte(nil), int32(0), int64(-1), false)
	f.Fuzz(func(t *testing.T, b []byte, count int32, at int64, clean bool) {
		sim := mappedfile.NewSim(1)
		require.NoError(t, sim.MkdirAll(small.Dir, 0o755))
		l := Layout{Slots: small.Slots, Entries: small.Entries}
		b = append(b, make([]byte, l.FileSize())...)[:l.FileSize()]
		require.NoError(t, sim.WriteFile("/store/index/20261201091452795", b, 0o644))
		x := open(t, sim, small)
		load(t, x, LoadOptions{Clean: clean, State: &State{File: "20261201091452795", Count: count, EndLog: message.LogOffset(at), Last: message.LogOffset(at)}})
		for h := range int32(16) {
			_, err := x.Query(Query{Hash: h, Max: 100, End: math.MaxInt64}, nil)
			require.NoError(t, err)
		}
		require.NoError(t, x.TruncateAbove(message.LogOffset(at)))
		require.NoError(t, x.Put(records(0, 40)))
		require.NoError(t, x.Close())
	})
}

func BenchmarkPut(b *testing.B) {
	x := open(b, mappedfile.OS, Config{Dir: filepath.Join(b.TempDir(), "index")})
	load(b, x, LoadOptions{Clean: true})
	var hash [2]int32
	one := []Record{{Hashes: hash[:]}}
	b.ReportAllocs()
	for i := range b.N {
		hash[0], hash[1] = nonNegative(int32(i)*2654435), nonNegative(int32(i)*40503)
		one[0].Log = message.LogOffset(i * 100)
		if err := x.Put(one); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
}

package consumequeue

import (
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestUnitBytes(t *testing.T) {
	u := Unit{Log: 4096, Size: 123, Tags: 2598919}
	require.Equal(t, "00000000000010000000007b000000000027a807", hex.EncodeToString(u.Append(nil)))
	require.Equal(t, u, Decode(u.Append(nil)))
	blank := Unit{Size: blankSize}
	require.Equal(t, "00000000000000007fffffff0000000000000000", hex.EncodeToString(blank.Append(nil)))
	require.True(t, blank.Blank())
	require.True(t, blank.Valid())
	require.False(t, Unit{}.Valid())
	require.True(t, Unit{Tags: math.MinInt64 + 20}.Ext())
	require.False(t, Unit{Tags: math.MinInt32}.Ext())
}

func TestPutAndRange(t *testing.T) {
	for _, step := range []int64{1, 3, 10, 64, 700} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			tab := open(t, mappedfile.NewSim(1), Config{})
			q := queue(t, tab, "T", 0)
			const n = 700
			for at := int64(0); at < n; at += step {
				require.NoError(t, q.Put(entries(at, min(at+step, n))))
				wantUnits(t, q, 0, min(at+step, n))
			}
			require.Equal(t, message.LogOffset(n*100), q.End())
			require.NoError(t, tab.Drain())
			wantUnits(t, q, 0, n)
			require.NoError(t, tab.Close())
			require.NoError(t, tab.Close())
		})
	}
}

func TestRangeOutside(t *testing.T) {
	tab := open(t, mappedfile.NewSim(1), Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 5)))
	var buf [4]Unit
	for _, at := range []message.QueueOffset{-1, 5, 6, math.MaxInt64} {
		n, err := q.Range(at, buf[:])
		require.NoError(t, err)
		require.Zero(t, n, "at %d", at)
	}
	n, err := q.Range(3, buf[:])
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

func TestPutAgainChangesNothing(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 25)))
	require.NoError(t, q.Put(entries(0, 25)))
	require.NoError(t, q.Put(entries(20, 30)))
	wantUnits(t, q, 0, 30)
}

func TestMisaligned(t *testing.T) {
	tab := open(t, mappedfile.NewSim(1), Config{})
	q := queue(t, tab, "T", 3)
	require.NoError(t, q.Put(entries(0, 4)))
	es := entries(4, 8)
	es[2].Offset = 9
	var bad *MisalignedError
	require.ErrorAs(t, q.Put(es), &bad)
	require.Equal(t, MisalignedError{Topic: "T", ID: 3, Want: 6, Got: 9, Log: 600}, *bad)
	wantUnits(t, q, 0, 6)
	// the log goes back
	e := entry(6)
	e.Log = 10
	require.ErrorAs(t, q.Put([]Entry{e}), &bad)
	require.NoError(t, q.Reset())
	require.Zero(t, q.Max())
	require.NoError(t, q.Put(entries(2, 8)))
	wantUnits(t, q, 2, 8)
	// a damaged first offset
	q = queue(t, tab, "T", 4)
	require.ErrorAs(t, q.Put([]Entry{{Offset: math.MaxInt64 - 1, Unit: entry(0).Unit}}), &bad)
}

func TestQueueStartsInTheMiddle(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(27, 40)))
	wantUnits(t, q, 27, 40)
	require.NoError(t, tab.Close())
	b, err := sim.ReadFile("/store/consumequeue/T/0/" + FileName(2*testFile))
	require.NoError(t, err)
	for at := range 7 {
		require.True(t, Decode(b[at*UnitSize:]).Blank())
	}
	for _, clean := range []bool{true, false} {
		tab = open(t, sim, Config{})
		load(t, tab, LoadOptions{Clean: clean})
		wantUnits(t, queue(t, tab, "T", 0), 27, 40)
	}
}

func TestSkip(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 5)))
	require.NoError(t, q.Skip(33))
	require.NoError(t, q.Put(entries(33, 36)))
	all := readAll(t, q)
	require.Len(t, all, 36)
	for at, u := range all {
		require.Equal(t, at >= 5 && at < 33, u.Blank(), "unit %d", at)
	}
	require.NoError(t, tab.Close())
	tab = open(t, sim, Config{})
	load(t, tab, LoadOptions{})
	require.Equal(t, all, readAll(t, queue(t, tab, "T", 0)))
	var bad *MisalignedError
	require.ErrorAs(t, queue(t, tab, "T", 0).Skip(maxSkip*2), &bad)
}

func TestNames(t *testing.T) {
	tab := open(t, mappedfile.NewSim(1), Config{})
	for _, topic := range []string{"", ".", "..", "a/b", "../../etc", "a\x00"} {
		_, err := tab.GetOrCreate(topic, 0)
		var bad *NameError
		require.ErrorAs(t, err, &bad, topic)
	}
	_, err := tab.GetOrCreate("T", -1)
	require.Error(t, err)
	_, err = tab.GetOrCreate("%RETRY%group", 0)
	require.NoError(t, err)
}

func TestRocksFolderIsRefused(t *testing.T) {
	sim := mappedfile.NewSim(1)
	require.NoError(t, sim.MkdirAll("/store/consumequeue", 0o755))
	require.NoError(t, sim.WriteFile("/store/consumequeue/CURRENT", []byte("MANIFEST-000001\n"), 0o644))
	_, err := Open(sim, Config{Dir: "/store/consumequeue"})
	var no *UnsupportedError
	require.ErrorAs(t, err, &no)
	require.Contains(t, err.Error(), "defaultRocksDB")
}

func TestDestroy(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 25)))
	require.NoError(t, tab.Flush())
	require.NoError(t, tab.Destroy("T"))
	require.Nil(t, tab.Find("T", 0))
	require.ErrorIs(t, q.Put(entries(25, 26)), ErrDropped)
	list, err := sim.ReadDir("/store/consumequeue")
	require.NoError(t, err)
	require.Empty(t, list)
	require.NoError(t, tab.Destroy("T"))
	require.NoError(t, tab.Flush())
	require.NoError(t, queue(t, tab, "T", 0).Put(entries(0, 3)))
	require.NoError(t, tab.Close())
}

func TestTruncateAbove(t *testing.T) {
	for _, drained := range []bool{false, true} {
		for _, keep := range []int64{0, 1, 9, 10, 11, 25, 30, 31, 35} {
			t.Run(fmt.Sprint(drained, keep), func(t *testing.T) {
				sim := mappedfile.NewSim(1)
				tab := open(t, sim, Config{})
				q := queue(t, tab, "T", 0)
				require.NoError(t, q.Put(entries(0, 35)))
				if drained {
					require.NoError(t, tab.Drain())
				}
				require.NoError(t, tab.TruncateAbove(message.LogOffset(keep*100)))
				wantUnits(t, q, 0, keep)
				require.Equal(t, message.LogOffset(keep*100), q.End())
				crashed := sim.Crash()
				require.NoError(t, q.Put(entries(keep, 37)))
				wantUnits(t, q, 0, 37)
				require.NoError(t, tab.Close())
				// the cut itself is durable: nothing above it comes back
				tab = open(t, crashed, Config{})
				load(t, tab, LoadOptions{})
				require.LessOrEqual(t, queue(t, tab, "T", 0).Max(), message.QueueOffset(keep))
			})
		}
	}
}

func TestMinAndExpiry(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 35)))
	require.NoError(t, tab.CorrectMin(1250))
	require.Equal(t, message.QueueOffset(13), q.Min())
	n, err := tab.DeleteExpired(2000)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	wantUnits(t, q, 20, 35)
	// everything is gone from the log: an idle queue stays where it is
	n, err = tab.DeleteExpired(10000)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, q.Max(), q.Min())
	require.NoError(t, tab.Drain())
	sums := tab.Summaries(nil)
	require.NoError(t, tab.Close())
	for _, opt := range []LoadOptions{{Clean: true}, {Summaries: sums}, {}} {
		tab = open(t, sim, Config{})
		load(t, tab, opt)
		q = queue(t, tab, "T", 0)
		require.NoError(t, tab.CorrectMin(10000))
		require.Equal(t, message.QueueOffset(35), q.Min())
		require.Equal(t, message.QueueOffset(35), q.Max())
	}
	e := entry(35)
	e.Log = 10000
	require.NoError(t, q.Put([]Entry{e}))
	u, ok, err := q.At(35)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, message.LogOffset(10000), u.Log)
}

func TestMissingFile(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 35)))
	require.NoError(t, tab.Close())
	require.NoError(t, sim.Remove("/store/consumequeue/T/0/"+FileName(testFile)))
	tab = open(t, sim, Config{})
	rep := load(t, tab, LoadOptions{Clean: true})
	require.Len(t, rep.Broken, 1)
	q = queue(t, tab, "T", 0)
	var buf [4]Unit
	var gap *GapError
	_, err := q.Range(12, buf[:])
	require.ErrorAs(t, err, &gap)
	require.Equal(t, message.QueueOffset(20), gap.Next)
	n, err := q.Range(8, buf[:])
	require.NoError(t, err)
	require.Equal(t, 2, n)
	// after an unclean end the queue ends at the hole and is dispatched again from there
	tab = open(t, sim, Config{})
	rep = load(t, tab, LoadOptions{})
	require.Zero(t, rep.Redispatch)
	q = queue(t, tab, "T", 0)
	wantUnits(t, q, 0, 10)
	require.NoError(t, q.Put(entries(5, 35)))
	wantUnits(t, q, 0, 35)
}

func TestOffsetByTime(t *testing.T) {
	tab := open(t, mappedfile.NewSim(1), Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 30)))
	// times 1000, 1000, 1010, 1010, 1020, …
	timeOf := func(u Unit) int64 { return 1000 + int64(u.Log)/200*10 }
	for _, c := range []struct {
		name         string
		ms           int64
		lower, upper message.QueueOffset
	}{
		{"all newer", 999, 0, 0},
		{"first", 1000, 0, 1},
		{"equal run over two files", 1050, 10, 11},
		{"between", 1055, 12, 11},
		{"last", 1140, 28, 29},
		{"all older", 1141, 30, 29},
	} {
		lower, err := q.OffsetByTime(c.ms, false, timeOf)
		require.NoError(t, err)
		upper, err := q.OffsetByTime(c.ms, true, timeOf)
		require.NoError(t, err)
		require.Equal(t, c.lower, lower, c.name)
		require.Equal(t, c.upper, upper, c.name)
	}
}

func TestBoundedOpenFiles(t *testing.T) {
	tab := open(t, mappedfile.OS, Config{Dir: filepath.Join(t.TempDir(), "cq"), MaxFiles: 3, MaxMaps: 4})
	const queues, units = 40, 300
	for at := int64(0); at < units; at += 50 {
		for id := range int32(queues) {
			require.NoError(t, queue(t, tab, "T", id).Put(entries(at, at+50)))
		}
		require.NoError(t, tab.Drain())
	}
	for id := range int32(queues) {
		wantUnits(t, queue(t, tab, "T", id), 0, units)
	}
	s := tab.Stats()
	require.LessOrEqual(t, s.OpenFiles, 3)
	require.LessOrEqual(t, s.Maps, 4)
	for range 5 {
		require.NoError(t, tab.Flush())
	}
	require.Zero(t, tab.Stats().BufferBytes)
	for id := range int32(queues) {
		wantUnits(t, queue(t, tab, "T", id), 0, units)
	}
	require.NoError(t, tab.Close())
}

func TestReadersBesideWriter(t *testing.T) {
	tab := open(t, mappedfile.OS, Config{Dir: filepath.Join(t.TempDir(), "cq"), MaxFiles: 2, MaxMaps: 2})
	const queues, units = 4, 3000
	var wg sync.WaitGroup
	for id := range int32(queues) {
		q := queue(t, tab, "T", id)
		wg.Go(func() {
			var buf [33]Unit
			for at := message.QueueOffset(0); at < units; {
				n, err := q.Range(at, buf[:])
				if err != nil {
					t.Error(err)
					return
				}
				for i := range n {
					if buf[i] != entry(int64(at)+int64(i)).Unit {
						t.Errorf("unit %d: %+v", int64(at)+int64(i), buf[i])
						return
					}
				}
				at += message.QueueOffset(n)
			}
		})
	}
	for at := int64(0); at < units; at += 20 {
		for id := range int32(queues) {
			require.NoError(t, queue(t, tab, "T", id).Put(entries(at, at+20)))
		}
		if at%100 == 0 {
			require.NoError(t, tab.Flush())
		}
	}
	wg.Wait()
	require.NoError(t, tab.Close())
}

// TestRangeStaysBelowMax: what a reader has got lies below Max, else the offset it goes on with would be one that the queue does not have.
func TestRangeStaysBelowMax(t *testing.T) {
	tab := open(t, mappedfile.NewSim(1), Config{})
	q := queue(t, tab, "T", 0)
	const n, step = 200_000, 7
	var done sync.WaitGroup
	done.Go(func() {
		for at := int64(0); at < n; at += step {
			if err := q.Put(entries(at, at+step)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var buf [32]Unit
	for at := message.QueueOffset(0); at < n; {
		k, err := q.Range(at, buf[:])
		require.NoError(t, err)
		at += message.QueueOffset(k)
		require.LessOrEqual(t, at, q.Max())
	}
	done.Wait()
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	tab := open(t, mappedfile.OS, Config{Dir: filepath.Join(t.TempDir(), "cq"), FileSize: defaultFileSize})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 5000)))
	var buf [32]Unit
	topic := []byte("T")
	next := int64(5000)
	batch := entries(0, 32)
	for name, fn := range map[string]func(){
		"range from memory": func() { q.Range(q.Max()-32, buf[:]) },
		"range from map":    func() { q.Range(100, buf[:]) },
		"get":               func() { tab.Get(topic, 0) },
		"put": func() {
			for i := range batch {
				batch[i] = entry(next)
				next++
			}
			if err := q.Put(batch); err != nil {
				t.Error(err)
			}
		},
	} {
		fn()
		require.Zero(t, testing.AllocsPerRun(500, fn), name)
	}
	require.NoError(t, tab.Close())
}

func BenchmarkPut(b *testing.B) {
	tab := open(b, mappedfile.OS, Config{Dir: filepath.Join(b.TempDir(), "cq"), FileSize: defaultFileSize})
	q := queue(b, tab, "T", 0)
	b.ReportAllocs()
	var one [1]Entry
	for i := range b.N {
		one[0] = entry(int64(i))
		if err := q.Put(one[:]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := tab.Close(); err != nil {
		b.Fatal(err)
	}
}

package consumequeue

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/internal/goldenstore"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var goldenNames = []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean"}

func TestLoadJavaStores(t *testing.T) {
	for _, name := range goldenNames {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " clean ", clean), func(t *testing.T) {
				root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
				tab := open(t, mappedfile.OS, Config{Dir: filepath.Join(root, "consumequeue"), FileSize: goldenstore.QueueFileSize})
				rep := load(t, tab, LoadOptions{Clean: clean})
				require.Equal(t, len(m.Queues), rep.Queues)
				require.Empty(t, rep.Broken)
				for _, want := range m.Queues {
					q := tab.Get([]byte(want.Topic), want.QueueID)
					require.NotNil(t, q, "%s/%d", want.Topic, want.QueueID)
					require.Equal(t, message.QueueOffset(want.MinOffset), q.Min())
					require.Equal(t, message.QueueOffset(want.MaxOffset), q.Max())
					for i, u := range readAll(t, q) {
						require.Equal(t, want.Units[i][1:4], []int64{int64(u.Log), int64(u.Size), u.Tags}, "%s/%d@%d", want.Topic, want.QueueID, i)
					}
				}
				times := map[message.LogOffset]int64{}
				for _, msg := range m.Messages {
					times[message.LogOffset(msg.PhysicalOffset)] = msg.StoreTimestamp
				}
				for _, tq := range m.TimeQueries {
					q := tab.Find(tq.Topic, tq.QueueID)
					timeOf := func(u Unit) int64 { return times[u.Log] }
					lower, err := q.OffsetByTime(tq.Timestamp, false, timeOf)
					require.NoError(t, err)
					upper, err := q.OffsetByTime(tq.Timestamp, true, timeOf)
					require.NoError(t, err)
					plus, err := q.OffsetByTime(tq.Timestamp+1, false, timeOf)
					require.NoError(t, err)
					require.Equal(t, []int64{tq.Lower, tq.Upper, tq.LowerPlus1}, []int64{int64(lower), int64(upper), int64(plus)}, "%+v", tq)
				}
				require.NoError(t, tab.Close())
			})
		}
	}
}

// Queues built from the same messages are the same files, byte by byte.
func TestWriteWhatJavaWrites(t *testing.T) {
	for _, name := range []string{"rolled-clean", "mixed-clean", "v4.9.4-clean"} {
		t.Run(name, func(t *testing.T) {
			root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
			dir := filepath.Join(t.TempDir(), "consumequeue")
			tab := open(t, mappedfile.OS, Config{Dir: dir, FileSize: goldenstore.QueueFileSize})
			for _, w := range m.Queues {
				q := queue(t, tab, w.Topic, w.QueueID)
				for _, u := range w.Units {
					require.NoError(t, q.Put([]Entry{{Offset: message.QueueOffset(u[0]),
						Unit: Unit{Log: message.LogOffset(u[1]), Size: int32(u[2]), Tags: u[3]}}}))
				}
			}
			require.NoError(t, tab.Close())
			require.Equal(t, tree(t, filepath.Join(root, "consumequeue")), tree(t, dir))
		})
	}
}

// tree maps file names to contents.
func tree(t testing.TB, dir string) map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if len(bytes.Trim(b, "\x00")) == 0 { // a Java broker may make the next file ahead
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		out[rel] = fmt.Sprintf("%x", b)
		return err
	})
	require.NoError(t, err)
	return out
}

func TestRestartWithSummaryOpensNothing(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	const queues = 500
	for id := range int32(queues) {
		require.NoError(t, queue(t, tab, fmt.Sprint("T", id%10), id).Put(entries(0, 12)))
	}
	require.NoError(t, tab.Flush())
	sums := tab.Summaries(nil)
	require.Len(t, sums, queues)
	for _, opt := range []LoadOptions{{Summaries: sums}, {Summaries: sums, Clean: true}} {
		counted := &countFS{FS: sim.Kill()}
		tab = open(t, counted, Config{})
		rep := load(t, tab, opt)
		require.Equal(t, Report{Queues: queues, Redispatch: math.MaxInt64, MaxEnd: 1200}, rep)
		require.NoError(t, tab.CorrectMin(0))
		require.NoError(t, tab.TruncateAbove(1200))
		require.Zero(t, counted.opens.Load())
		for _, q := range tab.All() {
			wantUnits(t, q, 0, 12)
		}
	}
}

func TestSummaryThatDoesNotFit(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	for id := range int32(4) {
		require.NoError(t, queue(t, tab, "T", id).Put(entries(0, 25)))
	}
	require.NoError(t, tab.Close())
	sums := tab.Summaries(nil)
	if len(sums) == 0 { // the table is closed: describe what it had
		for id := range int32(4) {
			sums = append(sums, Summary{Topic: "T", ID: id, Max: 25, End: 2500})
		}
	}
	dir := "/store/consumequeue/T/"
	require.NoError(t, sim.Remove(dir+"0/"+FileName(2*testFile))) // the last file
	for i := range 3 {                                            // all files
		require.NoError(t, sim.Remove(dir+"1/"+FileName(int64(i)*testFile)))
	}
	for i := range 3 { // the folder
		require.NoError(t, sim.Remove(dir+"2/"+FileName(int64(i)*testFile)))
	}
	require.NoError(t, sim.Remove(dir+"2"))
	tab = open(t, sim, Config{})
	rep := load(t, tab, LoadOptions{Summaries: sums})
	require.Equal(t, message.LogOffset(0), rep.Redispatch)
	require.Equal(t, 2, rep.Scanned)
	slices.SortFunc(rep.Missing, func(a, b Summary) int { return int(a.ID - b.ID) })
	require.Len(t, rep.Missing, 2)
	require.Equal(t, int32(1), rep.Missing[0].ID)
	require.Equal(t, int32(2), rep.Missing[1].ID)
	for id := range int32(4) { // ST-02: the log is dispatched again
		q := queue(t, tab, "T", id)
		require.NoError(t, q.Put(entries(0, 35)))
		wantUnits(t, q, 0, 35)
	}
}

func TestOddFiles(t *testing.T) {
	prepare := func(t *testing.T) *mappedfile.Sim {
		sim := mappedfile.NewSim(1)
		tab := open(t, sim, Config{})
		require.NoError(t, queue(t, tab, "T", 0).Put(entries(0, 20)))
		require.NoError(t, tab.Close())
		return sim
	}
	next := "/store/consumequeue/T/0/" + FileName(2*testFile)
	for _, c := range []struct {
		name    string
		content []byte
	}{
		{"ST-04 empty next file", nil},
		{"ST-03 next file of zeros", make([]byte, testFile)},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, clean), func(t *testing.T) {
				sim := prepare(t)
				require.NoError(t, sim.WriteFile(next, c.content, 0o644))
				tab := open(t, sim, Config{})
				rep := load(t, tab, LoadOptions{Clean: clean})
				require.Empty(t, rep.Broken)
				q := queue(t, tab, "T", 0)
				wantUnits(t, q, 0, 20)
				require.NoError(t, tab.TruncateAbove(1500))
				wantUnits(t, q, 0, 15)
				require.NoError(t, q.Put(entries(15, 27)))
				wantUnits(t, q, 0, 27)
				require.NoError(t, tab.Close())
			})
		}
	}
	t.Run("wrong size", func(t *testing.T) {
		sim := prepare(t)
		require.NoError(t, sim.WriteFile(next, make([]byte, 7), 0o644))
		_, err := open(t, sim, Config{}).Load(LoadOptions{})
		var bad *mappedfile.CorruptError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, next, bad.File)
	})
	t.Run("garbage after the end", func(t *testing.T) {
		sim := prepare(t)
		b := make([]byte, testFile)
		copy(b[3*UnitSize:], entry(23).Unit.Append(nil)) // a page that survived without the one before
		require.NoError(t, sim.WriteFile(next, b, 0o644))
		tab := open(t, sim, Config{})
		load(t, tab, LoadOptions{})
		q := queue(t, tab, "T", 0)
		wantUnits(t, q, 0, 20)
		require.NoError(t, q.Put(entries(20, 22)))
		require.NoError(t, tab.Close())
		b, err := sim.ReadFile(next)
		require.NoError(t, err)
		require.Empty(t, bytes.Trim(b[2*UnitSize:], "\x00"))
	})
	t.Run("other names are left alone", func(t *testing.T) {
		sim := prepare(t)
		for _, name := range []string{"T/0/.lost", "T/0/00000000000000000001x", "T/x/0", "T/007/0", "file"} {
			path := "/store/consumequeue/" + name
			require.NoError(t, sim.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, sim.WriteFile(path, []byte("x"), 0o644))
		}
		tab := open(t, sim, Config{})
		require.Equal(t, 1, load(t, tab, LoadOptions{}).Queues)
		require.NoError(t, tab.Close())
	})
}

// TestCrash puts, drains, flushes, cuts and crashes at random, dispatches the log again from where a mark says, and
// compares with a model.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sim := mappedfile.NewSim(rapid.Uint64().Draw(rt, "seed"))
		sim.SetTorn(rapid.Bool().Draw(rt, "torn"))
		tab := open(t, sim, Config{MaxFiles: 2, MaxMaps: 2})
		type rec struct {
			id int32
			at int64
			e  Entry
		}
		var log []rec // each message has 10 bytes
		next := map[int32]int64{}
		type mark struct {
			logEnd int
			sums   []Summary
		}
		running, durable := mark{sums: []Summary{}}, mark{sums: []Summary{}}
		feed := func(from int) {
			for _, r := range log[from:] {
				q, err := tab.GetOrCreate("T", r.id)
				if err == nil {
					err = q.Put([]Entry{r.e})
				}
				if err != nil {
					rt.Fatal(err)
				}
			}
		}
		reopen := func(m mark) {
			tab = open(t, sim, Config{MaxFiles: 2, MaxMaps: 2})
			rep, err := tab.Load(LoadOptions{Summaries: m.sums})
			if err != nil {
				rt.Fatal(err)
			}
			if err := tab.TruncateAbove(message.LogOffset(len(log) * 10)); err != nil {
				rt.Fatal(err)
			}
			feed(min(m.logEnd, int(min(rep.Redispatch, math.MaxInt32)/10)))
		}
		cut := func(to int) {
			for _, r := range log[to:] {
				next[r.id] = min(next[r.id], r.at)
			}
			log = log[:to]
		}
		check := func() {
			units := map[int32][]Unit{}
			for _, r := range log {
				units[r.id] = append(units[r.id], r.e.Unit)
			}
			for id := range int32(3) {
				q := tab.Find("T", id)
				if q == nil {
					if len(units[id]) > 0 {
						rt.Fatalf("queue %d is gone", id)
					}
					continue
				}
				if got := readAll(t, q); !slices.Equal(got, units[id]) {
					rt.Fatalf("queue %d: %d units instead of %d: %v", id, len(got), len(units[id]), got)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				for range rapid.IntRange(1, 30).Draw(rt, "n") {
					id := rapid.Int32Range(0, 2).Draw(rt, "id")
					at := next[id]
					next[id]++
					e := Entry{Offset: message.QueueOffset(at), Unit: Unit{Log: message.LogOffset(len(log) * 10), Size: 10, Tags: rapid.Int64().Draw(rt, "tags")}}
					log = append(log, rec{id, at, e})
					feed(len(log) - 1)
				}
			},
			"running mark": func(*rapid.T) {
				require.NoError(t, tab.Drain())
				running = mark{len(log), tab.Summaries([]Summary{})}
			},
			"durable mark": func(*rapid.T) {
				require.NoError(t, tab.Flush())
				durable = mark{len(log), tab.Summaries([]Summary{})}
				running = durable
			},
			"drain": func(*rapid.T) { require.NoError(t, tab.Drain()) },
			"kill": func(*rapid.T) {
				sim = sim.Kill()
				reopen(running)
			},
			"power cut": func(rt *rapid.T) {
				sim = sim.Crash()
				cut(rapid.IntRange(durable.logEnd, len(log)).Draw(rt, "log end"))
				reopen(durable)
				running = durable
			},
			"kill without mark": func(*rapid.T) {
				sim = sim.Kill()
				reopen(mark{logEnd: len(log)})
			},
			"power cut without mark": func(rt *rapid.T) {
				sim = sim.Crash()
				cut(rapid.IntRange(durable.logEnd, len(log)).Draw(rt, "log end"))
				reopen(mark{logEnd: len(log)})
				running = durable
			},
			"truncate": func(rt *rapid.T) {
				cut(rapid.IntRange(0, len(log)).Draw(rt, "log end"))
				require.NoError(t, tab.TruncateAbove(message.LogOffset(len(log)*10)))
				require.NoError(t, tab.Flush())
				durable = mark{len(log), tab.Summaries([]Summary{})}
				running = durable
			},
			"clean restart": func(*rapid.T) {
				require.NoError(t, tab.Flush())
				sums := tab.Summaries([]Summary{})
				require.NoError(t, tab.Close())
				durable = mark{len(log), sums}
				running = durable
				tab = open(t, sim, Config{})
				if rapid.Bool().Draw(rt, "with mark") {
					load(t, tab, LoadOptions{Clean: true, Summaries: sums})
				} else {
					load(t, tab, LoadOptions{Clean: true})
				}
			},
			"": func(*rapid.T) { check() },
		})
		// A clean end leaves nothing above the end of a queue: a Java broker reads on until the first zero.
		require.NoError(t, tab.Close())
		tab = open(t, sim, Config{})
		load(t, tab, LoadOptions{Clean: true})
		check()
	})
}

func TestWriteErrorIsReported(t *testing.T) {
	sim := mappedfile.NewSim(1)
	tab := open(t, sim, Config{})
	q := queue(t, tab, "T", 0)
	require.NoError(t, q.Put(entries(0, 5)))
	sim.SetSpace(0)
	require.Error(t, tab.Flush())
}

func FuzzLoad(f *testing.F) {
	var good []byte
	for at := range int64(10) {
		good = entry(at).Unit.Append(good)
	}
	f.Add(good, make([]byte, testFile), int64(500))
	f.Add(good, good, int64(0))
	f.Add(Unit{Size: blankSize}.Append(nil), good[:7], int64(1))
	f.Add(Unit{Log: math.MaxInt64, Size: math.MaxInt32}.Append(nil), []byte(nil), int64(-1))
	f.Fuzz(func(t *testing.T, a, b []byte, cut int64) {
		sim := mappedfile.NewSim(1)
		require.NoError(t, sim.MkdirAll("/store/consumequeue/T/0", 0o755))
		for i, p := range [][]byte{a, b} {
			p = append(p, make([]byte, testFile)...)[:testFile]
			require.NoError(t, sim.WriteFile("/store/consumequeue/T/0/"+FileName(int64(i)*testFile), p, 0o644))
		}
		tab := open(t, sim, Config{})
		load(t, tab, LoadOptions{})
		q := queue(t, tab, "T", 0)
		require.LessOrEqual(t, q.Min(), q.Max())
		readAll(t, q)
		require.NoError(t, tab.CorrectMin(message.LogOffset(cut)))
		require.NoError(t, tab.TruncateAbove(message.LogOffset(cut)))
		require.LessOrEqual(t, q.Min(), q.Max())
		require.LessOrEqual(t, q.End(), max(message.LogOffset(cut), 0))
		require.NoError(t, tab.Close())
	})
}

package offset_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/broker/offset"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// jsonFile is consumerOffset.json in memory; failing makes Save fail after or before the content changed.
type jsonFile struct {
	mu      sync.Mutex
	data    []byte
	saves   int
	failing error
}

func (f *jsonFile) Load(parse func([]byte) error) (bool, error) {
	if f.data == nil {
		return false, nil
	}
	return true, parse(f.data)
}

func (f *jsonFile) Save(data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing != nil {
		return f.failing
	}
	f.data, f.saves = append([]byte(nil), data...), f.saves+1
	return nil
}

func open(t testing.TB, f *jsonFile, dir string) *offset.Table {
	t.Helper()
	o, err := offset.Open(offset.Options{File: f, FS: mappedfile.OS, Dir: dir})
	require.NoError(t, err)
	return o
}

func commit(t testing.TB, o *offset.Table, g, topic string, q int32, off message.QueueOffset) {
	t.Helper()
	require.NoError(t, o.Commit([]byte(g), []byte(topic), q, off))
}

func query(o *offset.Table, g, topic string, q int32) message.QueueOffset {
	off, ok := o.Query([]byte(g), []byte(topic), q)
	if !ok {
		return -1
	}
	return off
}

func TestKilledBrokerKeepsCommits(t *testing.T) {
	dir, f := t.TempDir(), &jsonFile{}
	o := open(t, f, dir)
	commit(t, o, "G", "T", 0, 5)
	commit(t, o, "G", "T", 1, 6)
	commit(t, o, "G", "T", 0, 4) // a consumer may go back
	require.Nil(t, f.data)
	o = open(t, f, dir) // the first was killed before any JSON was written
	require.Equal(t, message.QueueOffset(4), query(o, "G", "T", 0))
	require.Equal(t, message.QueueOffset(6), query(o, "G", "T", 1))
	require.NoError(t, o.Flush())
	commit(t, o, "G", "T", 0, 9)
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(9), query(o, "G", "T", 0))
	require.NoError(t, o.DropTopic("T"))
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(-1), query(o, "G", "T", 0))
	require.True(t, o.Empty())
	require.NoError(t, o.Close())
	require.NoError(t, o.Close())
	require.ErrorIs(t, o.Commit([]byte("G"), []byte("T"), 0, 1), offset.ErrClosed)
}

func TestOldJournalIsRemoved(t *testing.T) {
	dir, f := t.TempDir(), &jsonFile{}
	o := open(t, f, dir)
	for i := range 10 {
		commit(t, o, "G", "T", 0, message.QueueOffset(i))
		require.NoError(t, o.Flush())
		require.NoError(t, o.Flush(), "nothing changed")
	}
	require.Equal(t, 10, f.saves)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), 3)
}

func TestAnotherProgramWroteTheJSON(t *testing.T) {
	dir, f := t.TempDir(), &jsonFile{}
	o := open(t, f, dir)
	commit(t, o, "G", "T", 0, 5)
	require.NoError(t, o.Flush())
	commit(t, o, "G", "T", 0, 7) // only in the journal
	f.data = []byte(`{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},"offsetTable":{"T@G":{0:2,"1":3},"bad@key@x":{0:1}}}`)
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(2), query(o, "G", "T", 0))
	require.Equal(t, message.QueueOffset(3), query(o, "G", "T", 1))
	require.Equal(t, int64(3), o.Version().Counter)
	commit(t, o, "G", "T", 0, 8)
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(8), query(o, "G", "T", 0))
}

func TestCrashDuringFlush(t *testing.T) {
	dir, f := t.TempDir(), &jsonFile{}
	o := open(t, f, dir)
	commit(t, o, "G", "T", 0, 5)
	require.NoError(t, o.Flush())
	commit(t, o, "G", "T", 0, 6)
	before := f.data
	f.failing = errors.New("disk full")
	require.Error(t, o.Flush(), "the intent is written, the JSON is not")
	f.failing = nil
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(6), query(o, "G", "T", 0))
	commit(t, o, "G", "T", 0, 7)
	require.NoError(t, o.Flush())
	f.data = before // the new JSON was damaged, its .bak is what there was before
	o = open(t, f, dir)
	require.Equal(t, message.QueueOffset(7), query(o, "G", "T", 0))
}

func TestTornJournal(t *testing.T) {
	for cut := 1; cut < 40; cut++ {
		dir, f := t.TempDir(), &jsonFile{}
		o := open(t, f, dir)
		commit(t, o, "G", "T", 0, 5)
		commit(t, o, "G", "T", 0, 6)
		names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
		require.NoError(t, err)
		last := names[len(names)-1]
		data, err := os.ReadFile(last)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(last, data[:len(data)-cut], 0o644))
		o = open(t, f, dir)
		got := query(o, "G", "T", 0)
		require.Contains(t, []message.QueueOffset{5, -1}, got)
		commit(t, o, "G", "T", 0, 8)
		require.Equal(t, message.QueueOffset(8), query(open(t, f, dir), "G", "T", 0), "a torn end does not hide what comes later")
	}
}

func TestStagedIsInvisibleUntilSettled(t *testing.T) {
	o := open(t, &jsonFile{}, t.TempDir())
	require.NoError(t, o.Stage([]byte("G"), []byte("T"), 0, 3))
	require.True(t, o.Staged())
	require.Equal(t, message.QueueOffset(-1), query(o, "G", "T", 0))
	require.NoError(t, o.Settle())
	require.False(t, o.Staged())
	require.Equal(t, message.QueueOffset(3), query(o, "G", "T", 0))
	require.ErrorIs(t, o.Stage(make([]byte, 256), []byte("T"), 0, 3), offset.ErrTooLong)
}

func TestResets(t *testing.T) {
	o := open(t, &jsonFile{}, t.TempDir())
	g, topic := []byte("G"), []byte("T")
	_, ok := o.TakeReset(g, topic, 0, 7)
	require.False(t, ok)
	require.NoError(t, o.AssignReset("G", "T", 0, 42))
	require.Equal(t, message.QueueOffset(42), query(o, "G", "T", 0), "the reset is a commit too")
	off, ok := o.PendingReset(g, topic, 0)
	require.True(t, ok)
	require.Equal(t, message.QueueOffset(42), off)
	_, ok = o.PendingReset(g, topic, 1)
	require.False(t, ok)
	for range 2 { // a reader that has lost the queue, then the one that has it
		off, ok = o.TakeReset(g, topic, 0, 7)
		require.True(t, ok)
		require.Equal(t, message.QueueOffset(42), off)
	}
	_, ok = o.TakeReset(g, topic, 0, 42)
	require.False(t, ok, "the reader follows")
	_, ok = o.PendingReset(g, topic, 0)
	require.False(t, ok)
	require.NoError(t, o.AssignReset("G", "T", 0, 42))
	told := 0
	for ; ok || told == 0; told++ {
		_, ok = o.TakeReset(g, topic, 0, 7)
		require.Less(t, told, 100, "a reader that does not follow is not told for ever")
	}
	require.NoError(t, o.AssignReset("G", "T", 0, 1))
	require.NoError(t, o.DropGroup("G"))
	_, ok = o.PendingReset(g, topic, 0)
	require.False(t, ok)
}

func TestListsAndPulls(t *testing.T) {
	o := open(t, &jsonFile{}, t.TempDir())
	o.Pulled([]byte("G"), []byte("T0"), 0, 9)
	require.Empty(t, o.TopicsOf("G"), "a group that only pulls has no offsets")
	commit(t, o, "G", "T1", 0, 1)
	commit(t, o, "G", "T2", 3, 1)
	commit(t, o, "H", "T1", 0, 1)
	require.Equal(t, []string{"T1", "T2"}, o.TopicsOf("G"))
	require.Equal(t, []string{"G", "H"}, o.GroupsOf("T1"))
	require.Equal(t, map[int32]message.QueueOffset{3: 1}, o.Offsets("G", "T2"))
	require.Nil(t, o.Offsets("G", "T0"))
	off, ok := o.PullOffset("G", "T0", 0)
	require.True(t, ok)
	require.Equal(t, message.QueueOffset(9), off)
	require.NoError(t, o.Drop("G", "T1"))
	require.Equal(t, []string{"H"}, o.GroupsOf("T1"))
}

func TestVersionSteps(t *testing.T) {
	f := &jsonFile{}
	o, err := offset.Open(offset.Options{File: f, FS: mappedfile.OS, Dir: t.TempDir(), Step: 10})
	require.NoError(t, err)
	for i := range 25 {
		commit(t, o, "G", "T", 0, message.QueueOffset(i))
	}
	require.Equal(t, int64(2), o.Version().Counter)
}

func TestManyCommittersAtOnce(t *testing.T) {
	dir, f := t.TempDir(), &jsonFile{}
	o := open(t, f, dir)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			name := []byte(fmt.Sprintf("G%d", g))
			for i := range 100 {
				if err := o.Commit(name, []byte("T"), 0, message.QueueOffset(i)); err != nil {
					t.Error(err)
				}
				if i%30 == 0 {
					if err := o.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	o = open(t, f, dir)
	for g := range 8 {
		require.Equal(t, message.QueueOffset(99), query(o, fmt.Sprintf("G%d", g), "T", 0))
	}
}

func TestQueryAllocatesNothing(t *testing.T) {
	o := open(t, &jsonFile{}, t.TempDir())
	commit(t, o, "G", "T", 0, 5)
	g, topic := []byte("G"), []byte("T")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, ok := o.Query(g, topic, 0); !ok {
			t.Fatal("lost")
		}
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if err := o.Commit(g, topic, 0, 6); err != nil {
			t.Fatal(err)
		}
	}), 0.0)
}

// TestModel runs commits, drops, flushes and kills against a map.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "offsets")
		require.NoError(t, err)
		defer func() { require.NoError(t, os.RemoveAll(dir)) }()
		f := &jsonFile{}
		o := open(t, f, dir)
		type key struct {
			g, topic string
			q        int32
		}
		model := map[key]message.QueueOffset{}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		rt.Repeat(map[string]func(*rapid.T){
			"commit": func(rt *rapid.T) {
				k := key{name.Draw(rt, "g"), name.Draw(rt, "t"), rapid.Int32Range(0, 2).Draw(rt, "q")}
				off := message.QueueOffset(rapid.Int64Range(0, 1000).Draw(rt, "off"))
				commit(t, o, k.g, k.topic, k.q, off)
				model[k] = off
			},
			"dropTopic": func(rt *rapid.T) {
				n := name.Draw(rt, "t")
				require.NoError(t, o.DropTopic(n))
				for k := range model {
					if k.topic == n {
						delete(model, k)
					}
				}
			},
			"dropGroup": func(rt *rapid.T) {
				n := name.Draw(rt, "g")
				require.NoError(t, o.DropGroup(n))
				for k := range model {
					if k.g == n {
						delete(model, k)
					}
				}
			},
			"flush": func(*rapid.T) { require.NoError(t, o.Flush()) },
			"failedFlush": func(*rapid.T) {
				f.failing = errors.New("no space")
				err := o.Flush()
				_ = err // nil when nothing had changed
				f.failing = nil
			},
			"kill": func(*rapid.T) { o = open(t, f, dir) },
			"stop": func(*rapid.T) {
				require.NoError(t, o.Close())
				o = open(t, f, dir)
			},
			"": func(*rapid.T) {
				for _, g := range []string{"a", "b", "c"} {
					for _, topic := range []string{"a", "b", "c"} {
						for q := range int32(3) {
							want, ok := model[key{g, topic, q}]
							if !ok {
								want = -1
							}
							require.Equal(t, want, query(o, g, topic, q), "%s %s %d", g, topic, q)
						}
					}
				}
			},
		})
	})
}

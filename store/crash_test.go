package store

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var host = netip.MustParseAddrPort("10.0.0.1:10911")

func simConfig(flush string) Config {
	c := Defaults()
	c.StorePathRootDir = "/store"
	c.MappedFileSizeCommitLog = 8 << 10
	c.MappedFileSizeConsumeQueue = 20 * 16
	c.MaxHashSlotNum, c.MaxIndexNum = 7, 64
	c.MaxMessageSize = 2000
	c.FlushDiskType = flush
	c.FlushIntervalCommitLog = 3600_000
	c.FileReservedTime = 1 << 20
	c.DeleteWhen = ""
	return c
}

func testMessage(topic string, id int32, body, key string) *message.Message {
	m := &message.Message{Topic: []byte(topic), QueueID: id, BornTime: 1700000000000, BornHost: host, StoreHost: host, Body: []byte(body)}
	if key != "" {
		m.Properties = message.AppendProperty(m.Properties, message.PropKeys, key)
	}
	m.Properties = message.AppendProperty(m.Properties, message.PropTags, "T"+key)
	return m
}

// world is a store on a simulated disk with a memory of everything that was appended.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	sim  *mappedfile.Sim
	cfg  Config
	s    *Store
	boot int
	log  []past // in log order
	n    int

	acked   message.LogOffset // what must be there after the next start
	flushed message.LogOffset // what must be there even if power is lost before that start ends
}

type past struct {
	at, end message.LogOffset
	body    string
	key     string
	topic   string
}

func (w *world) open(start bool) {
	o := testOptions()
	o.BootID = fmt.Sprint("boot-", w.boot)
	s, err := Open(w.sim, w.cfg, o)
	require.NoError(w.t, err)
	w.s = s
	w.t.Logf("opened as boot %d: %+v", w.boot, s.Recovery())
	if start {
		s.Start()
	}
}

func (w *world) append() {
	b := w.s.NewBatch()
	var made []past
	topic, id := fmt.Sprint("topic", w.rng.IntN(3)), int32(w.rng.IntN(2))
	for range 1 + w.rng.IntN(4) {
		w.n++
		p := past{body: fmt.Sprintf("body-%d-%0*d", w.n, w.rng.IntN(300), 0), topic: topic}
		if w.rng.IntN(3) > 0 {
			p.key = fmt.Sprint("k", w.rng.IntN(5))
		}
		m := testMessage(topic, id, p.body, p.key)
		m.SysFlag = []int32{0, 0, 0, message.TransactionPrepared, message.TransactionCommit, message.TransactionRollback}[w.rng.IntN(6)]
		if m.SysFlag == message.TransactionRollback {
			p.key = ""
		}
		require.NoError(w.t, b.Add(m))
		made = append(made, p)
	}
	_, err := w.s.Append(b)
	require.NoError(w.t, err)
	for i := range made {
		made[i].at, made[i].end = b.Entry(i).LogOffset, b.Entry(i).End()
	}
	w.log = append(w.log, made...)
}

func (w *world) work(started bool) {
	for range 5 + w.rng.IntN(60) {
		switch k := w.rng.IntN(20); {
		case k < 12:
			w.append()
		case k < 15:
			require.NoError(w.t, w.s.Write(w.s.log.End()))
		case k < 17:
			require.NoError(w.t, w.s.Flush(w.s.log.End()))
		case k < 19 && started:
			require.NoError(w.t, w.s.saver.now())
		case k < 20 && started:
			settleConfirmed(w.t, w.s)
		}
	}
}

func settleConfirmed(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.d.done.Wait(t.Context(), s.visible()))
}

// check compares the reopened store with the memory: it must hold a prefix of what was appended, at least up to acked.
func (w *world) check() {
	t, s := w.t, w.s
	require.GreaterOrEqual(t, s.log.End(), w.acked, "acknowledged messages are lost")
	i := 0
	_, err := s.log.Scan(0, s.log.End(), func(rec *message.Record) error {
		require.Less(t, i, len(w.log), "a record came alive at %d", rec.LogOffset)
		require.Equal(t, w.log[i].at, rec.LogOffset)
		require.Equal(t, w.log[i].body, string(rec.Body))
		require.True(t, rec.BodyValid())
		i++
		return nil
	})
	require.NoError(t, err)
	w.log = w.log[:i]
	settle(t, s)
	agree(t, s)
	for topic := range 3 {
		for key := range 5 {
			w.checkKey(fmt.Sprint("topic", topic), fmt.Sprint("k", key))
		}
	}
}

func (w *world) checkKey(topic, key string) {
	var want, got []message.LogOffset
	for _, p := range w.log {
		if p.topic == topic && p.key == key {
			want = append(want, p.at)
		}
	}
	if len(want) > w.cfg.MaxMsgsNumBatch {
		want = want[len(want)-w.cfg.MaxMsgsNumBatch:]
	}
	r, err := w.s.QueryKeys(topic, key, 1000, 0, 1<<62, false)
	require.NoError(w.t, err)
	for _, v := range r.Views {
		got = append(got, v.Offset())
	}
	r.Release()
	require.Equal(w.t, want, got, "%s#%s", topic, key)
}

// TestCrashes runs a store, ends it by kill, power cut or in order at a random moment, also while it recovers, opens it again and compares.
func TestCrashes(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for _, flush := range []string{AsyncFlush, SyncFlush} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", flush, seed), func(t *testing.T) {
				crashRun(t, flush, uint64(seed))
			})
		}
	}
}

func crashRun(t *testing.T, flush string, seed uint64) {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), sim: mappedfile.NewSim(seed), cfg: simConfig(flush)}
	w.sim.SetTorn(true)
	w.open(true)
	for range 5 {
		w.work(true)
		w.end()
		for w.rng.IntN(3) == 0 {
			w.crashAgain()
		}
		w.open(true)
		w.check()
	}
	require.NoError(t, w.s.Close())
}

// crashAgain crashes in the middle of a recovery, or right after one.
func (w *world) crashAgain() {
	if w.rng.IntN(2) == 0 {
		w.open(w.rng.IntN(2) == 0)
		w.crash(w.rng.IntN(2) == 0)
		return
	}
	ops := []mappedfile.Op{mappedfile.OpWrite, mappedfile.OpSync, mappedfile.OpRemove, mappedfile.OpAllocate, mappedfile.OpZero, mappedfile.OpSyncDir, mappedfile.OpRename}
	w.sim.Fail(mappedfile.Fault{Op: ops[w.rng.IntN(len(ops))], Skip: w.rng.IntN(12)})
	o := testOptions()
	o.BootID = fmt.Sprint("boot-", w.boot)
	s, err := Open(w.sim, w.cfg, o)
	w.t.Logf("opened under faults: %v", err)
	if err == nil {
		w.flushed = w.acked // a recovered log is on disk
		_ = s.Close()
	}
	w.sim.Heal()
	if w.rng.IntN(2) == 0 {
		w.t.Log("killed")
		w.sim = w.sim.Kill()
		return
	}
	w.t.Log("power cut")
	w.boot++
	w.sim = w.sim.Crash()
	w.acked = w.flushed
}

// end ends the run in one of three ways.
func (w *world) end() {
	if w.cfg.SyncFlush() {
		done := w.s.d.done.Load()
		require.LessOrEqual(w.t, done, w.s.log.Flushed().Load(), "consumers see what is not on disk")
	}
	w.flushed = message.LogOffset(w.s.log.Flushed().Load())
	switch w.rng.IntN(5) {
	case 0, 1:
		w.acked = message.LogOffset(w.s.log.Written().Load())
		w.crash(false)
	case 2, 3:
		w.acked = w.flushed
		w.crash(true)
	default:
		w.acked = w.s.log.End()
		w.flushed = w.acked
		require.NoError(w.t, w.s.Close())
		w.t.Logf("closed at %d", w.acked)
		if w.rng.IntN(2) == 0 {
			w.boot++
			w.sim = w.sim.Crash()
		}
	}
}

func (w *world) crash(power bool) {
	old := w.s
	w.t.Logf("crash, power cut: %v, end %d", power, w.s.log.End())
	if power {
		w.boot++
		w.sim = w.sim.Crash()
	} else {
		w.sim = w.sim.Kill()
	}
	require.NoError(w.t, old.Close()) // on the disk that nobody looks at any more
}

// TestCrashWhileQueuesAreBuiltAgain lets the rebuilding of a queue that has lost a file fail at every step, kills, and
// starts again: a mark of before must not vouch for what the rebuilding has emptied.
func TestCrashWhileQueuesAreBuiltAgain(t *testing.T) {
	base, _ := newSimStore(t, nil)
	put(t, base, "t", 0, numbered(200, 20)...)
	require.NoError(t, base.saver.now())
	sim := base.fs.(*mappedfile.Sim)
	for _, op := range []mappedfile.Op{mappedfile.OpWrite, mappedfile.OpRemove, mappedfile.OpAllocate, mappedfile.OpOpen, mappedfile.OpSyncDir} {
		for skip := range 60 {
			disk := sim.Kill()
			require.NoError(t, disk.Remove("/store/consumequeue/t/0/00000000000000000320"))
			disk.Fail(mappedfile.Fault{Op: op, Skip: skip})
			s, err := Open(disk, simConfig(AsyncFlush), testOptions())
			if err == nil {
				s.Start()
				_ = s.Close()
			}
			disk.Heal()
			s = mustOpen(t, disk.Kill(), simConfig(AsyncFlush), testOptions())
			s.Start()
			settle(t, s)
			agree(t, s)
			_, high, _ := s.Bounds([]byte("t"), 0)
			require.EqualValues(t, 200, high)
			require.NoError(t, s.Close())
		}
	}
}

// TestKilledRecoveryKeepsItsMark kills a start at every write and wants the next one to begin at the mark again, not to read the whole log.
func TestKilledRecoveryKeepsItsMark(t *testing.T) {
	base, _ := newSimStore(t, nil)
	put(t, base, "t", 0, numbered(200, 20)...)
	require.NoError(t, base.saver.now())
	put(t, base, "t", 1, numbered(10, 20)...)
	mark := base.saver.saved
	sim := base.fs.(*mappedfile.Sim)
	full := 0
	const steps = 40
	for skip := range steps {
		disk := sim.Kill()
		disk.Fail(mappedfile.Fault{Op: mappedfile.OpWrite, Skip: skip})
		s, err := Open(disk, simConfig(AsyncFlush), testOptions())
		left := disk.Kill()
		if err == nil {
			require.NoError(t, s.abandon())
		}
		_ = left.Remove("/store/epochmq/failed") // a process that was killed leaves none
		s = mustOpen(t, left, simConfig(AsyncFlush), testOptions())
		if s.Recovery().Full {
			full++
		} else {
			require.GreaterOrEqual(t, s.Recovery().From, mark)
		}
		s.Start()
		settle(t, s)
		agree(t, s)
		require.NoError(t, s.Close())
	}
	require.LessOrEqual(t, full, 2, "only while two small files are written nothing says whose run it was")
}

// TestIndexTimeGoesDownWithTheIndex: what the checkpoint says of the index must not outlive files that are built again.
func TestIndexTimeGoesDownWithTheIndex(t *testing.T) {
	s, sim := newSimStore(t, nil)
	put(t, s, "t", 0, numbered(50, 20)...)
	require.NoError(t, s.Close())
	before, _, err := checkpoint.Read(sim, "/store/checkpoint")
	require.NoError(t, err)
	require.Positive(t, before.IndexTime)
	require.NoError(t, sim.WriteFile("/store/abort", []byte("1"), 0o644))
	require.NoError(t, checkpoint.RemoveMarks(sim, "/store"))
	s = mustOpen(t, sim, simConfig(AsyncFlush), testOptions())
	after, _, err := checkpoint.Read(sim, "/store/checkpoint")
	require.NoError(t, err)
	require.Less(t, after.IndexTime, before.IndexTime, "the only file was deleted to be built again")
	require.NoError(t, s.Close())
}

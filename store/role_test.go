package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var errTestFollows = errors.New("another broker is master")

func TestCloseWrites(t *testing.T) {
	s, _ := newSimStore(t, nil)
	b := s.NewBatch()
	require.NoError(t, b.Add(testMessage("t", 0, "a", "")))
	require.ErrorIs(t, s.AppendRaw(0, []byte("x")), errOpen)
	_, err := s.TruncateTo(0)
	require.ErrorIs(t, err, errOpen)
	_, err = s.Promote(t.Context())
	require.ErrorIs(t, err, errOpen)

	s.CloseWrites(errTestFollows)
	_, err = s.Append(b)
	require.ErrorIs(t, err, ErrNotMaster)
	require.ErrorIs(t, err, errTestFollows)
	require.ErrorIs(t, s.Writable(), ErrNotMaster)
	s.OpenWrites()
	require.NoError(t, s.Writable())
	_, err = s.Append(b)
	require.NoError(t, err)
}

// replica is one store of a pair, on a disk of its own.
type replica struct {
	t    *testing.T
	rng  *rand.Rand
	name string
	sim  *mappedfile.Sim
	cfg  Config
	boot int
	s    *Store
}

func newReplica(t *testing.T, rng *rand.Rand, name string) *replica {
	r := &replica{t: t, rng: rng, name: name, sim: mappedfile.NewSim(rng.Uint64()), cfg: simConfig(AsyncFlush)}
	r.sim.SetTorn(true)
	r.open()
	return r
}

// open opens the store as that of a slave.
func (r *replica) open() {
	o := testOptions()
	o.BootID, o.ManualConfirm = fmt.Sprint("boot-", r.boot), true
	s, err := Open(r.sim, r.cfg, o)
	require.NoError(r.t, err, r.name)
	r.t.Logf("%s opened: %+v", r.name, s.Recovery())
	s.CloseWrites(errTestFollows)
	s.Start()
	r.s = s
}

// restart ends the store in some way and opens it again. Without power nothing of the log is lost.
func (r *replica) restart(power bool) {
	old := r.s
	switch {
	case power:
		r.boot++
		r.sim = r.sim.Crash()
	case r.rng.IntN(2) == 0:
		require.NoError(r.t, old.Close())
	default:
		r.sim = r.sim.Kill()
	}
	require.NoError(r.t, old.Close())
	r.open()
}

// produce appends as a master.
func (r *replica) produce() {
	b := r.s.NewBatch()
	for range 1 + r.rng.IntN(12) {
		b.Reset()
		topic, id := fmt.Sprint("topic", r.rng.IntN(3)), int32(r.rng.IntN(2))
		for range 1 + r.rng.IntN(3) {
			m := testMessage(topic, id, fmt.Sprintf("%s-%d-%0*d", r.name, r.rng.Uint64(), r.rng.IntN(300), 0), fmt.Sprint("k", r.rng.IntN(5)))
			m.SysFlag = []int32{0, 0, 0, message.TransactionPrepared, message.TransactionCommit}[r.rng.IntN(5)]
			require.NoError(r.t, b.Add(m))
		}
		_, err := r.s.Append(b)
		require.NoError(r.t, err)
	}
	require.NoError(r.t, r.s.Write(r.s.End()))
}

// follow copies from a master up to some offset, in pieces cut anywhere.
func (r *replica) follow(m *replica, to message.LogOffset) {
	for at := r.s.End(); at < to; {
		v, err := m.s.ViewAt(at, 1+r.rng.IntN(3000))
		require.NoError(r.t, err)
		n := min(v.Len(), int(to-at))
		require.NoError(r.t, r.s.AppendRaw(at, v.Bytes()[:n]))
		v.Release()
		at += message.LogOffset(n)
	}
}

// whole compares both logs below to, and each store with its own log.
func (r *replica) whole(other *replica) {
	t := r.t
	require.Equal(t, other.s.End(), r.s.End())
	for at := r.s.Min(); at < r.s.End(); {
		v, err := r.s.ViewAt(at, 1<<20)
		require.NoError(t, err)
		w, err := other.s.ViewAt(at, v.Len())
		require.NoError(t, err)
		require.True(t, bytes.Equal(w.Bytes(), v.Bytes()), "the logs differ between %d and %d", at, at+message.LogOffset(v.Len()))
		at += message.LogOffset(v.Len())
		v.Release()
		w.Release()
	}
	for _, p := range []*replica{r, other} {
		p.s.SetConfirmed(p.s.End())
		settle(t, p.s)
		agree(t, p.s)
	}
	for _, p := range []*replica{r, other} {
		p.s.EachQueue(func(q QueueInfo) bool {
			low, high, _ := map[*replica]*replica{r: other, other: r}[p].s.Bounds([]byte(q.Topic), q.ID)
			require.Equal(t, []message.QueueOffset{q.Min, q.Max}, []message.QueueOffset{low, high})
			require.Equal(t, q.Max, p.s.MaxOffset([]byte(q.Topic), q.ID, false), "%s: next offset of %s/%d", p.name, q.Topic, q.ID)
			return true
		})
	}
}

// TestRoles lets two stores change roles at random moments, with restarts, kills and power cuts, and compares them whenever
// the slave has caught up. What is confirmed on a master was copied, so it must never go.
func TestRoles(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 11))
			m, f := newReplica(t, rng, "a"), newReplica(t, rng, "b")
			promote(t, m)
			for range 8 {
				m.produce()
				some := f.s.End() + message.LogOffset(rng.Int64N(int64(m.s.End()-f.s.End())+1))
				f.follow(m, some)
				m.s.SetConfirmed(some)
				f.s.SetConfirmed(min(some, f.s.End()))
				switch rng.IntN(6) {
				case 0:
					f.restart(false)
				case 1:
					f.restart(true)
				case 2: // the slave takes over
					end := promote(t, f)
					require.LessOrEqual(t, end, m.s.End())
					f.produce()
					if rng.IntN(2) == 0 {
						m.restart(rng.IntN(2) == 0)
					} else {
						m.s.CloseWrites(errTestFollows)
					}
					at := cutTo(m, end)
					require.LessOrEqual(t, at, end)
					m, f = f, m
				case 3:
					f.follow(m, m.s.End())
					f.whole(m)
				}
			}
			if f.s.End() > m.s.End() {
				cutTo(f, m.s.End())
			}
			f.follow(m, m.s.End())
			f.whole(m)
			f.restart(true)
			f.follow(m, m.s.End())
			f.whole(m)
			require.NoError(t, m.s.Close())
			require.NoError(t, f.s.Close())
		})
	}
}

// promote makes a store a master's. What was confirmed stays confirmed; the rest is, as if its epoch had begun.
func promote(t *testing.T, r *replica) message.LogOffset {
	end, err := r.s.Promote(t.Context())
	require.NoError(t, err)
	require.Equal(t, end, r.s.End())
	r.s.SetConfirmed(end)
	r.s.OpenWrites()
	return end
}

// cutTo cuts a store, now and then with crashes in between.
func cutTo(r *replica, to message.LogOffset) message.LogOffset {
	for r.rng.IntN(2) == 0 && r.s.End() > to {
		ops := []mappedfile.Op{mappedfile.OpWrite, mappedfile.OpSync, mappedfile.OpRemove, mappedfile.OpZero, mappedfile.OpSyncDir}
		r.sim.Fail(mappedfile.Fault{Op: ops[r.rng.IntN(len(ops))], Skip: r.rng.IntN(12)})
		_, err := r.s.TruncateTo(to)
		r.t.Logf("%s: cut to %d under faults: %v", r.name, to, err)
		r.sim.Heal()
		old, fenced := r.s, err != nil
		power := r.rng.IntN(2) == 0
		if power {
			r.boot++
			r.sim = r.sim.Crash()
		} else {
			r.sim = r.sim.Kill()
		}
		if err := old.Close(); !fenced {
			require.NoError(r.t, err)
		}
		r.open()
	}
	at, err := r.s.TruncateTo(to)
	require.NoError(r.t, err)
	require.Equal(r.t, at, r.s.End())
	return at
}

func TestConfirmedInsideOfARecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m, f := newReplica(t, rng, "a"), newReplica(t, rng, "b")
	promote(t, m)
	at := put(t, m.s, "t", 0, numbered(3, 100)...) // put waits for what is confirmed: nothing
	end := m.s.End()
	f.follow(m, end)
	for off := message.LogOffset(0); off <= end; off += 7 {
		f.s.SetConfirmed(off)
		require.NoError(t, f.s.d.looked.Wait(t.Context(), int64(off)))
		want := 0
		for i := range at {
			stop := end
			if i+1 < len(at) {
				stop = at[i+1]
			}
			if stop <= off {
				want++
			}
		}
		require.EqualValues(t, want, f.s.MaxOffset([]byte("t"), 0, true), "confirmed %d", off)
	}
	require.NoError(t, m.s.Close())
	require.NoError(t, f.s.Close())
}

// TestConfirmedSurvives restarts a slave: what was not confirmed is not shown after a restart either, and is counted when the
// store becomes a master's.
func TestConfirmedSurvives(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	m, f := newReplica(t, rng, "a"), newReplica(t, rng, "b")
	promote(t, m)
	at := put(t, m.s, "t", 0, numbered(5, 100)...)
	f.follow(m, m.s.End())
	f.s.SetConfirmed(at[2])
	require.NoError(t, f.s.d.looked.Wait(t.Context(), int64(at[2])))
	require.NoError(t, f.s.saver.last()) // as the saver does about once a second
	for range 3 {
		f.restart(false)
		require.Equal(t, at[2], f.s.Recovery().Confirmed)
		require.EqualValues(t, 2, f.s.MaxOffset([]byte("t"), 0, true))
	}
	promote(t, f)
	require.EqualValues(t, 5, f.s.MaxOffset([]byte("t"), 0, false))
	b := f.s.NewBatch()
	require.NoError(t, b.Add(testMessage("t", 0, "next", "")))
	_, err := f.s.Append(b)
	require.NoError(t, err)
	require.EqualValues(t, 5, b.Entry(0).QueueOffset)
	require.NoError(t, m.s.Close())
	require.NoError(t, f.s.Close())
}

func TestUnclean(t *testing.T) {
	r := newReplica(t, rand.New(rand.NewPCG(3, 1)), "a")
	promote(t, r)
	put(t, r.s, "t", 0, "a", "b")
	require.False(t, r.s.Recovery().Unclean)
	r.restart(false)
	require.False(t, r.s.Recovery().Unclean, "the machine was not restarted")
	r.restart(true)
	require.True(t, r.s.Recovery().Unclean)
	r.restart(true)
	require.True(t, r.s.Recovery().Unclean, "nobody was told yet")
	require.NoError(t, r.s.AcceptUnclean())
	old := r.s
	r.sim = r.sim.Kill()
	require.NoError(t, old.Close())
	r.open()
	require.False(t, r.s.Recovery().Unclean)
	require.NoError(t, r.s.Close())
	r.boot++
	r.open()
	require.False(t, r.s.Recovery().Unclean, "it ended in order")
	require.NoError(t, r.s.Close())
}

func TestPromoteCanBeGivenUp(t *testing.T) {
	r := newReplica(t, rand.New(rand.NewPCG(4, 1)), "a")
	promote(t, r)
	b := r.s.NewBatch()
	require.NoError(t, b.Add(testMessage("t", 0, "a", "")))
	_, err := r.s.Append(b)
	require.NoError(t, err)
	r.s.CloseWrites(errTestFollows)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.s.Promote(ctx)
	require.ErrorIs(t, err, context.Canceled)
	promote(t, r)
	require.EqualValues(t, 1, r.s.MaxOffset([]byte("t"), 0, false))
	require.NoError(t, r.s.Close())
}

// TestAppendWhilePromotedTailIsDispatched appends right after a promotion, while the dispatcher still reads the tail.
func TestAppendWhilePromotedTailIsDispatched(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	m, f := newReplica(t, rng, "a"), newReplica(t, rng, "b")
	promote(t, m)
	put(t, m.s, "t", 0, numbered(3000, 10)...)
	f.follow(m, m.s.End())
	end, err := f.s.Promote(t.Context())
	require.NoError(t, err)
	f.s.SetConfirmed(end)
	require.NoError(t, f.s.d.done.Wait(t.Context(), 1)) // the scan has begun with writes closed
	f.s.OpenWrites()
	b := f.s.NewBatch()
	for want := range 500 {
		b.Reset()
		require.NoError(t, b.Add(testMessage("t", 0, "next", "")))
		_, err := f.s.Append(b)
		require.NoError(t, err)
		require.EqualValues(t, 3000+want, b.Entry(0).QueueOffset)
	}
	require.NoError(t, m.s.Close())
	require.NoError(t, f.s.Close())
}

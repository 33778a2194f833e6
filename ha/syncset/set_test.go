package syncset

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

var begin = time.Unix(1_000_000, 0)

// bench is a set with a clock that is moved by hand.
type bench struct {
	*Set
	t   *testing.T
	now time.Time
}

func newBench(t *testing.T, cfg Config, members ...int64) *bench {
	cfg.Self = 1
	if cfg.MaxLag == 0 {
		cfg.MaxLag = 15 * time.Second
	}
	b := &bench{New(cfg, Agreed{members, 5}, 0, begin), t, begin}
	return b
}

func (b *bench) after(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) grow(to message.LogOffset) { b.Grow(to, to) }

func (b *bench) ack(id int64, serial uint64, off message.LogOffset) {
	require.NoError(b.t, b.Ack(id, serial, off, b.now))
}

func (b *bench) proposes(want ...int64) Proposal {
	b.t.Helper()
	p, ok := b.Propose(b.now)
	require.Equal(b.t, len(want) > 0, ok, "%v", p)
	require.Equal(b.t, want, p.Members)
	return p
}

func (b *bench) confirmed(want message.LogOffset) {
	b.t.Helper()
	require.Equal(b.t, want, b.Confirm())
}

var allAck = Config{AllAck: true, MinInSync: 1}

// TestExpansion is #5663: from the moment on at which a change may be in force, everybody in it is waited for.
func TestExpansion(t *testing.T) {
	b := newBench(t, allAck, 1)
	b.grow(100)
	b.confirmed(100)
	s := b.Connect(2, false, b.now)
	b.proposes()
	b.ack(2, s, 100)
	p := b.proposes(1, 2)
	require.EqualValues(t, 5, p.SetEpoch)
	b.grow(200)
	b.confirmed(100)
	require.Equal(t, 2, b.InSync())
	b.proposes()
	b.Unknown(b.now)
	b.grow(300)
	b.confirmed(100)
	b.Disconnect(2, s)
	b.after(time.Minute)
	b.grow(400)
	b.confirmed(100)
	require.Equal(t, 1, b.InSync())
	b.Polled(Agreed{[]int64{1}, 5}, b.now.Add(-55*time.Second), b.now)
	b.confirmed(100)
	b.Applied(Agreed{[]int64{1, 2}, 6}, b.now)
	b.confirmed(100)
	b.proposes(1)
	b.Applied(Agreed{[]int64{1}, 7}, b.now)
	b.confirmed(400)
}

// TestBusyMaster: the confirm offset of a master alone moves with each message, so a replica is waited for before it is proposed.
func TestBusyMaster(t *testing.T) {
	b := newBench(t, allAck, 1)
	b.grow(1000)
	s := b.Connect(2, false, b.now)
	b.ack(2, s, 500)
	require.False(t, b.Joining())
	b.grow(1500)
	b.after(10 * time.Millisecond)
	b.ack(2, s, 1000)
	require.True(t, b.Joining())
	b.grow(2000)
	b.confirmed(1500)
	b.proposes()
	b.after(10 * time.Millisecond)
	b.ack(2, s, 1500)
	b.proposes(1, 2)

	c := newBench(t, allAck, 1)
	c.grow(1000)
	s = c.Connect(2, false, c.now)
	c.ack(2, s, 500)
	c.grow(1500)
	c.ack(2, s, 1000)
	c.grow(2000)
	c.confirmed(1500)
	c.after(3 * time.Second)
	c.proposes()
	c.confirmed(2000)
	require.False(t, c.Joining(), "it fell behind before it was proposed")
}

func TestNotProposed(t *testing.T) {
	b := newBench(t, Config{AllAck: true, MinInSync: 1, EpochStart: 500}, 1)
	b.grow(500)
	learner := b.Connect(3, true, b.now)
	b.ack(3, learner, 500)
	b.proposes()
	require.Equal(t, 1, b.InSync())
	_, ok := b.Acked(2)
	require.False(t, ok, "a learner is no copy")
	s := b.Connect(2, false, b.now)
	require.ErrorIs(t, b.Ack(2, s, 501, b.now), ErrAboveEnd)
	b.proposes()
	b.ack(2, s, 499)
	b.proposes()
	b.ack(2, s, 500)
	b.proposes(1, 2)
}

func TestShrink(t *testing.T) {
	t.Run("connection lost", func(t *testing.T) {
		b := newBench(t, allAck, 1, 2, 3)
		b.grow(100)
		s2, s3 := b.Connect(2, false, b.now), b.Connect(3, false, b.now)
		b.ack(2, s2, 100)
		b.ack(3, s3, 100)
		b.confirmed(100)
		again := b.Connect(2, false, b.now)
		b.Disconnect(2, s2)
		b.proposes()
		b.ack(2, again, 100)
		b.Disconnect(2, again)
		b.proposes(1, 3)
		b.Disconnect(3, s3)
		b.grow(200)
		b.confirmed(100)
		b.Applied(Agreed{[]int64{1, 3}, 6}, b.now)
		b.proposes(1) // #9897: one change at a time, each from the set in force
		b.Applied(Agreed{[]int64{1}, 7}, b.now)
		b.confirmed(200)
	})
	t.Run("not caught up", func(t *testing.T) {
		b := newBench(t, allAck, 1, 2)
		b.grow(100)
		s := b.Connect(2, false, b.now)
		b.ack(2, s, 100)
		for range 40 {
			b.after(time.Second)
			b.grow(b.end + 100)
			b.ack(2, s, b.end-100)
			b.proposes()
		}
		b.grow(b.end + 100)
		last := b.end - 200
		b.ack(2, s, last)
		b.after(14 * time.Second)
		b.proposes()
		b.after(3 * time.Second)
		b.ack(2, s, last) // it lives, and gets nowhere
		b.proposes(1)
	})
	t.Run("never connected", func(t *testing.T) {
		b := newBench(t, allAck, 1, 2)
		b.after(15 * time.Second)
		b.proposes()
		b.after(time.Second)
		b.proposes(1)
	})
	t.Run("floor", func(t *testing.T) {
		b := newBench(t, Config{AllAck: true, MinInSync: 2}, 1, 2)
		b.grow(100)
		s := b.Connect(2, false, b.now)
		b.ack(2, s, 100)
		b.Disconnect(2, s)
		b.after(time.Hour)
		b.proposes()
		require.Equal(t, 1, b.InSync())
		b.grow(200)
		b.confirmed(100)
		s3 := b.Connect(3, false, b.now)
		b.ack(3, s3, 200)
		b.proposes(1, 3)
	})
	t.Run("lost committed bytes", func(t *testing.T) {
		b := newBench(t, Config{AllAck: true, MinInSync: 2}, 1, 2)
		b.grow(100)
		s := b.Connect(2, false, b.now)
		b.ack(2, s, 100)
		b.Disconnect(2, s)
		s = b.Connect(2, false, b.now)
		b.ack(2, s, 60)
		b.proposes(1)
		b.Refused(b.now)
		b.proposes()
		b.after(2 * RetryAfter)
		b.ack(2, s, 100)
		b.proposes()
	})
}

func TestAcked(t *testing.T) {
	b := newBench(t, Config{MinInSync: 1}, 1)
	b.grow(1000)
	b.confirmed(1000)
	s := b.Connect(2, false, b.now)
	b.ack(2, s, 300)
	two := b.Connect(2, false, b.now)
	b.ack(2, s, 900)
	b.ack(2, two, 400)
	b.ack(3, b.Connect(3, false, b.now), 700)
	for n, want := range map[int]message.LogOffset{1: 1000, 2: 700, 3: 400} {
		got, ok := b.Acked(n)
		require.True(t, ok)
		require.Equal(t, want, got, "%d copies", n)
	}
	_, ok := b.Acked(4)
	require.False(t, ok, "two connections of one replica are one copy")
}

func TestFreeze(t *testing.T) {
	b := newBench(t, allAck, 1)
	b.grow(100)
	s := b.Connect(2, false, b.now)
	b.Freeze()
	b.grow(200)
	b.ack(2, s, 200)
	b.confirmed(100)
	b.proposes()
	b.Thaw()
	b.confirmed(200)
	b.ack(2, s, 200)
	b.proposes(1, 2)
	b.Applied(Agreed{[]int64{1}, 5}, b.now)
	require.Equal(t, []int64{1, 2}, b.Union(), "late news")
	require.Equal(t, Agreed{[]int64{1}, 5}, b.Members())
}

func TestAckAllocatesNothing(t *testing.T) {
	b := newBench(t, allAck, 1, 2, 3)
	s2, s3 := b.Connect(2, false, b.now), b.Connect(3, false, b.now)
	off := message.LogOffset(0)
	n := testing.AllocsPerRun(1000, func() {
		off += 100
		b.grow(off)
		_ = b.Ack(2, s2, off, b.now)
		_ = b.Ack(3, s3, off, b.now)
		_, _ = b.Acked(2)
	})
	require.Zero(t, n)
	require.True(t, slices.IsSorted(b.Union()))
}

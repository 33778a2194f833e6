package ha

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/message"
)

// group starts n nodes of which the first leads epoch 1 and the others follow.
func group(t *testing.T, n int) (*controller, []*node) {
	network, c := pipenet.New(), &controller{}
	var nodes []*node
	for i := range n {
		nodes = append(nodes, newNode(t, network, int64(i+1)))
	}
	e := c.elect(1)
	nodes[0].promote(c, e)
	for _, f := range nodes[1:] {
		f.copyFrom(nodes[0], e)
	}
	return c, nodes
}

func closeAll(nodes []*node) {
	for _, n := range nodes {
		n.close()
	}
}

// until waits in fake time.
func until(t testing.TB, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "it did not happen")
		}
	}
}

func TestAutoCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 3)
		defer closeAll(nodes)
		m := nodes[0]
		until(t, 50*time.Millisecond, func() bool { return len(c.members()) == 3 })
		start := time.Now()
		end := m.log.fill(t, 60, "a")
		require.Greater(t, end, message.LogOffset(2*testSegment), "several segments")
		wait(t, m.lead.Acks().All(), end)
		wait(t, m.lead.Acks().Mark(3), end)
		require.Less(t, time.Since(start), 10*time.Millisecond)
		require.EqualValues(t, end, m.log.Confirmed().Load())
		for _, f := range nodes[1:] {
			until(t, 20*time.Millisecond, func() bool { return f.log.Confirmed().Load() == int64(end) })
			same(t, m.log, f.log, end)
			require.Equal(t, epoch.List{{Epoch: 1, Start: 0}}, f.epochs.List())
			st := f.follow.Status()
			require.True(t, st.Connected)
			require.Equal(t, end, st.End)
		}
		st := m.lead.Status()
		require.Equal(t, 2, st.InSync)
		require.Len(t, st.Conns, 2)
		for _, k := range st.Conns {
			require.True(t, k.InSync)
			require.Equal(t, end, k.Acked)
			require.Equal(t, end, k.Next)
			require.Zero(t, k.Behind)
		}
		time.Sleep(time.Minute) // heartbeats keep everything as it is (I26)
		require.Len(t, c.members(), 3)
		require.True(t, nodes[1].follow.Status().Connected)
		require.LessOrEqual(t, c.asked, 2, "one proposal for each replica, or for both")
	})
}

// TestAutoFailover: the second node takes over, the first one comes back with bytes that nobody has.
func TestAutoFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 3)
		defer closeAll(nodes)
		a, b, d := nodes[0], nodes[1], nodes[2]
		until(t, time.Second, func() bool { return len(c.members()) == 3 })
		end := a.log.fill(t, 30, "a")
		wait(t, a.lead.Acks().All(), end)

		a.rest() // it goes on appending what nobody sees
		a.log.fill(t, 25, "lost")
		lost := a.log.End()
		e := c.elect(2)
		start := time.Now()
		b.promote(c, e)
		d.copyFrom(b, e)
		until(t, 100*time.Millisecond, func() bool { return len(c.members()) == 2 })
		require.Less(t, time.Since(start), 50*time.Millisecond, "a role change waits for no timer")
		end2 := b.log.fill(t, 10, "b")
		wait(t, b.lead.Acks().All(), end2)

		confirmed := message.LogOffset(a.log.Confirmed().Load())
		require.Equal(t, end, confirmed)
		a.copyFrom(b, e)
		until(t, time.Second, func() bool { return len(c.members()) == 3 })
		require.Equal(t, []message.LogOffset{0, end}, a.log.cuts, "cut at the end of the common history")
		require.Less(t, end, lost)
		want := epoch.List{{Epoch: 1, Start: 0}, {Epoch: 2, Start: end}}
		for _, n := range nodes {
			until(t, 20*time.Millisecond, func() bool { return n.log.Confirmed().Load() == int64(end2) })
			same(t, b.log, n.log, end2)
			require.Equal(t, want, n.epochs.List())
		}
	})
}

// TestAutoAcksFail: what waits when the term ends gets the owner's error. (I11)
func TestAutoAcksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 2)
		defer closeAll(nodes)
		m := nodes[0]
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
		c.mu.Lock()
		c.fail = func(syncset.Proposal) error { return errors.New("no controller") }
		c.mu.Unlock()
		nodes[1].rest()
		end := m.log.fill(t, 1, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, m.lead.Acks().All().Wait(ctx, int64(end)), context.DeadlineExceeded, "without the controller the member is waited for")
		require.Less(t, m.log.Confirmed().Load(), int64(end))
		time.AfterFunc(time.Second, func() { m.lead.Close(errDemoted) })
		require.ErrorIs(t, m.lead.Acks().All().Wait(t.Context(), int64(end)), errDemoted)
		require.ErrorIs(t, m.lead.Acks().Mark(2).Wait(t.Context(), int64(end)), errDemoted)
		require.Less(t, m.log.Confirmed().Load(), int64(end))
	})
}

// TestAutoShrink: a member whose connection is gone leaves at once, and the answer may be lost. (I8, I10)
func TestAutoShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 2)
		defer closeAll(nodes)
		m := nodes[0]
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
		require.NoError(t, m.lead.Admit())
		c.mu.Lock()
		c.lose = true
		c.mu.Unlock()
		nodes[1].rest()
		end := m.log.fill(t, 1, "a")
		wait(t, m.lead.Acks().All(), end)
		require.Equal(t, []int64{1}, c.members())
		require.Equal(t, []int64{1}, m.lead.Members().Members)
		require.Equal(t, 1, m.lead.InSync())
		c.mu.Lock()
		c.lose = false
		c.mu.Unlock()
		nodes[1].copyFrom(m, 1)
		until(t, 3*time.Second, func() bool { return len(c.members()) == 2 })
		until(t, time.Second, func() bool { return m.lead.InSync() == 2 })
	})
}

func TestAutoFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{}
		a, b := newNode(t, network, 1), newNode(t, network, 2)
		defer closeAll([]*node{a, b})
		a.min = 2
		a.promote(c, c.elect(1))
		require.ErrorIs(t, a.lead.Admit(), ErrNotEnough)
		b.copyFrom(a, 1)
		until(t, time.Second, func() bool { return a.lead.Admit() == nil })
		b.rest()
		until(t, time.Second, func() bool { return a.lead.Admit() != nil })
		time.Sleep(time.Minute)
		require.Equal(t, []int64{1, 2}, c.members(), "never below the minimum")
	})
}

// TestAutoLease: without a lease nothing is published.
func TestAutoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 2)
		defer closeAll(nodes)
		m := nodes[0]
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
		m.lead.Freeze()
		end := m.log.fill(t, 5, "a")
		time.Sleep(10 * time.Second)
		require.EqualValues(t, end, nodes[1].log.Written().Load())
		require.Less(t, m.log.Confirmed().Load(), int64(end))
		require.Less(t, m.lead.Acks().All().Load(), int64(end))
		require.Less(t, m.lead.Acks().Mark(2).Load(), int64(end))
		m.lead.Thaw()
		require.EqualValues(t, end, m.lead.Acks().All().Load())
	})
}

// TestAutoReady: the first ack of an epoch waits for what is copied beside the log.
func TestAutoReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{}
		a, b := newNode(t, network, 1), newNode(t, network, 2)
		defer closeAll([]*node{a, b})
		calls := 0
		b.config = func(cfg *AutoFollowerConfig) {
			cfg.Ready = func(ctx context.Context) error {
				if calls++; calls == 1 {
					return errors.New("master busy")
				}
				select {
				case <-time.After(2 * time.Second):
				case <-ctx.Done():
				}
				return ctx.Err()
			}
		}
		a.promote(c, c.elect(1))
		end := a.log.fill(t, 5, "a")
		b.copyFrom(a, 1)
		time.Sleep(1900 * time.Millisecond)
		require.Zero(t, b.log.End())
		require.Len(t, a.lead.Status().Conns, 1)
		require.Zero(t, a.lead.Status().Conns[0].Acked)
		until(t, time.Second, func() bool { return b.log.Confirmed().Load() == int64(end) })
		require.Equal(t, 2, calls)
	})
}

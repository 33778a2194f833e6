package ha

import (
	"bytes"
	"errors"
	cmdline "flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

var (
	chaosRuns = cmdline.Int("chaos.runs", 30, "random histories of a group")
	chaosSeed = cmdline.Uint64("chaos.seed", 1, "the first one")
)

// world is a group under random faults, and what must be true of it.
type world struct {
	t         *testing.T
	rng       *rand.Rand
	c         *controller
	nodes     []*node
	leader    *node  // of the controller's epoch, nil: dead
	committed []byte // what some node called committed
	puts      int

	mu    sync.Mutex
	acked message.LogOffset // what producers were told under the present epoch and before
}

// look compares every log with what is committed. (I4, I5)
func (w *world) look() {
	for _, n := range w.nodes {
		confirmed := message.LogOffset(n.log.Confirmed().Load())
		require.LessOrEqual(w.t, confirmed, n.log.End())
		b := n.log.bytes(w.t, 0, confirmed)
		k := min(len(b), len(w.committed))
		require.True(w.t, bytes.Equal(b[:k], w.committed[:k]), "node %d calls other bytes committed", n.id)
		if len(b) > k {
			w.committed = append(w.committed, b[k:]...)
		}
	}
}

// put appends to a node that leads, or believes to lead.
func (w *world) put(n *node) {
	if n.lead == nil {
		return
	}
	for range 1 + w.rng.IntN(12) {
		w.puts++
		end, err := n.log.put(fmt.Sprintf("%d-%d-%s", n.id, w.puts, make([]byte, w.rng.IntN(300))))
		require.NoError(w.t, err)
		n.lead.Acks().All().Add(&watermark.Waiter{At: int64(end), Done: func(err error) {
			if err == nil {
				w.mu.Lock()
				w.acked = max(w.acked, end)
				w.mu.Unlock()
			}
		}})
	}
}

// elect does what a controller does: a living member of the last set becomes master, the others are told. Some hear of it
// late.
func (w *world) elect() {
	var can []*node
	for _, id := range w.c.members() {
		if n := w.nodes[id-1]; !n.cut.Load() {
			can = append(can, n)
		}
	}
	if len(can) == 0 {
		return
	}
	n := can[w.rng.IntN(len(can))]
	e := w.c.elect(n.id)
	n.promote(w.c, e)
	w.leader = n
	w.mu.Lock()
	acked := w.acked
	w.mu.Unlock()
	require.GreaterOrEqual(w.t, n.log.End(), acked, "an acknowledged message is not on the new master (I1)")
	for _, o := range w.nodes {
		if o != n && w.rng.IntN(4) > 0 {
			w.join(o)
		}
	}
}

func (w *world) join(n *node) {
	if w.leader == nil || n == w.leader {
		return
	}
	if n.lead != nil {
		n.rest()
	}
	w.c.mu.Lock()
	e := w.c.epoch
	w.c.mu.Unlock()
	n.copyFrom(w.leader, e)
}

func (w *world) step() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(20); {
	case k < 9:
		if w.leader != nil {
			w.put(w.leader)
		}
		w.put(n) // perhaps a master that was replaced and has not heard of it
	case k < 10 && n != w.leader:
		n.cut.Store(true)
		n.rest()
	case k < 12:
		n.cut.Store(false)
		w.join(n)
	case k < 13:
		if n == w.leader {
			w.leader = nil
		}
		n.restart(n.sync && w.rng.IntN(2) == 0)
		w.join(n)
	case k < 14 && n.sync: // the power of all fails
		for _, o := range w.nodes {
			o.restart(true)
		}
		w.leader = nil
		w.elect()
	case k < 15:
		w.elect()
	case k < 16:
		w.c.mu.Lock()
		w.c.lose = w.rng.IntN(3) == 0
		w.c.slow = time.Duration(w.rng.IntN(2000)) * time.Millisecond
		w.c.mu.Unlock()
	case k < 17:
		w.c.mu.Lock()
		w.c.fail = nil
		if w.rng.IntN(2) == 0 {
			w.c.fail = func(syncset.Proposal) error { return errors.New("no controller") }
		}
		w.c.mu.Unlock()
	default:
		w.join(n)
	}
	time.Sleep(time.Duration(w.rng.IntN(1<<w.rng.IntN(24))) * time.Microsecond)
	w.look()
}

func TestRandomHistories(t *testing.T) {
	for i := range *chaosRuns {
		seed := *chaosSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), c: &controller{}}
				network := pipenet.New()
				for id := range int64(3) {
					n := newNode(t, network, id+1)
					n.min, n.sync = 1+int(seed%2), seed%4 >= 2
					w.nodes = append(w.nodes, n)
				}
				defer closeAll(w.nodes)
				w.c.elect(1)
				w.nodes[0].promote(w.c, 1)
				w.leader = w.nodes[0]
				for range 60 {
					w.step()
				}
				w.settle()
			})
		})
	}
}

// settle ends all faults and demands that the logs become equal.
func (w *world) settle() {
	w.c.mu.Lock()
	w.c.lose, w.c.slow, w.c.fail = false, 0, nil
	w.c.mu.Unlock()
	for _, n := range w.nodes {
		n.cut.Store(false)
	}
	if w.leader == nil {
		w.elect()
	}
	for _, n := range w.nodes {
		w.join(n)
	}
	until(w.t, time.Minute, func() bool {
		for _, n := range w.nodes {
			if n.follow != nil && !n.follow.Status().Connected {
				return false
			}
		}
		return len(w.c.members()) == len(w.nodes)
	})
	w.put(w.leader)
	end := w.leader.log.End()
	wait(w.t, w.leader.lead.Acks().All(), end)
	for _, n := range w.nodes {
		until(w.t, time.Second, func() bool { return n.log.Confirmed().Load() == int64(end) })
		same(w.t, w.leader.log, n.log, end)
		require.Equal(w.t, w.leader.epochs.List(), n.epochs.List())
	}
	w.look()
	require.Len(w.t, w.committed, int(end))
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	require.True(w.t, slices.IsSortedFunc(w.c.history, func(a, b syncset.Agreed) int { return int(a.SetEpoch - b.SetEpoch) }))
}

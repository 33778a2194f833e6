package syncset

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/message"
)

// world is a master, its slaves and a controller whose messages may be late or lost.
type world struct {
	t      *rapid.T
	cfg    Config
	set    *Set
	now    time.Time
	end    message.LogOffset
	slaves map[int64]*slave

	truth    Agreed    // the controller's
	requests []request // under way to it
	asked    bool      // the master waits for an answer
}

type slave struct {
	learner   bool
	has       message.LogOffset
	lostBelow message.LogOffset // it crashed and lost what it had acked; its own fault
	connected bool
	serial    uint64
}

type request struct {
	Proposal
	sent time.Time
}

const requestLives = 5 * time.Second // less than Settle

func (w *world) deliver(i int) {
	r := w.requests[i]
	w.requests = slices.Delete(w.requests, i, i+1)
	if w.now.Sub(r.sent) > requestLives {
		return
	}
	applied := r.SetEpoch == w.truth.SetEpoch
	if applied {
		w.truth = Agreed{r.Members, r.SetEpoch + 1}
	}
	w.checkTruth()
	if !w.asked || len(w.requests) > i || rapid.Bool().Draw(w.t, "answer lost") {
		return
	}
	w.asked = false
	if applied {
		w.set.Applied(w.truth, w.now)
	} else {
		w.set.Refused(w.now)
	}
}

// checkTruth: whoever the controller could make master now has every committed byte. (I5)
func (w *world) checkTruth() {
	if !w.cfg.AllAck {
		return
	}
	for _, id := range w.truth.Members {
		s := w.slaves[id]
		if id == w.cfg.Self || s.lostBelow > 0 {
			continue
		}
		require.GreaterOrEqual(w.t, s.has, w.set.Confirm(), "member %d of %v; union %v", id, w.truth, w.set.Union())
	}
}

func (w *world) checkProposal(p Proposal) {
	require.False(w.t, w.asked, "one proposal at a time (I8)")
	m := w.set.Members()
	require.Equal(w.t, m.SetEpoch, p.SetEpoch)
	require.Contains(w.t, p.Members, w.cfg.Self)
	lost := false
	for _, id := range m.Members {
		r := w.set.replicas[id]
		if id == w.cfg.Self || slices.Contains(p.Members, id) {
			continue
		}
		lost = lost || r.lost
		idle := w.now.Sub(r.since) > w.cfg.MaxLag && w.now.Sub(r.caught) > w.cfg.MaxLag
		require.True(w.t, r.lost || !r.connected || idle, "%d leaves without a reason (I10)", id)
	}
	for _, id := range p.Members {
		s := w.slaves[id]
		if id == w.cfg.Self || slices.Contains(m.Members, id) {
			continue
		}
		require.False(w.t, s.learner, "learners stay out (I9)")
		require.GreaterOrEqual(w.t, s.has, w.cfg.EpochStart, "I9")
		if w.cfg.AllAck {
			require.GreaterOrEqual(w.t, s.has, w.set.Confirm(), "I9")
		}
	}
	if w.cfg.AllAck && len(p.Members) < len(m.Members) && !lost {
		require.GreaterOrEqual(w.t, len(p.Members), w.cfg.MinInSync, "I10")
	}
}

func (w *world) step() {
	t := w.t
	id := int64(rapid.IntRange(2, 4).Draw(t, "slave"))
	s := w.slaves[id]
	switch rapid.IntRange(0, 11).Draw(t, "step") {
	case 0, 1:
		w.end += message.LogOffset(rapid.IntRange(1, 100).Draw(t, "bytes"))
		w.set.Grow(w.end, w.end)
	case 2:
		s.serial, s.connected = w.set.Connect(id, s.learner, w.now), true
		if s.has > w.end {
			t.Fatal("test is wrong")
		}
		require.NoError(t, w.set.Ack(id, s.serial, s.has, w.now))
	case 3:
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			w.set.Disconnect(id, s.serial)
			s.connected = false
		}
	case 4, 5, 6:
		if !s.connected {
			return
		}
		if s.has += (w.end - s.has) * message.LogOffset(rapid.SampledFrom([]int{0, 1, 2, 2}).Draw(t, "halves")) / 2; s.has >= s.lostBelow {
			s.lostBelow = 0
		}
		require.NoError(t, w.set.Ack(id, s.serial, s.has, w.now))
	case 7: // a crash; with luck everything is still there
		w.set.Disconnect(id, s.serial)
		s.connected = false
		if rapid.IntRange(0, 3).Draw(t, "loses a tail") == 0 && s.has > 0 {
			s.lostBelow = max(s.lostBelow, s.has)
			s.has -= message.LogOffset(rapid.Int64Range(0, int64(s.has)).Draw(t, "lost"))
		}
	case 8:
		w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 50, 700, 4000, 16000}).Draw(t, "ms")) * time.Millisecond)
	case 9:
		if w.asked {
			if rapid.IntRange(0, 2).Draw(t, "give up") == 0 {
				w.set.Unknown(w.now)
				w.asked = false
			}
			return
		}
		if p, ok := w.set.Propose(w.now); ok {
			w.checkProposal(p)
			w.asked = true
			w.requests = append(w.requests, request{p, w.now})
		}
	case 10:
		if len(w.requests) > 0 {
			w.deliver(rapid.IntRange(0, len(w.requests)-1).Draw(t, "request"))
		}
	case 11:
		w.set.Polled(w.truth, w.now, w.now)
		if w.set.Members().SetEpoch == w.truth.SetEpoch && w.asked && w.set.pending == nil {
			w.asked = false // the poll was faster than the answer
		}
	}
}

// TestSafety lets slaves connect, ack, crash and come back, the controller answer late or never, and checks after each step
// that the confirm offset only grows and that everybody whom the controller may elect holds what is committed. (I5, I8 to I11)
func TestSafety(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Self: 1, AllAck: rapid.IntRange(0, 4).Draw(t, "all ack") > 0, MinInSync: rapid.IntRange(1, 3).Draw(t, "min"), MaxLag: 15 * time.Second,
			EpochStart: message.LogOffset(rapid.IntRange(0, 50).Draw(t, "epoch start"))}
		w := &world{t: t, cfg: cfg, now: begin, end: cfg.EpochStart, truth: Agreed{[]int64{1}, 9}, slaves: map[int64]*slave{2: {}, 3: {}, 4: {learner: true}}}
		w.set = New(cfg, w.truth, 0, begin)
		w.set.Grow(w.end, w.end)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			before := w.set.Confirm()
			w.step()
			require.GreaterOrEqual(t, w.set.Confirm(), before, "I5")
			require.LessOrEqual(t, w.set.Confirm(), w.end, "I5")
			for _, id := range w.truth.Members {
				require.Contains(t, w.set.Union(), id, "everybody who may be a member is waited for")
			}
			w.checkTruth()
		}
	})
}

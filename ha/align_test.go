package ha

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/message"
)

// TestAlign: what a follower does with a master's history. (I12)
func TestAlign(t *testing.T) {
	one, two := epoch.Entry{Epoch: 1, Start: 0}, epoch.Entry{Epoch: 2, Start: 1000}
	for name, tt := range map[string]struct {
		local     epoch.List
		master    epoch.Master
		known     int32
		confirmed bool // everything is
		unclean   bool
		want      error
		cut       bool
	}{
		"equal":                    {local: epoch.List{one}, master: epoch.Master{Epochs: epoch.List{one}, Epoch: 1, End: 1 << 20}},
		"cut":                      {local: epoch.List{one}, master: epoch.Master{Epochs: epoch.List{one, two}, Epoch: 2, End: 1 << 20}, cut: true},
		"stale by its list":        {local: epoch.List{one, two}, master: epoch.Master{Epochs: epoch.List{one}, Epoch: 1, End: 1 << 20}, want: ErrStale},
		"stale by the controller":  {local: epoch.List{one}, known: 5, master: epoch.Master{Epochs: epoch.List{one, two}, Epoch: 2, End: 1 << 20}, want: ErrStale},
		"committed":                {local: epoch.List{one}, confirmed: true, master: epoch.Master{Epochs: epoch.List{one, two}, Epoch: 2, End: 1 << 20}, want: ErrCommitted},
		"committed, but unclean":   {local: epoch.List{one}, confirmed: true, unclean: true, master: epoch.Master{Epochs: epoch.List{one, two}, Epoch: 2, End: 1 << 20}, cut: true},
		"nothing in common":        {local: epoch.List{one}, master: epoch.Master{Epochs: epoch.List{two}, Epoch: 2, End: 1 << 20}, want: ErrNoHistory},
		"bytes without a history":  {master: epoch.Master{Epochs: epoch.List{one}, Epoch: 1, End: 1 << 20}, want: ErrNoHistory},
		"announced before its end": {local: epoch.List{one, {Epoch: 2, Start: 99999}}, master: epoch.Master{Epochs: epoch.List{one, {Epoch: 3, Start: 99999}}, Epoch: 3, End: 99999}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, testSegment, time.Hour)
			end := l.fill(t, 20, "a")
			require.Greater(t, end, message.LogOffset(2000))
			file := tempEpochs(t, l)
			for _, e := range tt.local {
				require.NoError(t, file.Append(e))
			}
			if tt.confirmed {
				l.SetConfirmed(end)
			}
			resync := 0
			f, err := NewAutoFollower(AutoFollowerConfig{
				FollowerConfig: FollowerConfig{Log: l, Logger: quietly}, ID: 2, Epochs: file,
				MayLose: func(e int32) bool { return tt.unclean && e == tt.master.Epoch },
				Resync:  func(string) { resync++ },
			})
			require.NoError(t, err)
			in := &autoInput{AutoFollower: f, to: master{epoch: tt.known}}
			require.ErrorIs(t, in.align(tt.master), tt.want)
			require.Equal(t, tt.want == ErrNoHistory, resync == 1)
			if !tt.cut {
				require.Empty(t, l.cuts)
				require.Equal(t, end, l.End())
				return
			}
			require.Len(t, l.cuts, 1)
			require.LessOrEqual(t, l.End(), two.Start)
			require.Greater(t, l.End(), two.Start-400, "the boundary of the record that spans the point")
			require.LessOrEqual(t, l.Confirmed().Load(), int64(l.End()))
		})
	}
	_, err := NewAutoFollower(AutoFollowerConfig{})
	require.Error(t, err)
}

// TestAnnouncedEpoch: entries without bytes are gone before the master's are learnt. (I13)
func TestAnnouncedEpoch(t *testing.T) {
	l := newLog(t, testSegment, time.Hour)
	end := l.fill(t, 3, "a")
	file := tempEpochs(t, l)
	require.NoError(t, file.Append(epoch.Entry{Epoch: 1, Start: 0}))
	require.NoError(t, file.Append(epoch.Entry{Epoch: 2, Start: end}))
	f, err := NewAutoFollower(AutoFollowerConfig{FollowerConfig: FollowerConfig{Log: l, Logger: quietly}, ID: 2, Epochs: file})
	require.NoError(t, err)
	in := &autoInput{AutoFollower: f}
	m := epoch.Master{Epochs: epoch.List{{Epoch: 1, Start: 0}, {Epoch: 3, Start: end}}, Epoch: 3, End: end}
	require.NoError(t, in.align(m))
	require.Equal(t, m.Epochs[:1], file.List())
}

// TestFrames: what a follower refuses of a master that it follows.
func TestFrames(t *testing.T) {
	for name, tt := range map[string]struct {
		f    frame
		want error
	}{
		"heartbeat":            {frame{At: 2000, Epoch: 1, Confirmed: 9999}, nil},
		"heartbeat of nothing": {frame{At: -1, Epoch: -1, EpochStart: -1, Confirmed: -1}, nil},
		"ahead":                {frame{At: 1900, Size: 10, Epoch: 1}, ErrAhead},
		"gap":                  {frame{At: 2100, Size: 10, Epoch: 1}, ErrGap},
		"older epoch":          {frame{At: 2000, Size: 10, Epoch: 0}, ErrProtocol},
		"epoch below the end":  {frame{At: 2000, Size: 10, Epoch: 2, EpochStart: 1999}, ErrProtocol},
		"next epoch":           {frame{At: 2000, Size: 10, Epoch: 2, EpochStart: 2000}, nil},
		"next epoch ahead":     {frame{At: 2000, Size: 10, Epoch: 2, EpochStart: 2010}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, testSegment, time.Hour)
			require.NoError(t, l.AppendRaw(0, make([]byte, 2000)))
			file := tempEpochs(t, l)
			require.NoError(t, file.Append(epoch.Entry{Epoch: 1, Start: 0}))
			f, err := NewAutoFollower(AutoFollowerConfig{FollowerConfig: FollowerConfig{Log: l, Logger: quietly}, ID: 2, Epochs: file})
			require.NoError(t, err)
			in := &autoInput{AutoFollower: f, last: 1, end: func() error { return nil }}
			require.ErrorIs(t, in.frame(&tt.f), tt.want)
			if tt.want == nil && tt.f.Epoch == 2 {
				require.Equal(t, epoch.Entry{Epoch: 2, Start: tt.f.EpochStart}, file.List()[1])
			} else {
				require.Len(t, file.List(), 1)
			}
			require.LessOrEqual(t, l.Confirmed().Load(), int64(2000), "never above the own end")
			require.ErrorIs(t, (&autoInput{AutoFollower: f}).frame(&frame{At: 2000}), ErrProtocol)
		})
	}
}

// TestLateReplicas: blank ones learn the whole history, a partial one from the last file on, and learners stay outside.
func TestLateReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{}
		a, b, d, e := newNode(t, network, 1), newNode(t, network, 2), newNode(t, network, 3), newNode(t, network, 4)
		defer closeAll([]*node{a, b, d, e})
		var history epoch.List
		for range 4 {
			history = append(history, epoch.Entry{Epoch: c.elect(1), Start: a.log.End()})
			a.promote(c, c.epoch)
			a.log.fill(t, 17, "a")
		}
		require.Equal(t, history, a.epochs.List())
		end := a.log.End()
		d.config = func(cfg *AutoFollowerConfig) { cfg.LastFile = true }
		e.config = func(cfg *AutoFollowerConfig) { cfg.Learner = true }
		for _, n := range []*node{b, d, e} {
			n.copyFrom(a, c.epoch)
		}
		until(t, time.Second, func() bool { return len(c.members()) == 3 })
		for _, n := range []*node{b, d, e} {
			until(t, time.Second, func() bool { return n.log.Confirmed().Load() == int64(end) })
			same(t, a.log, n.log, end)
		}
		require.Equal(t, history, b.epochs.List())
		require.Equal(t, history, e.epochs.List())
		require.Equal(t, end-end%testSegment, d.log.Min())
		first, _, ok := history.Find(d.log.Min())
		require.True(t, ok)
		require.Equal(t, first, d.epochs.List()[0], "the entry that holds the first byte")
		require.Equal(t, history[len(history)-len(d.epochs.List()):], d.epochs.List())

		end = a.log.fill(t, 9, "b")
		wait(t, a.lead.Acks().Mark(3), end)
		time.Sleep(time.Minute)
		require.Equal(t, []int64{1, 2, 3}, c.members(), "the learner has everything and stays outside (I9)")
		require.Zero(t, a.lead.Acks().Mark(4).Load(), "and its copy counts for nobody (I11)")

		// Retention: what is behind it cannot continue.
		b.rest()
		a.log.fill(t, 40, "c")
		require.NoError(t, a.log.Flush(a.log.End()))
		_, err := a.log.DropBefore(a.log.End(), 0)
		require.NoError(t, err)
		b.copyFrom(a, c.epoch)
		until(t, time.Second, func() bool { return b.follow.Status().Err != nil })
		require.ErrorIs(t, b.follow.Status().Err, ErrGap)
	})
}

// TestTwoConnections: the newest connection of a replica is the one that counts. (I11)
func TestTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 2)
		defer closeAll(nodes)
		a := nodes[0]
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
		k, err := a.net.Dial(t.Context(), "tcp", a.addr)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, a.lead.Status().Conns, 1, "a connection that says nothing is nobody (I27)")
		_, err = k.Write(handshake{ID: 2}.put(make([]byte, handshakeSize)))
		require.NoError(t, err)
		synctest.Wait()
		st := a.lead.Status()
		require.Len(t, st.Conns, 1)
		require.Equal(t, k.LocalAddr().String(), st.Conns[0].Addr)
		require.Equal(t, []int64{1, 2}, c.members())
		require.NoError(t, k.Close())
		until(t, time.Second, func() bool { return a.lead.InSync() == 2 }) // the real one comes back
		k, err = a.net.Dial(t.Context(), "tcp", a.addr)
		require.NoError(t, err)
		_, err = k.Write(handshake{ID: 1}.put(make([]byte, handshakeSize)))
		require.NoError(t, err)
		_, err = k.Read(make([]byte, 1))
		require.Error(t, err, "nobody is his own replica")
		require.NoError(t, k.Close())
	})
}

// TestShortHistory: bytes below the whole history are copied as epoch 0, and the next comparison finds the rest.
func TestShortHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{epoch: 5}
		a, b := newNode(t, network, 1), newNode(t, network, 2)
		defer closeAll([]*node{a, b})
		old := a.log.fill(t, 30, "a")
		require.NoError(t, a.epochs.Append(epoch.Entry{Epoch: 5, Start: old}))
		mid := a.log.fill(t, 30, "b")
		e := c.elect(1)
		a.promote(c, e)
		end := a.log.fill(t, 5, "c")
		b.copyFrom(a, e)
		want := epoch.List{{Epoch: 0, Start: 0}, {Epoch: 5, Start: old}, {Epoch: 6, Start: mid}}
		for range 2 {
			until(t, time.Second, func() bool { return b.log.Confirmed().Load() == int64(end) })
			same(t, a.log, b.log, end)
			require.Equal(t, want, b.epochs.List())
			require.Empty(t, b.log.cuts)
			b.rest()
			end = a.log.fill(t, 5, "d")
			b.copyFrom(a, e)
		}
	})
}

// TestPatience: a follower that hears of a master before that one is ready is not late for long.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
			network, c := pipenet.New(), &controller{}
			a, b := newNode(t, network, 1), newNode(t, network, 2)
			b.copyFrom(a, 1)
			time.Sleep(late)
			start := time.Now()
			a.promote(c, c.elect(1))
			until(t, time.Second, func() bool { return len(c.members()) == 2 })
			require.Less(t, time.Since(start), late/2+25*time.Millisecond)
			closeAll([]*node{a, b})
		}
	})
}

package controller

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// inBubble runs a group of n controllers with a set of three in fake time. Only time that the test waits for passes.
func inBubble(t *testing.T, n int, fn func(g *group, r []*replica)) {
	synctest.Test(t, func(t *testing.T) {
		g := newPipeGroup(t, pipenet.New(), n)
		for i := range n {
			g.start(i)
		}
		defer g.stop()
		defer func() {
			for _, one := range g.replicas {
				one.disconnect()
			}
		}()
		fn(g, g.set())
	})
}

// became is when the leader's state has another master than 1, within a minute.
func (g *group) became(master int64) time.Time {
	g.t.Helper()
	_, c := g.leader()
	g.eventually(func() bool { return c.Set(set).Master == master }, "master "+strconv.FormatInt(master, 10))
	return time.Now()
}

// alive lets replicas send heartbeats in the background until stop is called.
func (g *group) alive(silence string, list ...*replica) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, one := range list {
				one.beat("epoch", "1", "heartbeatTimeoutMills", silence, "selfFencing", "false")
			}
			select {
			case <-end:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return func() { close(end); <-ended }
}

// step is how closely fake time is looked at.
const step = 100 * time.Millisecond

func TestElectionWaitsForLease(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		time.Sleep(time.Minute) // no lease of a leader before may be running
		got := r[0].beat("epoch", "1", "heartbeatTimeoutMills", "6000", "selfFencing", "false")
		require.Equal(t, "3000", got["leaseMs"])
		sent := time.Now()
		stop := g.alive("6000", r[1], r[2])
		defer stop()
		r[0].disconnect()
		took := g.became(2).Sub(sent)
		require.GreaterOrEqual(t, took, 3*time.Second)
		require.Less(t, took, 3*time.Second+step)
	})
}

func TestSelfFencingNeedsNoWait(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		require.NotEmpty(t, r[0].beat("epoch", "1", "heartbeatTimeoutMills", "6000")["leaseMs"])
		sent := time.Now()
		r[0].disconnect()
		require.Less(t, g.became(2).Sub(sent), step)
	})
}

func TestSilenceIsNoticedAtOnce(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		stop := g.alive("3000", r[1], r[2])
		defer stop()
		require.NotEmpty(t, r[0].beat("epoch", "1", "heartbeatTimeoutMills", "3000")["leaseMs"])
		sent := time.Now()
		took := g.became(2).Sub(sent)
		require.GreaterOrEqual(t, took, 3*time.Second)
		require.Less(t, took, 3*time.Second+step)
	})
}

// TestCleanWaitsForLease takes a living master out of its set by hand.
func TestCleanWaitsForLease(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		time.Sleep(20 * time.Second)
		require.Equal(t, "4000", r[0].beat("epoch", "1", "heartbeatTimeoutMills", "20000", "selfFencing", "false")["leaseMs"])
		sent := time.Now()
		r[1].ok(protocol.ReqCleanBrokerData, name("brokerControllerIdsToClean", "1", "isCleanLivingBroker", "true"), "")
		require.GreaterOrEqual(t, time.Since(sent), 4*time.Second)
		g.became(2)
	})
}

// TestDesignatedWaitsForLease replaces a living master by hand.
func TestDesignatedWaitsForLease(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		require.Equal(t, "4000", r[0].beat("epoch", "1", "heartbeatTimeoutMills", "20000", "selfFencing", "false")["leaseMs"])
		sent := time.Now()
		done := make(chan *protocol.Command)
		go func() {
			done <- r[1].ask(protocol.ReqControllerElectMaster, name("brokerId", "3", "designateElect", "true"), "")
		}()
		time.Sleep(time.Second)
		require.Empty(t, r[0].beat("epoch", "1", "heartbeatTimeoutMills", "20000", "selfFencing", "false")["leaseMs"], "no lease while an election is under way")
		got := <-done
		require.Equal(t, "3", got.Ext["masterBrokerId"], got.Remark)
		require.GreaterOrEqual(t, time.Since(sent), 4*time.Second)
	})
}

// TestNewLeaderKnowsNobody has a controller that begins to lead wait before it takes a master for dead that it never heard.
func TestNewLeaderKnowsNobody(t *testing.T) {
	for _, comes := range []bool{false, true} {
		t.Run(fmt.Sprint("the master comes: ", comes), func(t *testing.T) {
			inBubble(t, 3, func(g *group, r []*replica) {
				g.stop()
				g.start(0, 1, 2)
				_, c := g.leader()
				start := c.term.Load().since
				r[1].beat("epoch", "1", "heartbeatTimeoutMills", "12000")
				require.Equal(t, protocol.ControllerElectMasterFailed, r[1].elect().Code)
				stop := g.alive("12000", r[1], r[2])
				defer stop()
				time.Sleep(11 * time.Second)
				require.Equal(t, int64(1), c.Set(set).Master)
				if comes {
					beats := g.alive("12000", r[0])
					defer beats()
					time.Sleep(time.Minute)
					require.Equal(t, int64(1), c.Set(set).Master)
					return
				}
				took := g.became(2).Sub(start)
				require.GreaterOrEqual(t, took, 12*time.Second)
				require.Less(t, took, 12*time.Second+step)
			})
		})
	}
}

// TestLastLeadersLease has a new leader wait for a lease that the one before it may have given.
func TestLastLeadersLease(t *testing.T) {
	inBubble(t, 3, func(g *group, r []*replica) {
		lead, c := g.leader()
		require.Equal(t, "4000", r[0].beat("epoch", "1", "heartbeatTimeoutMills", "20000", "selfFencing", "false")["leaseMs"])
		require.NoError(t, c.Close())
		g.all[lead] = nil
		_, c = g.leader()
		start := c.term.Load().since
		r[0].disconnect()
		took := g.became(2).Sub(start)
		require.GreaterOrEqual(t, took, 4*time.Second)
		require.Less(t, took, 4*time.Second+step)
	})
}

// TestRestartedMaster has the master's process come back: it is never master again without an election.
func TestRestartedMaster(t *testing.T) {
	inBubble(t, 1, func(g *group, r []*replica) {
		got := r[0].register()
		require.Empty(t, got.Ext["masterBrokerId"], "it is not told that it is master")
		require.Empty(t, r[0].beat("epoch", "1")["leaseMs"])
		got = r[0].elect()
		require.Equal(t, "1", got.Ext["masterBrokerId"], got.Remark)
		require.Equal(t, "2", got.Ext["masterEpoch"])
		require.NotEmpty(t, r[0].beat("epoch", "2")["leaseMs"])
	})
}

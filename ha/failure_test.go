package ha

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestNewAutoMasterRefuses(t *testing.T) {
	l := newLog(t, testSegment, time.Hour)
	c := &controller{}
	good := AutoConfig{MasterConfig: MasterConfig{Log: l}, Self: 1, Epoch: 2, Epochs: tempEpochs(t, l), Alter: c.alter(2), Poll: c.poll}
	_, err := NewAutoMaster(good)
	require.ErrorContains(t, err, "history", "no entry")
	require.NoError(t, good.Epochs.Append(epoch.Entry{Epoch: 1, Start: 0}))
	_, err = NewAutoMaster(good)
	require.ErrorContains(t, err, "history", "of another epoch")
	require.NoError(t, good.Epochs.Append(epoch.Entry{Epoch: 2, Start: 10}))
	_, err = NewAutoMaster(good)
	require.ErrorContains(t, err, "history", "above the end")
	l.fill(t, 1, "a")
	m, err := NewAutoMaster(good)
	require.NoError(t, err)
	m.Close(nil)
	m.Start()
	m.Thaw()
	m.SetAgreed(syncset.Agreed{Members: []int64{1, 2}, SetEpoch: 9})
	require.Equal(t, []int64{1}, m.Members().Members, "the term is over")
	require.ErrorIs(t, m.Acks().Mark(2).Err(), ErrClosed)
	good.Alter = nil
	_, err = NewAutoMaster(good)
	require.Error(t, err)
}

// TestAutoTold: the owner hears of a set before a poll does.
func TestAutoTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nodes := group(t, 2)
		defer closeAll(nodes)
		m := nodes[0].lead
		until(t, time.Second, func() bool { return len(m.Members().Members) == 2 })
		c.mu.Lock()
		c.agreed = syncset.Agreed{Members: []int64{1}, SetEpoch: c.agreed.SetEpoch + 1}
		news := c.agreed
		c.mu.Unlock()
		m.SetAgreed(news)
		m.SetAgreed(syncset.Agreed{Members: []int64{1, 2, 7}, SetEpoch: 1})
		require.Equal(t, news, m.Members())
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
	})
}

// TestAutoSomeAck: without allAckInSyncStateSet the log is committed where the master has it, and copies are counted.
func TestAutoSomeAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{}
		a, b := newNode(t, network, 1), newNode(t, network, 2)
		defer closeAll([]*node{a, b})
		a.allAck = false
		a.promote(c, c.elect(1))
		end := a.log.fill(t, 3, "a")
		synctest.Wait()
		require.EqualValues(t, end, a.log.Confirmed().Load())
		require.Zero(t, a.lead.Acks().Mark(2).Load())
		b.copyFrom(a, 1)
		wait(t, a.lead.Acks().Mark(2), end)
		until(t, time.Second, func() bool { return len(c.members()) == 2 })
		b.rest()
		until(t, time.Second, func() bool { return len(c.members()) == 1 })
	})
}

// TestFailedDisk: a follower whose log or epoch file cannot be written acknowledges nothing more and says why; a master
// whose log is fenced goes on sending what it has.
func TestFailedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, c := pipenet.New(), &controller{}
		a, b, d := newNode(t, network, 1), newNode(t, network, 2), newNode(t, network, 3)
		defer closeAll([]*node{a, b, d})
		a.promote(c, c.elect(1))
		end := a.log.fill(t, 30, "a")
		b.log.sim.Fail(mappedfile.Fault{Op: mappedfile.OpWrite, Err: errors.New("disk")})
		d.log.Fence(errors.New("disk"))
		b.copyFrom(a, 1)
		d.copyFrom(a, 1)
		until(t, time.Second, func() bool { return b.follow.Status().Err != nil && d.follow.Status().Err != nil })
		time.Sleep(time.Minute)
		require.Zero(t, b.log.End())
		require.Zero(t, d.log.Written().Load())
		require.Zero(t, a.lead.Acks().Mark(2).Load())
		require.Equal(t, []int64{1}, c.members())

		b.log.sim.Heal()
		b.restart(false)
		a.log.Fence(errors.New("disk"))
		b.copyFrom(a, 1)
		until(t, 10*time.Second, func() bool { return b.log.End() == end })
		time.Sleep(time.Minute)
		require.True(t, b.follow.Status().Connected, "heartbeats go on")
	})
}

// stubborn is a listener that fails now and then.
type stubborn struct {
	net.Listener
	left int
}

func (s *stubborn) Accept() (net.Conn, error) {
	if s.left--; s.left >= 0 {
		return nil, errors.New("too many open files")
	}
	return s.Listener.Accept()
}

func TestServerAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipenet.New()
		listen := func(left int) func(string) (net.Listener, error) {
			return func(addr string) (net.Listener, error) {
				l, err := network.Listen(addr)
				return &stubborn{l, left}, err
			}
		}
		s, err := NewServer(ServerConfig{Addr: classicAddr, Listen: listen(5), Logger: quietly})
		require.NoError(t, err)
		s.Start()
		c, err := network.Dial(t.Context(), "tcp", classicAddr)
		require.NoError(t, err, "the listener is used again")
		require.NoError(t, c.Close())
		require.NoError(t, s.Close())
		s, err = NewServer(ServerConfig{Addr: classicAddr, Listen: listen(1 << 30), Logger: quietly})
		require.NoError(t, err)
		s.Start()
		time.Sleep(10 * time.Second)
		start := time.Now()
		require.NoError(t, s.Close())
		require.Zero(t, time.Since(start), "Close does not wait for the pause")
	})
}

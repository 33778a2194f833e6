package pull

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Parked pulls go with their connection, whatever time they had left, and hold nothing of it back.
func TestParkedPullsGoWithTheirConnection(t *testing.T) {
	w := newWorld(t)
	w.put(0, 10, "A")
	stay, leave := w.dial(), w.dial()
	park := func(p *wiretest.Peer, queue string) *protocol.Command {
		return protocol.NewRequest(protocol.ReqPullMessage, ext("queueId", queue, "queueOffset", "1", "sysFlag", "6", "suspendTimeoutMillis", "600000"), nil)
	}
	parked := func(n int) {
		require.Eventually(t, func() bool { return w.h.Parked() == n }, wiretest.Timeout, time.Millisecond)
	}
	stay.Send(park(stay, "0"))
	for range 300 {
		leave.Send(park(leave, "0"))
	}
	parked(301)
	require.EqualValues(t, 301, w.h.held.Load())
	require.NoError(t, leave.Conn.Close())
	parked(1)
	require.Eventually(t, func() bool { return w.h.held.Load() == 1 }, wiretest.Timeout, time.Millisecond)
	w.put(0, 10, "A")
	got := stay.Read()
	require.Equal(t, protocol.Success, got.Code)
	require.Equal(t, []message.QueueOffset{1}, messages(t, got.Body))
	parked(0)
	require.Zero(t, w.h.held.Load())
	require.Zero(t, w.h.heldBytes.Load())
}

// What parked pulls hold is bounded in bytes: others are answered at once.
func TestParkedPullsAreBoundedInBytes(t *testing.T) {
	w := newWorld(t)
	w.put(0, 10, "A")
	p := w.dial()
	wait := []string{"queueOffset", "1", "sysFlag", "6", "suspendTimeoutMillis", "600000"}
	require.Equal(t, protocol.PullNotFound, w.pull(p, append(wait, "padding", strings.Repeat("x", maxParkedSize))...).Code)
	w.h.heldBytes.Add(maxParkedBytes - parkedCost)
	require.Equal(t, protocol.PullNotFound, w.pull(p, wait...).Code)
	require.Zero(t, w.h.Parked())
	w.h.heldBytes.Store(0)
	p.Send(protocol.NewRequest(protocol.ReqPullMessage, ext(wait...), nil))
	require.Eventually(t, func() bool { return w.h.Parked() == 1 }, wiretest.Timeout, time.Millisecond)
}

// Taking one of many out does not depend on how many there are.
func TestTableRemoveKeepsPlaces(t *testing.T) {
	tab := newTable()
	at := queueID{"T", 0}
	var ps []*parked
	for i := range 100 {
		ps = append(ps, &parked{at: at, offset: message.QueueOffset(i), filter: tags(t, "*")})
		require.True(t, tab.add(ps[i]))
	}
	for i := 0; i < 100; i += 3 {
		require.True(t, tab.remove(ps[i]))
		require.False(t, tab.remove(ps[i]))
	}
	for i, p := range tab.shard(at).queues[at] {
		require.Equal(t, i, p.place)
	}
	require.Equal(t, 66, tab.len())
}

package controller

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLiveTable(t *testing.T) {
	l := newLiveTable()
	k := brokerKey{cluster, set, 1}
	t0 := time.Now()
	old, conn := new(int), new(int)
	beatOf := func(end int64) beat { return beat{silence: time.Second, epoch: 2, end: end} }
	came, sooner := l.heartbeat(k, beatOf(10), old, t0)
	require.True(t, came && sooner)
	came, sooner = l.heartbeat(k, beatOf(5), conn, t0.Add(time.Second/2))
	require.False(t, came || sooner)
	e, ok := l.get(k, t0.Add(time.Second))
	require.True(t, ok)
	require.Equal(t, int64(5), e.end, "the newest counts, also when it is lower")
	require.Empty(t, l.disconnected(old, t0.Add(time.Second)), "an older connection means nothing")

	gone, next := l.expire(t0.Add(time.Second))
	require.Empty(t, gone)
	require.Equal(t, t0.Add(3*time.Second/2), next)
	gone, next = l.expire(next)
	require.Len(t, gone, 1)
	require.True(t, next.IsZero())

	came, _ = l.heartbeat(k, beatOf(6), conn, t0.Add(2*time.Second))
	require.True(t, came)
	_, sooner = l.heartbeat(k, beat{silence: 200 * time.Millisecond}, conn, t0.Add(2*time.Second))
	require.True(t, sooner, "its time was shortened")
	require.Equal(t, []brokerKey{k}, l.disconnected(conn, t0.Add(2*time.Second)))
	e, _ = l.get(k, t0.Add(2*time.Second))
	require.Equal(t, closed, e.state)
}

func TestDoorman(t *testing.T) {
	asked := 0
	d := &doorman{hosts: func() []string { return []string{"10.0.0.1", "good", "bad"} },
		look: func(_ context.Context, host string) ([]net.IPAddr, error) {
			asked++
			if host == "bad" {
				return nil, errors.New("no such host")
			}
			return []net.IPAddr{{IP: net.IPv4(10, 0, 0, 2)}}, nil
		}}
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	require.NoError(t, d.trusted(at("10.0.0.1")))
	require.NoError(t, d.trusted(at("10.0.0.2")))
	require.NoError(t, d.trusted(at("::ffff:10.0.0.2")), "the same in the other form")
	require.ErrorContains(t, d.trusted(at("10.0.0.3")), "no controller of this group")
	require.Equal(t, 2, asked, "a stranger does not cause look-ups without end")
}

// TestStrangersAreCutOff has connections with Raft's preface that belong to another group.
func TestStrangersAreCutOff(t *testing.T) {
	g, r := trio(t, 1, nil)
	other := sha256.Sum256([]byte("group2"))
	c, err := net.Dial("tcp", g.addrs[0])
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(append([]byte(raftPreface), other[:groupSize]...))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "1", r[0].state().master)
}

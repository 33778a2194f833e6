package ha

import (
	"bytes"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// realPair is a master and a follower over a real socket, on a real file system.
func realPair(t testing.TB) (m *AutoMaster, from, to *testLog, done func()) {
	open := func() *testLog {
		l, err := commitlog.Open(mappedfile.OS, commitlog.Config{
			Paths: []string{t.TempDir()}, SegmentSize: 256 << 20, FlushInterval: time.Hour, ManualConfirm: true,
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return &testLog{Log: l, sim: mappedfile.NewSim(1), queue: commitlog.NewQueue("T", 0, 0)}
	}
	from, to = open(), open()
	file := tempEpochs(t, from)
	require.NoError(t, file.Begin(1, 0, 0, 0))
	c := &controller{epoch: 1, agreed: syncset.Agreed{Members: []int64{1}, SetEpoch: 1}}
	m, err := NewAutoMaster(AutoConfig{
		MasterConfig: MasterConfig{Log: from, Logger: quietly}, Self: 1, Epoch: 1, Epochs: file, Agreed: c.agreed, MinInSync: 1, AllAck: true,
		Alter: c.alter(1), Poll: c.poll,
	})
	require.NoError(t, err)
	m.Start()
	s, err := NewServer(ServerConfig{Addr: "127.0.0.1:0", Logger: quietly})
	require.NoError(t, err)
	s.SetMaster(m)
	s.Start()
	f, err := NewAutoFollower(AutoFollowerConfig{FollowerConfig: FollowerConfig{Log: to, Dial: (&net.Dialer{}).DialContext, Logger: quietly}, ID: 2, Epochs: tempEpochs(t, to)})
	require.NoError(t, err)
	f.SetMaster(s.Addr().String(), 1)
	f.Start()
	for len(c.members()) < 2 {
		time.Sleep(time.Millisecond)
	}
	return m, from, to, func() {
		f.Close()
		m.Close(errDemoted)
		require.NoError(t, s.Close())
	}
}

// TestNoAllocation: frames, acks and confirm offsets cost no memory, on both sides.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m, from, to, done := realPair(t)
	defer done()
	chunk := bytes.Repeat([]byte("x"), 1000)
	var a alarm
	wake := make(chan struct{}, 1)
	a.init(m.Acks().All(), wake)
	run := func(n int) {
		for range n {
			if err := from.AppendRaw(from.End(), chunk); err != nil {
				t.Fatal(err)
			}
			for m.Acks().All().Load() < int64(from.End()) {
				a.above(from.End() - 1)
				<-wake
			}
		}
	}
	run(200)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(2000)
	runtime.ReadMemStats(&after)
	require.Less(t, float64(after.Mallocs-before.Mallocs)/2000, 0.1, "per frame, ack and confirm offset")
	require.Equal(t, from.End(), to.End())
}

// raceEnabled says that the race detector runs.
var raceEnabled bool

func BenchmarkCatchUp(b *testing.B) {
	m, from, _, done := realPair(b)
	defer done()
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if err := from.AppendRaw(from.End(), chunk); err != nil {
			b.Fatal(err)
		}
		wait(b, m.Acks().All(), from.End()-32<<20)
	}
	wait(b, m.Acks().All(), from.End())
}

func BenchmarkAck(b *testing.B) {
	m, from, _, done := realPair(b)
	defer done()
	chunk := bytes.Repeat([]byte("x"), 1000)
	for b.Loop() {
		if err := from.AppendRaw(from.End(), chunk); err != nil {
			b.Fatal(err)
		}
		wait(b, m.Acks().All(), from.End())
	}
}

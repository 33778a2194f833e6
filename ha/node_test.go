package ha

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const testSegment = 4 << 10

// testLog is a log in memory, and a guard of the order in which replication may do things to it.
type testLog struct {
	*commitlog.Log
	sim    *mappedfile.Sim
	queue  *commitlog.Queue
	before func(at message.LogOffset, n int) // of AppendRaw
	cuts   []message.LogOffset
}

func newLog(t testing.TB, segment int64, flush time.Duration) *testLog {
	return openLog(t, mappedfile.NewSim(1), segment, flush)
}

func openLog(t testing.TB, sim *mappedfile.Sim, segment int64, flush time.Duration) *testLog {
	l, err := commitlog.Open(sim, commitlog.Config{
		Paths: []string{"/store/commitlog"}, SegmentSize: segment, FlushInterval: flush, ManualConfirm: true, NoPrepare: true,
		StageSize: 16 << 10, Stages: 4, RingSize: 64,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return &testLog{Log: l, sim: sim, queue: commitlog.NewQueue("T", 0, 0)}
}

func (l *testLog) ViewAt(from message.LogOffset, limit int) (commitlog.View, error) {
	return l.View(from, limit)
}

func (l *testLog) AppendRaw(at message.LogOffset, p []byte) error {
	if l.before != nil {
		l.before(at, len(p))
	}
	if err := l.Log.AppendRaw(at, p); err != nil {
		return err
	}
	return l.Write(l.End())
}

func (l *testLog) FlushSoon() {} // an append asks for it already

func (l *testLog) TruncateTo(to message.LogOffset) (message.LogOffset, error) {
	at := l.Min()
	next, err := l.Scan(at, to, func(rec *message.Record) error {
		at = rec.LogOffset + message.LogOffset(rec.Size)
		return nil
	})
	var damage *mappedfile.CorruptError
	if err != nil && !errors.As(err, &damage) {
		return 0, err
	}
	if err == nil && next <= to {
		at = next
	}
	l.cuts = append(l.cuts, at)
	return at, l.Truncate(at)
}

// put appends a message and returns the log's end.
func (l *testLog) put(body string) (message.LogOffset, error) {
	b := l.NewBatch()
	a := netip.MustParseAddrPort("10.0.0.1:1")
	if err := b.Add(&message.Message{Topic: []byte("T"), BornHost: a, StoreHost: a, Body: []byte(body)}, l.queue); err != nil {
		return 0, err
	}
	p, err := l.Append(b)
	if err != nil {
		return 0, err
	}
	return p.End, l.Write(p.End)
}

func (l *testLog) fill(t testing.TB, n int, tag string) message.LogOffset {
	for i := range n {
		_, err := l.put(fmt.Sprintf("%s-%d-%s", tag, i, bytes.Repeat([]byte("x"), i*37%200)))
		require.NoError(t, err)
	}
	return l.End()
}

// bytes is a copy of a range of the log.
func (l *testLog) bytes(t testing.TB, from, to message.LogOffset) (b []byte) {
	for from < to {
		v, err := l.View(from, int(to-from))
		require.NoError(t, err)
		b = append(b, v.Bytes()...)
		from += message.LogOffset(v.Len())
		v.Release()
	}
	return b
}

// same demands that two logs are equal up to an offset.
func same(t testing.TB, a, b *testLog, to message.LogOffset) {
	t.Helper()
	from := max(a.Min(), b.Min())
	require.True(t, bytes.Equal(a.bytes(t, from, to), b.bytes(t, from, to)), "logs differ below %d", to)
}

var quietly = slog.New(slog.DiscardHandler)

// tempEpochs is the history of a log, kept beside it.
func tempEpochs(t testing.TB, l *testLog) *epoch.File {
	f, err := epoch.Open(l.sim, "/store/epochFileCheckpoint", l.Min(), l.End())
	require.NoError(t, err)
	return f
}

// controller decides on the in-sync set of one group.
type controller struct {
	mu      sync.Mutex
	epoch   int32
	agreed  syncset.Agreed
	history []syncset.Agreed
	asked   int
	fail    func(p syncset.Proposal) error // before anything is changed
	lose    bool                           // apply, but lose the answer
	slow    time.Duration                  // how long an answer takes
}

func (c *controller) alter(epoch int32) func(context.Context, syncset.Proposal) (syncset.Agreed, error) {
	return func(_ context.Context, p syncset.Proposal) (syncset.Agreed, error) {
		c.mu.Lock()
		slow := c.slow
		c.mu.Unlock()
		if slow > 0 {
			time.Sleep(slow)
			defer time.Sleep(slow)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked++
		if c.fail != nil {
			if err := c.fail(p); err != nil {
				return syncset.Agreed{}, err
			}
		}
		if c.epoch != epoch || p.SetEpoch != c.agreed.SetEpoch {
			return syncset.Agreed{}, fmt.Errorf("%w: epoch", ErrRefused)
		}
		c.agreed = syncset.Agreed{Members: slices.Clone(p.Members), SetEpoch: p.SetEpoch + 1}
		c.history = append(c.history, c.agreed)
		if c.lose {
			return syncset.Agreed{}, errors.New("connection reset")
		}
		return c.agreed, nil
	}
}

func (c *controller) poll(context.Context) (syncset.Agreed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agreed, nil
}

// elect makes an id the master of the next epoch.
func (c *controller) elect(id int64) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.agreed = syncset.Agreed{Members: []int64{id}, SetEpoch: c.agreed.SetEpoch + 1}
	return c.epoch
}

func (c *controller) members() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.agreed.Members)
}

// node is one replica of a group in controller mode.
type node struct {
	t      testing.TB
	id     int64
	net    *pipenet.Network
	log    *testLog
	epochs *epoch.File
	addr   string
	cut    atomic.Bool // its connections fail

	server *Server
	lead   *AutoMaster
	follow *AutoFollower
	config func(*AutoFollowerConfig)
	allAck bool
	sync   bool // everybody acknowledges what is on disk
	min    int
}

func newNode(t testing.TB, network *pipenet.Network, id int64) *node {
	n := &node{t: t, id: id, net: network, addr: fmt.Sprintf("127.0.0.%d:10912", id), allAck: true, min: 1}
	n.open(mappedfile.NewSim(uint64(id)))
	n.serve()
	return n
}

func (n *node) open(sim *mappedfile.Sim) {
	n.log = openLog(n.t, sim, testSegment, time.Duration(2*n.id-1)*100*time.Millisecond)
	_, err := n.log.Recover(0, func(rec *message.Record) error { return nil })
	require.NoError(n.t, err)
	n.epochs = tempEpochs(n.t, n.log)
	n.log.before = func(at message.LogOffset, size int) {
		_, _, ok := n.epochs.List().Find(at + message.LogOffset(size) - 1)
		require.True(n.t, ok, "bytes at %d before their epoch", at)
	}
}

// restart kills the process, or cuts the power, and opens what is left. Confirmed is what a checkpoint brings back.
func (n *node) restart(power bool) {
	n.rest()
	confirmed := message.LogOffset(n.log.Confirmed().Load())
	sim := n.log.sim.Kill()
	if power {
		sim = n.log.sim.Crash()
	}
	require.NoError(n.t, n.log.Close())
	n.open(sim)
	n.log.SetConfirmed(min(confirmed, n.log.End()))
}

func (n *node) serve() {
	var err error
	n.server, err = NewServer(ServerConfig{Addr: n.addr, Listen: n.net.Listen, Logger: quietly})
	require.NoError(n.t, err)
	n.server.Start()
}

func (n *node) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if n.cut.Load() {
		return nil, errors.New("cut off")
	}
	return n.net.Dial(ctx, network, addr)
}

// rest ends whatever role the node has.
func (n *node) rest() {
	if n.lead != nil {
		n.server.SetMaster(nil)
		n.lead.Close(errDemoted)
		n.lead = nil
	}
	if n.follow != nil {
		n.follow.Close()
		n.follow = nil
	}
}

func (n *node) close() {
	n.rest()
	require.NoError(n.t, n.server.Close())
}

var errDemoted = errors.New("demoted")

func (n *node) promote(c *controller, epoch int32) {
	n.rest()
	_, err := n.log.TruncateTo(n.log.End()) // half a record
	require.NoError(n.t, err)
	require.NoError(n.t, n.epochs.Begin(epoch, n.log.Min(), n.log.End(), message.LogOffset(n.log.Confirmed().Load())))
	agreed, err := c.poll(context.Background())
	require.NoError(n.t, err)
	n.lead, err = NewAutoMaster(AutoConfig{
		MasterConfig: MasterConfig{Log: n.log, Logger: quietly}, Self: n.id, Epoch: epoch, Epochs: n.epochs, Agreed: agreed,
		MinInSync: n.min, AllAck: n.allAck, SyncFlush: n.sync, Alter: c.alter(epoch), Poll: c.poll,
	})
	require.NoError(n.t, err)
	n.lead.Start()
	n.server.SetMaster(n.lead)
}

func (n *node) copyFrom(m *node, epoch int32) {
	if n.follow == nil {
		n.rest()
		cfg := AutoFollowerConfig{FollowerConfig: FollowerConfig{Log: n.log, Dial: n.dial, AckFlushed: n.sync, Logger: quietly}, ID: n.id, Epochs: n.epochs}
		if n.config != nil {
			n.config(&cfg)
		}
		var err error
		n.follow, err = NewAutoFollower(cfg)
		require.NoError(n.t, err)
		n.follow.Start()
	}
	n.follow.SetMaster(m.addr, epoch)
}

// wait blocks until a mark of the group is reached.
func wait(t testing.TB, m interface {
	Wait(context.Context, int64) error
}, at message.LogOffset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, m.Wait(ctx, int64(at)))
}

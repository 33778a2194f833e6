package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// settings makes the configuration of one controller.
func settings(t testing.TB, keys map[string]string) *conf.Set {
	set := conf.New(quiet)
	require.NoError(t, set.Register(new(Config)))
	for k, v := range keys {
		require.True(t, set.Put(k, v), k)
	}
	return set
}

// freeAddr is an address on loopback that nobody listens on now.
func freeAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// group is a group of controllers in this process.
type group struct {
	t     testing.TB
	peers string
	addrs []string
	opts  func(i int, o *Options)
	keys  map[string]string

	stores []*Stores // of a group in memory; nil: on disk, in dirs
	dirs   []string
	all    []*Controller // nil: not running

	dial     dialer // of a group on a network in memory
	replicas []*replica
}

func newGroup(t testing.TB, n int, opts func(i int, o *Options)) *group {
	g := &group{t: t, opts: opts, all: make([]*Controller, n), keys: map[string]string{"controllerDLegerGroup": "group1", "bindAddress": "127.0.0.1"}}
	for i := range n {
		addr := freeAddr(t)
		g.addrs = append(g.addrs, addr)
		g.dirs = append(g.dirs, t.TempDir())
		g.peers += fmt.Sprintf("n%d-%s;", i, addr)
	}
	return g
}

// newPipeGroup is a group in memory on a network in memory, for tests in fake time.
func newPipeGroup(t testing.TB, network *pipenet.Network, n int) *group {
	g := &group{t: t, dial: network.Dial, all: make([]*Controller, n), keys: map[string]string{"controllerDLegerGroup": "group1"}}
	for i := range n {
		addr := "127.0.0.1:" + strconv.Itoa(9878+10*i)
		g.addrs = append(g.addrs, addr)
		g.stores = append(g.stores, NewMemoryStores())
		g.dirs = append(g.dirs, "unused")
		g.peers += fmt.Sprintf("n%d-%s;", i, addr)
	}
	g.opts = func(i int, o *Options) {
		o.Listen, o.Dial = network.Listen, network.Dial
		o.Stores = func(string) (*Stores, error) { return g.stores[i], nil }
	}
	return g
}

// make makes a controller that is not started.
func (g *group) make(i int) *Controller {
	keys := map[string]string{"controllerDLegerPeers": g.peers, "controllerDLegerSelfId": "n" + strconv.Itoa(i), "controllerStorePath": g.dirs[i]}
	for k, v := range g.keys {
		keys[k] = v
	}
	o := Options{Settings: settings(g.t, keys), Log: quiet}
	if g.opts != nil {
		g.opts(i, &o)
	}
	c, err := New(o)
	require.NoError(g.t, err)
	return c
}

func (g *group) start(list ...int) {
	for _, i := range list {
		g.all[i] = g.make(i)
		require.NoError(g.t, g.all[i].Start())
	}
}

func (g *group) stop() {
	for i, c := range g.all {
		if c != nil {
			require.NoError(g.t, c.Close())
			g.all[i] = nil
		}
	}
}

// leader waits for the one that leads.
func (g *group) leader() (i int, c *Controller) {
	g.t.Helper()
	g.eventually(func() bool {
		for i, c = range g.all {
			if c != nil && c.IsLeader() {
				return true
			}
		}
		return false
	}, "nobody leads")
	return i, c
}

// fast shortens Raft's times for tests on real sockets.
func fast(cfg *raft.Config) {
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 150*time.Millisecond, 150*time.Millisecond, 100*time.Millisecond
}

// brokers answers notifications under any address, and notes them.
type brokers struct {
	addr string // where it really listens
	mu   sync.Mutex
	got  []notice
}

type notice struct {
	to  string
	cmd *protocol.Command
}

func newBrokers(t testing.TB) *brokers {
	b := &brokers{}
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqNotifyBrokerRoleChanged, remoting.Inline, func(req *remoting.Request, _ *remoting.Response) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		body := append([]byte(nil), req.Body...)
		b.got = append(b.got, notice{"", req.Header.Command(body)})
		return nil
	})
	b.addr = wiretest.Serve(t, mux)
	return b
}

// dial sends connections to addresses of brokers here, and others where they want.
func (b *brokers) dial(isBroker func(addr string) bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if isBroker(addr) {
			addr = b.addr
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
}

// with lists what came for an epoch.
func (b *brokers) with(epoch string) (list []*protocol.Command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.got {
		if n.cmd.Ext["masterEpoch"] == epoch {
			list = append(list, n.cmd)
		}
	}
	return list
}

package controller

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

const (
	cluster = "c"
	set     = "broker-a"
)

// replica is a broker as far as controllers see it. Its connections are one per controller, as those of real ones.
type replica struct {
	g      *group
	client *remoting.Client
	id     int64
	addr   string
	code   string

	mu   sync.Mutex
	told []map[string]string // guarded by mu, fields of the notifications that came
}

// replica makes a broker that listens on loopback for notifications, unless the group has a network of its own.
func (g *group) replica() *replica {
	r := &replica{g: g, addr: "127.0.0.1:" + strconv.Itoa(30911+10*len(g.replicas))}
	if g.dial == nil {
		mux := remoting.NewMux()
		mux.Handle(protocol.ReqNotifyBrokerRoleChanged, remoting.Inline, func(req *remoting.Request, _ *remoting.Response) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, maps.Clone(req.Header.Command(nil).Ext))
			return nil
		})
		r.addr = wiretest.Serve(g.t, mux)
	}
	g.replicas = append(g.replicas, r)
	r.connect()
	return r
}

// connect opens the client, again after a disconnect.
func (r *replica) connect() {
	c := remoting.NewClient(remoting.ClientConfig{Dial: r.g.dial}, remoting.NewMux(), quiet)
	r.client = c
	if r.g.dial == nil { // in a bubble the test closes it itself: a cleanup would run outside
		r.g.t.Cleanup(func() { require.NoError(r.g.t, c.Close()) })
	}
}

// disconnect closes all connections, as the death of the process does.
func (r *replica) disconnect() { require.NoError(r.g.t, r.client.Close()) }

// ask sends a request to whoever leads, and repeats it until it is answered by a leader.
func (r *replica) ask(code int32, ext map[string]string, body string) *protocol.Command {
	r.g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		for _, addr := range r.g.addrs {
			got, err := r.client.Call(ctx, addr, protocol.NewRequest(code, maps.Clone(ext), []byte(body)))
			if err == nil && got.Code != protocol.ControllerNotLeader {
				return got
			}
		}
		require.NoError(r.g.t, ctx.Err(), "no leader answers %s", protocol.RequestName(code))
		time.Sleep(5 * time.Millisecond)
	}
}

// ok is ask for requests that succeed.
func (r *replica) ok(code int32, ext map[string]string, body string) *protocol.Command {
	r.g.t.Helper()
	got := r.ask(code, ext, body)
	require.Equal(r.g.t, int32(0), got.Code, got.Remark)
	return got
}

func name(more ...string) map[string]string {
	m := map[string]string{"clusterName": cluster, "brokerName": set}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return m
}

func (r *replica) self() string { return strconv.FormatInt(r.id, 10) }

// join gets an id, registers, and sends a first heartbeat to all controllers.
func (r *replica) join() {
	r.g.t.Helper()
	next := r.ok(protocol.ReqControllerGetNextBrokerID, name(), "").Ext["nextBrokerId"]
	r.code = r.addr + ";1"
	r.ok(protocol.ReqControllerApplyBrokerID, name("appliedBrokerId", next, "registerCheckCode", r.code), "")
	id, err := strconv.ParseInt(next, 10, 64)
	require.NoError(r.g.t, err)
	r.id = id
	r.register()
	r.beat()
}

func (r *replica) register(more ...string) *protocol.Command {
	r.g.t.Helper()
	return r.ok(protocol.ReqControllerRegisterBroker, name(append(more, "brokerId", r.self(), "brokerAddress", r.addr)...), "")
}

func (r *replica) elect() *protocol.Command {
	r.g.t.Helper()
	return r.ask(protocol.ReqControllerElectMaster, name("brokerId", r.self(), "designateElect", "false"), "")
}

func (r *replica) alter(epoch, syncEpoch int32, ids ...int64) *protocol.Command {
	r.g.t.Helper()
	b, err := fastjson.Marshal(syncState{ids, syncEpoch})
	require.NoError(r.g.t, err)
	return r.ask(protocol.ReqControllerAlterSyncStateSet, name("masterBrokerId", r.self(), "masterEpoch", strconv.Itoa(int(epoch))), string(b))
}

// beat sends a heartbeat to every controller that can be reached, and returns the answer of the one that answered with
// the most: the leader's. Followers may not know the broker yet, so it is repeated until they took it.
func (r *replica) beat(more ...string) map[string]string {
	r.g.t.Helper()
	ext := name(append([]string{"brokerId", r.self(), "brokerAddr", r.addr, "epoch", "0", "maxOffset", "100", "confirmOffset", "100",
		"heartbeatTimeoutMills", "60000", "selfFencing", "true"}, more...)...)
	var best map[string]string
	for i, addr := range r.g.addrs {
		c := r.g.all[i]
		if c == nil {
			continue
		}
		var got *protocol.Command
		r.g.eventually(func() bool {
			var err error
			got, err = r.client.Call(context.Background(), addr, protocol.NewRequest(protocol.ReqBrokerHeartbeat, maps.Clone(ext), nil))
			if err != nil || got.Code != 0 {
				return false
			}
			e, ok := c.live.get(brokerKey{cluster, set, r.id}, time.Now())
			return ok && e.state == alive
		}, "a heartbeat to "+addr)
		if len(got.Ext) > len(best) {
			best = got.Ext
		}
	}
	return best
}

// notified are the epochs that the replica was told of.
func (r *replica) notified(epoch string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.told, func(m map[string]string) bool { return m["masterEpoch"] == epoch })
}

// state is what a leader answers to 1004.
type state struct {
	master, epoch string
	sync          string
}

func (r *replica) state() state {
	r.g.t.Helper()
	got := r.ok(protocol.ReqControllerGetReplicaInfo, name(), "")
	var s syncState
	require.NoError(r.g.t, fastjson.Unmarshal(got.Body, &s))
	return state{got.Ext["masterBrokerId"], got.Ext["masterEpoch"], fmt.Sprint(s.SyncStateSet, s.SyncStateSetEpoch)}
}

// trio is a running group of n controllers with a set of three replicas, of which the first is master and all are in sync.
func trio(t *testing.T, n int, opts func(i int, o *Options)) (*group, []*replica) {
	g := newGroup(t, n, func(i int, o *Options) {
		o.Tune = fast
		if opts != nil {
			opts(i, o)
		}
	})
	for i := range n {
		g.start(i)
	}
	t.Cleanup(g.stop)
	return g, g.set()
}

// set makes the replicas of trio.
func (g *group) set() (list []*replica) {
	for range 3 {
		r := g.replica()
		r.join()
		list = append(list, r)
	}
	require.Equal(g.t, int32(0), list[0].elect().Code)
	require.Equal(g.t, int32(0), list[0].alter(1, 1, 1, 2, 3).Code)
	for _, r := range list {
		r.beat("epoch", "1")
	}
	return list
}

// eventually waits in real or in fake time.
func (g *group) eventually(ok func() bool, what string) {
	g.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		require.True(g.t, time.Now().Before(end), what)
	}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

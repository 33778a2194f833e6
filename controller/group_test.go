package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/controller/machine"
	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestSetOfThree(t *testing.T) {
	g, r := trio(t, 3, nil)
	require.Equal(t, []int64{1, 2, 3}, []int64{r[0].id, r[1].id, r[2].id})
	require.Equal(t, state{"1", "1", "[1 2 3] 2"}, r[0].state())

	got := r[1].elect()
	require.Equal(t, protocol.ControllerMasterStillExist, got.Code)
	require.Equal(t, "1", got.Ext["masterBrokerId"])
	require.Equal(t, r[0].addr, got.Ext["masterAddress"])

	require.NotEmpty(t, r[0].beat("epoch", "1")["leaseMs"], "the master has a lease")
	require.Empty(t, r[0].beat("epoch", "0")["leaseMs"], "of another epoch it has none")
	require.Empty(t, r[1].beat("epoch", "1")["leaseMs"])

	r[1].beat("epoch", "1", "maxOffset", "200")
	r[2].beat("epoch", "1", "maxOffset", "300")
	r[0].disconnect()
	g.eventually(func() bool { return r[1].state().master == "3" }, "the replica with the longest log is elected")
	require.Equal(t, state{"3", "2", "[3] 3"}, r[1].state())
	for i := range r {
		g.eventually(func() bool { return r[i].notified("2") }, fmt.Sprint("every registered replica is told: ", i+1))
	}
	require.Empty(t, r[2].beat("epoch", "1")["leaseMs"])
	require.NotEmpty(t, r[2].beat("epoch", "2")["leaseMs"])

	r[0].connect()
	require.Equal(t, "3", r[0].register().Ext["masterBrokerId"], "the old one comes back as a slave")
	r[0].beat("epoch", "1")
	require.Equal(t, state{"3", "2", "[3] 3"}, r[1].state())
}

func TestAlterRefused(t *testing.T) {
	g, r := trio(t, 1, nil)
	for _, c := range []struct {
		what             string
		by               int
		epoch, syncEpoch int32
		ids              []int64
		want             int32
	}{
		{"the same set", 0, 1, 2, []int64{3, 2, 1}, protocol.ControllerAlterSyncStateSetFailed},
		{"by a slave", 1, 1, 2, []int64{1, 2}, protocol.ControllerInvalidMaster},
		{"an old epoch", 0, 0, 2, []int64{1, 2}, protocol.ControllerFencedMasterEpoch},
		{"a later epoch", 0, 2, 2, []int64{1, 2}, protocol.ControllerFencedMasterEpoch},
		{"an old set", 0, 1, 1, []int64{1, 2}, protocol.ControllerFencedSyncStateSetEpoch},
		{"an unknown replica", 0, 1, 2, []int64{1, 9}, protocol.ControllerInvalidReplicas},
		{"without the master", 0, 1, 2, []int64{2, 3}, protocol.ControllerAlterSyncStateSetFailed},
	} {
		require.Equal(t, c.want, r[c.by].alter(c.epoch, c.syncEpoch, c.ids...).Code, c.what)
	}
	require.Equal(t, int32(0), r[0].alter(1, 2, 1, 2).Code)
	r[2].disconnect()
	g.eventually(func() bool {
		e, _ := g.all[0].live.get(brokerKey{cluster, set, 3}, time.Now())
		return e.state == closed
	}, "its connection closes")
	require.Equal(t, protocol.ControllerBrokerNotAlive, r[0].alter(1, 3, 1, 2, 3).Code, "a dead replica")
	require.Equal(t, state{"1", "1", "[1 2] 3"}, r[0].state())
}

func TestRefusedRequests(t *testing.T) {
	_, r := trio(t, 1, nil)
	for _, c := range []struct {
		what string
		code int32
		ext  map[string]string
		want int32
	}{
		{"info of an unknown set", protocol.ReqControllerGetReplicaInfo, map[string]string{"brokerName": "x"}, protocol.ControllerBrokerMetadataNotExist},
		{"registration of an unknown set", protocol.ReqControllerRegisterBroker, map[string]string{"clusterName": cluster, "brokerName": "x", "brokerId": "1", "brokerAddress": "a"}, protocol.ControllerBrokerNeedToBeRegistered},
		{"registration of an unknown id", protocol.ReqControllerRegisterBroker, name("brokerId", "9", "brokerAddress", "a"), protocol.ControllerBrokerNeedToBeRegistered},
		{"election in an unknown set", protocol.ReqControllerElectMaster, map[string]string{"clusterName": cluster, "brokerName": "x", "brokerId": "1"}, protocol.ControllerBrokerNeedToBeRegistered},
		{"an id that is taken", protocol.ReqControllerApplyBrokerID, name("appliedBrokerId", "2", "registerCheckCode", "other;1"), protocol.ControllerBrokerIDInvalid},
		{"an id that is not the next", protocol.ReqControllerApplyBrokerID, name("appliedBrokerId", "7", "registerCheckCode", "other;1"), protocol.ControllerBrokerIDInvalid},
		{"cleaning what lives", protocol.ReqCleanBrokerData, name("brokerControllerIdsToClean", "2"), protocol.ControllerInvalidCleanBrokerMetadata},
		{"cleaning a list that is none", protocol.ReqCleanBrokerData, name("brokerControllerIdsToClean", "a;b"), protocol.ControllerInvalidCleanBrokerMetadata},
		{"a heartbeat without id", protocol.ReqBrokerHeartbeat, name("brokerAddr", "a"), protocol.ControllerInvalidRequest},
		{"a heartbeat of a stranger", protocol.ReqBrokerHeartbeat, name("brokerAddr", "a", "brokerId", "9"), protocol.ControllerBrokerNeedToBeRegistered},
		{"a request of brokers", protocol.ReqSendMessage, nil, protocol.RequestCodeNotSupported},
	} {
		require.Equal(t, c.want, r[0].ask(c.code, c.ext, "").Code, c.what)
	}
	require.Equal(t, int32(0), r[0].ask(protocol.ReqControllerApplyBrokerID, name("appliedBrokerId", "2", "registerCheckCode", r[1].code), "").Code, "a repetition of an application")
	require.Equal(t, "4", r[0].ok(protocol.ReqControllerGetNextBrokerID, name(), "").Ext["nextBrokerId"])
}

func TestFollower(t *testing.T) {
	g, r := trio(t, 3, nil)
	lead, c := g.leader()
	for i := range g.all {
		p := wiretest.Dial(t, g.addrs[i])
		got := p.Call(protocol.ReqControllerGetMetadataInfo, nil, nil)
		require.Equal(t, int32(0), got.Code)
		require.Equal(t, map[string]string{"group": "group1", "controllerLeaderId": fmt.Sprint("n", lead), "controllerLeaderAddress": c.Addr(),
			"isLeader": fmt.Sprint(i == lead), "peers": strings.NewReplacer("-127", ":127").Replace(g.peers)}, got.Ext)
		if i == lead {
			continue
		}
		for _, code := range []int32{protocol.ReqControllerAlterSyncStateSet, protocol.ReqControllerElectMaster, protocol.ReqControllerRegisterBroker,
			protocol.ReqControllerApplyBrokerID, protocol.ReqControllerGetNextBrokerID, protocol.ReqControllerGetReplicaInfo,
			protocol.ReqControllerGetSyncStateData, protocol.ReqCleanBrokerData} {
			require.Equal(t, protocol.ControllerNotLeader, p.Call(code, name(), []byte("[]")).Code, protocol.RequestName(code))
		}
	}
	require.Equal(t, int32(0), r[0].ask(protocol.ReqControllerGetReplicaInfo, name(), "").Code)
}

func TestConfigRequests(t *testing.T) {
	g, r := trio(t, 1, nil)
	_, c := g.leader()
	text := string(r[0].ok(protocol.ReqGetControllerConfig, nil, "").Body)
	require.Contains(t, text, "enableElectUncleanMaster=false\n")
	require.Contains(t, text, "controllerDLegerPeers="+g.peers)
	r[0].ok(protocol.ReqUpdateControllerConfig, nil, "enableElectUncleanMaster=true\n")
	require.True(t, c.config().EnableElectUncleanMaster)
	for _, key := range []string{"configBlackList", "configStorePath", "rocketmqHome"} {
		require.Equal(t, protocol.NoPermission, r[0].ask(protocol.ReqUpdateControllerConfig, nil, key+"=x\n").Code, key)
	}
	require.NotEqual(t, int32(0), r[0].ask(protocol.ReqUpdateControllerConfig, nil, "scanInactiveMasterInterval=-1\n").Code)
	require.Equal(t, int64(5000), c.config().ScanInactiveMasterInterval)
}

func TestUncleanElection(t *testing.T) {
	g, r := trio(t, 1, nil)
	require.Equal(t, int32(0), r[0].alter(1, 2, 1).Code)
	r[0].disconnect()
	g.eventually(func() bool { return r[1].state().master == "" }, "nobody in sync is left")
	require.Equal(t, protocol.ControllerElectMasterFailed, r[1].elect().Code)
	r[1].ok(protocol.ReqUpdateControllerConfig, nil, "enableElectUncleanMaster=true\n")
	g.eventually(func() bool { return r[1].state().master == "2" }, "a replica from outside is elected")
	s := g.all[0].Set(set)
	require.Equal(t, s.MasterEpoch, s.UncleanEpoch)
	require.Equal(t, fmt.Sprint(s.MasterEpoch), r[1].ok(protocol.ReqControllerGetReplicaInfo, name(), "").Ext["uncleanEpoch"])
}

func TestLeaderKilled(t *testing.T) {
	g, r := trio(t, 3, nil)
	lead, c := g.leader()
	before := r[0].state()
	require.NoError(t, c.Kill())
	g.all[lead] = nil
	require.Equal(t, before, r[0].state())
	next, _ := g.leader()
	require.NotEqual(t, lead, next)
	require.NotEmpty(t, r[0].beat("epoch", "1")["leaseMs"], "the new leader knows the master")
	require.Equal(t, protocol.ControllerMasterStillExist, r[1].elect().Code)

	r[0].disconnect()
	g.eventually(func() bool { return r[1].state().epoch == "2" }, "the new leader elects")
	g.start(lead)
	g.eventually(func() bool { return g.all[lead].Set(set) != nil && g.all[lead].Set(set).MasterEpoch == 2 }, "the killed one catches up")
}

func TestCloseHandsOver(t *testing.T) {
	g, r := trio(t, 3, nil)
	lead, c := g.leader()
	term := c.raft.Load().CurrentTerm()
	require.NoError(t, c.Close())
	g.all[lead] = nil
	_, c = g.leader()
	require.Equal(t, term+1, c.raft.Load().CurrentTerm(), "without an election that failed")
	require.Equal(t, state{"1", "1", "[1 2 3] 2"}, r[0].state())
}

func TestAllRestarted(t *testing.T) {
	g, r := trio(t, 3, nil)
	_, c := g.leader()
	want := *c.Set(set)
	before := r[0].state()
	g.stop()
	g.start(0, 1, 2)
	require.Equal(t, before, r[0].state())
	g.leader()
	for _, c := range g.all {
		g.eventually(func() bool { return c.Set(set) != nil && c.Set(set).SyncEpoch == want.SyncEpoch }, "every controller has the state")
		require.Equal(t, want, *c.Set(set))
	}
	// The master goes on without an election once it is heard.
	require.NotEmpty(t, r[0].beat("epoch", "1")["leaseMs"])
}

// snapshot takes one and returns the folder with its files.
func snapshot(t *testing.T, c *Controller) string {
	t.Helper()
	require.NoError(t, c.raft.Load().Snapshot().Error())
	list, err := c.node.stores.Snapshots.List()
	require.NoError(t, err)
	return filepath.Join(paths{c.dir}.snapshots(), list[0].ID)
}

// trailing keeps so many entries before a snapshot.
func trailing(n uint64) func(int, *Options) {
	return func(_ int, o *Options) { o.Tune = func(cfg *raft.Config) { fast(cfg); cfg.TrailingLogs = n } }
}

func TestSnapshotRestart(t *testing.T) {
	g, r := trio(t, 1, trailing(0))
	snapshot(t, g.all[0])
	require.Equal(t, int32(0), r[0].alter(1, 2, 1, 2).Code)
	first, err := g.all[0].node.stores.Log.FirstIndex()
	require.NoError(t, err)
	require.Greater(t, first, uint64(1), "the log was cut")
	g.stop()
	g.start(0)
	require.Equal(t, state{"1", "1", "[1 2] 3"}, r[0].state())
	require.Equal(t, "4", r[0].ok(protocol.ReqControllerGetNextBrokerID, name(), "").Ext["nextBrokerId"])
}

func TestFollowerGetsSnapshot(t *testing.T) {
	g, r := trio(t, 3, trailing(0))
	lead, c := g.leader()
	behind := (lead + 1) % 3
	require.NoError(t, g.all[behind].Close())
	g.all[behind] = nil
	for i := range int32(20) {
		require.Equal(t, int32(0), r[0].alter(1, 2+i, []int64{1, 2 + int64(i%2)}...).Code)
	}
	snapshot(t, c)
	g.start(behind)
	g.eventually(func() bool { s := g.all[behind].Set(set); return s != nil && s.SyncEpoch == 22 }, "a controller that was away has the state")
	require.Equal(t, *c.Set(set), *g.all[behind].Set(set))
}

// damage changes one byte in the middle of a file.
func damage(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o600))
}

func TestDamagedSnapshot(t *testing.T) {
	t.Run("an older one and the log are enough", func(t *testing.T) {
		g, r := trio(t, 1, trailing(1000))
		snapshot(t, g.all[0])
		require.Equal(t, int32(0), r[0].alter(1, 2, 1, 2).Code)
		newest := snapshot(t, g.all[0])
		require.Equal(t, int32(0), r[0].alter(1, 3, 1, 3).Code)
		g.stop()
		damage(t, filepath.Join(newest, "state.bin"))
		g.start(0)
		require.Equal(t, state{"1", "1", "[1 3] 4"}, r[0].state())
		require.NoDirExists(t, newest)
		require.FileExists(t, filepath.Join(paths{g.all[0].dir}.quarantine(), filepath.Base(newest), "state.bin"))
	})
	t.Run("the log alone is enough", func(t *testing.T) {
		g, r := trio(t, 1, trailing(1000))
		only := snapshot(t, g.all[0])
		g.stop()
		damage(t, filepath.Join(only, "state.bin"))
		g.start(0)
		require.Equal(t, state{"1", "1", "[1 2 3] 2"}, r[0].state())
	})
	t.Run("the log begins too late", func(t *testing.T) {
		g, r := trio(t, 1, trailing(0))
		snapshot(t, g.all[0])
		require.Equal(t, int32(0), r[0].alter(1, 2, 1, 2).Code)
		newest := snapshot(t, g.all[0])
		g.stop()
		damage(t, filepath.Join(newest, "state.bin"))
		for range 2 {
			require.ErrorAs(t, g.refused(0), new(*DamageError))
		}
	})
	t.Run("the votes are lost", func(t *testing.T) {
		g, _ := trio(t, 1, nil)
		dir := g.all[0].dir
		snapshot(t, g.all[0])
		g.stop()
		require.NoError(t, os.Remove(paths{dir}.db()))
		require.ErrorAs(t, g.refused(0), new(*DamageError))
	})
	t.Run("one that was being written is removed", func(t *testing.T) {
		g, r := trio(t, 1, nil)
		unfinished := snapshot(t, g.all[0]) + "-x.tmp"
		g.stop()
		require.NoError(t, os.Mkdir(unfinished, 0o755))
		g.start(0)
		require.Equal(t, "1", r[0].state().master)
		require.NoDirExists(t, unfinished)
	})
}

// refused is the error with which a controller does not start.
func (g *group) refused(i int) error {
	c := g.make(i)
	err := c.Start()
	require.NoError(g.t, c.Close())
	return err
}

func TestFolderInUse(t *testing.T) {
	g, _ := trio(t, 1, nil)
	require.ErrorIs(t, g.refused(0), ErrInUse)
}

func TestRepairDropsLog(t *testing.T) {
	for _, c := range []struct {
		what        string
		index, term uint64
		kept        uint64 // last entry
	}{
		{"the log goes on after the snapshot", 3, 1, 5},
		{"the log ends with the snapshot", 5, 1, 5},
		{"the log ends before the snapshot", 9, 1, 0},
		{"the log has another entry there", 3, 2, 0},
	} {
		s := NewMemoryStores()
		require.NoError(t, s.Stable.SetUint64([]byte("CurrentTerm"), 2))
		for i := uint64(1); i <= 5; i++ {
			require.NoError(t, s.Log.StoreLog(&raft.Log{Index: i, Term: 1}))
		}
		_, trans := raft.NewInmemTransport("")
		sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, c.index, c.term, raft.Configuration{}, 1, trans)
		require.NoError(t, err)
		b, err := machine.New().Snapshot(machine.Meta{Index: c.index, Term: c.term})
		require.NoError(t, err)
		_, err = sink.Write(b)
		require.NoError(t, err)
		require.NoError(t, sink.Close())
		require.NoError(t, s.repair(quiet), c.what)
		last, err := s.Log.LastIndex()
		require.NoError(t, err)
		require.Equal(t, c.kept, last, c.what)
	}
}

// TestUnknownCommand has a controller stop at a command that a newer program wrote.
func TestUnknownCommand(t *testing.T) {
	g, _ := trio(t, 1, nil)
	_, c := g.leader()
	require.IsType(t, new(machine.FormatError), errorOf(c.raft.Load().Apply([]byte{machine.Version + 1, 1}, time.Second)))
	require.ErrorContains(t, <-c.Failed(), "version")
	g.eventually(func() bool { return !c.IsLeader() }, "it answers nothing any more")
}

func errorOf(f raft.ApplyFuture) error {
	if err := f.Error(); err != nil {
		return err
	}
	err, _ := f.Response().(error)
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// TestReads has a reader look for what was answered before, whoever leads.
func TestReads(t *testing.T) {
	g, r := trio(t, 3, nil)
	epoch := int32(2)
	for i := range 30 {
		if i == 10 || i == 20 {
			lead, c := g.leader()
			require.NoError(t, c.Kill())
			g.all[lead] = nil
			g.start(lead)
			g.leader()
			for _, one := range r {
				one.beat("epoch", "1")
			}
		}
		ids := []int64{1, 2 + int64(i%2)}
		got := r[0].alter(1, epoch, ids...)
		if got.Code != 0 { // it was committed, and the answer lost
			require.Equal(t, protocol.ControllerAlterSyncStateSetFailed, got.Code, got.Remark)
		}
		epoch++
		require.Equal(t, fmt.Sprint(ids, epoch), r[1].state().sync)
	}
}

// TestReadNeedsMajority has a leader that lost the others refuse to answer from what it remembers.
func TestReadNeedsMajority(t *testing.T) {
	g, _ := trio(t, 3, func(i int, o *Options) {
		o.Tune = func(cfg *raft.Config) { // it goes on believing that it leads for a long time
			cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 10*time.Second, 10*time.Second, 10*time.Second
			fastFirst(i, cfg)
		}
	})
	lead, c := g.leader()
	for i := range g.all {
		if i != lead {
			require.NoError(t, g.all[i].Kill())
			g.all[i] = nil
		}
	}
	require.True(t, c.IsLeader())
	p := wiretest.Dial(t, c.Addr())
	require.NoError(t, p.Conn.SetDeadline(time.Now().Add(wiretest.Timeout)))
	require.Equal(t, protocol.ControllerNotLeader, p.Call(protocol.ReqControllerGetReplicaInfo, name(), nil).Code)
}

// fastFirst has the first controller ask for votes soon.
func fastFirst(i int, cfg *raft.Config) {
	if i == 0 {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
		cfg.LeaderLeaseTimeout = 200 * time.Millisecond
	}
}

func TestPreregister(t *testing.T) {
	g := newGroup(t, 1, func(_ int, o *Options) {
		o.Tune = fast
		o.Preregister = []machine.Preregister{{Cluster: cluster, Broker: set, IDs: []int64{1, 2}}}
	})
	g.start(0)
	t.Cleanup(g.stop)
	r := g.replica()
	g.eventually(func() bool {
		return r.ok(protocol.ReqControllerGetNextBrokerID, name(), "").Ext["nextBrokerId"] == "3"
	}, "the ids are known")
	r.id = 2
	r.register()
	r.beat()
	require.Equal(t, "2", r.elect().Ext["masterBrokerId"])
}

// TestJRaftKeys runs a group that is configured with the keys of RocketMQ's other Raft library, with two ports each.
func TestJRaftKeys(t *testing.T) {
	g := newGroup(t, 1, func(_ int, o *Options) { o.Tune = fast })
	raftAddr := freeAddr(t)
	g.keys = map[string]string{"controllerType": "jRaft", "jRaftServerId": raftAddr, "jRaftInitConf": raftAddr, "jRaftControllerRPCAddr": g.addrs[0], "bindAddress": "127.0.0.1"}
	g.start(0)
	t.Cleanup(g.stop)
	g.set()
	got := wiretest.Dial(t, g.addrs[0]).Call(protocol.ReqControllerGetMetadataInfo, nil, nil)
	require.Equal(t, "jRaft-Controller", got.Ext["group"])
	require.Equal(t, g.addrs[0], got.Ext["controllerLeaderAddress"])
	require.Equal(t, g.addrs[0]+";", got.Ext["peers"])
}

func TestConfigErrors(t *testing.T) {
	good := map[string]string{"controllerDLegerGroup": "g", "controllerDLegerPeers": "n0-127.0.0.1:9878;n1-127.0.0.1:9868", "controllerDLegerSelfId": "n0"}
	_, err := New(Options{Settings: settings(t, good), Log: quiet})
	require.NoError(t, err)
	for key, bad := range map[string][]string{
		"controllerDLegerGroup":      {""},
		"controllerDLegerSelfId":     {"", "n2"},
		"controllerDLegerPeers":      {"", "n0", "n0-127.0.0.1", "n0-127.0.0.1:0", "n0-127.0.0.1:9878;n0-127.0.0.1:9868", "n0-127.0.0.1:9878;n1-127.0.0.1:9878"},
		"controllerType":             {"other"},
		"scanInactiveMasterInterval": {"0"},
	} {
		for _, v := range bad {
			keys := map[string]string{key: v}
			for k, g := range good {
				if k != key {
					keys[k] = g
				}
			}
			_, err := New(Options{Settings: settings(t, keys), Log: quiet})
			require.ErrorContains(t, err, key, v)
		}
	}
}

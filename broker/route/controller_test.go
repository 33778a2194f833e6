package route

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// fakeControllers answer as three controllers would, from a table that the test changes. "c1:1" leads at first.
type fakeControllers struct {
	mu      sync.Mutex
	leader  string
	hang    map[string]bool // do not answer
	next    int64
	ids     map[int64]string // check codes
	addrs   map[int64]string
	grant   Grant
	leaseMs int
	lose    map[protocol.Code]int // answers to lose, after the request took effect
	refuse  map[protocol.Code][]int32
	seen    []protocol.Code // but heartbeats
	beats   map[string]int
	last    map[string]string // fields of the last heartbeat
}

func newControllers() *fakeControllers {
	return &fakeControllers{leader: "c1:1", hang: map[string]bool{}, next: 1, ids: map[int64]string{}, addrs: map[int64]string{},
		lose: map[protocol.Code]int{}, refuse: map[protocol.Code][]int32{}, beats: map[string]int{}}
}

func (f *fakeControllers) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fakeControllers) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	f.mu.Lock()
	hangs := f.hang[addr]
	f.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.answer(addr, cmd)
	if f.lose[cmd.Code] > 0 {
		f.lose[cmd.Code]--
		return nil, errors.New("connection lost")
	}
	return a, nil
}

func (f *fakeControllers) answer(addr string, cmd *protocol.Command) *protocol.Command {
	ext := map[string]string{}
	ok := func(body string) *protocol.Command {
		return &protocol.Command{Code: protocol.Success, Ext: ext, Body: []byte(body)}
	}
	fail := func(code int32) *protocol.Command {
		return &protocol.Command{Code: code, Remark: "no", Ext: ext}
	}
	if cmd.Code == protocol.ReqBrokerHeartbeat {
		f.beats[addr]++
		f.last = cmd.Ext
		if addr == f.leader && f.leaseMs > 0 {
			ext["leaseMs"] = strconv.Itoa(f.leaseMs)
		}
		return ok("")
	}
	if cmd.Code == protocol.ReqControllerGetMetadataInfo {
		ext["controllerLeaderAddress"] = f.leader
		return ok("")
	}
	f.seen = append(f.seen, cmd.Code)
	if addr != f.leader {
		return fail(protocol.ControllerNotLeader)
	}
	if r := f.refuse[cmd.Code]; len(r) > 0 {
		f.refuse[cmd.Code] = r[1:]
		return fail(r[0])
	}
	id, _ := strconv.ParseInt(cmd.Ext["brokerId"]+cmd.Ext["appliedBrokerId"], 10, 64)
	set := func() string {
		ext["masterEpoch"] = strconv.Itoa(int(f.grant.Epoch))
		if f.grant.MasterID != 0 {
			ext["masterBrokerId"], ext["masterAddress"] = strconv.Itoa(int(f.grant.MasterID)), f.grant.MasterAddr
		}
		body := fmt.Sprintf(`{"syncStateSet":%s,"syncStateSetEpoch":%d}`, jsonList(f.grant.Set), f.grant.SetEpoch)
		if cmd.Code == protocol.ReqControllerElectMaster {
			ext["syncStateSetEpoch"] = strconv.Itoa(int(f.grant.SetEpoch))
			body = `{"brokerMemberGroup":{"brokerAddrs":{1:"a:1"}},"syncStateSet":` + jsonList(f.grant.Set) + `}`
		}
		return body
	}
	switch cmd.Code {
	case protocol.ReqControllerGetNextBrokerID:
		ext["nextBrokerId"] = strconv.Itoa(int(f.next))
		return ok("")
	case protocol.ReqControllerApplyBrokerID:
		code := cmd.Ext["registerCheckCode"]
		if have, taken := f.ids[id]; taken && have != code {
			return fail(protocol.ControllerBrokerIDInvalid)
		}
		f.ids[id] = code
		f.next = max(f.next, id+1)
		return ok("")
	case protocol.ReqControllerRegisterBroker:
		if _, known := f.ids[id]; !known {
			return fail(protocol.ControllerBrokerNeedToBeRegistered)
		}
		f.addrs[id] = cmd.Ext["brokerAddress"]
		return ok(set())
	case protocol.ReqControllerElectMaster:
		if f.grant.MasterID != 0 && f.grant.MasterID != id {
			a := ok(set())
			a.Code = protocol.ControllerMasterStillExist
			return a
		}
		f.grant = Grant{id, f.addrs[id], f.grant.Epoch + 1, []int64{id}, f.grant.SetEpoch + 1}
		return ok(set())
	case protocol.ReqControllerGetReplicaInfo:
		return ok(set())
	case protocol.ReqControllerAlterSyncStateSet:
		f.grant.SetEpoch++
		f.grant.Set = []int64{1, 2}
		return ok(set())
	}
	return fail(protocol.RequestCodeNotSupported)
}

func jsonList(ids []int64) string {
	s := "["
	for i, id := range ids {
		if i > 0 {
			s += ","
		}
		s += strconv.Itoa(int(id))
	}
	return s + "]"
}

type fakeState struct{}

func (fakeState) Epoch() int32         { return 7 }
func (fakeState) MaxOffset() int64     { return 4096 }
func (fakeState) ConfirmOffset() int64 { return 2048 }
func (fakeState) SelfFencing() bool    { return true }

// told records events.
type told struct {
	mu     sync.Mutex
	id     int64
	grants []Grant
	leases []bool
}

func (e *told) Identified(id int64) { e.mu.Lock(); e.id = id; e.mu.Unlock() }
func (e *told) Granted(g Grant)     { e.mu.Lock(); e.grants = append(e.grants, g); e.mu.Unlock() }
func (e *told) Lease(on bool)       { e.mu.Lock(); e.leases = append(e.leases, on); e.mu.Unlock() }
func (e *told) last() (g Grant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.grants); n > 0 {
		g = e.grants[n-1]
	}
	return g
}

// link starts a link of a broker in dir.
func link(t *testing.T, dir string, f *fakeControllers, edit ...func(*ControllerConfig)) (*Controller, *told) {
	t.Helper()
	cfg := ControllerConfig{Addrs: func(context.Context) ([]string, error) { return []string{"c1:1", "c2:1", "c3:1"}, nil },
		Cluster: "C", Name: "b", Addr: "a:1", FS: statefile.OS, Root: dir, Priority: 1<<31 - 1}
	for _, fn := range edit {
		fn(&cfg)
	}
	e := &told{}
	c := NewController(cfg, f, fakeState{}, e, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Start())
	t.Cleanup(c.Close)
	return c, e
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

func TestJoin(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newControllers()
		c, e := link(t, dir, f)
		synctest.Wait()
		require.EqualValues(t, 1, e.id)
		require.Equal(t, Grant{1, "a:1", 1, []int64{1}, 1}, e.last())
		require.Equal(t, []protocol.Code{protocol.ReqControllerGetNextBrokerID, protocol.ReqControllerApplyBrokerID,
			protocol.ReqControllerRegisterBroker, protocol.ReqControllerElectMaster}, f.seen)
		content, err := os.ReadFile(filepath.Join(dir, "brokerIdentity"))
		require.NoError(t, err)
		require.Equal(t, "C#b#1", string(content))
		require.False(t, exists(dir, "brokerIdentity-temp"))
		require.Equal(t, map[string]string{"clusterName": "C", "brokerAddr": "a:1", "brokerName": "b", "brokerId": "1", "epoch": "7",
			"maxOffset": "4096", "confirmOffset": "2048", "heartbeatTimeoutMills": "10000", "electionPriority": "2147483647", "selfFencing": "true"}, f.last)

		// Polls and notifications bring what is newer, once.
		f.change(func() { f.grant.Set, f.grant.SetEpoch = []int64{1, 2}, 2 })
		c.Poll()
		synctest.Wait()
		require.Equal(t, []int64{1, 2}, e.last().Set)
		n := len(e.grants)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, e.grants, n, "nothing new")
		f.change(func() { f.grant = Grant{2, "b:1", 2, []int64{2}, 3} })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, Grant{2, "b:1", 2, []int64{2}, 3}, e.last())
		f.change(func() { f.grant = Grant{1, "a:1", 1, []int64{1}, 9} })
		n = len(e.grants)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Len(t, e.grants, n, "an older epoch is passed over")
		c.Close()
	})
}

// A lost answer burns no id, wherever the process dies.
func TestJoinAfterLosses(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newControllers()
		f.lose[protocol.ReqControllerApplyBrokerID] = 1
		c, _ := link(t, dir, f)
		synctest.Wait()
		require.True(t, exists(dir, "brokerIdentity-temp"))
		require.False(t, exists(dir, "brokerIdentity"))
		c.Close() // dies with the claim
		f.change(func() { f.lose[protocol.ReqControllerRegisterBroker] = 1 })
		c, e := link(t, dir, f)
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, e.id)
		require.EqualValues(t, 2, f.next, "one id was given")
		require.Equal(t, int32(1), e.last().Epoch)
		c.Close()

		// Restarted, the recorded master asks for an election instead of going on.
		f.change(func() { f.seen = nil })
		c, e = link(t, dir, f)
		synctest.Wait()
		require.Equal(t, []protocol.Code{protocol.ReqControllerRegisterBroker, protocol.ReqControllerElectMaster}, f.seen)
		require.Equal(t, int32(2), e.last().Epoch)
		c.Close()
	})
}

func TestJoinRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newControllers()
		f.ids[1] = "of another folder" // taken between the two requests
		f.change(func() { f.next = 1 })
		f.grant = Grant{9, "m:1", 4, []int64{9}, 6}
		dir := t.TempDir()
		c, e := link(t, dir, f)
		synctest.Wait()
		f.change(func() { f.next = 2 })
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, e.id)
		require.Equal(t, Grant{9, "m:1", 4, []int64{9}, 6}, e.last())
		c.Close()

		// The controller lost its data.
		lost := newControllers()
		c, e = link(t, dir, lost)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Zero(t, e.last())
		require.NotContains(t, lost.seen, protocol.ReqControllerApplyBrokerID)
		c.Close()
		c, e = link(t, dir, lost, func(cfg *ControllerConfig) { cfg.Reapply = true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, e.last().MasterID)
		c.Close()
	})
}

func TestForeignIdentity(t *testing.T) {
	for name, content := range map[string]string{"another name": "C#other#1", "too few fields": "C#1", "no number": "C#b#x", "id 0": "C#b#0"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "brokerIdentity"), []byte(content), 0o644))
		c := NewController(ControllerConfig{Cluster: "C", Name: "b", FS: statefile.OS, Root: dir}, newControllers(), fakeState{}, &told{}, slog.New(slog.DiscardHandler))
		require.Error(t, c.Start(), name)
	}
}

func TestLeaderMoves(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newControllers()
		f.leaseMs = 3000
		c, e := link(t, dir, f)
		synctest.Wait()
		require.Equal(t, "c1:1", c.Leader())
		require.Equal(t, []bool{true}, e.leases)

		// The leader hangs; another takes over. Heartbeats to the others never stop.
		f.change(func() {
			f.hang["c1:1"] = true
			f.leader = "c2:1"
			clear(f.beats)
			f.grant.SetEpoch, f.grant.Set = 5, []int64{1, 3}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, "c2:1", c.Leader())
		require.Equal(t, int32(5), e.last().SetEpoch)
		require.GreaterOrEqual(t, f.beats["c3:1"], 9)
		require.Equal(t, []bool{true}, e.leases, "the new leader's answers came in time")

		// No leader answers: the lease runs out, counted from the sending, and comes back.
		f.change(func() { f.leader = "" })
		time.Sleep(2900 * time.Millisecond)
		left, granted := c.Lease()
		require.True(t, granted && left <= 100*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []bool{true, false}, e.leases)
		f.change(func() { f.leader = "c3:1" })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []bool{true, false, true}, e.leases)

		// A change of the in-sync set.
		time.Sleep(10 * time.Second)
		synctest.Wait()
		g := e.last()
		g.Set = []int64{1, 2}
		agreed, err := c.Alter(t.Context(), g)
		require.NoError(t, err)
		require.Equal(t, g.SetEpoch+1, agreed.SetEpoch)
		f.change(func() {
			f.refuse[protocol.ReqControllerAlterSyncStateSet] = []int32{protocol.ControllerFencedMasterEpoch}
		})
		_, err = c.Alter(t.Context(), g)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, protocol.ControllerFencedMasterEpoch, refused.Code)
		c.Close()
	})
}

func TestAddressesFailOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newControllers()
		calls := 0
		c, e := link(t, dir, f, func(cfg *ControllerConfig) {
			cfg.Addrs = func(context.Context) ([]string, error) {
				if calls++; calls > 1 {
					return nil, errors.New("no such host")
				}
				return []string{"c1:1"}, nil
			}
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Greater(t, calls, 3)
		require.Equal(t, int32(1), e.last().Epoch)
		f.change(func() { f.grant.SetEpoch = 8 })
		c.Poll()
		synctest.Wait()
		require.Equal(t, int32(8), e.last().SetEpoch, "the last good addresses stay in use")
		c.Close()
	})
}

func TestParseGrant(t *testing.T) {
	for name, ext := range map[string]map[string]string{
		"no number": {"masterEpoch": "x"}, "negative": {"masterBrokerId": "-1", "masterAddress": "a:1"}, "too large": {"masterEpoch": "4294967296"},
	} {
		_, err := parseGrant(&protocol.Command{Ext: ext})
		require.Error(t, err, name)
	}
	g, err := parseGrant(&protocol.Command{Ext: map[string]string{"masterEpoch": "3", "masterBrokerId": "null", "masterAddress": "null"}})
	require.NoError(t, err)
	require.Equal(t, Grant{Epoch: 3}, g)
	_, err = parseGrant(&protocol.Command{Ext: map[string]string{}, Body: []byte("{[")})
	require.Error(t, err)
	require.True(t, slices.Equal([]int64{2, 1}, func() []int64 {
		g, err := parseGrant(&protocol.Command{Ext: map[string]string{}, Body: []byte(`{syncStateSet:[2,1],syncStateSetEpoch:4}`)})
		require.NoError(t, err)
		require.Equal(t, int32(4), g.SetEpoch)
		return g.Set
	}()))
}

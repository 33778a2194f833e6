package controller

import (
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/epochmq/epochmq/controller/machine"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// routes enters the handlers into a table of request codes. What is committed through Raft runs apart from connections;
// reads and heartbeats are short, and answered when a majority has confirmed the leader.
func (c *Controller) routes(mux *remoting.Mux) {
	cfg := c.config()
	commits := remoting.Slow(remoting.NewClass("controller", cfg.ControllerThreadPoolNums, cfg.ControllerRequestThreadPoolQueueCapacity, 0))
	for code, h := range map[int32]func(*term, *remoting.Request, *remoting.Response) error{
		protocol.ReqControllerAlterSyncStateSet: c.alter, protocol.ReqControllerElectMaster: c.elect, protocol.ReqControllerRegisterBroker: c.register,
		protocol.ReqControllerApplyBrokerID: c.applyID, protocol.ReqCleanBrokerData: c.clean,
	} {
		mux.Handle(code, commits, c.leading(h))
	}
	for code, h := range map[int32]func(*remoting.Request) (func(*remoting.Response) error, error){
		protocol.ReqControllerGetReplicaInfo: c.replicaInfo, protocol.ReqControllerGetNextBrokerID: c.nextBrokerID,
		protocol.ReqControllerGetSyncStateData: c.syncStateData,
	} {
		mux.Handle(code, remoting.Inline, c.reading(h))
	}
	mux.Handle(protocol.ReqBrokerHeartbeat, remoting.Inline, c.heartbeat)
	mux.Handle(protocol.ReqControllerGetMetadataInfo, remoting.Inline, c.metadata)
	mux.Handle(protocol.ReqGetControllerConfig, remoting.Inline, c.getConfig)
	mux.Handle(protocol.ReqUpdateControllerConfig, remoting.Slow(remoting.NewClass("files", 1, 1000, 0)), c.updateConfig)
}

// leading is a handler for requests that only a leader answers.
func (c *Controller) leading(h func(*term, *remoting.Request, *remoting.Response) error) remoting.Handler {
	return func(req *remoting.Request, resp *remoting.Response) error {
		t := c.term.Load()
		if t == nil {
			return errNotLeader
		}
		return h(t, req, resp)
	}
}

// reading is a handler for requests that are answered from the state, after a majority has confirmed that this controller
// led when they came: everything that was answered before is in that state. h reads the request and returns what answers it.
func (c *Controller) reading(h func(*remoting.Request) (func(*remoting.Response) error, error)) remoting.Handler {
	return func(req *remoting.Request, _ *remoting.Response) error {
		t := c.term.Load()
		if t == nil {
			return errNotLeader
		}
		answer, err := h(req)
		if err != nil {
			return err
		}
		pending := req.Defer()
		t.confirm(func(err error) {
			var resp remoting.Response
			if err == nil {
				err = answer(&resp)
			}
			if err != nil {
				pending.Error(err)
				return
			}
			pending.Reply(&resp)
		})
		return remoting.Later
	}
}

// fields reads header fields and keeps the first error.
type fields struct {
	req *remoting.Request
	err error
}

func (f *fields) text(name string, required bool) string {
	v, ok := f.req.Get(name)
	switch {
	case !ok && required && f.err == nil:
		f.err = protocol.Missing(name)
	case len(v) > machine.MaxText && f.err == nil:
		f.err = protocol.Errorf(protocol.ControllerInvalidRequest, "the field %s has %d bytes, %d are allowed", name, len(v), machine.MaxText)
	}
	return string(v)
}

func (f *fields) number(name string, missing int64) int64 {
	v, ok, err := f.req.Int64(name)
	if err != nil && f.err == nil {
		f.err = err
	}
	if !ok {
		return missing
	}
	return v
}

func (f *fields) epoch(name string) int32 {
	v, _, err := f.req.Int32(name)
	if err != nil && f.err == nil {
		f.err = err
	}
	return v
}

func (f *fields) flag(name string) bool {
	v, _, err := f.req.Bool(name)
	if err != nil && f.err == nil {
		f.err = err
	}
	return v
}

func body(resp *remoting.Response, v any) (err error) {
	resp.Body.Bytes, err = fastjson.Marshal(v)
	return err
}

func (c *Controller) alter(t *term, req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	cmd := &machine.Alter{Broker: f.text("brokerName", true), Master: f.number("masterBrokerId", 0), MasterEpoch: f.epoch("masterEpoch")}
	if f.err != nil {
		return f.err
	}
	var in syncState
	if err := fastjson.Unmarshal(req.Body, &in); err != nil {
		return protocol.Errorf(protocol.ControllerInvalidRequest, "in-sync set of %s: %v", cmd.Broker, err)
	}
	if len(in.SyncStateSet) > machine.MaxReplicas {
		return protocol.Errorf(protocol.ControllerInvalidRequest, "in-sync set of %s: %d ids", cmd.Broker, len(in.SyncStateSet))
	}
	cmd.Sync, cmd.SyncEpoch = in.SyncStateSet, in.SyncStateSetEpoch
	cmd.Facts = t.facts(c.fsm.set(cmd.Broker), cmd.Master)
	r, err := t.propose(cmd)
	if err != nil {
		return err
	}
	resp.Code, resp.Remark = r.Code, r.Remark
	if r.Code != machine.OK {
		resp.Ext.AddInt("newSyncStateSetEpoch", 0)
		return nil
	}
	c.log.Info("in-sync set changed", "set", cmd.Broker, "ids", r.Set.Sync, "epoch", r.Set.SyncEpoch)
	resp.Ext.AddInt("newSyncStateSetEpoch", int64(r.Set.SyncEpoch))
	return body(resp, syncStateSet(r.Set))
}

// electBody answers an election.
type electBody struct {
	BrokerMemberGroup *protocol.BrokerMemberGroup `json:"brokerMemberGroup"`
	SyncStateSet      []int64                     `json:"syncStateSet"`
}

func (c *Controller) elect(t *term, req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	cmd := &machine.Elect{Broker: f.text("brokerName", true), ID: f.number("brokerId", -1), Designate: f.flag("designateElect")}
	if f.err != nil {
		return f.err
	}
	r, err := t.elect(cmd)
	if err != nil {
		return err
	}
	resp.Code, resp.Remark = r.Code, r.Remark
	resp.Ext.Present()
	switch r.Code {
	case machine.OK:
		c.sign(req, r.Set, cmd.ID, cmd.Designate)
		addMaster(resp, r.Set, true)
		return body(resp, electBody{&protocol.BrokerMemberGroup{BrokerAddrs: r.Set.Addrs(), BrokerName: r.Set.Name, Cluster: r.Set.Cluster}, r.Set.Sync})
	case machine.MasterStillExist:
		addMaster(resp, r.Set, true)
		return body(resp, electBody{nil, r.Set.Sync})
	}
	return nil
}

// sign takes a request as a sign of life of a broker whose heartbeat may be on its way.
func (c *Controller) sign(req *remoting.Request, s *machine.Set, id int64, byAdmin bool) {
	r, ok := s.Replicas[id]
	if !ok || byAdmin || req.Conn() == nil {
		return
	}
	c.live.touch(brokerKey{s.Cluster, s.Name, id}, r.Addr, req.Conn(), time.Now())
	c.kick()
}

// addMaster adds the master of a set to an answer.
func addMaster(resp *remoting.Response, s *machine.Set, syncEpoch bool) {
	if s.Master != 0 {
		resp.Ext.AddInt("masterBrokerId", s.Master)
		resp.Ext.Add("masterAddress", s.MasterAddr())
	}
	resp.Ext.AddInt("masterEpoch", int64(s.MasterEpoch))
	if syncEpoch {
		resp.Ext.AddInt("syncStateSetEpoch", int64(s.SyncEpoch))
	}
	if s.UncleanEpoch > 0 {
		resp.Ext.AddInt("uncleanEpoch", int64(s.UncleanEpoch))
	}
}

func (c *Controller) register(t *term, req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	cluster := f.text("clusterName", true)
	cmd := &machine.Register{Broker: f.text("brokerName", true), ID: f.number("brokerId", -1), Addr: f.text("brokerAddress", true),
		Code: f.text("registerCheckCode", false), Learner: f.flag("asyncLearner"), Unclean: f.flag("uncleanRestart")}
	if f.err != nil {
		return f.err
	}
	cmd.Facts = t.facts(c.fsm.set(cmd.Broker), 0)
	r, err := t.propose(cmd)
	if err != nil {
		return err
	}
	resp.Code, resp.Remark = r.Code, r.Remark
	resp.Ext.Add("clusterName", cluster)
	resp.Ext.Add("brokerName", cmd.Broker)
	if r.Code != machine.OK {
		return nil
	}
	c.log.Info("broker registered", "set", cmd.Broker, "id", cmd.ID, "addr", cmd.Addr, "unclean", cmd.Unclean, "learner", cmd.Learner)
	c.sign(req, r.Set, cmd.ID, false)
	if r.Master {
		addMaster(resp, r.Set, true)
	}
	return body(resp, syncStateSet(r.Set))
}

func (c *Controller) applyID(t *term, req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	cmd := &machine.ApplyID{Cluster: f.text("clusterName", true), Broker: f.text("brokerName", true), ID: f.number("appliedBrokerId", 0),
		Code: f.text("registerCheckCode", true), Reclaim: f.flag("reclaimBrokerId")}
	if f.err != nil {
		return f.err
	}
	cmd.Addr, _, _ = strings.Cut(cmd.Code, ";")
	r, err := t.propose(cmd)
	if err != nil {
		return err
	}
	resp.Code, resp.Remark = r.Code, r.Remark
	resp.Ext.Add("clusterName", cmd.Cluster)
	resp.Ext.Add("brokerName", cmd.Broker)
	return nil
}

func (c *Controller) clean(t *term, req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	cmd := &machine.Clean{Cluster: f.text("clusterName", false), Broker: f.text("brokerName", true), Living: f.flag("isCleanLivingBroker")}
	list := f.text("brokerControllerIdsToClean", false)
	if f.err != nil {
		return f.err
	}
	for _, word := range strings.Split(list, ";") {
		if word == "" {
			continue
		}
		id, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return protocol.Errorf(protocol.ControllerInvalidCleanBrokerMetadata,
				"Please set the option <brokerControllerIdsToClean> according to the format, exception: java.lang.NumberFormatException: For input string: %q", word)
		}
		cmd.IDs = append(cmd.IDs, id)
	}
	r, err := t.clean(cmd)
	if err != nil {
		return err
	}
	if r.Changed {
		c.log.Warn("broker data cleaned", "set", cmd.Broker, "ids", cmd.IDs, "living", cmd.Living)
		t.look(cmd.Broker)
	}
	resp.Code, resp.Remark = r.Code, r.Remark
	return nil
}

func (c *Controller) replicaInfo(req *remoting.Request) (func(*remoting.Response) error, error) {
	f := fields{req: req}
	name := f.text("brokerName", true)
	return func(resp *remoting.Response) error {
		s := c.fsm.set(name)
		if s == nil {
			return &protocol.Error{Code: protocol.ControllerBrokerMetadataNotExist, Remark: "Broker metadata is not existed"}
		}
		addMaster(resp, s, false)
		return body(resp, syncStateSet(s))
	}, f.err
}

func (c *Controller) nextBrokerID(req *remoting.Request) (func(*remoting.Response) error, error) {
	f := fields{req: req}
	cluster, name := f.text("clusterName", true), f.text("brokerName", true)
	return func(resp *remoting.Response) error {
		resp.Ext.Add("clusterName", cluster)
		resp.Ext.AddInt("nextBrokerId", c.fsm.nextID(name))
		resp.Ext.Add("brokerName", name)
		return nil
	}, f.err
}

// replicaState is one replica in the answer to CONTROLLER_GET_SYNC_STATE_DATA.
type replicaState struct {
	Alive         bool   `json:"alive"`
	BrokerAddress string `json:"brokerAddress"`
	BrokerID      int64  `json:"brokerId"`
	BrokerName    string `json:"brokerName"`
}

type replicasInfo struct {
	InSyncReplicas    []replicaState `json:"inSyncReplicas"`
	MasterAddress     *string        `json:"masterAddress"`
	MasterBrokerID    *int64         `json:"masterBrokerId"`
	MasterEpoch       int32          `json:"masterEpoch"`
	NotInSyncReplicas []replicaState `json:"notInSyncReplicas"`
	SyncStateSetEpoch int32          `json:"syncStateSetEpoch"`
}

func (c *Controller) syncStateData(req *remoting.Request) (func(*remoting.Response) error, error) {
	var names []string
	if err := fastjson.Unmarshal(req.Body, &names); err != nil {
		return nil, protocol.Errorf(protocol.ControllerInvalidRequest, "list of broker names: %v", err)
	}
	empty := len(req.Body) == 0
	return func(resp *remoting.Response) error {
		if empty {
			return nil
		}
		out := map[string]replicasInfo{}
		for _, name := range names {
			if s := c.fsm.set(name); s != nil {
				out[name] = c.replicas(s)
			}
		}
		return body(resp, struct {
			ReplicasInfoTable map[string]replicasInfo `json:"replicasInfoTable"`
		}{out})
	}, nil
}

func (c *Controller) replicas(s *machine.Set) replicasInfo {
	live := c.live.facts(s, time.Now())
	out := replicasInfo{InSyncReplicas: []replicaState{}, NotInSyncReplicas: []replicaState{}, MasterEpoch: s.MasterEpoch, SyncStateSetEpoch: s.SyncEpoch}
	if s.Master != 0 {
		id, addr := s.Master, s.MasterAddr()
		out.MasterBrokerID, out.MasterAddress = &id, &addr
	}
	for _, id := range s.IDs() {
		_, isAlive := live[id]
		r := replicaState{isAlive, s.Replicas[id].Addr, id, s.Name}
		if s.InSync(id) {
			out.InSyncReplicas = append(out.InSyncReplicas, r)
		} else {
			out.NotInSyncReplicas = append(out.NotInSyncReplicas, r)
		}
	}
	return out
}

// heartbeat notes that a broker lives. One that is sent as a request is answered, by a leader with a lease if the broker is
// the master of its set in the epoch that it names.
func (c *Controller) heartbeat(req *remoting.Request, resp *remoting.Response) error {
	f := fields{req: req}
	id := f.number("brokerId", -1)
	k := brokerKey{f.text("clusterName", true), f.text("brokerName", true), id}
	b := beat{addr: f.text("brokerAddr", true), silence: time.Duration(f.number("heartbeatTimeoutMills", defaultSilence.Milliseconds())) * time.Millisecond,
		epoch: f.epoch("epoch"), end: f.number("maxOffset", 0), confirm: f.number("confirmOffset", 0), priority: f.number("electionPriority", 1<<31-1),
		learner: f.flag("asyncLearner"), fencing: f.flag("selfFencing"), leased: !req.Oneway()}
	if f.err != nil {
		return f.err
	}
	if _, ok := req.Get("brokerId"); !ok {
		return &protocol.Error{Code: protocol.ControllerInvalidRequest, Remark: "Heart beat with empty brokerId"}
	}
	t := c.term.Load()
	s := c.fsm.set(k.set)
	if s == nil || s.Cluster != k.cluster || s.Replicas[id].Addr == "" {
		if t != nil {
			return protocol.Errorf(protocol.ControllerBrokerNeedToBeRegistered, "BrokerId: %d hasn't been registered in broker-set: %s", id, k.set)
		}
		return nil // a follower may be behind
	}
	if b.silence <= 0 {
		b.silence = defaultSilence
	}
	came, sooner := c.live.heartbeat(k, b, req.Conn(), time.Now())
	if sooner {
		c.kick()
	}
	if came {
		c.look(k.set)
	}
	if t == nil || req.Oneway() {
		return nil
	}
	pending := req.Defer()
	t.confirm(func(err error) {
		var resp remoting.Response
		if err == nil {
			t.grant(&resp, k, b)
		}
		pending.Reply(&resp)
	})
	return remoting.Later
}

// grant answers a heartbeat of which a majority confirmed that this controller led when it came.
func (t *term) grant(resp *remoting.Response, k brokerKey, b beat) {
	lease := leaseOf(b.silence)
	granted := t.leases.grant(k, lease, time.Now())
	// Looked at after the lease was noted: an election that does not know of the lease is over, and seen here.
	s := t.c.fsm.set(k.set)
	if s == nil {
		return
	}
	if granted && s.Master == k.id && s.MasterEpoch == b.epoch && !s.Restarted {
		resp.Ext.AddInt("leaseMs", lease.Milliseconds())
	}
	addMaster(resp, s, true)
}

// metadata tells who leads, as far as this controller knows.
func (c *Controller) metadata(_ *remoting.Request, resp *remoting.Response) error {
	resp.Ext.Add("group", c.config().Group())
	r := c.raft.Load()
	peers := c.peers
	leader := false
	if r != nil {
		peers = c.members(r)
		if addr, id := r.LeaderWithID(); addr != "" {
			resp.Ext.Add("controllerLeaderId", string(id))
			resp.Ext.Add("controllerLeaderAddress", c.rpcAddr(string(addr)))
		}
		leader = r.State() == raft.Leader
	}
	resp.Ext.AddBool("isLeader", leader)
	var list strings.Builder
	for _, p := range peers {
		if !c.config().jraft() {
			list.WriteString(p.ID + ":")
		}
		list.WriteString(p.RPC + ";")
	}
	resp.Ext.Add("peers", list.String())
	return nil
}

// members are the controllers of the group as Raft knows them, in the order of the configuration, then of their ids.
func (c *Controller) members(r *raft.Raft) (list []Peer) {
	servers := r.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return c.peers
	}
	left := map[string]Peer{}
	for _, s := range servers {
		left[string(s.Address)] = Peer{string(s.ID), string(s.Address), c.rpcAddr(string(s.Address))}
	}
	for _, p := range c.peers {
		if m, ok := left[p.Raft]; ok {
			list = append(list, m)
			delete(left, p.Raft)
		}
	}
	for _, s := range servers {
		if m, ok := left[string(s.Address)]; ok {
			list = append(list, m)
		}
	}
	return list
}

// rpcAddr is where brokers reach the controller with this address in Raft.
func (c *Controller) rpcAddr(addr string) string {
	for _, p := range c.peers {
		if p.Raft == addr {
			return p.RPC
		}
	}
	return addr
}

package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Grant is what a controller says of a broker set: who is master under which epoch, and who is in sync.
type Grant struct {
	MasterID   int64  // 0: there is none
	MasterAddr string // host:port for requests
	Epoch      int32  // of the master
	Set        []int64
	SetEpoch   int32
}

// ControllerConfig says who the broker is and how it keeps in touch with the controllers. Zero times mean RocketMQ's.
type ControllerConfig struct {
	Addrs         func(ctx context.Context) ([]string, error) // host:port of the controllers; asked again every AddressPeriod
	Cluster, Name string
	Addr          string       // advertised host:port of this broker
	FS            statefile.FS // of the identity
	Root          string       // storePathRootDir
	Priority      int64        // brokerElectionPriority: smaller is preferred
	Learner       bool         // asyncLearner: never to be elected
	Unclean       bool         // this start may have lost what was not flushed
	Reapply       bool         // reapplyBrokerIdWhenControllerReset

	HeartbeatPeriod  time.Duration // brokerHeartbeatInterval, 1 s
	HeartbeatLimit   time.Duration // sendHeartbeatTimeoutMillis, 1 s
	HeartbeatTimeout time.Duration // controllerHeartBeatTimeoutMills, 10 s: when the controller takes this broker for dead
	PollPeriod       time.Duration // syncBrokerMetadataPeriod, 5 s
	AddressPeriod    time.Duration // 2 min
}

func (c *ControllerConfig) defaults() {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&c.HeartbeatPeriod, time.Second}, {&c.HeartbeatLimit, time.Second}, {&c.HeartbeatTimeout, 10 * time.Second},
		{&c.PollPeriod, 5 * time.Second}, {&c.AddressPeriod, 2 * time.Minute}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
}

// State is what heartbeats tell of the store.
type State interface {
	Epoch() int32 // of the last entry of the epoch list, -1 for none
	MaxOffset() int64
	ConfirmOffset() int64
	// SelfFencing says that this broker, as a master, acknowledges only what all of the in-sync set holds, two replicas at
	// least: an election that takes the set away ends its acknowledgements, so a controller need not wait for its lease.
	SelfFencing() bool
}

// Events are told what the controllers say. The methods are called by one goroutine and must not block for long.
type Events interface {
	// Identified is called once, before the first Granted.
	Identified(id int64)
	// Granted tells of a higher epoch, or of a newer in-sync set of the same epoch, or of the master's new address.
	Granted(g Grant)
	// Lease tells that the time has ended during which no other master can have been elected, and that it goes on again.
	// It is never called with controllers that give no lease.
	Lease(on bool)
}

const (
	callTimeout   = 3 * time.Second
	firstRetry    = 50 * time.Millisecond
	longestRetry  = 5 * time.Second
	staleAfter    = 30 * time.Second
	hintEvery     = time.Minute
	maxAnswerAddr = 1 << 10
)

// Controller is a broker's link to the controllers of its set: identity, registration, heartbeats, and what they decide.
// It has a goroutine for decisions, one for the lease, and one for the heartbeats to each controller, so that one that
// hangs holds up nothing else. Start once, Close twice is fine.
type Controller struct {
	cfg    ControllerConfig
	caller Caller
	state  State
	events Events
	log    *slog.Logger
	files  identityFiles

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // poll now
	id     atomic.Int64
	leader atomic.Pointer[string]
	lease  lease

	mu      sync.Mutex
	beating map[string]context.CancelFunc // guarded by mu: heartbeats by address
	known   Grant                         // guarded by mu: the newest that Granted was called with
	have    bool                          // guarded by mu: it was called

	code       string    // of run: check code of the identity
	registered bool      // of run: 1003 was accepted in this process
	stale      time.Time // of run: since when the controller has an older epoch than this broker
	hinted     time.Time // of run
}

// NewController makes a link. It starts nothing.
func NewController(cfg ControllerConfig, caller Caller, state State, events Events, log *slog.Logger) *Controller {
	cfg.defaults()
	c := &Controller{cfg: cfg, caller: caller, state: state, events: events, log: log, files: identityFiles{cfg.FS, cfg.Root},
		kick: make(chan struct{}, 1), beating: map[string]context.CancelFunc{}}
	c.lease.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins to look for a controller. An identity that does not fit the configuration is an error.
func (c *Controller) Start() error {
	id, err := c.files.load(c.cfg.Cluster, c.cfg.Name)
	if err != nil {
		return err
	}
	c.wg.Go(func() { c.run(id) })
	c.wg.Go(func() { c.lease.watch(c.ctx, c.events.Lease) })
	return nil
}

// Close ends the goroutines. The controllers see the connections close.
func (c *Controller) Close() {
	c.cancel()
	c.wg.Wait()
}

// ID is the broker's controller id, 0 before it has one.
func (c *Controller) ID() int64 { return c.id.Load() }

// Leader is the address of the controller that leads, as far as is known; empty: none.
func (c *Controller) Leader() string {
	if p := c.leader.Load(); p != nil {
		return *p
	}
	return ""
}

// Lease says how much longer no other master can be elected; granted is false when the controllers give no lease.
func (c *Controller) Lease() (left time.Duration, granted bool) { return c.lease.left() }

// Poll has the controllers asked at once, as after a notification that roles have changed. A notification itself decides
// nothing: it may be late or foreign.
func (c *Controller) Poll() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Alter asks for another in-sync set under the master epoch and set epoch of g, as the master MasterID of g. The answer is
// what is agreed now; on an error the outcome is unknown until a Granted tells, unless it is a *RefusedError.
func (c *Controller) Alter(ctx context.Context, g Grant) (Grant, error) {
	body, err := fastjson.Marshal(setBody{g.Set, g.SetEpoch})
	if err != nil {
		return Grant{}, err
	}
	a, err := c.ask(ctx, protocol.ReqControllerAlterSyncStateSet, map[string]string{"brokerName": c.cfg.Name, "masterBrokerId": text(g.MasterID),
		"masterEpoch": text(int64(g.Epoch)), "invokeTime": text(time.Now().UnixMilli())}, body)
	if err != nil {
		return Grant{}, err
	}
	var set setBody
	if err := fastjson.Unmarshal(a.Body, &set); err != nil {
		return Grant{}, fmt.Errorf("answer to a change of the in-sync set: %w", err)
	}
	g.Set, g.SetEpoch = set.Set, set.Epoch
	c.mu.Lock()
	if c.have && c.known.Epoch == g.Epoch && c.known.SetEpoch < g.SetEpoch {
		c.known.Set, c.known.SetEpoch = slices.Clone(g.Set), g.SetEpoch
	}
	c.mu.Unlock()
	return g, nil
}

// RefusedError is an answer of the leading controller that is no success.
type RefusedError struct {
	Request, Code int32
	Remark        string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the controller refuses request %s with %s: %s", protocol.RequestName(e.Request), protocol.ResponseName(e.Code), e.Remark)
}

func refusedWith(err error, codes ...int32) bool {
	var r *RefusedError
	return errors.As(err, &r) && slices.Contains(codes, r.Code)
}

type setBody struct {
	Set   []int64 `json:"syncStateSet"`
	Epoch int32   `json:"syncStateSetEpoch"`
}

func text(n int64) string { return strconv.FormatInt(n, 10) }

// run joins the set, then follows what the controllers decide.
func (c *Controller) run(id Identity) {
	pause := firstRetry
	said := ""
	addresses := time.NewTicker(c.cfg.AddressPeriod)
	defer addresses.Stop()
	var addrs []string
	look := true
	for c.ctx.Err() == nil {
		if look || len(addrs) == 0 {
			if list, err := c.cfg.Addrs(c.ctx); err != nil || len(list) == 0 {
				c.log.Warn("the controllers' addresses are not known, the last good ones stay in use", "error", err, "have", addrs)
			} else {
				addrs = list
				c.beat(addrs)
			}
		}
		look = false
		err := c.step(addrs, &id)
		wait := c.cfg.PollPeriod
		if err != nil {
			if c.ctx.Err() != nil {
				return
			}
			if e := err.Error(); e != said {
				c.log.Warn("no agreement with the controllers yet, trying on", "error", err)
				said = e
			}
			wait, pause = pause, min(2*pause, longestRetry)
		} else {
			pause, said = firstRetry, ""
		}
		if err != nil { // whoever kicks does not shorten the first pause
			c.pause(firstRetry)
			wait -= firstRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.kick:
		case <-addresses.C:
			look = true
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

func (c *Controller) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// step goes on from wherever the link stands: a leader, an id, a registration, a role.
func (c *Controller) step(addrs []string, id *Identity) error {
	if c.Leader() == "" {
		if err := c.findLeader(addrs); err != nil {
			return err
		}
		c.beat(addrs)
	}
	if !id.Applied {
		if err := c.apply(id); err != nil {
			return err
		}
	}
	if c.id.Swap(id.ID) == 0 {
		c.code = id.Code
		c.events.Identified(id.ID)
	}
	if !c.registered {
		g, err := c.register(id)
		if err != nil {
			return err
		}
		c.registered = true
		c.beat(addrs)
		// A process that starts never goes on as master by itself: it asks for an election.
		if g.MasterID == 0 || g.MasterID == id.ID {
			return c.elect()
		}
		c.grant(g)
	}
	return c.poll()
}

// findLeader asks every controller at once who leads; the first that knows wins.
func (c *Controller) findLeader(addrs []string) error {
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	type result struct {
		leader string
		err    error
	}
	results := make(chan result, len(addrs))
	for _, addr := range addrs {
		go func() {
			a, err := c.caller.Call(ctx, addr, protocol.NewRequest(protocol.ReqControllerGetMetadataInfo, nil, nil))
			switch {
			case err != nil:
				err = fmt.Errorf("controller %s: %w", addr, err)
			case a.Ext["controllerLeaderAddress"] == "" || len(a.Ext["controllerLeaderAddress"]) > maxAnswerAddr:
				err = fmt.Errorf("controller %s knows no leader", addr)
			default:
				results <- result{a.Ext["controllerLeaderAddress"], nil}
				return
			}
			results <- result{"", err}
		}()
	}
	var errs []error
	for range addrs {
		r := <-results
		if r.err == nil {
			c.leader.Store(&r.leader)
			return nil
		}
		errs = append(errs, r.err)
	}
	return errors.Join(errs...)
}

// ask sends a request to the leader. When it does not lead, or does not answer, it is forgotten.
func (c *Controller) ask(ctx context.Context, code protocol.Code, ext map[string]string, body []byte) (*protocol.Command, error) {
	leader := c.leader.Load()
	if leader == nil || *leader == "" {
		c.Poll()
		return nil, errors.New("no controller is known to lead")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := c.caller.Call(ctx, *leader, protocol.NewRequest(code, ext, body))
	switch {
	case err != nil:
		err = fmt.Errorf("controller %s: %w", *leader, err)
	case a.Code == protocol.Success:
		return a, nil
	default:
		err = &RefusedError{code, a.Code, a.Remark}
		if a.Code != protocol.ControllerNotLeader {
			return a, err
		}
	}
	if c.leader.CompareAndSwap(leader, nil) && c.ctx.Err() == nil {
		c.Poll()
	}
	return nil, err
}

// apply gets an id for a folder that has none. After a claim was made durable the same claim is repeated until it is
// answered: a lost answer burns no id.
func (c *Controller) apply(id *Identity) error {
	name := map[string]string{"clusterName": c.cfg.Cluster, "brokerName": c.cfg.Name}
	if id.ID == 0 {
		a, err := c.ask(c.ctx, protocol.ReqControllerGetNextBrokerID, name, nil)
		if err != nil {
			return err
		}
		next, err := strconv.ParseInt(a.Ext["nextBrokerId"], 10, 64)
		if err != nil || next <= 0 {
			return fmt.Errorf("the controller offers id %.20q", a.Ext["nextBrokerId"])
		}
		claim := Identity{Cluster: c.cfg.Cluster, Name: c.cfg.Name, ID: next, Code: c.cfg.Addr + ";" + text(time.Now().UnixMilli())}
		if err := c.files.claim(claim); err != nil {
			return err
		}
		*id = claim
	}
	if err := c.applyFor(id); err != nil {
		if refusedWith(err, protocol.ControllerBrokerIDInvalid) {
			*id = Identity{}
			return errors.Join(err, c.files.dropClaim())
		}
		return err
	}
	id.Applied = true
	return c.files.confirm(*id)
}

func (c *Controller) applyFor(id *Identity) error {
	_, err := c.ask(c.ctx, protocol.ReqControllerApplyBrokerID, map[string]string{"clusterName": c.cfg.Cluster, "brokerName": c.cfg.Name,
		"appliedBrokerId": text(id.ID), "registerCheckCode": id.Code}, nil)
	return err
}

// register tells the controller where the broker is now.
func (c *Controller) register(id *Identity) (Grant, error) {
	ext := map[string]string{"clusterName": c.cfg.Cluster, "brokerName": c.cfg.Name, "brokerId": text(id.ID), "brokerAddress": c.cfg.Addr,
		"invokeTime": text(time.Now().UnixMilli())}
	if c.cfg.Unclean {
		ext["uncleanRestart"] = "true"
	}
	if c.cfg.Learner {
		ext["asyncLearner"] = "true"
	}
	a, err := c.ask(c.ctx, protocol.ReqControllerRegisterBroker, ext, nil)
	if refusedWith(err, protocol.ControllerBrokerNeedToBeRegistered) {
		if c.cfg.Reapply && c.code != "" {
			c.log.Warn("the controller does not know this broker any more, its id is applied for again", "id", id.ID)
			return Grant{}, errors.Join(err, c.applyFor(id))
		}
		if time.Since(c.hinted) > hintEvery {
			c.hinted = time.Now()
			c.log.Error("the controller does not know this broker's id: its data was lost or reset, or it is another controller; restore it, or set reapplyBrokerIdWhenControllerReset=true to claim the same id again",
				"id", id.ID, "controller", c.Leader())
		}
	}
	if err != nil {
		return Grant{}, err
	}
	return parseGrant(a)
}

// elect asks for a master of the set, which may be another broker.
func (c *Controller) elect() error {
	a, err := c.ask(c.ctx, protocol.ReqControllerElectMaster, map[string]string{"clusterName": c.cfg.Cluster, "brokerName": c.cfg.Name,
		"brokerId": text(c.id.Load()), "designateElect": "false", "invokeTime": text(time.Now().UnixMilli())}, nil)
	if err != nil && !refusedWith(err, protocol.ControllerMasterStillExist) {
		return err
	}
	g, err := parseGrant(a)
	if err != nil {
		return err
	}
	c.grant(g)
	return nil
}

// poll asks what is decided and acts on it.
func (c *Controller) poll() error {
	a, err := c.ask(c.ctx, protocol.ReqControllerGetReplicaInfo, map[string]string{"brokerName": c.cfg.Name}, nil)
	if err != nil {
		if refusedWith(err, protocol.ControllerBrokerMetadataNotExist) {
			c.registered = false
		}
		return err
	}
	g, err := parseGrant(a)
	if err != nil {
		return err
	}
	c.mu.Lock()
	known, have := c.known, c.have
	c.mu.Unlock()
	switch {
	case g.Epoch < known.Epoch:
		if c.stale.IsZero() {
			c.stale = time.Now()
		}
		if time.Since(c.stale) > staleAfter {
			c.stale = time.Now()
			c.log.Error("the controller's epoch of this set is lower than this broker's: its data was reset, or it is another controller", "controller", g.Epoch, "broker", known.Epoch)
		}
		return nil
	case g.MasterID == 0 && (!have || g.Epoch > known.Epoch):
		return c.elect()
	}
	c.stale = time.Time{}
	c.grant(g)
	return nil
}

// grant hands on what is newer than what was handed on before.
func (c *Controller) grant(g Grant) {
	if g.MasterID == 0 {
		return
	}
	c.mu.Lock()
	k := c.known
	newer := !c.have || g.Epoch > k.Epoch || g.Epoch == k.Epoch && (g.SetEpoch > k.SetEpoch || g.SetEpoch == k.SetEpoch && g.MasterAddr != k.MasterAddr)
	if newer {
		c.known, c.have = g, true
	}
	c.mu.Unlock()
	if newer {
		c.events.Granted(g)
	}
}

// parseGrant reads the answers to 1002, 1003 and 1004, which differ in what may be absent.
func parseGrant(a *protocol.Command) (g Grant, err error) {
	number := func(key string, bits int) int64 {
		v := a.Ext[key]
		if v == "" || v == "null" || err != nil {
			return 0
		}
		n, e := strconv.ParseInt(strings.TrimSpace(v), 10, bits)
		if e != nil || n < 0 {
			err = fmt.Errorf("the controller answers %s=%.30q", key, v)
		}
		return n
	}
	g.MasterID = number("masterBrokerId", 64)
	g.Epoch = int32(number("masterEpoch", 32))
	g.SetEpoch = int32(number("syncStateSetEpoch", 32))
	g.MasterAddr = a.Ext["masterAddress"]
	if err != nil {
		return Grant{}, err
	}
	if g.MasterAddr == "" || g.MasterAddr == "null" {
		g.MasterID, g.MasterAddr = 0, ""
	}
	if len(a.Body) > 0 {
		var b setBody
		if err := fastjson.Unmarshal(a.Body, &b); err != nil {
			return Grant{}, fmt.Errorf("in-sync set in the controller's answer: %w", err)
		}
		g.Set = b.Set
		g.SetEpoch = max(g.SetEpoch, b.Epoch)
	}
	return g, nil
}

package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/epochmq/epochmq/controller/machine"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// enqueueTimeout bounds how long a command may wait for Raft to take it.
const enqueueTimeout = 3 * time.Second

// barrierPause is between two attempts of a new leader to see its log applied.
const barrierPause = 50 * time.Millisecond

var errNotLeader = &protocol.Error{Code: protocol.ControllerNotLeader, Remark: "The controller is not in leader state"}

// term is one period in which this controller leads: leases, elections and the watch over sets end with it.
type term struct {
	c      *Controller
	leases *leases
	ctx    context.Context
	cancel context.CancelFunc
	number uint64 // of Raft's term; set before the term is published, as since
	since  time.Time
	wake   chan struct{}

	mu      sync.Mutex
	dirty   map[string]bool          // guarded by mu: sets to think about
	all     bool                     // guarded by mu: every set
	turns   map[string]chan struct{} // guarded by mu: one election at a time per set
	running map[string]bool          // guarded by mu: sets that the watch elects for
	failed  map[string]int           // guarded by mu: elections of the watch in a row that gave no master
}

func newTerm(c *Controller) *term {
	t := &term{c: c, leases: newLeases(), wake: make(chan struct{}, 1), dirty: map[string]bool{}, turns: map[string]chan struct{}{},
		running: map[string]bool{}, failed: map[string]int{}}
	t.ctx, t.cancel = context.WithCancel(c.ctx)
	return t
}

// publish makes requests and the watch use the term, unless it has ended.
func (t *term) publish() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.ctx.Err() != nil {
		return false
	}
	t.c.term.Store(t)
	return true
}

// end makes the term no longer count. Its goroutines end by themselves.
func (t *term) end() {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.cancel()
	t.c.term.CompareAndSwap(t, nil)
}

// confirm calls fn after a majority has confirmed that this controller led, in this term, when confirm was called, or with
// an error. Everything that was answered before then is in the state. fn must not block.
func (t *term) confirm(fn func(error)) {
	t.c.reads.ask(func(err error) {
		if r := t.c.raft.Load(); err == nil && (r == nil || r.CurrentTerm() != t.number || t.ctx.Err() != nil) {
			err = errNotLeader
		}
		fn(err)
	})
}

// run waits until everything committed before was applied, publishes the term, and then watches over the sets.
func (t *term) run() {
	for {
		err := t.barrier()
		if err == nil {
			break
		}
		if t.ctx.Err() != nil || errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown) {
			return
		}
		// A leader that hands over refuses at once.
		t.c.log.Warn("a new leader waits for its log", "error", err)
		if t.outlast(time.Now().Add(barrierPause)) != nil {
			return
		}
	}
	t.since = time.Now()
	if !t.publish() {
		return
	}
	t.c.log.Info("controller leads", "id", t.c.self.ID)
	t.greet()
	t.watch()
}

// barrier waits until everything committed before was applied, in one term of Raft, and notes which.
func (t *term) barrier() error {
	r, done := t.c.use()
	defer done()
	if r == nil || t.ctx.Err() != nil {
		return raft.ErrRaftShutdown
	}
	t.number = r.CurrentTerm()
	if err := r.Barrier(10 * time.Second).Error(); err != nil {
		return err
	}
	if r.CurrentTerm() != t.number {
		return errors.New("leadership was lost and won again meanwhile")
	}
	return nil
}

// greet does what the leader before may have left undone: ids of the configuration, and telling brokers of their masters.
func (t *term) greet() {
	for i := range t.c.opts.Preregister {
		p := &t.c.opts.Preregister[i]
		if s := t.c.fsm.set(p.Broker); s != nil && !slices.ContainsFunc(p.IDs, func(id int64) bool { _, ok := s.Replicas[id]; return !ok }) {
			continue
		}
		if r, err := t.propose(p); err != nil || r.Code != machine.OK {
			t.c.log.Warn("ids of the configuration were not registered", "set", p.Broker, "error", err, "remark", r.Remark)
		}
	}
	state, _ := t.c.fsm.view()
	for _, name := range state.Names() {
		t.tell(state.Set(name))
	}
	t.c.live.keep(func(k brokerKey) bool {
		s := state.Set(k.set)
		if s == nil || s.Cluster != k.cluster {
			return false
		}
		_, ok := s.Replicas[k.id]
		return ok
	})
	t.rescan()
}

// propose commits a command and returns what the machine answered, or an error that is a *protocol.Error when the peer
// should see it as such.
func (t *term) propose(cmd machine.Command) (machine.Result, error) {
	b, err := machine.Encode(cmd)
	if err != nil {
		return machine.Result{}, &protocol.Error{Code: protocol.ControllerInvalidRequest, Remark: err.Error()}
	}
	r, done := t.c.use()
	defer done()
	if r == nil || t.ctx.Err() != nil {
		return machine.Result{}, errNotLeader
	}
	f := r.Apply(b, enqueueTimeout)
	switch err := f.Error(); {
	case err == nil:
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return machine.Result{}, &protocol.Error{Code: protocol.SystemBusy, Remark: "the controller is too busy to take the request"}
	default: // lost, or being handed over: what became of the command is unknown, and every command may be repeated
		return machine.Result{}, errNotLeader
	}
	switch v := f.Response().(type) {
	case machine.Result:
		return v, nil
	case error:
		return machine.Result{}, v
	}
	return machine.Result{}, errors.New("the machine gave no answer")
}

// facts are what this controller knows of the live replicas of a set. asking, if positive, has just sent a request.
func (t *term) facts(s *machine.Set, asking int64) machine.Facts {
	f := machine.Facts{Unclean: t.c.config().EnableElectUncleanMaster}
	if s == nil {
		return f
	}
	f.Alive = t.c.live.facts(s, time.Now())
	if r, ok := s.Replicas[asking]; ok {
		if _, alive := f.Alive[asking]; !alive {
			f.Alive[asking] = machine.Live{Addr: r.Addr, Learner: r.Learner}
		}
	}
	return f
}

// turn waits for the exclusive right to elect for a set.
func (t *term) turn(set string) (release func(), err error) {
	t.mu.Lock()
	ch := t.turns[set]
	if ch == nil {
		ch = make(chan struct{}, 1)
		t.turns[set] = ch
	}
	t.mu.Unlock()
	select {
	case ch <- struct{}{}:
		return func() { <-ch }, nil
	case <-t.ctx.Done():
		return nil, errNotLeader
	}
}

// elect runs one election, after the lease of a master that would be replaced has run out. cmd comes without facts. The
// master of a set is replaced only when it is known to be dead, or when an administrator says by whom.
func (t *term) elect(cmd *machine.Elect) (machine.Result, error) {
	if t.c.fsm.set(cmd.Broker) == nil {
		return t.propose(cmd) // which says so
	}
	release, err := t.turn(cmd.Broker)
	if err != nil {
		return machine.Result{}, err
	}
	defer release()
	asking := int64(0)
	if !cmd.Designate {
		asking = cmd.ID
	}
	s := t.c.fsm.set(cmd.Broker)
	cmd.Facts = t.facts(s, asking)
	if s != nil && s.Master != 0 && !s.Restarted && s.Outcome(cmd) != s.Master {
		if _, alive := cmd.Facts.Alive[s.Master]; !alive && !cmd.Designate {
			if dead, _ := t.dead(s, time.Now()); !dead {
				return machine.Result{}, &protocol.Error{Code: protocol.ControllerElectMasterFailed,
					Remark: "the controller leads only since a moment and does not know yet whether the master lives"}
			}
		}
		unblock := t.leases.block(s.Name)
		defer unblock()
		if err := t.outlast(t.leaseEnd(s)); err != nil {
			return machine.Result{}, err
		}
		cmd.Facts = t.facts(t.c.fsm.set(cmd.Broker), asking)
	}
	r, err := t.propose(cmd)
	if err == nil && r.Elected {
		t.c.log.Info("master elected", "set", r.Set.Name, "master", r.Set.Master, "addr", r.Set.MasterAddr(), "epoch", r.Set.MasterEpoch, "unclean", r.Unclean)
		if r.Unclean {
			t.c.log.Error("the election was unclean: messages that were acknowledged may be lost", "set", r.Set.Name, "master", r.Set.Master, "epoch", r.Set.MasterEpoch)
		}
		t.tell(r.Set)
	}
	return r, err
}

// clean runs a clean-up. One that takes the master away waits for its lease, as an election does.
func (t *term) clean(cmd *machine.Clean) (machine.Result, error) {
	s := t.c.fsm.set(cmd.Broker)
	cmd.Facts = t.facts(s, 0)
	if s == nil || s.Master == 0 || !cmd.Living || len(cmd.IDs) > 0 && !slices.Contains(cmd.IDs, s.Master) {
		return t.propose(cmd)
	}
	release, err := t.turn(cmd.Broker)
	if err != nil {
		return machine.Result{}, err
	}
	defer release()
	unblock := t.leases.block(s.Name)
	defer unblock()
	if err := t.outlast(t.leaseEnd(t.c.fsm.set(cmd.Broker))); err != nil {
		return machine.Result{}, err
	}
	return t.propose(cmd)
}

// leaseEnd is when the master of a set can no longer be acknowledging on its own: at once if the members that an election
// takes from it are needed for its acknowledgements.
func (t *term) leaseEnd(s *machine.Set) time.Time {
	if s == nil || s.Master == 0 {
		return time.Time{}
	}
	k := brokerKey{s.Cluster, s.Name, s.Master}
	e, ok := t.c.live.get(k, time.Now())
	longest := maxLease // of a master that told nothing yet
	if ok && e.known {
		if e.fencing || !e.leased {
			return time.Time{}
		}
		longest = leaseOf(e.silence)
	}
	end := t.leases.end(k)
	if granted := t.since.Add(longest); granted.After(end) { // by the leader before this one
		return granted
	}
	return end
}

func (t *term) outlast(end time.Time) error {
	d := time.Until(end)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ctx.Done():
		return errNotLeader
	}
}

// look marks a set to be thought about.
func (t *term) look(set string) {
	t.mu.Lock()
	t.dirty[set] = true
	t.mu.Unlock()
	t.poke()
}

// rescan marks every set.
func (t *term) rescan() {
	t.mu.Lock()
	t.all = true
	t.mu.Unlock()
	t.poke()
}

func (t *term) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *term) taken() (names []string) {
	t.mu.Lock()
	all := t.all
	names = slices.Sorted(maps.Keys(t.dirty))
	t.all = false
	clear(t.dirty)
	t.mu.Unlock()
	if all {
		state, _ := t.c.fsm.view()
		return state.Names()
	}
	return names
}

// watch starts elections for sets that lost their master, as long as the term lasts.
func (t *term) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	due := map[string]time.Time{} // when to think about a set again
	scan := time.Now().Add(t.scanInterval())
	for {
		now := time.Now()
		if !now.Before(scan) {
			t.rescan()
			scan = now.Add(t.scanInterval())
		}
		names := t.taken()
		for name, at := range due {
			if !now.Before(at) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			delete(due, name)
			act, later := t.consider(name, now)
			if act {
				t.launch(name)
			} else if !later.IsZero() {
				due[name] = later
			}
		}
		next := scan
		for _, at := range due {
			if at.Before(next) {
				next = at
			}
		}
		timer.Reset(max(time.Until(next), time.Millisecond))
		select {
		case <-timer.C:
		case <-t.wake:
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *term) scanInterval() time.Duration {
	return time.Duration(t.c.config().ScanInactiveMasterInterval) * time.Millisecond
}

// dead says whether the master of a set may be taken for dead, and if not, when that may change; a zero time if something
// will tell. A controller that begins to lead may have an empty or an old table: what it did not see itself counts only
// after the longest silence.
func (t *term) dead(s *machine.Set, now time.Time) (dead bool, later time.Time) {
	e, ok := t.c.live.get(brokerKey{s.Cluster, s.Name, s.Master}, now)
	switch {
	case ok && e.state == alive:
		return false, time.Time{}
	case ok && e.state == closed, ok && e.gone.After(t.since):
		return true, time.Time{}
	}
	until := t.since.Add(max(t.c.live.silence(s), defaultSilence))
	return !now.Before(until), until
}

// consider says whether to elect for a set now, or when to think about it again.
func (t *term) consider(name string, now time.Time) (act bool, later time.Time) {
	s := t.c.fsm.set(name)
	if s == nil || !s.Elected {
		return false, time.Time{} // the first master is who asks
	}
	if s.Master != 0 {
		if dead, later := t.dead(s, now); !dead {
			return false, later
		}
	}
	facts := t.facts(s, 0)
	winner := s.Pick(facts)
	if winner == 0 && (s.Master == 0 || len(facts.Alive) == 0) {
		return false, time.Time{} // nobody can follow and nobody would be told; a heartbeat comes back to this
	}
	if s.Master != 0 {
		if end := t.leaseEnd(s); now.Before(end) {
			return false, end
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[name] {
		return false, time.Time{} // looked at again when it ends
	}
	return true, time.Time{}
}

// launch runs an election for the watch.
func (t *term) launch(name string) {
	t.mu.Lock()
	t.running[name] = true
	tries := t.failed[name]
	t.mu.Unlock()
	t.c.spawn(func() {
		if tries > 0 {
			backOff := min(50*time.Millisecond<<min(tries, 8), t.scanInterval())
			if t.outlast(time.Now().Add(backOff)) != nil {
				return
			}
		}
		r, err := t.elect(&machine.Elect{Broker: name, ID: -1})
		settled := err == nil && (r.Code == machine.OK || r.Code == machine.MasterStillExist)
		t.mu.Lock()
		delete(t.running, name)
		if settled {
			delete(t.failed, name)
		} else {
			t.failed[name]++
		}
		t.mu.Unlock()
		if !settled {
			t.c.log.Warn("a set has no master", "set", name, "error", err, "remark", r.Remark)
		}
		t.look(name)
	})
}

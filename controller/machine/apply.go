package machine

import (
	"fmt"
	"slices"
	"strconv"
)

// Response codes of commands, as on the wire.
const (
	OK                   int32 = 0
	FencedMasterEpoch    int32 = 2000
	FencedSyncEpoch      int32 = 2001
	InvalidMaster        int32 = 2002
	InvalidReplicas      int32 = 2003
	MasterNotAvailable   int32 = 2004
	InvalidRequest       int32 = 2005
	BrokerNotAlive       int32 = 2006
	MetadataNotExist     int32 = 2008
	InvalidClean         int32 = 2009
	NeedRegister         int32 = 2010
	MasterStillExist     int32 = 2011
	ElectMasterFailed    int32 = 2012
	AlterSyncStateFailed int32 = 2013
	BrokerIDInvalid      int32 = 2014
)

// Result answers a command.
type Result struct {
	Code   int32
	Remark string

	Set     *Set // as the command left it; nil when unknown or dropped
	Changed bool // the state is another one
	Elected bool // a master of a new epoch
	Unclean bool // and it was not in the in-sync set, or may have lost the end of its log
	Master  bool // Register: the answer may name the master
}

func refuse(t *Set, code int32, format string, args ...any) Result {
	return Result{Code: code, Remark: fmt.Sprintf(format, args...), Set: t}
}

// Apply carries out a command. It never fails: what the rules refuse has a code other than OK and changes nothing, with one
// exception: MasterNotAvailable may have taken the mastership of a dead broker away.
func (s *State) Apply(c Command) Result {
	switch c := c.(type) {
	case *Alter:
		return s.alter(c)
	case *Elect:
		return s.elect(c)
	case *Register:
		return s.register(c)
	case *ApplyID:
		return s.applyID(c)
	case *Clean:
		return s.clean(c)
	case *Preregister:
		return s.preregister(c)
	}
	return Result{}
}

// put makes t the set of its name.
func (s *State) put(t *Set) Result {
	s.sets[t.Name] = t
	return Result{Set: t, Changed: true}
}

func (s *State) alter(c *Alter) Result {
	t := s.sets[c.Broker]
	if t == nil {
		return refuse(nil, AlterSyncStateFailed, "Broker metadata is not existed")
	}
	next := ids(c.Sync)
	no := func(code int32, format string, args ...any) Result {
		return refuse(t, code, "Rejecting alter syncStateSet request because "+format, args...)
	}
	switch {
	case slices.Equal(next, t.Sync):
		return refuse(t, AlterSyncStateFailed, "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet")
	case t.Master == 0 || t.Master != c.Master:
		return no(InvalidMaster, "the current leader is:{%s}, not {%d}", orNull(t.Master), c.Master)
	case t.MasterEpoch != c.MasterEpoch:
		return no(FencedMasterEpoch, "the current master epoch is:{%d}, not {%d}", t.MasterEpoch, c.MasterEpoch)
	case t.SyncEpoch != c.SyncEpoch:
		return no(FencedSyncEpoch, "the current syncStateSet epoch is:{%d}, not {%d}", t.SyncEpoch, c.SyncEpoch)
	case t.Restarted: // a late proposal of the process before: the union that its acks needed ended with it
		return no(InvalidMaster, "the master {%d} has restarted and was not elected since", t.Master)
	}
	for _, id := range next {
		r, known := t.Replicas[id]
		live, alive := c.Facts.Alive[id]
		switch {
		case !known:
			return no(InvalidReplicas, "the replicas {%d} don't exist", id)
		case !alive:
			return no(BrokerNotAlive, "the replicas {%d} don't alive", id)
		case r.Learner || live.Learner:
			return no(InvalidReplicas, "the replica {%d} is a learner", id)
		}
	}
	switch {
	case !slices.Contains(next, t.Master):
		return no(AlterSyncStateFailed, "the newSyncStateSet don't contains origin leader {%d}", t.Master)
	case t.exhausted():
		return no(AlterSyncStateFailed, "the epochs of the set are used up")
	}
	t = t.clone()
	t.Sync = next
	t.SyncEpoch++
	for _, id := range next { // the master compared their logs with its own
		if r := t.Replicas[id]; r.Suspect {
			r.Suspect = false
			t.Replicas[id] = r
		}
	}
	return s.put(t)
}

func orNull(id int64) string {
	if id == 0 {
		return "null"
	}
	return strconv.FormatInt(id, 10)
}

func (s *State) elect(c *Elect) Result {
	t := s.sets[c.Broker]
	if t == nil {
		return refuse(nil, NeedRegister, "Broker hasn't been registered")
	}
	byBroker := c.ID > 0
	if byBroker {
		if _, ok := t.Replicas[c.ID]; !ok {
			return refuse(t, NeedRegister, "BrokerId: %d hasn't been registered in broker-set: %s", c.ID, t.Name)
		}
	}
	preferred := int64(0)
	if c.Designate && byBroker {
		preferred = c.ID
	}
	winner, unclean := t.pick(c.Facts, c.ID, preferred)
	switch {
	case winner != 0 && winner == t.Master && !t.Restarted:
		return refuse(t, MasterStillExist, "The old master %d is still alive, not need to elect new master for broker %s", t.Master, t.Name)
	case winner != 0 && !t.exhausted():
		t = t.clone()
		t.crown(winner, unclean)
		r := s.put(t)
		r.Elected, r.Unclean = true, unclean
		return r
	case byBroker:
		return refuse(t, ElectMasterFailed, "Failed to elect a new master")
	}
	_, alive := c.Facts.Alive[t.Master]
	r := refuse(t, MasterNotAvailable, "Old master has down and failed to elect a new broker master")
	if t.Master != 0 && !alive && !t.exhausted() {
		t = t.clone()
		t.depose()
		s.put(t)
		r.Set, r.Changed = t, true
	}
	return r
}

// crown makes id the master of a new epoch, alone in sync.
func (t *Set) crown(id int64, unclean bool) {
	t.Master, t.Sync = id, []int64{id}
	t.MasterEpoch++
	t.SyncEpoch++
	t.Elected, t.Restarted = true, false
	if unclean {
		t.UncleanEpoch = t.MasterEpoch
	}
	r := t.Replicas[id]
	r.Suspect = false
	t.Replicas[id] = r
}

// depose leaves the set without a master, in a new epoch.
func (t *Set) depose() {
	t.Master, t.Restarted = 0, false
	t.MasterEpoch++
}

func (s *State) register(c *Register) Result {
	t := s.sets[c.Broker]
	if t == nil {
		return refuse(nil, NeedRegister, "Broker-set: %s hasn't been registered in controller", c.Broker)
	}
	old, ok := t.Replicas[c.ID]
	if !ok {
		return refuse(t, NeedRegister, "BrokerId: %d hasn't been registered in broker-set: %s", c.ID, c.Broker)
	}
	if tooLong(c.Addr) {
		return refuse(t, InvalidRequest, "the address has more than %d bytes", MaxText)
	}
	live, alive := c.Facts.Alive[c.ID]
	sameDirectory := c.Code != "" && c.Code == old.Code
	if c.Code != "" && old.Code != "" && !sameDirectory {
		return refuse(t, BrokerIDInvalid, "BrokerId: %d of broker-set: %s belongs to another directory", c.ID, c.Broker)
	}
	if alive && !sameDirectory && live.Addr != "" && live.Addr != c.Addr {
		return refuse(t, BrokerIDInvalid, "BrokerId: %d of broker-set: %s is in use at %s", c.ID, c.Broker, live.Addr)
	}
	next := old
	next.Addr, next.Learner = c.Addr, c.Learner
	if c.Unclean && t.InSync(c.ID) {
		next.Suspect = true
	}
	restarted := t.Restarted || t.Master == c.ID
	r := Result{Set: t}
	if next != old || restarted != t.Restarted {
		t = t.clone()
		t.Replicas[c.ID], t.Restarted = next, restarted
		r = s.put(t)
	}
	_, masterAlive := c.Facts.Alive[t.Master]
	r.Master = t.Master != 0 && masterAlive && !t.Restarted
	return r
}

func (s *State) applyID(c *ApplyID) Result {
	t := s.sets[c.Broker]
	no := func() Result {
		return refuse(t, BrokerIDInvalid, "Fail to apply brokerId: %d in broker-set: %s", c.ID, c.Broker)
	}
	switch {
	case c.ID <= 0 || c.ID >= 1<<53 || c.Code == "" || c.Broker == "":
		return no()
	case tooLong(c.Cluster, c.Broker, c.Addr, c.Code):
		return refuse(t, BrokerIDInvalid, "a name, address or check code has more than %d bytes", MaxText)
	case t == nil && c.ID != s.NextID(c.Broker) && !c.Reclaim:
		return refuse(nil, BrokerIDInvalid, "Broker-set: %s hasn't been registered in controller, but broker try to apply brokerId: %d", c.Broker, c.ID)
	case t == nil && s.full(c.Broker):
		return refuse(nil, BrokerIDInvalid, "the controller holds %d broker sets and takes no more", MaxSets)
	case t == nil:
		t = s.create(c.Cluster, c.Broker)
	case c.Cluster != "" && t.Cluster != c.Cluster:
		return refuse(t, BrokerIDInvalid, "Broker-set: %s belongs to cluster %s, not %s", c.Broker, t.Cluster, c.Cluster)
	default:
		old, ok := t.Replicas[c.ID]
		switch {
		case ok && old.Code == c.Code:
			return Result{Set: t} // a repetition
		case ok && old.Code != "", !ok && c.ID != t.Next && !c.Reclaim:
			return no()
		case !ok && len(t.Replicas) >= MaxReplicas:
			return refuse(t, BrokerIDInvalid, "Broker-set: %s has %d ids and takes no more", c.Broker, MaxReplicas)
		}
		t = t.clone()
	}
	t.Replicas[c.ID] = Replica{Addr: c.Addr, Code: c.Code}
	t.Next = max(t.Next, c.ID+1)
	return s.put(t)
}

func (s *State) clean(c *Clean) Result {
	t := s.sets[c.Broker]
	if !c.Living {
		if len(c.IDs) == 0 && t != nil && t.Master != 0 {
			return refuse(t, InvalidClean, "Broker %s is still alive, clean up failure", c.Broker)
		}
		for _, id := range c.IDs {
			if _, alive := c.Facts.Alive[id]; alive {
				return refuse(t, InvalidClean, "Broker [%s,  %d] is still alive, clean up failure", c.Broker, id)
			}
		}
	}
	if t == nil || c.Cluster != "" && c.Cluster != t.Cluster {
		return refuse(t, InvalidClean, "Broker %s is not existed,clean broker data failure.", c.Broker)
	}
	if t.exhausted() {
		return refuse(t, InvalidClean, "the epochs of broker-set %s are used up", c.Broker)
	}
	t = t.clone()
	if len(c.IDs) == 0 {
		clear(t.Replicas)
	}
	for _, id := range c.IDs {
		delete(t.Replicas, id)
	}
	kept := slices.DeleteFunc(slices.Clone(t.Sync), func(id int64) bool { _, ok := t.Replicas[id]; return !ok })
	if len(kept) < len(t.Sync) {
		t.Sync = kept
		t.SyncEpoch++
	}
	if _, ok := t.Replicas[t.Master]; t.Master != 0 && !ok {
		t.depose()
	}
	if len(t.Replicas) > 0 {
		return s.put(t)
	}
	delete(s.sets, t.Name)
	s.tombs[t.Name] = Tombstone{Next: t.Next, MasterEpoch: t.MasterEpoch, SyncEpoch: t.SyncEpoch, UncleanEpoch: t.UncleanEpoch}
	return Result{Changed: true}
}

func (s *State) preregister(c *Preregister) Result {
	t := s.sets[c.Broker]
	all := ids(c.IDs)
	switch {
	case c.Broker == "" || len(all) == 0 || all[0] <= 0 || all[len(all)-1] >= 1<<53 || len(all) > MaxReplicas || tooLong(c.Cluster, c.Broker):
		return refuse(t, InvalidRequest, "ids of broker-set %s are out of range", c.Broker)
	case t == nil && s.full(c.Broker):
		return refuse(nil, BrokerIDInvalid, "the controller holds %d broker sets and takes no more", MaxSets)
	case t == nil:
		t = s.create(c.Cluster, c.Broker)
	default:
		t = t.clone()
	}
	changed := false
	for _, id := range all {
		if _, ok := t.Replicas[id]; !ok && len(t.Replicas) < MaxReplicas {
			t.Replicas[id] = Replica{}
			t.Next = max(t.Next, id+1)
			changed = true
		}
	}
	if !changed {
		return Result{Set: s.sets[c.Broker]}
	}
	return s.put(t)
}

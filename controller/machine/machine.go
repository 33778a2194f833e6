// Package machine is the replicated state of the controller: which brokers belong to which set, who is master in which
// epoch, and which replicas are in sync.
//
// The main type is State. Commands are applied to it in the order of the log, on every controller alike, and every rule is
// checked there: what a leader believed when it proposed a command counts only as far as the command carries it as a fact
// (who was alive, how far each replica was). The package knows no clock, disk, socket, goroutine or lock; controller feeds
// it from Raft and answers requests with its results.
//
// Invariants, checked by the properties in the tests: epochs of a set only grow, also when the set was dropped and came
// back; an epoch has at most one master; a master is a registered replica and a member of its in-sync set; an id is given
// to one directory only; the in-sync set changes only by compare-and-set or by an election.
package machine

import (
	"maps"
	"math"
	"slices"
)

// Limits of what a state may hold, so that nobody on the network can let it grow without bound.
const (
	MaxSets     = 1 << 16 // broker sets, dropped ones included
	MaxReplicas = 1 << 10 // ids in a set
	MaxText     = 1 << 10 // bytes of a name, address or check code
)

// Replica is one broker of a set.
type Replica struct {
	Addr    string `json:"addr"`
	Code    string `json:"code"`              // says which directory the id belongs to; empty: not claimed yet
	Learner bool   `json:"learner,omitempty"` // never in sync, never elected
	Suspect bool   `json:"suspect,omitempty"` // may have lost the end of its log; see Set.pick
}

// Set is a broker set. A Set that a State gave away is never changed, so it may be read without a lock.
type Set struct {
	Cluster  string
	Name     string
	Next     int64 // id that is given next; above every id ever given
	Replicas map[int64]Replica

	Master       int64 // 0: none
	MasterEpoch  int32
	SyncEpoch    int32
	Sync         []int64 // ascending
	UncleanEpoch int32   // newest epoch whose master was not in the in-sync set before, 0: none
	Elected      bool    // had a master since it was created
	Restarted    bool    // the master's process registered again and was not elected since
}

// InSync says whether a replica is in the in-sync set.
func (t *Set) InSync(id int64) bool { _, ok := slices.BinarySearch(t.Sync, id); return ok }

// MasterAddr is the address of the master, empty when there is none.
func (t *Set) MasterAddr() string { return t.Replicas[t.Master].Addr }

// IDs lists the ids of the replicas, ascending.
func (t *Set) IDs() []int64 { return slices.Sorted(maps.Keys(t.Replicas)) }

// Addrs are the addresses by id, in a new map.
func (t *Set) Addrs() map[int64]string {
	m := make(map[int64]string, len(t.Replicas))
	for id, r := range t.Replicas {
		m[id] = r.Addr
	}
	return m
}

func (t *Set) clone() *Set {
	c := *t
	c.Replicas = maps.Clone(t.Replicas)
	c.Sync = slices.Clone(t.Sync)
	return &c
}

// Tombstone is what stays of a dropped set: ids and epochs go on from here if it comes back, because directories and logs
// out there still carry the old ones.
type Tombstone struct {
	Next         int64 `json:"next"`
	MasterEpoch  int32 `json:"masterEpoch"`
	SyncEpoch    int32 `json:"syncEpoch"`
	UncleanEpoch int32 `json:"uncleanEpoch,omitempty"`
}

// State is everything that is replicated. It is not safe for concurrent use.
type State struct {
	sets  map[string]*Set
	tombs map[string]Tombstone
}

// New is an empty state.
func New() *State { return &State{sets: map[string]*Set{}, tombs: map[string]Tombstone{}} }

// Clone is a copy that later commands do not change. It costs two maps: sets are shared, being never changed.
func (s *State) Clone() *State { return &State{sets: maps.Clone(s.sets), tombs: maps.Clone(s.tombs)} }

// Set finds a broker set; nil when it is unknown.
func (s *State) Set(name string) *Set { return s.sets[name] }

// Names lists the broker sets, ascending.
func (s *State) Names() []string { return slices.Sorted(maps.Keys(s.sets)) }

// Len is the number of broker sets.
func (s *State) Len() int { return len(s.sets) }

// NextID is the id that the next new directory of a set gets. It is not reserved.
func (s *State) NextID(name string) int64 {
	if t := s.sets[name]; t != nil {
		return t.Next
	}
	if tomb, ok := s.tombs[name]; ok {
		return tomb.Next
	}
	return 1
}

// create adds an empty set, which goes on where a dropped one ended.
func (s *State) create(cluster, name string) *Set {
	tomb, ok := s.tombs[name]
	if !ok {
		tomb.Next = 1
	}
	delete(s.tombs, name)
	t := &Set{Cluster: cluster, Name: name, Next: tomb.Next, Replicas: map[int64]Replica{}, Sync: []int64{},
		MasterEpoch: tomb.MasterEpoch, SyncEpoch: tomb.SyncEpoch, UncleanEpoch: tomb.UncleanEpoch}
	s.sets[name] = t
	return t
}

// full says that no set can be added.
func (s *State) full(name string) bool {
	_, dropped := s.tombs[name]
	return !dropped && s.sets[name] == nil && len(s.sets)+len(s.tombs) >= MaxSets
}

// exhausted says that an epoch of the set cannot grow any more.
func (t *Set) exhausted() bool {
	return t.MasterEpoch == math.MaxInt32 || t.SyncEpoch == math.MaxInt32
}

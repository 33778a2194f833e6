// Package syncset is the in-sync set of a master in controller mode: which replicas hold every committed byte, which change of
// the set to ask the controller for, and how far the log is committed.
//
// The main type is Set. ha.AutoMaster tells it what happens (connections, acks, answers of the controller) and asks it what
// follows. It has no clock, goroutine or lock: time is an argument and the caller serialises.
//
// Rules: docs/formats/ha-frames.md names the messages; ha/DESIGN.md lists the invariants I5, I8 to I11, which the tests here check.
package syncset

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epochmq/epochmq/message"
)

// Times that have no configuration key.
const (
	// JoinLag is how far behind a replica may be to be taken along: its acks are then waited for until it has everything
	// that is committed and can be proposed.
	JoinLag = time.Second
	// RetryAfter is the pause behind a proposal that was refused or not answered.
	RetryAfter = time.Second
	// Settle is how long a proposal without an answer may still come into force. It is longer than a request lives.
	Settle = 10 * time.Second
)

// ErrAboveEnd is an ack of bytes that the master does not have. The replica is not to be believed.
var ErrAboveEnd = errors.New("ack above the end of the log")

// Config is what does not change in a term. All fields but MinInSync must be set.
type Config struct {
	Self       int64             // controller id of the master
	EpochStart message.LogOffset // of the term's epoch
	MinInSync  int               // minInSyncReplicas
	AllAck     bool              // allAckInSyncStateSet: committed means held by all; otherwise by the master
	MaxLag     time.Duration     // haMaxTimeSlaveNotCatchup: a member that was not caught up for so long leaves
}

// Agreed is a set that the controller has decided on.
type Agreed struct {
	Members  []int64
	SetEpoch int32
}

// Proposal is a set to ask for; it comes into force only if the controller's set still has SetEpoch.
type Proposal struct {
	Members  []int64 // ascending
	SetEpoch int32
}

// replica is one id that has ever connected, or that is a member.
type replica struct {
	serial    uint64 // of the newest connection
	connected bool
	learner   bool
	heard     bool              // an ack came on this connection
	lost      bool              // it is a member and came back without committed bytes
	acked     message.LogOffset // on this connection
	caught    time.Time         // it had everything that the log had then
	isCaught  bool              // caught was set on this connection
	since     time.Time         // when the id became known or a member

	// The end of the log as seen at markAt: an ack at or above it proves that the replica was caught up then.
	marked bool
	mark   message.LogOffset
	markAt time.Time
}

// Set is the in-sync set in one term.
//
// Invariant: every set that the controller may have decided on is a part of all, and confirm never passed the acks of all
// of it.
type Set struct {
	cfg      Config
	local    []int64 // agreed, ascending, with Self
	setEpoch int32
	pending  *Proposal // sent, not answered
	maybe    []ghost   // sent, answer unknown: may still come into force
	joining  []int64   // waited for, not yet proposed
	all      []int64   // union of these, kept by changed
	replicas map[int64]*replica
	serial   uint64

	own     message.LogOffset // the master's share of the confirm offset
	end     message.LogOffset // of the master's log
	confirm message.LogOffset
	frozen  bool
	quiet   time.Time // no proposal before
}

type ghost struct {
	members []int64
	at      time.Time
}

// New is the set at the beginning of a term. confirm is the confirm offset of the log as it is, agreed what the election said.
func New(cfg Config, agreed Agreed, confirm message.LogOffset, now time.Time) *Set {
	s := &Set{cfg: cfg, replicas: make(map[int64]*replica), confirm: confirm, setEpoch: agreed.SetEpoch}
	s.adopt(agreed.Members, now)
	return s
}

func (s *Set) adopt(members []int64, now time.Time) {
	before := s.local
	s.local = normal(append(slices.Clone(members), s.cfg.Self))
	for _, id := range s.local {
		if id == s.cfg.Self {
			continue
		}
		r := s.replicas[id]
		if r == nil {
			r = &replica{}
			s.replicas[id] = r
		}
		if !slices.Contains(before, id) {
			r.since = now
		}
	}
	for id, r := range s.replicas {
		r.lost = r.lost && slices.Contains(s.local, id)
	}
	s.joining = slices.DeleteFunc(s.joining, func(id int64) bool { return slices.Contains(s.local, id) })
	s.changed()
}

func normal(ids []int64) []int64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Grow says that the log ends at end and that the master's own share of the confirm offset, what it has written or flushed,
// is own.
func (s *Set) Grow(own, end message.LogOffset) {
	s.own, s.end = max(s.own, own), max(s.end, end)
	s.advance()
}

// Connect says that a replica has a new connection, which replaces an older one, and returns what that connection passes to
// Ack and Disconnect.
func (s *Set) Connect(id int64, learner bool, now time.Time) (serial uint64) {
	s.serial++
	r := s.replicas[id]
	if r == nil {
		r = &replica{since: now}
		s.replicas[id] = r
	}
	r.serial, r.connected, r.learner = s.serial, true, learner
	r.heard, r.acked, r.marked, r.isCaught = false, 0, false, false
	s.leaveJoining(id)
	return s.serial
}

// Disconnect says that a connection has ended. It counts only if it was the replica's newest.
func (s *Set) Disconnect(id int64, serial uint64) {
	r := s.replicas[id]
	if r == nil || r.serial != serial || !r.connected {
		return
	}
	r.connected, r.heard, r.isCaught = false, false, false
	s.leaveJoining(id)
	if !slices.Contains(s.all, id) {
		delete(s.replicas, id)
	}
	s.advance() // a replica that was waited for, but not proposed, is not waited for any more
}

func (s *Set) leaveJoining(id int64) {
	s.joining = slices.DeleteFunc(s.joining, func(j int64) bool { return j == id })
	s.changed()
}

// Ack says that a replica holds everything below off. The first ack of a connection is what it asks for. ErrAboveEnd: it
// changed nothing and the connection is to be closed.
func (s *Set) Ack(id int64, serial uint64, off message.LogOffset, now time.Time) error {
	r := s.replicas[id]
	if r == nil || r.serial != serial || !r.connected {
		return nil
	}
	if off > s.end {
		return fmt.Errorf("%w: %d acked %d, the end is %d", ErrAboveEnd, id, off, s.end)
	}
	if !r.heard {
		r.heard = true
		// It holds less than what it once vouched for: committed bytes are gone there.
		r.lost = off < s.confirm && slices.Contains(s.all, id)
	}
	r.acked = max(r.acked, off)
	if r.acked >= s.confirm {
		r.lost = false
	}
	s.noteCaught(r, now)
	s.maybeJoin(id, r, now)
	s.advance()
	return nil
}

// noteCaught remembers the last time at which the replica had everything. The mark is replaced only when an ack has
// reached it, so that a replica that is always a little behind counts as caught up.
func (s *Set) noteCaught(r *replica, now time.Time) {
	switch {
	case r.acked >= s.end:
		r.caught, r.isCaught = now, true
	case r.marked && r.acked >= r.mark:
		r.caught, r.isCaught = r.markAt, true
	case r.marked:
		return
	}
	r.marked, r.mark, r.markAt = true, s.end, now
}

// near reports whether a replica could become a member soon.
func (s *Set) near(r *replica, now time.Time) bool {
	return r.connected && !r.learner && r.isCaught && now.Sub(r.caught) <= JoinLag && r.acked >= s.cfg.EpochStart
}

// maybeJoin begins to wait for a replica that is close behind. Without that, the confirm offset of a busy master would always
// be ahead of it.
func (s *Set) maybeJoin(id int64, r *replica, now time.Time) {
	if s.cfg.AllAck && !s.frozen && id != s.cfg.Self && s.near(r, now) && !slices.Contains(s.all, id) {
		s.joining = append(s.joining, id)
		s.changed()
	}
}

// ready reports whether a replica may be proposed. (I9)
func (s *Set) ready(r *replica, now time.Time) bool {
	return s.near(r, now) && (!s.cfg.AllAck || r.acked >= s.confirm)
}

// changed keeps all: members, those of proposals that may come into force, those about to be proposed.
func (s *Set) changed() { s.all = normal(append(s.mayBeMembers(), s.joining...)) }

// mayBeMembers are the ids that are, or may be without our knowing, members at the controller.
func (s *Set) mayBeMembers() []int64 {
	u := slices.Clone(s.local)
	if s.pending != nil {
		u = append(u, s.pending.Members...)
	}
	for _, g := range s.maybe {
		u = append(u, g.members...)
	}
	return normal(u)
}

// advance raises the confirm offset as far as the acks allow. (I5)
func (s *Set) advance() {
	if s.frozen {
		return
	}
	to := s.own
	if s.cfg.AllAck {
		for _, id := range s.all {
			if id == s.cfg.Self {
				continue
			}
			r := s.replicas[id]
			if r == nil || !r.connected || !r.heard {
				return
			}
			to = min(to, r.acked)
		}
	}
	s.confirm = max(s.confirm, to)
}

// Confirm is the offset below which the log is committed. It never goes down.
func (s *Set) Confirm() message.LogOffset { return s.confirm }

// Freeze stops the confirm offset, joining and proposals: the term is over, or its lease has run out.
func (s *Set) Freeze() { s.frozen = true }

// Thaw undoes Freeze when the lease was renewed.
func (s *Set) Thaw() {
	s.frozen = false
	s.advance()
}

// Acked is the offset up to which n distinct replicas, the master and no learners among them, hold the log; false when there
// are not that many. (I11)
func (s *Set) Acked(n int) (message.LogOffset, bool) {
	if n <= 1 {
		return s.end, true
	}
	var acks [16]message.LogOffset
	list := acks[:0]
	for _, r := range s.replicas {
		if r.connected && r.heard && !r.learner {
			list = append(list, r.acked)
		}
	}
	if len(list) < n-1 {
		return 0, false
	}
	slices.Sort(list)
	return list[len(list)-(n-1)], true
}

// InSync is how many replicas count when a message is to be accepted: the members with a living connection and the master,
// of the agreed set, or of all that may be members while a change is under way.
func (s *Set) InSync() int {
	n := 0
	for _, id := range s.mayBeMembers() {
		if r := s.replicas[id]; id == s.cfg.Self || r != nil && r.connected && r.heard {
			n++
		}
	}
	return n
}

// Members is the agreed set.
func (s *Set) Members() Agreed { return Agreed{slices.Clone(s.local), s.setEpoch} }

// Union is every id whose acks are waited for, ascending.
func (s *Set) Union() []int64 { return slices.Clone(s.all) }

// Joining reports whether somebody is waited for who is not proposed yet: Propose should then be asked often.
func (s *Set) Joining() bool { return len(s.joining) > 0 }

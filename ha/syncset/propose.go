package syncset

import (
	"cmp"
	"slices"
	"time"
)

// Propose returns a change to ask the controller for, if there is one. The answer must be told by Applied, Refused or
// Unknown before there is another one. (I8)
func (s *Set) Propose(now time.Time) (Proposal, bool) {
	s.dropStalled(now)
	if s.frozen || s.pending != nil || now.Before(s.quiet) {
		return Proposal{}, false
	}
	want := s.wanted(now)
	if slices.Equal(want, s.local) {
		return Proposal{}, false
	}
	s.pending = &Proposal{want, s.setEpoch}
	s.changed()
	return Proposal{slices.Clone(want), s.setEpoch}, true
}

// dropStalled ends the wait for replicas that fell behind before they could be proposed.
func (s *Set) dropStalled(now time.Time) {
	n := len(s.joining)
	s.joining = slices.DeleteFunc(s.joining, func(id int64) bool { return now.Sub(s.replicas[id].caught) > 2*JoinLag })
	if len(s.joining) < n {
		s.changed()
		s.advance()
	}
}

// wanted is the set that should be. Members that lost committed bytes go, whatever the floor. Other members go when they
// have no connection or did not keep up, unless too few would be left: a master that all must ack for gains nothing by
// going below the minimum, and a member that holds everything would lose its vote. (I9, I10)
func (s *Set) wanted(now time.Time) []int64 {
	want := []int64{s.cfg.Self}
	var doubtful []*member
	for _, id := range s.local {
		if id == s.cfg.Self {
			continue
		}
		switch r := s.replicas[id]; {
		case r.lost:
		case s.healthy(r, now):
			want = append(want, id)
		default:
			doubtful = append(doubtful, &member{id, r})
		}
	}
	for id, r := range s.replicas {
		if !slices.Contains(s.local, id) && s.ready(r, now) {
			want = append(want, id)
		}
	}
	floor := 1
	if s.cfg.AllAck {
		floor = s.cfg.MinInSync
	}
	slices.SortFunc(doubtful, func(a, b *member) int {
		return cmp.Or(b.caught.Compare(a.caught), cmp.Compare(a.id, b.id))
	})
	for _, m := range doubtful {
		if len(want) >= floor {
			break
		}
		want = append(want, m.id)
	}
	return normal(want)
}

type member struct {
	id int64
	*replica
}

// healthy: a member stays. One that has not connected in this term yet is given MaxLag.
func (s *Set) healthy(r *replica, now time.Time) bool {
	if r.serial != 0 && !r.connected {
		return false
	}
	last := r.since
	if r.caught.After(last) {
		last = r.caught
	}
	return now.Sub(last) <= s.cfg.MaxLag
}

// Applied says what the controller's set is: its answer to a proposal, or something newer. Late news change nothing.
func (s *Set) Applied(a Agreed, now time.Time) {
	if a.SetEpoch <= s.setEpoch {
		return
	}
	s.setEpoch = a.SetEpoch
	s.pending, s.maybe, s.quiet = nil, nil, time.Time{} // they were for an older set, so they can never come into force
	s.adopt(a.Members, now)
	s.advance()
}

// Refused says that the controller has looked at the pending proposal and will not apply it.
func (s *Set) Refused(now time.Time) {
	if s.pending == nil {
		return
	}
	s.pending = nil
	s.quiet = now.Add(RetryAfter)
	s.changed()
	s.advance()
}

// Unknown says that the pending proposal got no answer. Until the outcome is seen its members are waited for.
func (s *Set) Unknown(now time.Time) {
	if s.pending == nil {
		return
	}
	s.maybe = append(s.maybe, ghost{s.pending.Members, now})
	s.pending = nil
	s.quiet = now.Add(RetryAfter)
}

// Polled says what the controller's set was when it was asked, at a moment not before asked. An unchanged set ends the wait
// for proposals that have been without an answer for so long that they cannot arrive any more.
func (s *Set) Polled(a Agreed, asked, now time.Time) {
	if a.SetEpoch > s.setEpoch {
		s.Applied(a, now)
		return
	}
	if a.SetEpoch < s.setEpoch {
		return
	}
	s.maybe = slices.DeleteFunc(s.maybe, func(g ghost) bool { return asked.Sub(g.at) >= Settle })
	s.changed()
	s.advance()
}

package machine

import "slices"

// Pick tells who would become master, 0 for nobody, if the controller asked with these facts. The master that is there
// already counts.
func (t *Set) Pick(f Facts) int64 {
	id, _ := t.pick(f, 0, 0)
	return id
}

// pick chooses a master. asking is the replica that asks, preferred the only one that will do; 0 for neither.
//
// The first master of a set is the one that asks, unless a live replica has a longer log (the controller lost its data, or
// the set is made of old directories). Later ones come from the in-sync set: a live master stays unless its process
// restarted, else the best of the live members wins. A suspect, which may have lost the end of its log, is electable only
// when every member is alive, so that whoever has that end takes part. Only when all of them fail, and the operator allows
// it, a replica from outside, or a suspect, becomes master: an unclean election.
func (t *Set) pick(f Facts, asking, preferred int64) (id int64, unclean bool) {
	if !t.Elected {
		if asking <= 0 || !t.electable(asking, f) {
			return 0, false
		}
		if preferred != 0 {
			return preferred, false
		}
		best := t.best(t.IDs(), f)
		if better(f.Alive[best], f.Alive[asking]) {
			return best, false
		}
		return asking, false
	}
	whole := !slices.ContainsFunc(t.Sync, func(id int64) bool { _, alive := f.Alive[id]; return !alive })
	members := slices.DeleteFunc(slices.Clone(t.Sync), func(id int64) bool { return t.Replicas[id].Suspect && !whole })
	if id := t.choose(members, f, preferred); id != 0 {
		return id, false
	}
	if !f.Unclean {
		return 0, false
	}
	id = t.choose(t.IDs(), f, preferred)
	return id, id != 0
}

// choose is the policy over a list of candidates.
func (t *Set) choose(list []int64, f Facts, preferred int64) int64 {
	keep := t.Master != 0 && !t.Restarted && slices.Contains(list, t.Master) && t.electable(t.Master, f)
	switch {
	case keep && (preferred == 0 || preferred == t.Master):
		return t.Master
	case preferred != 0 && slices.Contains(list, preferred) && t.electable(preferred, f):
		return preferred
	case preferred != 0:
		return 0
	}
	return t.best(list, f)
}

func (t *Set) electable(id int64, f Facts) bool {
	r, known := t.Replicas[id]
	live, alive := f.Alive[id]
	return known && alive && !r.Learner && !live.Learner
}

// best is the electable one with the longest log, 0 for none. list is ascending, so the lower id wins a tie.
func (t *Set) best(list []int64, f Facts) (best int64) {
	for _, id := range list {
		if !t.electable(id, f) {
			continue
		}
		if best == 0 {
			best = id
			continue
		}
		a, b := f.Alive[id], f.Alive[best]
		switch {
		case better(a, b):
			best = id
		case better(b, a):
		case t.Replicas[id].Suspect != t.Replicas[best].Suspect:
			if t.Replicas[best].Suspect {
				best = id
			}
		case a.Known && a.Priority < b.Priority:
			best = id
		}
	}
	return best
}

// better says that a has more of the log than b. Who told nothing yet comes last.
func better(a, b Live) bool {
	switch {
	case a.Known != b.Known:
		return a.Known
	case a.Epoch != b.Epoch:
		return a.Epoch > b.Epoch
	}
	return a.End > b.End
}

// Outcome tells whom an election would make master, 0 for nobody.
func (t *Set) Outcome(c *Elect) int64 {
	preferred := int64(0)
	if c.Designate && c.ID > 0 {
		preferred = c.ID
	}
	id, _ := t.pick(c.Facts, c.ID, preferred)
	return id
}

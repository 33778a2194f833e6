package group

import "time"

// scanEvery is how often silent clients are looked for.
const scanEvery = 10 * time.Second

// changedLocked remembers that the members of the group are to be told. Changes that come while the goroutine tells
// others fall together.
func (r *Registry) changedLocked(name string, g *consumerGroup) {
	if g.model == Broadcasting {
		return
	}
	r.changed[name] = true
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run owns telling and expiring.
func (r *Registry) run() {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.kick:
			r.tell()
		case <-tick.C:
			r.expire(time.Now())
		}
	}
}

func (r *Registry) tell() {
	r.mu.Lock()
	changed := r.changed
	r.changed = map[string]bool{}
	r.mu.Unlock()
	for name := range changed {
		c := r.Online(name)
		if c == nil || !r.notify(name) {
			continue
		}
		told := make(map[Peer]bool, len(c.clients))
		for _, m := range c.clients {
			if !told[m.Peer] {
				told[m.Peer] = true
				m.Peer.NotifyChanged(name)
			}
		}
	}
}

// expire drops every client that has been silent for the expiry and closes its connection.
func (r *Registry) expire(now time.Time) {
	var silent []Peer
	r.mu.Lock()
	stale := func(list []*Client) {
		for _, c := range list {
			if now.Sub(c.Seen) > r.expiry {
				silent = append(silent, c.Peer)
			}
		}
	}
	for name, g := range r.consumers {
		before := len(silent)
		stale(g.list)
		for _, p := range silent[before:] {
			r.leaveLocked(p, name)
		}
	}
	for name, m := range r.producers {
		before := len(silent)
		stale(m.list)
		for _, p := range silent[before:] {
			r.leaveProducerLocked(p, name)
		}
	}
	var closing []Peer
	for _, p := range silent {
		if pg := r.byPeer[p]; pg != nil && len(pg.consumers) == 0 && len(pg.producers) == 0 {
			delete(r.byPeer, p)
			closing = append(closing, p)
		}
	}
	r.mu.Unlock()
	for _, p := range closing {
		p.CloseBecause("no heartbeat")
	}
}

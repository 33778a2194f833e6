package group

import "github.com/epochmq/epochmq/remoting/protocol"

// What connections may make the registry hold. Clients are in a handful of groups with a handful of topics each; the limits
// are for those that lie.
const (
	maxMemberName   = 255     // bytes of a client id, and of the name of a producer group
	maxGroupsOfPeer = 1024    // groups of one connection
	maxMemberships  = 1 << 18 // of all connections
	maxGroupWeight  = 1 << 14 // of the subscriptions of one heartbeat
	maxWeight       = 1 << 18 // of the subscriptions of all groups
	textOfWeight    = 256     // bytes of text that count as one more subscription
)

// weight is what a subscription counts for.
func (s *subscriptionEntry) weight() int {
	text := len(s.Topic) + len(s.Expression) + len(s.Type) + 4*len(s.Codes)
	for _, tag := range s.Tags {
		text += len(tag) + 16
	}
	return 1 + text/textOfWeight
}

func (s *Subscription) weight() int {
	e := subscriptionEntry{Topic: s.Topic, Expression: s.Expression, Type: s.Type, Tags: s.Tags, Codes: s.Codes}
	return e.weight()
}

// weighLocked notes what the subscriptions of a group weigh now.
func (r *Registry) weighLocked(g *consumerGroup) {
	r.weight -= g.weight
	g.weight = 0
	for _, s := range g.subs {
		g.weight += s.weight()
	}
	r.weight += g.weight
}

func (r *Registry) enterLocked(groups map[string]bool, name string) {
	if !groups[name] {
		groups[name] = true
		r.joined++
	}
}

func (r *Registry) leftLocked(groups map[string]bool, name string) {
	if groups[name] {
		delete(groups, name)
		r.joined--
	}
}

// admit refuses a heartbeat that asks for too much, before any part of it takes effect. Heartbeats that come at the same
// time may exceed the limits of all connections by what each of them holds.
func (r *Registry) admit(p Peer, hb *heartbeat) error {
	if len(hb.ClientID) > maxMemberName {
		return protocol.Errorf(protocol.SystemError, "heartbeat refused: the clientID has %d bytes, %d are allowed", len(hb.ClientID), maxMemberName)
	}
	if n := len(hb.Consumers) + len(hb.Producers); n > maxGroupsOfPeer {
		return tooMany("groups of one client", n, maxGroupsOfPeer)
	}
	weight := 0
	for i := range hb.Consumers {
		for j := range hb.Consumers[i].Subs {
			weight += hb.Consumers[i].Subs[j].weight()
		}
	}
	if weight > maxGroupWeight {
		return tooMany("subscriptions and their text in one heartbeat", weight, maxGroupWeight)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var in peerGroups
	if pg := r.byPeer[p]; pg != nil {
		in = *pg
	}
	fresh, held := 0, 0
	for i := range hb.Consumers {
		if !in.consumers[hb.Consumers[i].Group] {
			fresh++
		}
		if g := r.consumers[hb.Consumers[i].Group]; g != nil {
			held += g.weight
		}
	}
	for i := range hb.Producers {
		if !in.producers[hb.Producers[i].Group] {
			fresh++
		}
	}
	switch n := len(in.consumers) + len(in.producers) + fresh; {
	case fresh > 0 && n > maxGroupsOfPeer:
		return tooMany("groups of one client", n, maxGroupsOfPeer)
	case fresh > 0 && r.joined+fresh > maxMemberships:
		return tooMany("members of all groups", r.joined+fresh, maxMemberships)
	case weight > held && r.weight+weight-held > maxWeight:
		return tooMany("subscriptions of all groups", r.weight+weight-held, maxWeight)
	}
	return nil
}

func tooMany(what string, n, most int) error {
	return protocol.Errorf(protocol.SystemError, "heartbeat refused: %s: %d of at most %d", what, n, most)
}

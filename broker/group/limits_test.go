package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type limitPeer struct{ id int }

func (limitPeer) Addr() string         { return "" }
func (limitPeer) NotifyChanged(string) {}
func (limitPeer) CloseBecause(string)  {}

func groupsNamed(prefix string, n int) (list []consumerEntry) {
	for i := range n {
		list = append(list, consumerEntry{Group: fmt.Sprint(prefix, i)})
	}
	return list
}

func subscriptionsOf(n, text int) (list []subscriptionEntry) {
	for i := range n {
		list = append(list, subscriptionEntry{Topic: fmt.Sprint("T", i), Expression: strings.Repeat("x", text)})
	}
	return list
}

func TestHeartbeatsThatAskForTooMuch(t *testing.T) {
	one := func(subs []subscriptionEntry) []consumerEntry { return []consumerEntry{{Group: "G", Subs: subs}} }
	for name, c := range map[string]struct {
		hb  heartbeat
		err string
	}{
		"usual":         {heartbeat{ClientID: "c", Consumers: one(subscriptionsOf(100, 1000))}, ""},
		"long id":       {heartbeat{ClientID: strings.Repeat("c", 256)}, "clientID"},
		"groups":        {heartbeat{Consumers: groupsNamed("g", 1025)}, "groups of one client"},
		"producers":     {heartbeat{Producers: make([]producerEntry, 1025)}, "groups of one client"},
		"subscriptions": {heartbeat{Consumers: one(subscriptionsOf(100_000, 1))}, "subscriptions"},
		"long text":     {heartbeat{Consumers: one(subscriptionsOf(1, 10<<20))}, "subscriptions"},
		"tags":          {heartbeat{Consumers: one([]subscriptionEntry{{Tags: make([]string, 1<<20)}})}, "subscriptions"},
	} {
		t.Run(name, func(t *testing.T) {
			err := NewRegistry(RegistryOptions{}).admit(limitPeer{}, &c.hb)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

func TestLimitsCountWhatIsHeld(t *testing.T) {
	r := NewRegistry(RegistryOptions{})
	a, b := limitPeer{1}, limitPeer{2}
	join := func(p Peer, name string, subs ...*Subscription) {
		r.Join(Client{ID: "c", Peer: p}, &Joining{Group: name, Subscriptions: subs})
	}
	for i := range maxGroupsOfPeer - 1 {
		join(a, fmt.Sprint("g", i))
	}
	r.JoinProducer(Client{ID: "c", Peer: a}, "p")
	r.JoinProducer(Client{ID: "c", Peer: a}, "p")
	require.Equal(t, maxGroupsOfPeer, r.joined)
	require.NoError(t, r.admit(a, &heartbeat{Consumers: groupsNamed("g", 3), Producers: []producerEntry{{"p"}}}), "groups that it is in")
	require.ErrorContains(t, r.admit(a, &heartbeat{Consumers: groupsNamed("other", 1)}), "groups of one client")
	require.NoError(t, r.admit(b, &heartbeat{Consumers: groupsNamed("other", 1)}))

	join(b, "g0", &Subscription{Topic: "T", Expression: strings.Repeat("x", 10*textOfWeight)}, &Subscription{Topic: "U"})
	require.Equal(t, 12, r.weight)
	join(b, "g0", &Subscription{Topic: "U"})
	require.Equal(t, 1, r.weight)
	join(b, "alone", &Subscription{Topic: "U"})
	r.weight += maxWeight // as if others held it
	require.NoError(t, r.admit(b, &heartbeat{Consumers: []consumerEntry{{Group: "alone", Subs: subscriptionsOf(1, 1)}}}), "no more than it holds")
	require.ErrorContains(t, r.admit(b, &heartbeat{Consumers: []consumerEntry{{Group: "alone", Subs: subscriptionsOf(2, 1)}}}), "all groups")
	r.weight -= maxWeight
	r.joined += maxMemberships
	require.ErrorContains(t, r.admit(b, &heartbeat{Producers: []producerEntry{{"new"}}}), "members of all groups")
	r.joined -= maxMemberships

	r.Leave(b, "alone")
	r.Leave(b, "alone")
	r.Gone(a)
	r.Gone(b)
	require.Zero(t, r.joined)
	require.Zero(t, r.weight)
	require.Empty(t, r.byPeer)
}

package group_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker/group"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type peer struct {
	addr string
	mu   sync.Mutex
	told []string
	gone string
}

func (p *peer) Addr() string { return p.addr }

func (p *peer) NotifyChanged(g string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, g)
}

func (p *peer) CloseBecause(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = reason
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.told)
}

func join(g string, subs ...*group.Subscription) *group.Joining {
	return &group.Joining{Group: g, Type: group.ConsumePassively, Model: group.Clustering, Subscriptions: subs}
}

func sub(topic string, version int64) *group.Subscription {
	return &group.Subscription{Topic: topic, Expression: "*", Type: group.ExpressionTag, Version: version}
}

func client(id string, p group.Peer) group.Client {
	return group.Client{ID: id, Peer: p, Language: "JAVA", Version: 479}
}

func TestMembersAreToldOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := group.NewRegistry(group.RegistryOptions{})
		r.Start()
		defer r.Close()
		a, b := &peer{addr: "a"}, &peer{addr: "b"}
		r.Join(client("1", a), join("G", sub("T", 1)))
		synctest.Wait()
		require.Equal(t, 1, a.count(), "the first member is told too")
		r.Join(client("1", a), join("G", sub("T", 1)))
		synctest.Wait()
		require.Equal(t, 1, a.count(), "a plain heartbeat changes nothing")
		r.Join(client("2", b), join("G", sub("T", 1)))
		synctest.Wait()
		require.Equal(t, []int{2, 1}, []int{a.count(), b.count()})
		r.Join(client("1", a), join("G", sub("T", 1), sub("T2", 1)))
		synctest.Wait()
		require.Equal(t, []int{3, 2}, []int{a.count(), b.count()}, "a topic more")
		r.Gone(b)
		synctest.Wait()
		require.Equal(t, []int{4, 2}, []int{a.count(), b.count()}, "a member less")
		r.Leave(a, "G")
		synctest.Wait()
		require.Nil(t, r.Online("G"))
		require.Nil(t, r.Consumers([]byte("G")))
		r.Leave(a, "G") // twice is harmless
		r.Gone(a)
	})
}

func TestNoNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := group.NewRegistry(group.RegistryOptions{Notify: func(g string) bool { return g != "quiet" }})
		r.Start()
		defer r.Close()
		a := &peer{}
		r.Join(client("1", a), &group.Joining{Group: "broadcast", Model: group.Broadcasting, Subscriptions: []*group.Subscription{sub("T", 1)}})
		r.Join(client("1", a), join("quiet", sub("T", 1)))
		synctest.Wait()
		require.Zero(t, a.count())
	})
}

func TestChangesFallTogether(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	a := &peer{}
	for i := range 50 {
		r.Join(client("1", a), join("G", sub("T", int64(i)), sub(string(rune('a'+i%20)), 1)))
	}
	require.Len(t, r.Online("G").Subscriptions(), 2)
	synctest.Test(t, func(t *testing.T) {
		q := group.NewRegistry(group.RegistryOptions{})
		for i := range 50 {
			q.Join(client("1", a), join("G", sub("T", int64(i)), sub(string(rune('a'+i%20)), 1)))
		}
		q.Start() // everything before it is one notice
		defer q.Close()
		synctest.Wait()
		require.Equal(t, 1, a.count())
	})
}

func TestSubscriptionVersions(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	a := &peer{}
	r.Join(client("1", a), join("G", sub("T", 5)))
	older := sub("T", 4)
	older.Expression = "old"
	r.Join(client("1", a), join("G", older))
	require.Equal(t, "*", r.Online("G").Subscription([]byte("T")).Expression, "an older version does not replace")
	newer := sub("T", 6)
	newer.Expression = "new"
	r.Join(client("1", a), join("G", newer))
	require.Equal(t, "new", r.Online("G").Subscription([]byte("T")).Expression)
	r.Join(client("1", a), join("G", sub("U", 1)))
	require.Nil(t, r.Online("G").Subscription([]byte("T")), "what a heartbeat does not name goes")
}

func TestFingerprints(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	a := &peer{}
	v2 := func(print int32, without bool) bool {
		j := join("G", sub("T", 1))
		j.Fingerprint, j.WithoutSub = print, without
		return r.Join(client("1", a), j)
	}
	require.True(t, v2(7, true), "nothing is held: the client must send all")
	require.False(t, v2(7, false), "first sight")
	require.False(t, v2(7, true))
	require.NotNil(t, r.Online("G").Subscription([]byte("T")))
	require.True(t, v2(8, false), "another one")
	require.False(t, v2(8, false))
	require.True(t, v2(9, true))
	require.True(t, r.Join(client("1", a), join("G", sub("T", 1))), "version 1 always")
}

func TestSilentClientsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := group.NewRegistry(group.RegistryOptions{})
		r.Start()
		defer r.Close()
		a, b, c := &peer{}, &peer{}, &peer{}
		r.Join(client("1", a), join("G", sub("T", 1)))
		r.Join(client("2", b), join("G", sub("T", 1)))
		r.JoinProducer(client("3", c), "PG")
		for range 5 {
			time.Sleep(30 * time.Second)
			r.Join(client("2", b), join("G", sub("T", 1)))
		}
		synctest.Wait()
		require.Equal(t, []string{"2"}, r.Online("G").ClientIDs())
		require.Nil(t, r.Producers("PG"))
		require.NotEmpty(t, a.gone)
		require.NotEmpty(t, c.gone)
		require.Empty(t, b.gone)
	})
}

func TestOneConnectionManyGroups(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	a, b := &peer{addr: "a"}, &peer{addr: "b"}
	r.Join(client("1", a), join("G1", sub("T", 1)))
	r.Join(client("1", a), join("G2", sub("T", 1)))
	r.JoinProducer(client("1", a), "P1")
	r.JoinProducer(client("2", b), "P1")
	require.Equal(t, []string{"G1", "G2"}, r.GroupsOf("T"))
	require.Equal(t, []string{"G1", "G2"}, r.ConsumerGroups())
	r.Gone(a)
	require.Empty(t, r.ConsumerGroups())
	require.Len(t, r.Producers("P1"), 1)
	require.Len(t, r.AllProducers(), 1)
	r.LeaveProducer(b, "P1")
	r.LeaveProducer(b, "P1")
	require.Empty(t, r.AllProducers())
}

func TestSameIDOnTwoConnections(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	a, b := &peer{}, &peer{}
	r.Join(client("1", a), join("G", sub("T", 1)))
	r.Join(client("1", b), join("G", sub("T", 1)))
	require.Equal(t, []string{"1"}, r.Online("G").ClientIDs())
	require.Same(t, b, r.Online("G").Client("1").Peer)
	r.Gone(a)
	require.Equal(t, []string{"1"}, r.Online("G").ClientIDs(), "the new connection stays")
}

func TestLookupAllocatesNothing(t *testing.T) {
	r := group.NewRegistry(group.RegistryOptions{})
	r.Join(client("1", &peer{}), join("G", sub("T", 1)))
	g, topic := []byte("G"), []byte("T")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if r.Consumers(g).Subscription(topic) == nil {
			t.Fatal("lost")
		}
	}))
}

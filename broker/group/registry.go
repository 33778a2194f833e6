package group

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Message models, consume types and expression types, as they stand in heartbeats.
const (
	Broadcasting = "BROADCASTING"
	Clustering   = "CLUSTERING"

	ConsumeActively  = "CONSUME_ACTIVELY"
	ConsumePassively = "CONSUME_PASSIVELY"
	ConsumePop       = "CONSUME_POP"

	ExpressionTag = "TAG"
)

// Peer is the connection of a client. Two Peers are the same connection when they are ==.
type Peer interface {
	Addr() string               // ip:port of the client's end
	NotifyChanged(group string) // request 40; must not block
	CloseBecause(reason string) // ends the connection; must not block
}

// Client is one member of a group: a connection under a client id.
type Client struct {
	ID       string
	Peer     Peer
	Language string // name, or the number as text when it is unknown
	Version  int32
	Seen     time.Time // last heartbeat
}

// Subscription is what a group wants of one topic. Shared, never changed.
type Subscription struct {
	Topic       string
	Expression  string
	Type        string // TAG, SQL92
	Tags        []string
	Codes       []int32
	Version     int64
	ClassFilter bool
}

// Consumers is an immutable view of an online consumer group.
type Consumers struct {
	Name    string
	Type    string // consume type
	Model   string // message model
	From    string // consume from where
	subs    map[string]*Subscription
	clients []*Client
}

// Subscription returns what the group wants of the topic, nil when it has not subscribed. No allocation.
func (c *Consumers) Subscription(topic []byte) *Subscription { return c.subs[string(topic)] }

// Subscriptions returns all, sorted by topic.
func (c *Consumers) Subscriptions() []*Subscription {
	out := slices.Collect(maps.Values(c.subs))
	slices.SortFunc(out, func(a, b *Subscription) int { return compare(a.Topic, b.Topic) })
	return out
}

// Clients returns the members in the order of their arrival.
func (c *Consumers) Clients() []*Client { return slices.Clone(c.clients) }

// Client returns the member with the id, the youngest connection of it, nil when there is none.
func (c *Consumers) Client(id string) *Client {
	for _, m := range slices.Backward(c.clients) {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// ClientIDs returns the distinct ids of the members.
func (c *Consumers) ClientIDs() []string {
	ids := make([]string, 0, len(c.clients))
	seen := make(map[string]bool, len(c.clients))
	for _, m := range c.clients {
		if !seen[m.ID] {
			seen[m.ID] = true
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// Broadcast says whether the members consume all messages each.
func (c *Consumers) Broadcast() bool { return c.Model == Broadcasting }

// Registry knows which producers and consumers are connected. Its methods may be called from any goroutine; peers are
// told of changes by its own goroutine, which Start starts and Close ends.
type Registry struct {
	expiry time.Duration
	notify func(group string) bool // may members of the group be told; asked outside of mu

	mu        sync.Mutex
	consumers map[string]*consumerGroup // guarded by mu
	producers map[string]*members       // guarded by mu
	byPeer    map[Peer]*peerGroups      // guarded by mu: where a connection is a member
	joined    int                       // guarded by mu: memberships in byPeer
	weight    int                       // guarded by mu: of the subscriptions of all groups
	changed   map[string]bool           // guarded by mu: groups whose members are to be told

	view atomic.Pointer[map[string]*atomic.Pointer[Consumers]] // the names change rarely, the groups often

	kick chan struct{}
	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// RegistryOptions say how a Registry behaves.
type RegistryOptions struct {
	Expiry time.Duration           // without a heartbeat for so long a client is dropped; 120 s when 0
	Notify func(group string) bool // may the members of the group be told of changes; nil: always
}

type members struct{ list []*Client }

type consumerGroup struct {
	members
	typ, model, from string
	subs             map[string]*Subscription
	weight           int   // of subs
	fingerprint      int32 // of the last heartbeat V2; 0: none
	view             *atomic.Pointer[Consumers]
}

type peerGroups struct{ consumers, producers map[string]bool }

// NewRegistry makes an empty registry.
func NewRegistry(o RegistryOptions) *Registry {
	r := &Registry{expiry: o.Expiry, notify: o.Notify, consumers: map[string]*consumerGroup{}, producers: map[string]*members{},
		byPeer: map[Peer]*peerGroups{}, changed: map[string]bool{}, kick: make(chan struct{}, 1), stop: make(chan struct{})}
	if r.expiry == 0 {
		r.expiry = 120 * time.Second
	}
	if r.notify == nil {
		r.notify = func(string) bool { return true }
	}
	r.view.Store(&map[string]*atomic.Pointer[Consumers]{})
	return r
}

// Start starts the goroutine that tells members of changes and drops the silent ones.
func (r *Registry) Start() { r.done.Go(r.run) }

// Close ends the goroutine. Twice is fine.
func (r *Registry) Close() {
	r.once.Do(func() { close(r.stop) })
	r.done.Wait()
}

// Consumers returns the present view of a group, nil when nobody of it is online. No allocation.
func (r *Registry) Consumers(group []byte) *Consumers {
	if p := (*r.view.Load())[string(group)]; p != nil {
		return p.Load()
	}
	return nil
}

// Online is Consumers for a string.
func (r *Registry) Online(group string) *Consumers {
	if p := (*r.view.Load())[group]; p != nil {
		return p.Load()
	}
	return nil
}

// ConsumerGroups returns the names of the groups that are online, sorted.
func (r *Registry) ConsumerGroups() []string { return slices.Sorted(maps.Keys(*r.view.Load())) }

// GroupsOf returns the names of the online groups that subscribe to the topic, sorted.
func (r *Registry) GroupsOf(topic string) []string {
	var out []string
	for name, p := range *r.view.Load() {
		if c := p.Load(); c != nil && c.subs[topic] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Producers returns the members of a producer group, nil when it is unknown.
func (r *Registry) Producers(group string) []*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.producers[group]; m != nil {
		return slices.Clone(m.list)
	}
	return nil
}

// AllProducers returns the members of every producer group.
func (r *Registry) AllProducers() map[string][]*Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]*Client, len(r.producers))
	for name, m := range r.producers {
		out[name] = slices.Clone(m.list)
	}
	return out
}

// Joining is one consumer entry of a heartbeat.
type Joining struct {
	Group, Type, Model, From string
	Subscriptions            []*Subscription
	WithoutSub               bool // keeps the member alive and leaves the subscriptions
	Fingerprint              int32
}

// Join registers or refreshes a consumer. subChange is what the answer says of IS_SUB_CHANGE: for a heartbeat with a
// fingerprint, that the group's last one differs, or that subscriptions were left out and none are held.
func (r *Registry) Join(c Client, j *Joining) (subChange bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.consumers[j.Group]
	if g == nil {
		g = &consumerGroup{subs: map[string]*Subscription{}, view: new(atomic.Pointer[Consumers])}
		r.consumers[j.Group] = g
		r.publishNamesLocked()
	}
	subChange = j.Fingerprint == 0
	if j.Fingerprint != 0 && !j.WithoutSub {
		subChange = g.fingerprint != 0 && g.fingerprint != j.Fingerprint
		g.fingerprint = j.Fingerprint
	} else if j.Fingerprint != 0 {
		subChange = len(g.subs) == 0 || g.fingerprint != 0 && g.fingerprint != j.Fingerprint
	}
	g.typ, g.model, g.from = j.Type, j.Model, j.From
	changed := g.refresh(c)
	if !j.WithoutSub {
		changed = g.subscribe(j.Subscriptions) || changed
		r.weighLocked(g)
	}
	r.enterLocked(r.peerLocked(c.Peer).consumers, j.Group)
	g.publish(j.Group)
	if changed {
		r.changedLocked(j.Group, g)
	}
	return subChange
}

// JoinProducer registers or refreshes a producer.
func (r *Registry) JoinProducer(c Client, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.producers[group]
	if m == nil {
		m = &members{}
		r.producers[group] = m
	}
	m.refresh(c)
	r.enterLocked(r.peerLocked(c.Peer).producers, group)
}

// Leave removes a consumer; the other members are told.
func (r *Registry) Leave(p Peer, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked(p, group)
	r.forgetLocked(p)
}

// LeaveProducer removes a producer.
func (r *Registry) LeaveProducer(p Peer, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveProducerLocked(p, group)
	r.forgetLocked(p)
}

// Gone removes a closed connection from every group.
func (r *Registry) Gone(p Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pg := r.byPeer[p]
	if pg == nil {
		return
	}
	for group := range pg.consumers {
		r.leaveLocked(p, group)
	}
	for group := range pg.producers {
		r.leaveProducerLocked(p, group)
	}
	delete(r.byPeer, p)
}

func (r *Registry) leaveLocked(p Peer, group string) {
	if pg := r.byPeer[p]; pg != nil {
		r.leftLocked(pg.consumers, group)
	}
	g := r.consumers[group]
	if g == nil || !g.remove(p) {
		return
	}
	if len(g.list) == 0 {
		delete(r.consumers, group)
		r.weight -= g.weight
		r.publishNamesLocked()
		return
	}
	g.publish(group)
	r.changedLocked(group, g)
}

func (r *Registry) leaveProducerLocked(p Peer, group string) {
	if pg := r.byPeer[p]; pg != nil {
		r.leftLocked(pg.producers, group)
	}
	if m := r.producers[group]; m != nil && m.remove(p) && len(m.list) == 0 {
		delete(r.producers, group)
	}
}

func (r *Registry) peerLocked(p Peer) *peerGroups {
	pg := r.byPeer[p]
	if pg == nil {
		pg = &peerGroups{consumers: map[string]bool{}, producers: map[string]bool{}}
		r.byPeer[p] = pg
	}
	return pg
}

func (r *Registry) forgetLocked(p Peer) {
	if pg := r.byPeer[p]; pg != nil && len(pg.consumers) == 0 && len(pg.producers) == 0 {
		delete(r.byPeer, p)
	}
}

// publishNamesLocked makes the set of online groups visible.
func (r *Registry) publishNamesLocked() {
	m := make(map[string]*atomic.Pointer[Consumers], len(r.consumers))
	for name, g := range r.consumers {
		m[name] = g.view
	}
	r.view.Store(&m)
}

// refresh adds the client or renews it, and says whether the set of members changed.
func (m *members) refresh(c Client) bool {
	c.Seen = time.Now()
	for i, old := range m.list {
		if old.Peer == c.Peer {
			m.list[i] = &c
			return old.ID != c.ID
		}
	}
	m.list = append(m.list, &c)
	return true
}

func (m *members) remove(p Peer) bool {
	for i, c := range m.list {
		if c.Peer == p {
			m.list = slices.Delete(slices.Clone(m.list), i, i+1)
			return true
		}
	}
	return false
}

// subscribe takes the topics of a heartbeat: newer versions replace, absent topics go. It says whether the set of
// topics changed.
func (g *consumerGroup) subscribe(list []*Subscription) bool {
	changed := false
	now := make(map[string]*Subscription, len(list))
	for _, s := range list {
		old := g.subs[s.Topic]
		if old == nil {
			changed = true
		}
		if old == nil || s.Version > old.Version {
			now[s.Topic] = s
		} else {
			now[s.Topic] = old
		}
	}
	for name := range g.subs {
		if now[name] == nil {
			changed = true
		}
	}
	g.subs = now
	return changed
}

func (g *consumerGroup) publish(name string) {
	g.view.Store(&Consumers{Name: name, Type: g.typ, Model: g.model, From: g.from, subs: g.subs, clients: slices.Clone(g.list)})
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

package namesrv

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// Bits of a queue's permission.
const (
	permWrite = 2
	permAll   = 6
)

// syncMemberPrefix begins topics whose route never shows an acting master.
const syncMemberPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"

// Bits of a topic's system flag.
const (
	sysUnit    = 1
	sysUnitSub = 2
)

// Registration is what a broker says of itself.
type Registration struct {
	Cluster, Broker, Addr, HAAddr string
	ID                            int64
	Timeout                       time.Duration // without a sign of life after which the broker is dropped; 0: two minutes
	ActingMaster                  *bool         // nil: an old broker that does not know the feature
	Zone                          string
	Body                          *protocol.RegisterBrokerBody // never nil
	Whole                         bool                         // the topics are all that the broker has: others leave its route
	Channel                       any                          // the connection, compared only
}

// Registered answers a registration.
type Registered struct {
	MasterAddr, HAAddr string // set for a slave whose master lives
	Notify             *MinBrokerChange
}

// MinBrokerChange says that the smallest broker id of a group changed, and whom to tell.
type MinBrokerChange struct {
	Broker     string
	MinID      int64
	MinAddr    string
	OfflineTo  string // address of the broker that left, if one left
	HAAddr     string
	Recipients []string
}

// member identifies a live broker process. The name is part of it: a process that comes back under another name at the same address is
// another broker, and what the first one registered has to end in time.
type member struct{ cluster, broker, addr string }

type live struct {
	lastSeen time.Time
	timeout  time.Duration
	version  protocol.DataVersion
	channel  any
	haAddr   string
	id       int64
}

type group struct {
	data protocol.BrokerData
	zone string
}

// Config of a Table.
type TableConfig struct {
	SupportActingMaster      bool
	DeleteTopicsOnRegister   bool // deleteTopicWithBrokerRegistration
	NotifyMinBrokerIDChanged bool
}

// Table is the route table. It is not safe for concurrent use: Server guards it. Every method that needs the time takes it.
//
// Invariants: a broker name is in a cluster's set and in topics only while its group has at least one address; every address of a group has
// a live entry, so that it leaves when it falls silent or its connection closes.
type Table struct {
	cfg      TableConfig
	topics   map[string]map[string]protocol.QueueData // topic, broker name
	offered  map[string]map[string]bool               // broker name, topic: the keys of topics the other way round
	mappings map[string]map[string]protocol.TopicQueueMappingInfo
	groups   map[string]*group
	clusters map[string]map[string]bool
	live     map[member]*live
	filters  map[member][]string
}

const defaultTimeout = 2 * time.Minute

// NewTable returns an empty table.
func NewTable(cfg TableConfig) *Table {
	return &Table{cfg: cfg, topics: map[string]map[string]protocol.QueueData{}, offered: map[string]map[string]bool{}, mappings: map[string]map[string]protocol.TopicQueueMappingInfo{},
		groups: map[string]*group{}, clusters: map[string]map[string]bool{}, live: map[member]*live{}, filters: map[member][]string{}}
}

// errNotRegistered is RocketMQ's remark for a registration of a single topic by a broker that is not known yet.
var errNotRegistered = &protocol.Error{Code: protocol.SystemError, Remark: "register broker failed"}

// Register takes a broker's registration. A stale one, of a broker whose place a newer one holds, changes nothing and is no error.
func (t *Table) Register(r *Registration, now time.Time) (Registered, error) {
	g, first := t.groups[r.Broker], false
	if g == nil {
		first = true
		g = &group{data: protocol.BrokerData{Cluster: r.Cluster, BrokerName: r.Broker, BrokerAddrs: map[int64]string{}}}
	}
	topics := r.Body.Topics.TopicConfigTable
	// All checks stand before the first change, so that a refused registration leaves nothing behind.
	m := member{r.Cluster, r.Broker, r.Addr}
	if old, ok := g.data.BrokerAddrs[r.ID]; ok && old != r.Addr {
		if o := t.live[member{r.Cluster, r.Broker, old}]; o != nil && o.version.StateVersion > r.Body.Topics.DataVersion.StateVersion {
			t.forget(m, g)
			return Registered{}, nil
		}
	} else if !ok && len(topics) == 1 {
		return Registered{}, errNotRegistered
	}
	t.groups[r.Broker] = g
	if t.clusters[r.Cluster] == nil {
		t.clusters[r.Cluster] = map[string]bool{}
	}
	t.clusters[r.Cluster][r.Broker] = true
	g.data.EnableActingMaster = r.ActingMaster != nil && *r.ActingMaster
	g.zone = r.Zone
	g.data.ZoneName = nil
	if zone := r.Zone; zone != "" { // a copy: the registration with its topics must not stay in memory
		g.data.ZoneName = &zone
	}
	before, had := minID(g.data.BrokerAddrs)
	minChanged := had && r.ID < before
	for id, addr := range g.data.BrokerAddrs { // the same process in another role
		if addr == r.Addr && id != r.ID {
			delete(g.data.BrokerAddrs, id)
		}
	}
	t.endOthers(m) // or in another cluster: its entry there must not take the address away when it ends
	_, known := g.data.BrokerAddrs[r.ID]
	g.data.BrokerAddrs[r.ID] = r.Addr
	lowest, _ := minID(g.data.BrokerAddrs)
	if r.ID == 0 { // the version of a master's topics carries its epoch; 0 outside of controller mode
		g.data.MasterEpoch = r.Body.Topics.DataVersion.StateVersion
	}
	prime := r.ActingMaster != nil && r.ID != 0 && r.ID == lowest
	if r.ID == 0 || prime {
		t.applyTopics(r, g, first || !known, prime)
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	t.live[m] = &live{lastSeen: now, timeout: timeout, version: r.Body.Topics.DataVersion, channel: r.Channel, haAddr: r.HAAddr, id: r.ID}
	if len(r.Body.FilterServerList) == 0 {
		delete(t.filters, m)
	} else {
		t.filters[m] = r.Body.FilterServerList
	}
	var out Registered
	if r.ID != 0 {
		if addr, ok := g.data.BrokerAddrs[0]; ok {
			if l := t.live[member{r.Cluster, r.Broker, addr}]; l != nil {
				out.HAAddr, out.MasterAddr = l.haAddr, addr
			}
		}
	}
	if minChanged && t.cfg.NotifyMinBrokerIDChanged {
		out.Notify = t.minChange(g, "", r.HAAddr)
	}
	return out, nil
}

// applyTopics takes over the topics of a registration.
func (t *Table) applyTopics(r *Registration, g *group, all, prime bool) {
	w := &r.Body.Topics
	whole := r.Whole || t.cfg.DeleteTopicsOnRegister && len(w.TopicConfigTable) != 1
	if whole && len(w.TopicQueueMappingInfoMap) == 0 {
		for topic := range t.offered[r.Broker] {
			if _, ok := w.TopicConfigTable[topic]; !ok {
				t.withdraw(topic, r.Broker)
			}
		}
	}
	l := t.live[member{r.Cluster, r.Broker, r.Addr}]
	changed := all || l == nil || l.version != w.DataVersion
	for name, c := range w.TopicConfigTable {
		if c == nil || name == "" {
			continue
		}
		if _, ok := t.topics[name][r.Broker]; ok && !changed {
			continue
		}
		q := protocol.QueueData{BrokerName: r.Broker, ReadQueueNums: c.ReadQueueNums, WriteQueueNums: c.WriteQueueNums, Perm: c.Perm, TopicSysFlag: c.TopicSysFlag}
		if prime && g.data.EnableActingMaster {
			q.Perm &^= permWrite
		}
		t.offer(name, r.Broker, q)
	}
	if changed {
		for name, info := range w.TopicQueueMappingInfoMap {
			if t.mappings[name] == nil {
				t.mappings[name] = map[string]protocol.TopicQueueMappingInfo{}
			}
			t.mappings[name][info.BrokerName] = info
		}
	}
}

// offer enters the queues that a broker has of a topic.
func (t *Table) offer(topic, broker string, q protocol.QueueData) {
	if t.topics[topic] == nil {
		t.topics[topic] = map[string]protocol.QueueData{}
	}
	t.topics[topic][broker] = q
	if t.offered[broker] == nil {
		t.offered[broker] = map[string]bool{}
	}
	t.offered[broker][topic] = true
}

// withdraw takes a topic from a broker.
func (t *Table) withdraw(topic, broker string) {
	delete(t.topics[topic], broker)
	delete(t.mappings[topic], broker)
	delete(t.offered[broker], topic)
	if len(t.offered[broker]) == 0 {
		delete(t.offered, broker)
	}
	t.dropIfEmpty(topic)
}

func (t *Table) dropIfEmpty(topic string) {
	if len(t.topics[topic]) == 0 {
		delete(t.topics, topic)
		delete(t.mappings, topic)
	}
}

func minID(addrs map[int64]string) (int64, bool) {
	lowest, ok := int64(0), false
	for id := range addrs {
		if !ok || id < lowest {
			lowest, ok = id, true
		}
	}
	return lowest, ok
}

// endOthers forgets that a process lives in other clusters.
func (t *Table) endOthers(m member) {
	for other := range t.live {
		if other.broker == m.broker && other.addr == m.addr && other.cluster != m.cluster {
			delete(t.live, other)
			delete(t.filters, other)
		}
	}
}

// forget takes a process out of the table; the caller drops the group if that was its last.
func (t *Table) forget(m member, g *group) {
	t.endOthers(m)
	delete(t.live, m)
	delete(t.filters, m)
	maps.DeleteFunc(g.data.BrokerAddrs, func(_ int64, addr string) bool { return addr == m.addr })
}

// Unregister drops a broker process, whatever its id. It leaves alone a group that does not have the address any more, and, if channel is
// not nil, a process that has registered again through another connection or left since.
func (t *Table) Unregister(cluster, broker, addr string, channel any) *MinBrokerChange {
	m := member{cluster, broker, addr}
	l := t.live[m]
	if channel != nil && (l == nil || l.channel != channel) {
		return nil
	}
	g := t.groups[broker]
	if g == nil {
		delete(t.live, m)
		delete(t.filters, m)
		return nil
	}
	had := len(g.data.BrokerAddrs)
	before, _ := minID(g.data.BrokerAddrs)
	t.forget(m, g)
	if len(g.data.BrokerAddrs) == 0 {
		t.dropGroup(broker)
	}
	if len(g.data.BrokerAddrs) == 0 || len(g.data.BrokerAddrs) == had {
		return nil
	}
	if _, master := g.data.BrokerAddrs[0]; !master && g.data.EnableActingMaster {
		for topic := range t.offered[broker] {
			q := t.topics[topic][broker]
			q.Perm &^= permWrite
			t.topics[topic][broker] = q
		}
	}
	after, _ := minID(g.data.BrokerAddrs)
	if after != before && t.cfg.NotifyMinBrokerIDChanged && g.data.EnableActingMaster {
		return t.minChange(g, addr, "")
	}
	return nil
}

func (t *Table) dropGroup(broker string) {
	delete(t.groups, broker)
	for cluster, names := range t.clusters {
		delete(names, broker)
		if len(names) == 0 {
			delete(t.clusters, cluster)
		}
	}
	for topic, m := range t.mappings {
		if delete(m, broker); len(m) == 0 {
			delete(t.mappings, topic)
		}
	}
	for topic := range t.offered[broker] {
		t.withdraw(topic, broker)
	}
}

// minChange describes the new smallest id of a group. All members are told when one left or when there is one only, else all but the new
// smallest.
func (t *Table) minChange(g *group, offline, ha string) *MinBrokerChange {
	id, _ := minID(g.data.BrokerAddrs)
	c := &MinBrokerChange{Broker: g.data.BrokerName, MinID: id, MinAddr: g.data.BrokerAddrs[id], OfflineTo: offline, HAAddr: ha}
	for other, addr := range g.data.BrokerAddrs {
		if offline != "" || len(g.data.BrokerAddrs) == 1 || other != id {
			c.Recipients = append(c.Recipients, addr)
		}
	}
	slices.Sort(c.Recipients)
	return c
}

// Knows says whether a broker process is registered.
func (t *Table) Knows(cluster, broker, addr string) bool {
	return t.live[member{cluster, broker, addr}] != nil
}

// Heartbeat notes a sign of life of a known broker.
func (t *Table) Heartbeat(cluster, broker, addr string, now time.Time) {
	if l := t.live[member{cluster, broker, addr}]; l != nil {
		l.lastSeen = now
	}
}

// QueryVersion compares a broker's data version with the stored one; it counts as a sign of life.
func (t *Table) QueryVersion(cluster, broker, addr string, v protocol.DataVersion, now time.Time) (changed bool, stored *protocol.DataVersion) {
	l := t.live[member{cluster, broker, addr}]
	if l == nil {
		return true, nil
	}
	l.lastSeen = now
	have := l.version
	return have != v, &have
}

// Configure replaces the configuration.
func (t *Table) Configure(cfg TableConfig) { t.cfg = cfg }

// Expired is a broker that gave no sign of life in time.
type Expired struct {
	Cluster, Broker, Addr string
	ID                    int64
	Channel               any
}

// Expire returns the brokers whose time has run out, and the instant at which the next one's does (zero without brokers).
func (t *Table) Expire(now time.Time) (expired []Expired, next time.Time) {
	for m, l := range t.live {
		end := l.lastSeen.Add(l.timeout)
		if end.Before(now) {
			expired = append(expired, Expired{m.cluster, m.broker, m.addr, l.id, l.channel})
			continue
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	slices.SortFunc(expired, func(a, b Expired) int { return strings.Compare(a.Addr, b.Addr) })
	return expired, next
}

// OfChannel returns the brokers that registered through a connection.
func (t *Table) OfChannel(channel any) (all []Expired) {
	for m, l := range t.live {
		if l.channel == channel {
			all = append(all, Expired{m.cluster, m.broker, m.addr, l.id, l.channel})
		}
	}
	return all
}

// Route returns the route of a topic, or nil. The result is the caller's.
func (t *Table) Route(topic string) *protocol.TopicRouteData {
	queues := t.topics[topic]
	if len(queues) == 0 {
		return nil
	}
	r := &protocol.TopicRouteData{FilterServerTable: map[string][]string{}}
	for _, broker := range slices.Sorted(maps.Keys(queues)) {
		r.QueueDatas = append(r.QueueDatas, queues[broker])
		g := t.groups[broker]
		if g == nil {
			continue
		}
		d := g.data
		d.BrokerAddrs = maps.Clone(d.BrokerAddrs)
		for _, addr := range d.BrokerAddrs {
			if list := t.filters[member{d.Cluster, broker, addr}]; len(list) > 0 {
				r.FilterServerTable[addr] = slices.Clone(list)
			}
		}
		if t.cfg.SupportActingMaster && d.EnableActingMaster && !strings.HasPrefix(topic, syncMemberPrefix) && queues[broker].Perm&permWrite == 0 {
			if _, ok := d.BrokerAddrs[0]; !ok {
				if id, ok := minID(d.BrokerAddrs); ok {
					d.BrokerAddrs[0] = d.BrokerAddrs[id]
					delete(d.BrokerAddrs, id)
				}
			}
		}
		r.BrokerDatas = append(r.BrokerDatas, d)
	}
	if len(r.BrokerDatas) == 0 {
		return nil
	}
	if m := t.mappings[topic]; len(m) > 0 {
		r.TopicQueueMappingByBroker = maps.Clone(m)
	}
	return r
}

// FilterZone keeps the broker groups of a zone, and those without a master, with their queues.
func FilterZone(r *protocol.TopicRouteData, zone string) {
	keep := map[string]bool{}
	gone := map[string]bool{}
	var brokers []protocol.BrokerData
	for _, d := range r.BrokerDatas {
		_, hasMaster := d.BrokerAddrs[0]
		if hasMaster && (d.ZoneName == nil || !strings.EqualFold(*d.ZoneName, zone)) {
			for _, addr := range d.BrokerAddrs {
				gone[addr] = true
			}
			continue
		}
		keep[d.BrokerName] = true
		brokers = append(brokers, d)
	}
	r.BrokerDatas = brokers
	r.QueueDatas = slices.DeleteFunc(r.QueueDatas, func(q protocol.QueueData) bool { return !keep[q.BrokerName] })
	maps.DeleteFunc(r.FilterServerTable, func(addr string, _ []string) bool { return gone[addr] })
}

// Clusters returns every cluster and broker group.
func (t *Table) Clusters() *protocol.ClusterInfo {
	c := &protocol.ClusterInfo{BrokerAddrTable: map[string]protocol.BrokerData{}, ClusterAddrTable: map[string][]string{}}
	for name, g := range t.groups {
		d := g.data
		d.BrokerAddrs = maps.Clone(d.BrokerAddrs)
		c.BrokerAddrTable[name] = d
	}
	for name, brokers := range t.clusters {
		c.ClusterAddrTable[name] = slices.Sorted(maps.Keys(brokers))
	}
	return c
}

// Members returns the addresses of one group; none when it is unknown.
func (t *Table) Members(cluster, broker string) protocol.BrokerMemberGroup {
	m := protocol.BrokerMemberGroup{BrokerAddrs: map[int64]string{}, BrokerName: broker, Cluster: cluster}
	if g := t.groups[broker]; g != nil && g.data.Cluster == cluster {
		m.BrokerAddrs = maps.Clone(g.data.BrokerAddrs)
	}
	return m
}

// SetWrite takes the write permission of a broker's topics away, or gives read and write; it returns how many topics it touched.
func (t *Table) SetWrite(broker string, on bool) int {
	for topic := range t.offered[broker] {
		q := t.topics[topic][broker]
		if on {
			q.Perm = permAll
		} else {
			q.Perm &^= permWrite
		}
		t.topics[topic][broker] = q
	}
	return len(t.offered[broker])
}

// DeleteTopic forgets a topic, in one cluster when one is given, and says whether a broker had it.
func (t *Table) DeleteTopic(topic, cluster string) (existed bool) {
	for broker := range t.topics[topic] {
		if cluster == "" || t.clusters[cluster][broker] {
			t.withdraw(topic, broker)
			existed = true
		}
	}
	if cluster == "" {
		delete(t.mappings, topic)
	}
	return existed
}

// RegisterTopic adds a topic's queues. It stops at the first unknown broker: a new topic is then not added, a known one keeps what came before.
func (t *Table) RegisterTopic(topic string, queues []protocol.QueueData) {
	if topic == "" || len(queues) == 0 {
		return
	}
	known := len(t.topics[topic]) > 0
	for i, q := range queues {
		if t.groups[q.BrokerName] != nil {
			continue
		}
		if !known {
			return
		}
		queues = queues[:i]
		break
	}
	for _, q := range queues {
		t.offer(topic, q.BrokerName, q)
	}
}

// Topics returns every topic name, sorted.
func (t *Table) Topics() []string { return slices.Sorted(maps.Keys(t.topics)) }

// TopicsOfCluster returns the topics that a cluster's brokers offer, sorted.
func (t *Table) TopicsOfCluster(cluster string) []string {
	brokers := t.clusters[cluster]
	return t.topicsWhere(func(queues map[string]protocol.QueueData) bool {
		for b := range queues {
			if brokers[b] {
				return true
			}
		}
		return false
	})
}

// TopicsByFlag returns the topics whose system flag has all bits of set and none of clear.
func (t *Table) TopicsByFlag(set, clear int32) []string {
	return t.topicsWhere(func(queues map[string]protocol.QueueData) bool {
		for _, b := range slices.Sorted(maps.Keys(queues)) {
			f := queues[b].TopicSysFlag
			return f&set == set && f&clear == 0
		}
		return false
	})
}

func (t *Table) topicsWhere(ok func(map[string]protocol.QueueData) bool) []string {
	list := []string{}
	for topic, queues := range t.topics {
		if ok(queues) {
			list = append(list, topic)
		}
	}
	slices.Sort(list)
	return list
}

// SystemTopics returns the names that clusters and brokers take as topics, and an address of the first broker.
func (t *Table) SystemTopics() protocol.TopicList {
	l := protocol.TopicList{TopicList: []string{}}
	for _, cluster := range slices.Sorted(maps.Keys(t.clusters)) {
		l.TopicList = append(l.TopicList, cluster)
		l.TopicList = append(l.TopicList, slices.Sorted(maps.Keys(t.clusters[cluster]))...)
	}
	for _, broker := range slices.Sorted(maps.Keys(t.groups)) {
		if id, ok := minID(t.groups[broker].data.BrokerAddrs); ok {
			addr := t.groups[broker].data.BrokerAddrs[id]
			l.BrokerAddr = &addr
			break
		}
	}
	return l
}

// String describes the table's size for logs.
func (t *Table) String() string {
	return fmt.Sprintf("%d topics, %d broker groups, %d live brokers", len(t.topics), len(t.groups), len(t.live))
}

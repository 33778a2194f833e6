package broker

import (
	"errors"
	"maps"
	"slices"

	"github.com/epochmq/epochmq/broker/admin"
	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/consumequeue"
)

// adminHandlers gives each family of admin requests what it uses.
func (b *Broker) adminHandlers() adminSet {
	c := b.conf.Load()
	self := admin.Self{Name: c.BrokerName, Cluster: c.BrokerClusterName, Addr: func() string { return b.Addresses().Advertised }}
	queues := queues{b.store}
	config := func() admin.TopicsConfig {
		c := b.conf.Load()
		return admin.TopicsConfig{ValidateSystemTopic: c.ValidateSystemTopicWhenUpdateTopic, EnableMixedType: c.EnableMixedMessageType,
			EnableSplitMetadata: c.EnableSplitMetadata, SplitMetadataSize: int(c.SplitMetadataSize)}
	}
	return adminSet{
		topics: &admin.Topics{Self: self, Config: config, Table: b.told(), Queues: queues, Remove: b.removeTopic, Readers: b.readersOf,
			Read: b.offsets.TopicsOf, TPS: b.counts.MinuteTPS},
		groups: &admin.Groups{Config: config, Table: b.groups, Online: b.registry.Online, Forget: b.forgetGroup, Prepare: b.prepareGroup},
		progress: &admin.Progress{Self: self, Topics: b.topics, Groups: b.groups, Online: b.registry.Online, Offsets: b.offsets, Queues: queues,
			TPS: b.counts.MinuteTPS, DelayOffsets: b.delays.Encode},
		reset: &admin.Reset{Self: self, ServerSide: func() bool { return b.conf.Load().UseServerSideResetOffset }, Topics: b.topics,
			Group: b.groups.Lookup, Online: b.registry.Online, Offsets: b.offsets, Wake: b.pull.Wake, Queues: queues},
		clients: &admin.Clients{Self: self, Online: b.registry.Online, Producers: b.registry.Producers, All: b.registry.AllProducers,
			Topic: b.topics.Lookup, Group: b.groups.Lookup, Record: b.record},
		settings:   &admin.Settings{Text: b.settingsText, Change: b.changeSettings, Version: b.settingsVersion},
		runtime:    &admin.Runtime{Store: b.store.Stats, Pools: b.poolInfo, Totals: b.totals, Levels: b.levels, Start: func() int64 { return b.conf.Load().StartAcceptSendRequestTimeStamp }},
		statistics: &admin.Statistics{Item: b.counter},
		files: &admin.Files{CleanQueues: b.store.CleanExpired, CleanUnused: b.cleanUnused, CleanLog: func() error { b.store.DeleteExpiredLog(); return nil },
			LogEnd: func() message.LogOffset { return message.LogOffset(b.store.Stats().LogMax) }, Online: b.registry.Online, Queues: queues},
	}
}

// removeTopic takes a topic away: its config first, so that nobody writes to it, then offsets, counters and queues.
func (b *Broker) removeTopic(name string) error {
	if _, err := b.told().Delete(name); err != nil {
		return err
	}
	errs := []error{b.offsets.DropTopic(name)}
	if b.conf.Load().AutoDeleteUnusedStats {
		b.counts.DropTopic(name)
	}
	err := b.store.DeleteTopic(name)
	if errors.Is(err, store.ErrIllegal) { // no such name can have been stored
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

// forgetGroup follows the deletion of a group. With its offsets goes its retry topic, which nobody else reads; its dead
// letters stay.
func (b *Broker) forgetGroup(name string, offsets bool) error {
	if b.conf.Load().AutoDeleteUnusedStats {
		b.counts.DropGroup(name)
	}
	if !offsets {
		return nil
	}
	errs := []error{b.offsets.DropGroup(name)}
	if retry := message.RetryTopic(name); b.topics.Lookup(retry) != nil {
		errs = append(errs, b.removeTopic(retry))
	}
	return errors.Join(errs...)
}

// prepareGroup follows the creation of a group: its retry topic is there before its first consumer, so that tools find the
// group's route.
func (b *Broker) prepareGroup(c *group.Config) error {
	_, err := b.told().Ensure(message.RetryTopic(c.Name), max(1, c.RetryQueueNums), topic.PermRead|topic.PermWrite, 0, false)
	return err
}

// readersOf are the groups that subscribe to a topic now or have offsets on it.
func (b *Broker) readersOf(name string) []string {
	set := map[string]bool{}
	for _, g := range append(b.registry.GroupsOf(name), b.offsets.GroupsOf(name)...) {
		set[g] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// cleanUnused drops the queues of topics that are not in the table.
func (b *Broker) cleanUnused() error {
	var errs []error
	for _, name := range b.store.Topics() {
		if b.topics.Lookup(name) == nil {
			errs = append(errs, b.store.DeleteTopic(name))
		}
	}
	return errors.Join(errs...)
}

// record copies a stored record.
func (b *Broker) record(off message.LogOffset) ([]byte, bool) {
	v, err := b.store.View(off)
	if err != nil {
		return nil, false
	}
	defer v.Release()
	return slices.Clone(v.Bytes()), true
}

func (b *Broker) settingsText() ([]byte, error) { return []byte(b.set.Text()), nil }

func (b *Broker) settingsVersion() topic.Version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// changeSettings applies the body of request 25.
func (b *Broker) changeSettings(body []byte) error {
	changes, err := conf.ParseProperties(body)
	if err != nil {
		return protocol.Errorf(protocol.SystemError, "string2Properties error")
	}
	err = b.set.Apply(changes)
	var forbidden *conf.ForbiddenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &forbidden):
		return &admin.BlackListError{Key: forbidden.Key}
	}
	return &admin.ValueError{Err: err}
}

func (b *Broker) totals() (t admin.Totals) {
	t.Put, t.Got, t.PutToday, t.GotToday, t.PutYesterday, t.GotYesterday = b.counts.Totals()
	return t
}

// levels are the delay levels that have delivered something.
func (b *Broker) levels() []admin.Level {
	var out []admin.Level
	offsets := b.delays.Offsets()
	for _, level := range slices.Sorted(maps.Keys(offsets)) {
		_, high, _ := b.store.Bounds([]byte(topic.ScheduleTopic), level-1)
		out = append(out, admin.Level{Level: int(level), Done: int64(offsets[level]), Max: int64(high)})
	}
	return out
}

func (b *Broker) counter(name, key string) (minute, hour, day admin.Window, ok bool) {
	it := b.counts.Item(name, key)
	if it == nil {
		return minute, hour, day, false
	}
	return admin.Window(it.Minute()), admin.Window(it.Hour()), admin.Window(it.Day()), true
}

// queues shows the store's queues to admin, by text names.
type queues struct{ store *store.Store }

// Bounds is the range of a queue, zeros for an unknown one.
func (q queues) Bounds(topic string, id int32) (low, high message.QueueOffset) {
	low, high, _ = q.store.Bounds([]byte(topic), id)
	return low, high
}

// Known says whether the queue exists.
func (q queues) Known(topic string, id int32) bool {
	_, _, known := q.store.Bounds([]byte(topic), id)
	return known
}

// StoreTime is when a message was stored.
func (q queues) StoreTime(topic string, id int32, at message.QueueOffset) int64 {
	return q.store.StoreTime([]byte(topic), id, at)
}

// OffsetByTime is the first message not older than ms; 0 in a queue that does not exist.
func (q queues) OffsetByTime(topic string, id int32, ms int64) (message.QueueOffset, error) {
	off, err := q.store.OffsetByTime([]byte(topic), id, ms, false)
	if errors.Is(err, store.ErrNoQueue) {
		return 0, nil
	}
	return off, err
}

// Units are entries of a queue.
func (q queues) Units(topic string, id int32, from message.QueueOffset, most int) ([]admin.Unit, error) {
	buf := make([]consumequeue.Unit, most)
	n, err := q.store.Units([]byte(topic), id, from, buf)
	if err != nil {
		return nil, err
	}
	out := make([]admin.Unit, n)
	for i, u := range buf[:n] {
		out[i] = admin.Unit(u)
	}
	return out, nil
}

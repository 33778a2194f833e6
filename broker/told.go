package broker

import (
	"time"

	"github.com/epochmq/epochmq/broker/topic"
)

// tellLimit is how long the answer to a change of a topic waits for name servers.
const tellLimit = time.Second

// toldTopics is the topic table for what answers clients: a change returns when the name servers know it, so that a client that
// has its answer finds the topic in the route, as it does with RocketMQ. A name server that fails is not waited for.
type toldTopics struct {
	*topic.Table
	await func()
}

// CreateOnSend is topic.Table's.
func (t toldTopics) CreateOnSend(name, defaultTopic string, queues, sysFlag int32) (*topic.Config, error) {
	c, err := t.Table.CreateOnSend(name, defaultTopic, queues, sysFlag)
	if err == nil && c != nil {
		t.await()
	}
	return c, err
}

// Ensure is topic.Table's.
func (t toldTopics) Ensure(name string, queues, perm, sysFlag int32, order bool) (*topic.Config, error) {
	if c := t.Lookup(name); c != nil {
		return c, nil
	}
	c, err := t.Table.Ensure(name, queues, perm, sysFlag, order)
	if err == nil {
		t.await()
	}
	return c, err
}

// Update is topic.Table's.
func (t toldTopics) Update(list ...*topic.Config) error {
	err := t.Table.Update(list...)
	if err == nil {
		t.await()
	}
	return err
}

// Delete is topic.Table's.
func (t toldTopics) Delete(name string) (bool, error) {
	existed, err := t.Table.Delete(name)
	if err == nil && existed {
		t.await()
	}
	return existed, err
}

// told is the topic table whose changes wait for the name servers.
func (b *Broker) told() toldTopics { return toldTopics{b.topics, b.awaitRoute} }

// awaitRoute waits until the name servers know the topics, within tellLimit. It does nothing before the broker registers.
func (b *Broker) awaitRoute() {
	b.mu.Lock()
	r := b.registrar
	b.mu.Unlock()
	if r != nil {
		r.Await(tellLimit)
	}
}

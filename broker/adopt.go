package broker

import (
	"strings"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
)

// lmqPrefix begins the names of light queues, which are no topics of their own.
const lmqPrefix = "%LMQ%"

// adoptTopics makes topics for queues that hold messages of a topic that the topic file does not know: the file was lost, or an older copy
// of it was taken. Nothing that is stored may become unreachable because a file of names is.
func (b *Broker) adoptTopics() error {
	queues := map[string]int32{}
	b.store.EachQueue(func(q store.QueueInfo) bool {
		if q.Max > q.Min && b.topics.Lookup(q.Topic) == nil && !strings.HasPrefix(q.Topic, lmqPrefix) {
			queues[q.Topic] = max(queues[q.Topic], q.ID+1)
		}
		return true
	})
	for name, n := range queues {
		if err := message.ValidateTopic(name); err != nil && !message.IsRetryTopic(name) && !message.IsDLQTopic(name) {
			continue
		}
		if _, err := b.topics.Ensure(name, n, topic.PermRead|topic.PermWrite, 0, false); err != nil {
			return err
		}
		b.log.Warn("a topic has messages and was missing in topics.json; it is there again, check its number of queues and its permission", "topic", name, "queues", n)
	}
	return nil
}

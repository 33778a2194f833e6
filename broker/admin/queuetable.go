package admin

import (
	"maps"
	"slices"
	"strconv"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
)

// messageQueue is MessageQueue, as key or value.
type messageQueue struct {
	Broker string `json:"brokerName"`
	ID     int32  `json:"queueId"`
	Topic  string `json:"topic"`
}

func queue(broker, topic string, id int32) messageQueue { return messageQueue{broker, id, topic} }

// queueTable is a map keyed by message queues, in the order of adding.
type queueTable struct{ pairs fastjson.Pairs }

func (t *queueTable) add(broker, topic string, id int32, value any) {
	t.pairs = append(t.pairs, fastjson.Pair{Key: queue(broker, topic, id), Value: value})
}

func (t *queueTable) body() fastjson.Pairs {
	if t.pairs == nil {
		return fastjson.Pairs{}
	}
	return t.pairs
}

// resetBody is the body of request 220. C++ clients want a list.
func (t *queueTable) resetBody(asList bool) ([]byte, error) {
	if !asList {
		return fastjson.Marshal(map[string]any{"offsetTable": t.body()})
	}
	list := []any{}
	for _, p := range t.pairs {
		q := p.Key.(messageQueue)
		list = append(list, map[string]any{"brokerName": q.Broker, "queueId": q.ID, "topic": q.Topic, "offset": p.Value})
	}
	return fastjson.Marshal(map[string]any{"offsetTable": list})
}

// intKeys is a map with bare numbers as keys, in their order.
func intKeys(m map[int32]message.QueueOffset) fastjson.Pairs {
	out := make(fastjson.Pairs, 0, len(m))
	for _, q := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fastjson.Pair{Key: q, Value: int64(m[q])})
	}
	return out
}

// messageQueueTable takes the table out of the answer to request 221; nil when there is none.
func messageQueueTable(body []byte) *fastjson.Node {
	root, err := fastjson.Parse(body)
	if err != nil {
		return nil
	}
	for _, m := range root.Members {
		if m.Key.Text == "messageQueueTable" && m.Value.Kind == fastjson.Object {
			return m.Value
		}
	}
	return nil
}

// compact writes one of our JSON files on one line.
func compact(data []byte) ([]byte, error) {
	root, err := fastjson.Parse(data)
	if err != nil {
		return nil, err
	}
	return root.Compact(), nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// versionText is DataVersion as the text of a header field.
func versionText(v any) (string, error) {
	b, err := fastjson.Marshal(v)
	return string(b), err
}

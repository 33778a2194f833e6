package admin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Permissions of a topic.
const (
	PermInherit int32 = 1 // topics are created like it
	PermWrite   int32 = 2
	PermRead    int32 = 4
)

// Topic is a topic's configuration at one broker.
type Topic struct {
	Name        string
	ReadQueues  int32
	WriteQueues int32
	Perm        int32
	Order       bool
	SysFlag     int32
	// Attributes are changes when a topic is written: "+name" sets, "-name" deletes.
	Attributes map[string]string
}

// NewTopic returns a topic with n queues to read and write.
func NewTopic(name string, n int32) Topic {
	return Topic{Name: name, ReadQueues: n, WriteQueues: n, Perm: PermRead | PermWrite}
}

func topicOf(c *protocol.TopicConfig) Topic {
	return Topic{Name: c.TopicName, ReadQueues: c.ReadQueueNums, WriteQueues: c.WriteQueueNums, Perm: c.Perm, Order: c.Order,
		SysFlag: c.TopicSysFlag, Attributes: c.Attributes}
}

// PutTopic creates or replaces a topic at the brokers of a target. Brokers tell the name server a moment later: PutTopic returns when it knows
// the topic at all of them, after a second in any case.
func (a *Admin) PutTopic(ctx context.Context, to Target, t Topic) error {
	if err := message.ValidateTopic(t.Name); err != nil {
		return &client.MessageError{Topic: t.Name, Reason: err.Error()}
	}
	addrs, err := a.Masters(ctx, to)
	if err != nil {
		return err
	}
	var attrs []string
	for _, k := range slices.Sorted(maps.Keys(t.Attributes)) {
		if strings.HasPrefix(k, "-") {
			attrs = append(attrs, k)
			continue
		}
		attrs = append(attrs, "+"+strings.TrimPrefix(k, "+")+"="+t.Attributes[k])
	}
	err = each(addrs, func(addr string) error {
		ext := map[string]string{"topic": t.Name, "defaultTopic": message.TopicDefault, "readQueueNums": itoa(t.ReadQueues),
			"writeQueueNums": itoa(t.WriteQueues), "perm": itoa(t.Perm), "topicFilterType": "SINGLE_TAG", "topicSysFlag": itoa(t.SysFlag),
			"order": strconv.FormatBool(t.Order)}
		if len(attrs) > 0 {
			ext["attributes"] = strings.Join(attrs, ",")
		}
		_, err := a.call(ctx, addr, protocol.ReqUpdateAndCreateTopic, ext, nil)
		return err
	})
	if err == nil {
		a.awaitRoute(ctx, t.Name, addrs)
	}
	return err
}

// awaitRoute waits until the route of a topic holds the brokers at addrs.
func (a *Admin) awaitRoute(ctx context.Context, topic string, addrs []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for pause := time.Millisecond; ; pause *= 2 {
		if r, err := a.c.RefreshRoute(ctx, topic, time.Time{}); err == nil {
			known := map[string]bool{}
			for _, b := range r.Brokers() {
				known[r.Master(b)] = true
			}
			if !slices.ContainsFunc(addrs, func(addr string) bool { return !known[addr] }) {
				return
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func itoa[T ~int | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// GetTopic reads a topic's configuration at one broker.
func (a *Admin) GetTopic(ctx context.Context, addr, name string) (Topic, error) {
	c, err := decode[protocol.TopicConfig](ctx, a, addr, protocol.ReqGetTopicConfig, map[string]string{"topic": name, "lo": "true"})
	if err != nil {
		return Topic{}, err
	}
	return topicOf(c), nil
}

// BrokerTopics reads the configuration of all topics of one broker, sorted by name.
func (a *Admin) BrokerTopics(ctx context.Context, addr string) ([]Topic, error) {
	table := map[string]Topic{}
	err := a.pages(ctx, addr, protocol.ReqGetAllTopicConfig, "topicSeq", "maxTopicNum", "totalTopicNum", func(answer *protocol.Command) (string, int, error) {
		w, err := read[protocol.TopicConfigWrapper](addr, answer)
		if err != nil {
			return "", 0, err
		}
		for name, c := range w.TopicConfigTable {
			if c != nil {
				t := topicOf(c)
				t.Name = name
				table[name] = t
			}
		}
		return version(w.DataVersion), len(w.TopicConfigTable), nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]Topic, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		out = append(out, table[name])
	}
	return out, nil
}

func version(v protocol.DataVersion) string {
	return `{"counter":` + itoa(v.Counter) + `,"stateVersion":` + itoa(v.StateVersion) + `,"timestamp":` + itoa(v.Timestamp) + `}`
}

// pageSize is how many entries of a table one answer holds at most.
const pageSize = 2000

// pages asks for a table until it is complete. Brokers that know no pages send all at once and no total.
func (a *Admin) pages(ctx context.Context, addr string, code int32, seq, limit, total string, take func(*protocol.Command) (version string, n int, err error)) error {
	at, ver := 0, ""
	for {
		ext := map[string]string{seq: itoa(at), limit: itoa(pageSize)}
		if ver != "" {
			ext["dataVersion"] = ver
		}
		answer, err := a.call(ctx, addr, code, ext, nil)
		if err != nil {
			return err
		}
		now, n, err := take(answer)
		if err != nil {
			return err
		}
		all, err := strconv.Atoi(answer.Ext[total])
		if ver != "" && now != ver { // the table changed: the broker began again
			at = 0
		}
		at, ver = at+n, now
		if err != nil || n == 0 || at >= all {
			return nil
		}
	}
}

// Topics lists the names of all topics, sorted; with a cluster, only its own.
func (a *Admin) Topics(ctx context.Context, cluster string) ([]string, error) {
	code, ext := protocol.ReqGetAllTopicListFromNameServer, map[string]string(nil)
	if cluster != "" {
		code, ext = protocol.ReqGetTopicsByCluster, map[string]string{"cluster": cluster}
	}
	l, err := decodeNS[protocol.TopicList](ctx, a, code, ext)
	if err != nil {
		return nil, err
	}
	slices.Sort(l.TopicList)
	return slices.Compact(l.TopicList), nil
}

// Route asks the name server where a topic is.
func (a *Admin) Route(ctx context.Context, topic string) (*protocol.TopicRouteData, error) {
	return decodeNS[protocol.TopicRouteData](ctx, a, protocol.ReqGetRouteInfoByTopic, map[string]string{"topic": topic})
}

// QueueStatus is where a queue begins and ends.
type QueueStatus struct {
	Queue client.Queue
	protocol.TopicOffset
}

// TopicStatus reads the bounds of all queues of a topic, sorted by broker and number.
func (a *Admin) TopicStatus(ctx context.Context, topic string) ([]QueueStatus, error) {
	addrs, err := a.topicBrokers(ctx, topic)
	if err != nil {
		return nil, err
	}
	answers := make([]*protocol.TopicStatsTable, len(addrs))
	err = each(addrs, func(addr string) (err error) {
		i := slices.Index(addrs, addr)
		answers[i], err = decode[protocol.TopicStatsTable](ctx, a, addr, protocol.ReqGetTopicStatsInfo, map[string]string{"topic": topic})
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []QueueStatus
	for _, t := range answers {
		for _, e := range t.OffsetTable {
			out = append(out, QueueStatus{queueOf(e.Queue), e.Value})
		}
	}
	slices.SortFunc(out, func(x, y QueueStatus) int { return compareQueues(x.Queue, y.Queue) })
	return out, nil
}

func queueOf(m protocol.MessageQueue) client.Queue {
	return client.Queue{Topic: m.Topic, Broker: m.BrokerName, ID: m.QueueID}
}

func compareQueues(a, b client.Queue) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(a.Broker, b.Broker); c != 0 {
		return c
	}
	return int(a.ID) - int(b.ID)
}

// DeleteTopic deletes a topic with its messages at the brokers of a target and, unless the target is one broker, at the name server.
func (a *Admin) DeleteTopic(ctx context.Context, to Target, topic string) error {
	addrs, err := a.Masters(ctx, to)
	if err != nil {
		return err
	}
	err = each(addrs, func(addr string) error {
		_, err := a.call(ctx, addr, protocol.ReqDeleteTopicInBroker, map[string]string{"topic": topic}, nil)
		return err
	})
	if to.Addr != "" {
		return err
	}
	ext := map[string]string{"topic": topic}
	if to.Cluster != "" {
		ext["clusterName"] = to.Cluster
	}
	_, err2 := a.callNS(ctx, protocol.ReqDeleteTopicInNamesrv, ext)
	return errors.Join(err, err2)
}

// TopicGroups lists the groups that read a topic, sorted.
func (a *Admin) TopicGroups(ctx context.Context, topic string) ([]string, error) {
	addrs, err := a.topicBrokers(ctx, topic)
	if err != nil {
		return nil, err
	}
	lists := make([][]string, len(addrs))
	err = each(addrs, func(addr string) error {
		l, err := decode[protocol.GroupList](ctx, a, addr, protocol.ReqQueryTopicConsumeByWho, map[string]string{"topic": topic})
		if err == nil {
			lists[slices.Index(addrs, addr)] = l.GroupList
		}
		return err
	})
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), err
}

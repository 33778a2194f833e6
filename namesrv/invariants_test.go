package namesrv

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// TestInvariants drives a table with whatever brokers, well-behaved or not, may say, and checks what must always hold.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(TableConfig{SupportActingMaster: true, NotifyMinBrokerIDChanged: true, DeleteTopicsOnRegister: rapid.Bool().Draw(t, "delete")})
		now := time.UnixMilli(0)
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		cluster := func() string { return pick("cluster", "c", "d") }
		broker := func() string { return pick("broker", "x", "y") }
		addr := func() string { return pick("addr", "1", "2", "3") }
		channel := func() any { return pick("channel", "S1", "S2", "S3") }
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				r := &Registration{Cluster: cluster(), Broker: broker(), Addr: addr(), ID: rapid.Int64Range(0, 2).Draw(t, "id"),
					Timeout: time.Duration(rapid.IntRange(1, 5).Draw(t, "timeout")) * time.Second, Channel: channel(), Whole: rapid.Bool().Draw(t, "whole"),
					Body: &protocol.RegisterBrokerBody{Topics: protocol.TopicConfigWrapper{TopicConfigTable: map[string]*protocol.TopicConfig{}}}}
				if rapid.Bool().Draw(t, "acting") {
					acting := true
					r.ActingMaster = &acting
				}
				w := &r.Body.Topics
				w.DataVersion.StateVersion = rapid.Int64Range(0, 2).Draw(t, "state")
				for _, topic := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"T", "U", "V"}), 0, 3, rapid.ID).Draw(t, "topics") {
					w.TopicConfigTable[topic] = &protocol.TopicConfig{TopicName: topic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}
				}
				if rapid.Bool().Draw(t, "mapped") {
					w.TopicQueueMappingInfoMap = map[string]protocol.TopicQueueMappingInfo{"T": {BrokerName: r.Broker, Topic: "T"}}
				}
				out, err := table.Register(r, now)
				if err == nil && out.Notify != nil && len(out.Notify.Recipients) == 0 {
					t.Fatal("nobody is told")
				}
			},
			"unregister": func(*rapid.T) { table.Unregister(cluster(), broker(), addr(), nil) },
			"close": func(*rapid.T) {
				c := channel()
				for _, e := range table.OfChannel(c) {
					table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel)
				}
				for _, l := range table.live {
					if l.channel == c {
						t.Fatal("a closed channel still has a broker")
					}
				}
			},
			"sign of life": func(*rapid.T) { table.Heartbeat(cluster(), broker(), addr(), now) },
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				gone, _ := table.Expire(now)
				for _, e := range gone {
					table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel)
				}
				if again, _ := table.Expire(now); len(again) > 0 {
					t.Fatal("expired brokers stay")
				}
			},
			"topic": func(t *rapid.T) {
				switch topic := pick("topic", "T", "U", "V"); rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					table.DeleteTopic(topic, "")
				case 1:
					table.DeleteTopic(topic, cluster())
				case 2:
					table.RegisterTopic(topic, []protocol.QueueData{{BrokerName: broker()}, {BrokerName: broker()}})
				default:
					table.SetWrite(broker(), rapid.Bool().Draw(t, "on"))
				}
			},
			"": func(t *rapid.T) {
				if err := table.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		// Silence ends everything.
		gone, _ := table.Expire(now.Add(time.Hour))
		for _, e := range gone {
			table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel)
		}
		if len(table.groups)+len(table.topics)+len(table.clusters)+len(table.live)+len(table.filters)+len(table.mappings) > 0 {
			t.Fatalf("something stays without a live broker: %s, clusters %v, mappings %v", table, table.clusters, table.mappings)
		}
	})
}

// check says which invariant does not hold.
func (t *Table) check() error {
	for name, g := range t.groups {
		if len(g.data.BrokerAddrs) == 0 {
			return fmt.Errorf("group %s has no address", name)
		}
		seen := map[string]bool{}
		for id, addr := range g.data.BrokerAddrs {
			if seen[addr] {
				return fmt.Errorf("address %s has two ids in group %s", addr, name)
			}
			seen[addr] = true
			alive := 0
			for cluster := range t.clusters {
				if l := t.live[member{cluster, name, addr}]; l != nil && l.id == id {
					alive++
				}
			}
			if alive != 1 {
				return fmt.Errorf("%d live entries for %s/%d at %s", alive, name, id, addr)
			}
		}
	}
	for cluster, names := range t.clusters {
		if len(names) == 0 {
			return fmt.Errorf("cluster %s is empty", cluster)
		}
		for name := range names {
			if t.groups[name] == nil {
				return fmt.Errorf("cluster %s has broker %s without a group", cluster, name)
			}
		}
	}
	for topic, brokers := range t.topics {
		if len(brokers) == 0 {
			return fmt.Errorf("topic %s is empty", topic)
		}
		for name := range brokers {
			if t.groups[name] == nil {
				return fmt.Errorf("topic %s has broker %s without a group", topic, name)
			}
			if !t.offered[name][topic] {
				return fmt.Errorf("broker %s does not know that it offers topic %s", name, topic)
			}
		}
	}
	for name, topics := range t.offered {
		if len(topics) == 0 {
			return fmt.Errorf("broker %s has an empty list of topics", name)
		}
		for topic := range topics {
			if _, ok := t.topics[topic][name]; !ok {
				return fmt.Errorf("broker %s offers topic %s, which does not have it", name, topic)
			}
		}
	}
	return nil
}

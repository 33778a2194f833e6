package client

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/message"
)

func eachLine(t *testing.T, file string, fn func(line []byte)) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		fn(sc.Bytes())
	}
	require.NoError(t, sc.Err())
}

func TestAllocateGolden(t *testing.T) {
	strategies := map[string]Strategy{
		"AVG": Average(), "AVG_BY_CIRCLE": AverageByCircle(), "CONSISTENT_HASH": ConsistentHash(0), "CONSISTENT_HASH(vnodes=3)": ConsistentHash(3),
	}
	seen := map[string]int{}
	eachLine(t, "testdata/allocate.jsonl", func(line []byte) {
		var row struct {
			Strategy, Topic string
			Queues          json.RawMessage
			Cids            []string
			Allocation      map[string]json.RawMessage
		}
		require.NoError(t, json.Unmarshal(line, &row))
		s := strategies[row.Strategy]
		if s == nil {
			return
		}
		seen[row.Strategy]++
		queues := parseQueues(t, row.Topic, row.Queues)
		for _, cid := range row.Cids {
			want := parseQueues(t, row.Topic, row.Allocation[cid])
			assert.ElementsMatch(t, want, s.Allocate(cid, queues, row.Cids), "%s %s of %v", row.Strategy, cid, row.Cids)
		}
	})
	for name := range strategies {
		assert.Positive(t, seen[name], name)
	}
}

func parseQueues(t *testing.T, topic string, raw json.RawMessage) (out []Queue) {
	t.Helper()
	var names []string
	require.NoError(t, json.Unmarshal(raw, &names))
	for _, n := range names {
		broker, id, _ := strings.Cut(n, ":")
		k, err := strconv.Atoi(id)
		require.NoError(t, err)
		out = append(out, Queue{topic, broker, int32(k)})
	}
	return out
}

func TestMachineRoom(t *testing.T) {
	var queues []Queue
	for _, b := range []string{"room1@b1", "room2@b2"} {
		for id := range int32(3) {
			queues = append(queues, Queue{"T", b, id})
		}
	}
	s := MachineRoom("room1")
	assert.Equal(t, queues[:3], s.Allocate("c0", queues, []string{"c0"}))
	assert.Equal(t, []Queue{queues[0], queues[2]}, s.Allocate("c0", queues, []string{"c0", "c1"}))
	assert.Equal(t, []Queue{queues[1]}, s.Allocate("c1", queues, []string{"c0", "c1"}))
}

func TestMachineRoomNearby(t *testing.T) {
	queues := []Queue{{"T", "a", 0}, {"T", "a", 1}, {"T", "b", 0}, {"T", "c", 0}}
	room := func(name string) string { return name[:1] }
	s := MachineRoomNearby(Average(), room, room)
	members := []string{"a1", "a2", "b1"}
	assert.Equal(t, []Queue{queues[0], queues[3]}, s.Allocate("a1", queues, members), "a half of its room and a share of the empty one")
	assert.Equal(t, []Queue{queues[1]}, s.Allocate("a2", queues, members))
	assert.Equal(t, []Queue{queues[2]}, s.Allocate("b1", queues, members))
}

// Every queue has exactly one reader, whatever the strategy and the group.
func TestAllocateCoversAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var queues []Queue
		for b := range rapid.IntRange(1, 4).Draw(t, "brokers") {
			for id := range rapid.Int32Range(0, 9).Draw(t, "queues") {
				queues = append(queues, Queue{"T", "b" + strconv.Itoa(b), id})
			}
		}
		var members []string
		for i := range rapid.IntRange(1, 9).Draw(t, "members") {
			members = append(members, "m"+strconv.Itoa(i))
		}
		for _, s := range []Strategy{Average(), AverageByCircle(), ConsistentHash(0),
			MachineRoomNearby(Average(), func(s string) string { return s[1:] }, func(s string) string { return s[1:] })} {
			readers := map[Queue]int{}
			for _, m := range members {
				for _, q := range s.Allocate(m, queues, members) {
					readers[q]++
				}
			}
			for _, q := range queues {
				if readers[q] != 1 {
					t.Fatalf("%s: %d readers of %s", s.Name(), readers[q], q)
				}
			}
		}
	})
}

func TestSubscriptionGolden(t *testing.T) {
	eachLine(t, "testdata/subscription.jsonl", func(line []byte) {
		var row struct {
			Sub, Type *string
			TagsSet   []string
			CodeSet   []int32
			Error     string
		}
		require.NoError(t, json.Unmarshal(line, &row))
		if row.Type != nil && *row.Type != typeTag || row.Sub == nil || row.Error != "" && *row.Sub != "||" {
			return
		}
		s, err := parseSubscription("T", *row.Sub)
		if row.Error != "" {
			assert.Error(t, err, "%q", *row.Sub)
			return
		}
		require.NoError(t, err)
		d := s.wire()
		assert.ElementsMatch(t, row.TagsSet, d.TagsSet, "%q", *row.Sub)
		assert.ElementsMatch(t, row.CodeSet, d.CodeSet, "%q", *row.Sub)
	})
}

func FuzzParseRecords(f *testing.F) {
	raw, err := message.AppendRecord(nil, &message.Message{Topic: []byte("T"), Body: []byte("body"), BornHost: addr, StoreHost: addr,
		Properties: message.EncodeProperties(map[string]string{"KEYS": "a b", "TAGS": "x"})})
	require.NoError(f, err)
	f.Add(raw)
	f.Add(append(append([]byte(nil), raw...), raw...))
	f.Add(raw[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ParseRecords(b, Queue{})
		for i := range list {
			list[i].ID()
			list[i].Keys()
			list[i].Properties()
		}
		if err == nil && len(b) > 0 && len(list) == 0 {
			t.Skip("an inner batch without items")
		}
	})
}

package namesrv

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// What a broker offers is found from its side, so that one that leaves costs what it had, not what all have.
func TestBrokersThatLeaveCostWhatTheyHad(t *testing.T) {
	tab := NewTable(TableConfig{})
	now := time.Now()
	const brokers, each = 200, 500
	for b := range brokers {
		body := &protocol.RegisterBrokerBody{}
		body.Topics.TopicConfigTable = map[string]*protocol.TopicConfig{}
		for i := range each {
			name := fmt.Sprintf("T%d_%d", b, i)
			body.Topics.TopicConfigTable[name] = &protocol.TopicConfig{TopicName: name, Perm: 6, ReadQueueNums: 1, WriteQueueNums: 1}
		}
		_, err := tab.Register(&Registration{Cluster: "c", Broker: fmt.Sprint("b", b), Addr: fmt.Sprint("a", b), Body: body, Channel: b}, now)
		require.NoError(t, err)
	}
	require.Len(t, tab.topics, brokers*each)
	require.Equal(t, each, tab.SetWrite("b7", false))
	require.True(t, tab.DeleteTopic("T7_1", "c"))
	require.False(t, tab.DeleteTopic("T7_1", ""))
	require.False(t, tab.DeleteTopic("T7_2", "another"))
	require.Equal(t, each-1, tab.SetWrite("b7", true))
	for b := range brokers {
		tab.Unregister("c", fmt.Sprint("b", b), fmt.Sprint("a", b), b)
	}
	require.Empty(t, tab.topics)
	require.Empty(t, tab.offered)
	require.Empty(t, tab.groups)
	require.Empty(t, tab.clusters)
}

// The key-value file stays small: each change writes it, and each registration is answered with a part of it.
func TestKeyValuesAreBounded(t *testing.T) {
	kv, err := OpenKV(statefile.OS, filepath.Join(t.TempDir(), "kv.json"))
	require.NoError(t, err)
	value := strings.Repeat("v", 1<<20)
	for i := range 3 {
		require.NoError(t, kv.Put("n", fmt.Sprint(i), value))
	}
	require.ErrorContains(t, kv.Put("n", "3", value), "are allowed")
	_, ok := kv.Get("n", "3")
	require.False(t, ok, "a refused value")
	require.NoError(t, kv.Put("n", "small", "v"))
	require.NoError(t, kv.Delete("n", "0"))
	require.NoError(t, kv.Put("n", "3", value))
}

package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func queues(ids ...int32) []Queue {
	out := make([]Queue, 0, len(ids))
	for _, id := range ids {
		out = append(out, Queue{Broker: "b-a", Topic: "T", ID: id})
	}
	return out
}

func TestTable(t *testing.T) {
	t0 := time.Unix(1000, 0)
	tab := NewTable(0)
	require.Equal(t, queues(0, 1), tab.Lock("g", "a", queues(0, 1), t0), "free queues are taken")
	require.Equal(t, queues(2), tab.Lock("g", "b", queues(0, 1, 2), t0), "held queues are not")
	require.Equal(t, queues(0), tab.Lock("other", "b", queues(0), t0), "another group has its own locks")
	require.True(t, tab.Held([]byte("g"), t0))

	require.Equal(t, queues(0), tab.Lock("g", "a", queues(0), t0.Add(59*time.Second)), "renewed by its holder")
	require.Equal(t, queues(1), tab.Lock("g", "b", queues(0, 1), t0.Add(60*time.Second)), "only the expired one is taken")

	tab.Unlock("g", "a", queues(0, 1))
	require.Equal(t, queues(0), tab.Lock("g", "c", queues(0, 1), t0.Add(60*time.Second)), "unlock of another's queue is ignored")
	require.False(t, tab.Held([]byte("g"), t0.Add(10*time.Minute)))
	tab.Lock("x", "y", queues(9), t0.Add(10*time.Minute))
	require.Len(t, tab.groups, 1, "expired groups are swept")
	tab.Unlock("x", "y", queues(9))
	tab.Unlock("never", "y", queues(9))
	require.Empty(t, tab.groups)
}

// Two clients are never told at the same time that they hold the same queue.
func TestTableExclusive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := NewTable(time.Minute)
		now := time.Unix(1, 0)
		type belief struct {
			client string
			until  time.Time
		}
		owner := map[Queue]belief{}
		for i := 0; i < rapid.IntRange(1, 60).Draw(t, "steps"); i++ {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "wait")) * time.Second)
			client := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "client"))
			qs := queues(rapid.SliceOfNDistinct(rapid.Int32Range(0, 3), 1, 4, rapid.ID).Draw(t, "queues")...)
			if rapid.Bool().Draw(t, "unlock") {
				tab.Unlock("g", client, qs)
				for _, q := range qs {
					if owner[q].client == client {
						delete(owner, q)
					}
				}
				continue
			}
			for _, q := range tab.Lock("g", client, qs, now) {
				if b, ok := owner[q]; ok && b.client != client && now.Before(b.until) {
					t.Fatalf("%v held by %s until %v given to %s at %v", q, b.client, b.until, client, now)
				}
				owner[q] = belief{client, now.Add(time.Minute)}
			}
		}
	})
}

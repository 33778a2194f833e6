package pull

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tags(t testing.TB, expr string) *TagFilter {
	f, err := ParseTags(expr)
	require.NoError(t, err)
	return f
}

func TestTableArrival(t *testing.T) {
	tab := newTable()
	at := queueID{"T", 3}
	all := &parked{at: at, offset: 10, filter: tags(t, "*")}
	tagA := &parked{at: at, offset: 10, filter: tags(t, "A")}
	ahead := &parked{at: at, offset: 12, filter: tags(t, "*")}
	other := &parked{at: queueID{"T", 4}, offset: 0, filter: tags(t, "*")}
	for _, p := range []*parked{all, tagA, ahead, other} {
		require.True(t, tab.add(p))
	}
	require.Equal(t, 4, tab.len())
	var woken []*parked
	arrive := func(off message.QueueOffset, tag string, count int) {
		woken = nil
		tab.arrived(&store.Arrival{Topic: "T", QueueID: 3, Offset: off, TagsCode: message.TagsCode([]byte(tag)), Count: count},
			func(p *parked) { woken = append(woken, p) })
	}
	arrive(10, "A", 1)
	require.Empty(t, woken, "nothing new for them")
	arrive(11, "B", 1)
	require.Equal(t, []*parked{all}, woken)
	arrive(12, "B", 1)
	require.Empty(t, woken)
	arrive(14, "B", 2)
	require.Equal(t, []*parked{tagA, ahead}, woken, "the tags of all but the newest of a round are unknown")
	require.Equal(t, 1, tab.len())
	require.False(t, tab.remove(all))
	require.True(t, tab.remove(other))
	require.False(t, tab.remove(other))
	require.Zero(t, tab.len())
	require.Empty(t, tab.shard(at).queues)

	require.True(t, tab.add(all))
	require.Equal(t, []*parked{all}, tab.close())
	require.False(t, tab.add(tagA), "closed")
}

func TestTableArrivalAllocatesNothing(t *testing.T) {
	tab := newTable()
	tab.add(&parked{at: queueID{"T", 0}, offset: 1 << 40, filter: tags(t, "*")})
	a := &store.Arrival{Topic: "T", Offset: 5, Count: 1}
	none := &store.Arrival{Topic: "U", Offset: 5, Count: 1}
	wake := func(*parked) {}
	require.Zero(t, testing.AllocsPerRun(100, func() { tab.arrived(a, wake); tab.arrived(none, wake) }))
}

// Each parked pull is taken out exactly once, whoever comes first: arrivals, timers, close.
func TestTableRaces(t *testing.T) {
	tab := newTable()
	const n = 2000
	var out [n]atomic.Int32
	ps := make([]*parked, n)
	for i := range ps {
		ps[i] = &parked{at: queueID{"T", int32(i % 7)}, offset: message.QueueOffset(i), filter: tags(t, "*")}
	}
	index := map[*parked]int{}
	for i, p := range ps {
		index[p] = i
	}
	took := func(p *parked) { out[index[p]].Add(1) }
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := w; i < n; i += 2 {
				if !tab.add(ps[i]) {
					took(ps[i])
				}
			}
		})
	}
	wg.Go(func() {
		for i := range n {
			tab.arrived(&store.Arrival{Topic: "T", QueueID: int32(i % 7), Offset: message.QueueOffset(i), Count: 2}, took)
		}
	})
	wg.Go(func() {
		for i := range ps {
			if tab.remove(ps[n-1-i]) {
				took(ps[n-1-i])
			}
		}
	})
	wg.Wait()
	for _, p := range tab.close() {
		took(p)
	}
	for i := range out {
		require.EqualValues(t, 1, out[i].Load(), "pull %d", i)
	}
}

func TestRunner(t *testing.T) {
	var mu sync.Mutex
	var ran []*parked
	block := make(chan struct{})
	r := newRunner(3, func(p *parked) {
		<-block
		mu.Lock()
		ran = append(ran, p)
		mu.Unlock()
	})
	ps := []*parked{{}, {}, {}, {}}
	for i, want := range []bool{true, true, true, false} {
		require.Equal(t, want, r.push(ps[i]), "the limit holds, push %d", i)
	}
	r.start(2)
	close(block)
	r.close()
	r.close()
	require.ElementsMatch(t, ps[:3], ran, "what waited at close was run")
	require.False(t, r.push(ps[3]))
}

func TestRunnerOrder(t *testing.T) {
	var got []time.Duration
	r := newRunner(0, func(p *parked) { got = append(got, time.Duration(p.offset)) })
	for i := range 5000 {
		require.True(t, r.push(&parked{offset: message.QueueOffset(i)}))
	}
	r.start(1)
	r.close()
	require.Len(t, got, 5000)
	require.IsIncreasing(t, got)
}

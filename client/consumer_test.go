package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/client/internal/fakebroker"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// tally collects what handlers saw.
type tally struct {
	mu    sync.Mutex
	list  []string
	count map[string]int
}

func (s *tally) add(msgs []*Received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	for _, m := range msgs {
		s.list = append(s.list, string(m.Body))
		s.count[string(m.Body)]++
	}
}

func (s *tally) distinct() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.count)
}

func (s *tally) times(body string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[body]
}

func (s *tally) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func newConsumer(t testing.TB, cl *Client, h Handler, change ...func(*ConsumerConfig)) *Consumer {
	t.Helper()
	cfg := ConsumerConfig{Group: "cg", Subscriptions: map[string]string{"T": "*"}, From: FromFirst, CommitInterval: 50 * time.Millisecond,
		RebalanceInterval: 300 * time.Millisecond, SuspendTime: 5 * time.Millisecond, DrainTime: 2 * time.Second}
	for _, fn := range change {
		fn(&cfg)
	}
	n, err := NewConsumer(cl, cfg, h)
	require.NoError(t, err)
	require.NoError(t, n.Start(ctxFor(t)))
	t.Cleanup(func() { require.NoError(t, n.Close(ctxFor(t))) })
	return n
}

func fill(c *fakebroker.Cluster, brokers []string, queues int32, each int) int {
	n := 0
	for _, b := range brokers {
		for q := range queues {
			for i := range each {
				c.Broker(b).Put("T", q, fmt.Sprintf("%s-%d-%d", b, q, i), map[string]string{"UNIQ_KEY": fmt.Sprintf("id%d", n)})
				n++
			}
		}
	}
	return n
}

func TestConsume(t *testing.T) {
	c := fakebroker.New(t, "a", "b")
	c.Topic("T", 2)
	total := fill(c, []string{"a", "b"}, 2, 100)
	var got tally
	n := newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	eventually(t, func() bool { return got.distinct() == total }, "all consumed")
	c.Broker("b").Put("T", 1, "late", nil)
	eventually(t, func() bool { return got.times("late") == 1 }, "a message that comes while a pull waits")
	require.NoError(t, n.Close(ctxFor(t)))
	assert.Len(t, got.all(), total+1, "nothing twice")
	assert.Equal(t, int64(100), c.Committed("cg", "T", "a", 0))
	assert.Equal(t, int64(101), c.Committed("cg", "T", "b", 1))
	assert.Empty(t, c.Members("cg"))
}

func TestConsumeTags(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	for i, tag := range []string{"Aa", "BB", "C", ""} { // Aa and BB have the same hash, the fake broker filters nothing
		c.Broker("a").Put("T", 0, fmt.Sprint(i), map[string]string{"TAGS": tag})
	}
	var got tally
	n := newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	}, func(cfg *ConsumerConfig) { cfg.Subscriptions = map[string]string{"T": "Aa || C"} })
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 0) == 4 }, "filtered messages do not stop the offset")
	require.NoError(t, n.Close(ctxFor(t)))
	assert.ElementsMatch(t, []string{"0", "2"}, got.all())
}

func TestConsumeStartsAtEnd(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	c.Broker("a").Put("T", 0, "old", nil)
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	}, func(cfg *ConsumerConfig) { cfg.From = FromLast })
	eventually(t, func() bool { return c.Broker("a").Count(protocol.ReqPullMessage) > 0 }, "pulls")
	c.Broker("a").Put("T", 0, "new", nil)
	eventually(t, func() bool { return got.times("new") == 1 }, "new one")
	assert.Equal(t, []string{"new"}, got.all())
}

func TestRetriesAndDeadLetters(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	for _, b := range []string{"good", "once", "never", "dead", "panic"} {
		c.Broker("a").Put("T", 0, b, nil)
	}
	var got tally
	var topics sync.Map
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		m := msgs[0]
		topics.Store(m.Topic, true)
		switch {
		case string(m.Body) == "once" && m.ReconsumeTimes == 0, string(m.Body) == "never":
			return errors.New("not now")
		case string(m.Body) == "dead":
			return DeadLetter(errors.New("poison"))
		case string(m.Body) == "panic" && m.ReconsumeTimes == 0:
			panic("boom")
		}
		return nil
	}, func(cfg *ConsumerConfig) { cfg.MaxRetries = 2 })
	eventually(t, func() bool { return len(c.Dead()) == 2 && got.times("once") == 2 && got.times("panic") == 2 }, "retries")
	assert.ElementsMatch(t, []string{"never", "dead"}, c.Dead())
	assert.Equal(t, 3, got.times("never"), "first delivery and two retries")
	assert.Equal(t, 1, got.times("dead"))
	topics.Range(func(topic, _ any) bool {
		assert.Equal(t, "T", topic, "retried messages have their own topic")
		return true
	})
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 0) == 5 }, "offset passes failed messages")
}

func TestSendBackFallsBack(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	c.Broker("a").Put("T", 0, "x", map[string]string{"UNIQ_KEY": "id", "TAGS": "t"})
	c.Broker("a").Fail(func(code int32, _ *remoting.Request) fakebroker.Fault {
		if code == protocol.ReqConsumerSendMsgBack {
			return protocol.Errorf(protocol.SystemError, "look message by offset failed")
		}
		return nil
	})
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		if msgs[0].ReconsumeTimes == 0 {
			return errors.New("again")
		}
		assert.Equal(t, "T", msgs[0].Topic)
		assert.Equal(t, "id", msgs[0].ID())
		assert.Equal(t, "t", msgs[0].Tags())
		assert.Equal(t, "3", msgs[0].Property(message.PropDelay))
		return nil
	})
	eventually(t, func() bool { return got.times("x") == 2 }, "comes back through the retry topic")
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 0) == 1 }, "committed")
}

func TestGroupSharesAndTakesOver(t *testing.T) {
	c := fakebroker.New(t, "a", "b")
	c.Topic("T", 3)
	var got tally
	handler := func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	}
	first := newConsumer(t, newClient(t, c), handler)
	eventually(t, func() bool { return len(first.Queues()) == 8 }, "six queues and two of the retry topic")
	second := newConsumer(t, newClient(t, c), handler)
	third := newConsumer(t, newClient(t, c), handler)
	members := []*Consumer{first, second, third}
	spread := func(list ...*Consumer) func() bool {
		return func() bool {
			seen := map[Queue]int{}
			for _, n := range list {
				for _, q := range n.Queues() {
					if q.Topic == "T" {
						seen[q]++
					}
				}
			}
			if len(seen) != 6 {
				return false
			}
			for _, n := range seen {
				if n != 1 {
					return false
				}
			}
			return true
		}
	}
	eventually(t, spread(members...), "each queue has one reader")
	total := fill(c, []string{"a", "b"}, 3, 50)
	eventually(t, func() bool { return got.distinct() == total }, "all consumed by three")
	require.NoError(t, second.Close(ctxFor(t)))
	eventually(t, spread(first, third), "the others take over")
	c.Broker("a").Put("T", 2, "after", nil)
	c.Broker("b").Put("T", 0, "after2", nil)
	eventually(t, func() bool { return got.times("after") == 1 && got.times("after2") == 1 }, "nothing is left alone")
}

func TestHandlerOutlivesRebalance(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	c.Broker("a").Put("T", 1, "slow", nil)
	started, release := make(chan struct{}), make(chan struct{})
	var first, second tally
	cl := newClient(t, c, func(cfg *Config) { cfg.Name = "0" }) // sorts before the other: it keeps queue 0
	n := newConsumer(t, cl, func(_ context.Context, msgs []*Received) error {
		close(started)
		<-release
		first.add(msgs)
		return nil
	})
	<-started
	newConsumer(t, newClient(t, c, func(cfg *Config) { cfg.Name = "1" }), func(_ context.Context, msgs []*Received) error {
		second.add(msgs)
		return nil
	}, func(cfg *ConsumerConfig) { cfg.Group = "cg" })
	eventually(t, func() bool { return !slices.Contains(n.Queues(), Queue{"T", "a", 1}) }, "queue given up")
	close(release)
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 1) == 1 }, "its offset is stored when the handler ends")
	assert.Equal(t, 1, first.times("slow"))
}

func TestOrdered(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	fill(c, []string{"a"}, 2, 20)
	var got tally
	failed := map[string]int{}
	var mu sync.Mutex
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		mu.Lock()
		defer mu.Unlock()
		if b := string(msgs[0].Body); b == "a-0-5" && failed[b] < 3 {
			failed[b]++
			return errors.New("wait for it")
		}
		got.add(msgs)
		return nil
	}, func(cfg *ConsumerConfig) { cfg.Ordered = true })
	eventually(t, func() bool { return got.distinct() == 40 }, "all consumed")
	next := map[string]int{}
	for _, b := range got.all() {
		queue := b[:3]
		assert.Equal(t, fmt.Sprintf("%s-%d", queue, next[queue]), b)
		next[queue]++
	}
}

func TestOrderedGivesUp(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	for _, b := range []string{"1", "2", "3"} {
		c.Broker("a").Put("T", 0, b, nil)
	}
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		if string(msgs[0].Body) == "2" {
			return errors.New("never")
		}
		return nil
	}, func(cfg *ConsumerConfig) { cfg.Ordered, cfg.MaxRetries = true, 2 })
	eventually(t, func() bool { return got.times("3") == 1 }, "the next message proceeds")
	assert.Equal(t, []string{"2"}, c.Dead())
	assert.Equal(t, []string{"1", "2", "2", "2", "3"}, got.all())
}

func TestOrderedLocksAreExclusive(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 4)
	var running sync.Map
	var overlap tally
	handler := func(_ context.Context, msgs []*Received) error {
		if _, busy := running.LoadOrStore(msgs[0].Queue, true); busy {
			overlap.add(msgs)
		}
		defer running.Delete(msgs[0].Queue)
		return nil
	}
	ordered := func(cfg *ConsumerConfig) { cfg.Ordered = true }
	first := newConsumer(t, newClient(t, c), handler, ordered)
	eventually(t, func() bool { return len(first.Queues()) >= 4 }, "first has all")
	second := newConsumer(t, newClient(t, c), handler, ordered)
	for i := range 400 {
		c.Broker("a").Put("T", int32(i%4), fmt.Sprint(i), nil)
	}
	eventually(t, func() bool {
		n := int64(0)
		for q := range int32(4) {
			n += max(c.Committed("cg", "T", "a", q), 0)
		}
		return n == 400
	}, "all consumed")
	eventually(t, func() bool { return len(second.Queues()) >= 2 }, "locks move")
	assert.Empty(t, overlap.all())
}

func TestBroadcasting(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	dir := t.TempDir()
	broadcast := func(cfg *ConsumerConfig) { cfg.Model, cfg.OffsetDir = Broadcasting, dir }
	total := fill(c, []string{"a"}, 2, 10)
	var one, two tally
	named := func(name string) func(*Config) { return func(cfg *Config) { cfg.Name = name } }
	first := newConsumer(t, newClient(t, c, named("one")), func(_ context.Context, m []*Received) error { one.add(m); return nil }, broadcast)
	newConsumer(t, newClient(t, c, named("two")), func(_ context.Context, m []*Received) error { two.add(m); return nil }, broadcast)
	eventually(t, func() bool { return one.distinct() == total && two.distinct() == total }, "each gets all")
	require.NoError(t, first.Close(ctxFor(t)))
	assert.Equal(t, int64(-1), c.Committed("cg", "T", "a", 0), "the broker keeps no offsets")
	c.Broker("a").Put("T", 0, "later", nil)
	var again tally
	newConsumer(t, newClient(t, c, named("one")), func(_ context.Context, m []*Received) error { again.add(m); return nil }, broadcast)
	eventually(t, func() bool { return again.times("later") == 1 }, "goes on where it was")
	assert.Equal(t, []string{"later"}, again.all())
}

func TestBrokerRestarts(t *testing.T) {
	c := fakebroker.New(t, "a", "b")
	c.Topic("T", 2)
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	for round := range 3 {
		for _, name := range []string{"a", "b"} {
			b := c.Broker(name)
			if round == 1 {
				b.Stop() // the name server forgets it meanwhile
			} else {
				b.Kill()
			}
			b.Put("T", 0, fmt.Sprintf("%d%s", round, name), nil)
			b.Restart() // at another address, and it knows no group any more
			eventually(t, func() bool { return got.times(fmt.Sprintf("%d%s", round, name)) > 0 }, "consumed after the restart")
		}
	}
}

func TestOffsetMoved(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	fill(c, []string{"a"}, 1, 50)
	c.Broker("a").Trim("T", 0, 40)
	c.SetOffset("cg", "T", "a", 0, 3)
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	eventually(t, func() bool { return got.distinct() == 10 }, "goes on at the first message there is")
	eventually(t, func() bool { return c.Committed("cg", "T", "a", 0) == 50 }, "committed")
}

func TestHoldsLittle(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	fill(c, []string{"a"}, 1, 300)
	release := make(chan struct{})
	var got tally
	n := newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		<-release
		got.add(msgs)
		return nil
	}, func(cfg *ConsumerConfig) { cfg.MaxQueued, cfg.Workers = 64, 2 })
	var s *source
	eventually(t, func() bool {
		s = n.g.source(Queue{"T", "a", 0})
		if s == nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.window) >= 64
	}, "fetches ahead")
	s.mu.Lock()
	assert.LessOrEqual(t, len(s.window), 64+32)
	s.mu.Unlock()
	close(release)
	eventually(t, func() bool { return got.distinct() == 300 }, "all in the end")
}

func TestPauseResume(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	var got tally
	n := newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	c.Broker("a").Put("T", 0, "1", nil)
	eventually(t, func() bool { return got.times("1") == 1 }, "runs")
	n.Pause()
	c.Broker("a").Put("T", 0, "2", nil)
	n.Resume()
	eventually(t, func() bool { return got.times("2") == 1 }, "runs again")
}

func TestCloseWithoutRoom(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	c.Broker("a").Put("T", 0, "stuck", nil)
	running := make(chan struct{})
	n, err := NewConsumer(newClient(t, c), ConsumerConfig{Group: "cg", Subscriptions: map[string]string{"T": ""}, From: FromFirst},
		func(ctx context.Context, _ []*Received) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
	require.NoError(t, err)
	require.NoError(t, n.Start(ctxFor(t)))
	require.Error(t, n.Start(ctxFor(t)), "only once")
	<-running
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, n.Close(ctx), context.DeadlineExceeded)
	assert.LessOrEqual(t, c.Committed("cg", "T", "a", 0), int64(0), "the message was not consumed")
	n.wg.Wait()
}

func TestSecondConsumerOfAGroup(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	cl := newClient(t, c)
	nop := func(context.Context, []*Received) error { return nil }
	newConsumer(t, cl, nop)
	n, err := NewConsumer(cl, ConsumerConfig{Group: "cg", Subscriptions: map[string]string{"T": ""}}, nop)
	require.NoError(t, err)
	require.Error(t, n.Start(ctxFor(t)))
	require.NoError(t, n.Close(ctxFor(t)))
}

func TestTopicComesLater(t *testing.T) {
	c := fakebroker.New(t, "a")
	var got tally
	newConsumer(t, newClient(t, c), func(_ context.Context, msgs []*Received) error {
		got.add(msgs)
		return nil
	})
	c.Topic("T", 1)
	c.Broker("a").Put("T", 0, "x", nil)
	eventually(t, func() bool { return got.times("x") == 1 }, "found")
}

func TestPullerAssigned(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	fill(c, []string{"a"}, 2, 10)
	q0, q1 := Queue{"T", "a", 0}, Queue{"T", "a", 1}
	p, err := NewPuller(newClient(t, c), PullerConfig{Group: "pull", Queues: []Queue{q0}, From: FromFirst, ManualCommit: true})
	require.NoError(t, err)
	require.NoError(t, p.Start(ctxFor(t)))
	first := poll(t, p, 10)
	assert.Equal(t, "a-0-0", first[0])
	assert.Len(t, first, 10)
	require.NoError(t, p.Commit(ctxFor(t)))
	assert.Equal(t, int64(10), c.Committed("pull", "T", "a", 0))

	require.NoError(t, p.Seek(q0, 7))
	assert.Equal(t, []string{"a-0-7", "a-0-8", "a-0-9"}, poll(t, p, 3))
	at, err := p.Position(q0)
	require.NoError(t, err)
	assert.Equal(t, int64(7), at, "not consumed before Commit")

	require.NoError(t, p.Assign(q1))
	eventually(t, func() bool { return slices.Equal(p.Queues(), []Queue{q1}) }, "assigned")
	assert.Equal(t, "a-1-0", poll(t, p, 10)[0])
	require.ErrorIs(t, p.Seek(q0, 0), ErrNotAssigned)
	assert.Empty(t, c.Members("pull"), "assigned queues make no member")

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Poll(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, p.Close(ctxFor(t)))
	_, err = p.Poll(ctxFor(t), 1)
	require.ErrorIs(t, err, ErrClosed)
}

func poll(t *testing.T, p *Puller, n int) (out []string) {
	t.Helper()
	for len(out) < n {
		msgs, err := p.Poll(ctxFor(t), n-len(out))
		require.NoError(t, err)
		for _, m := range msgs {
			out = append(out, string(m.Body))
		}
	}
	return out
}

func TestPullerSubscribed(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	total := fill(c, []string{"a"}, 2, 30)
	p, err := NewPuller(newClient(t, c), PullerConfig{Group: "pull", Subscriptions: map[string]string{"T": "*"}, From: FromFirst,
		CommitInterval: 20 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, p.Start(ctxFor(t)))
	seen := map[string]bool{}
	for _, b := range poll(t, p, total) {
		seen[b] = true
	}
	assert.Len(t, slices.Collect(maps.Keys(seen)), total)
	assert.Len(t, c.Members("pull"), 1)
	p.consumed()
	eventually(t, func() bool { return c.Committed("pull", "T", "a", 0)+c.Committed("pull", "T", "a", 1) == int64(total) }, "committed by itself")
	require.NoError(t, p.Close(ctxFor(t)))
}

func TestPullOnce(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	fill(c, []string{"a"}, 1, 5)
	cl := newClient(t, c)
	q := Queue{"T", "a", 0}
	r, err := cl.Pull(ctxFor(t), PullRequest{Group: "g", Queue: q, Offset: 2, Max: 2})
	require.NoError(t, err)
	assert.Equal(t, PullFound, r.Status)
	require.Len(t, r.Messages, 2)
	assert.Equal(t, "T/0@2", r.Messages[0].String())
	assert.Equal(t, int64(4), r.Next)
	r, err = cl.Pull(ctxFor(t), PullRequest{Group: "g", Queue: q, Offset: 5})
	require.NoError(t, err)
	assert.Equal(t, PullNone, r.Status)
	r, err = cl.Pull(ctxFor(t), PullRequest{Group: "g", Queue: q, Offset: 50})
	require.NoError(t, err)
	assert.Equal(t, PullMoved, r.Status)
	assert.Equal(t, int64(5), r.Next)
	lo, err := cl.MinOffset(ctxFor(t), q)
	require.NoError(t, err)
	hi, err := cl.MaxOffset(ctxFor(t), q)
	require.NoError(t, err)
	at, err := cl.OffsetForTime(ctxFor(t), q, 0)
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 5, 0}, []int64{lo, hi, at})
}

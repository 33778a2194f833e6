// Command goclient runs the scenarios of an ordinary application with the unmodified Go client of RocketMQ and prints
// "PASS name" or "FAIL name reason" for each. It is a module of its own, so that the product does not depend on that client.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	nameServers []string
	run         = fmt.Sprintf("%x", time.Now().UnixMilli()%1e9)
)

func main() {
	rlog.SetLogLevel("error")
	nameServers = []string{os.Args[1]}
	scenarios := []struct {
		name string
		fn   func() error
	}{
		{"send-and-push", sendAndPush},
		{"ordered", ordered},
		{"retry", retry},
		{"broadcast", broadcast},
		{"delay-level", delayLevel},
	}
	failed := false
	for _, s := range scenarios {
		start := time.Now()
		if err := s.fn(); err != nil {
			failed = true
			fmt.Printf("FAIL %s %v\n", s.name, err)
			continue
		}
		fmt.Printf("PASS %s %d ms\n", s.name, time.Since(start).Milliseconds())
	}
	if failed {
		os.Exit(1)
	}
}

func newProducer() (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("CfGoP"+run),
		producer.WithInstanceName(fmt.Sprint("p", time.Now().UnixNano())), producer.WithRetry(2), producer.WithCompressMsgBodyOverHowmuch(4096))
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}

func newPush(group string, opts ...consumer.Option) (rocketmq.PushConsumer, error) {
	opts = append([]consumer.Option{consumer.WithNameServer(nameServers), consumer.WithGroupName(group),
		consumer.WithInstance(fmt.Sprint("c", time.Now().UnixNano())), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)
	return rocketmq.NewPushConsumer(opts...)
}

type tally struct {
	sync.Mutex
	got map[string]int
}

func (t *tally) add(s string) { t.Lock(); t.got[s]++; t.Unlock() }
func (t *tally) size() int    { t.Lock(); defer t.Unlock(); return len(t.got) }

func await(what string, limit time.Duration, cond func() bool) error {
	for end := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s", limit, what)
		}
	}
	return nil
}

func sendAndPush() error {
	topic, group := "CfGo"+run+"send", "CfGoG"+run+"send"
	p, err := newProducer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	ctx := context.Background()
	want := 0
	for i := 0; i < 50; i++ {
		m := primitive.NewMessage(topic, []byte(fmt.Sprint("sync-", i)))
		m.WithTag("TagA").WithKeys([]string{fmt.Sprint("k", i)}).WithProperty("n", fmt.Sprint(i))
		res, err := p.SendSync(ctx, m)
		if err != nil || res.Status != primitive.SendOK {
			return fmt.Errorf("sync send %d: %v %v", i, res, err)
		}
		want++
	}
	var wg sync.WaitGroup
	var bad atomic.Value
	for i := 0; i < 100; i++ {
		wg.Add(1)
		err := p.SendAsync(ctx, func(_ context.Context, res *primitive.SendResult, err error) {
			if err != nil {
				bad.Store(err.Error())
			}
			wg.Done()
		}, primitive.NewMessage(topic, []byte(fmt.Sprint("async-", i))))
		if err != nil {
			return err
		}
		want++
	}
	wg.Wait()
	if e := bad.Load(); e != nil {
		return fmt.Errorf("async: %v", e)
	}
	if err := p.SendOneWay(ctx, primitive.NewMessage(topic, []byte("oneway"))); err != nil {
		return err
	}
	want++
	var batch []*primitive.Message
	for i := 0; i < 10; i++ {
		batch = append(batch, primitive.NewMessage(topic, []byte(fmt.Sprint("batch-", i))))
		want++
	}
	if _, err := p.SendSync(ctx, batch...); err != nil {
		return fmt.Errorf("batch: %w", err)
	}
	big := make([]byte, 1<<20)
	if _, err := p.SendSync(ctx, primitive.NewMessage(topic, big)); err != nil {
		return fmt.Errorf("compressed: %w", err)
	}
	want++
	c, err := newPush(group)
	if err != nil {
		return err
	}
	t := tally{got: map[string]int{}}
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			if len(m.Body) == len(big) {
				t.add("big")
				continue
			}
			t.add(string(m.Body))
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	return await(fmt.Sprintf("%d messages", want), 40*time.Second, func() bool { return t.size() == want })
}

func ordered() error {
	topic, group := "CfGo"+run+"order", "CfGoG"+run+"order"
	p, err := rocketmq.NewProducer(producer.WithNameServer(nameServers), producer.WithGroupName("CfGoPO"+run), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	for s := 0; s < 20; s++ {
		for o := 0; o < 6; o++ {
			m := primitive.NewMessage(topic, []byte(fmt.Sprintf("%d:%d", o, s)))
			m.WithShardingKey(fmt.Sprint("o", o))
			if _, err := p.SendSync(context.Background(), m); err != nil {
				return err
			}
		}
	}
	c, err := newPush(group, consumer.WithConsumerOrder(true))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	last := map[int]int{}
	count, wrong := 0, ""
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range ms {
			var o, s int
			fmt.Sscanf(string(m.Body), "%d:%d", &o, &s)
			if s != last[o] {
				wrong = fmt.Sprintf("order %d: step %d after %d steps", o, s, last[o])
			}
			last[o]++
			count++
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	if err := await("120 ordered messages", 60*time.Second, func() bool { mu.Lock(); defer mu.Unlock(); return count >= 120 }); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != "" {
		return fmt.Errorf("%s", wrong)
	}
	return nil
}

func retry() error {
	topic, group := "CfGo"+run+"retry", "CfGoG"+run+"retry"
	p, err := newProducer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	for i := 0; i < 5; i++ {
		if _, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(fmt.Sprint("m", i)))); err != nil {
			return err
		}
	}
	c, err := newPush(group)
	if err != nil {
		return err
	}
	t := tally{got: map[string]int{}}
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			if m.ReconsumeTimes == 0 {
				if cc, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					cc.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			t.add(string(m.Body))
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	return await("five retried messages", 90*time.Second, func() bool { return t.size() == 5 })
}

func broadcast() error {
	topic, group := "CfGo"+run+"bc", "CfGoG"+run+"bc"
	p, err := newProducer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	if _, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte("create"))); err != nil {
		return err
	}
	tallies := [2]tally{{got: map[string]int{}}, {got: map[string]int{}}}
	for i := range tallies {
		t := &tallies[i]
		c, err := newPush(group, consumer.WithConsumerModel(consumer.BroadCasting))
		if err != nil {
			return err
		}
		err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range ms {
				t.add(string(m.Body))
			}
			return consumer.ConsumeSuccess, nil
		})
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		defer c.Shutdown()
	}
	for i := 0; i < 20; i++ {
		if _, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(fmt.Sprint("b", i)))); err != nil {
			return err
		}
	}
	return await("all at both consumers", 60*time.Second, func() bool { return tallies[0].size() >= 20 && tallies[1].size() >= 20 })
}

func delayLevel() error {
	topic, group := "CfGo"+run+"delay", "CfGoG"+run+"delay"
	p, err := newProducer()
	if err != nil {
		return err
	}
	defer p.Shutdown()
	m := primitive.NewMessage(topic, []byte("later"))
	m.WithDelayTimeLevel(2)
	start := time.Now()
	if _, err := p.SendSync(context.Background(), m); err != nil {
		return err
	}
	c, err := newPush(group)
	if err != nil {
		return err
	}
	var at atomic.Int64
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		at.Store(time.Now().UnixNano())
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	if err := await("the delayed message", 60*time.Second, func() bool { return at.Load() != 0 }); err != nil {
		return err
	}
	if d := time.Unix(0, at.Load()).Sub(start); d < 4900*time.Millisecond {
		return fmt.Errorf("arrived after %v", d)
	}
	return nil
}

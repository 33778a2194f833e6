package client

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/client/internal/fakebroker"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/message/codec"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

var addr = netip.MustParseAddrPort("127.0.0.1:10911")

func TestSend(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 2)
	p := newProducer(t, newClient(t, c))
	r, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("one"), Tags: "x", Keys: []string{"k1", "k2"}, Flag: 7, DelayLevel: 3,
		Properties: map[string]string{"p": "v"}, Queue: &Queue{"T", "a", 1}})
	require.NoError(t, err)
	assert.Equal(t, Stored, r.Status)
	assert.Equal(t, Queue{"T", "a", 1}, r.Queue)
	assert.Equal(t, int64(0), r.Offset)
	assert.Equal(t, 1, r.Attempts)
	recs := c.Broker("a").Records("T", 1)
	require.Len(t, recs, 1)
	assert.Equal(t, int32(7), recs[0].Flag)
	assert.Equal(t, map[string]string{"p": "v", "KEYS": "k1 k2", "TAGS": "x", "DELAY": "3", "WAIT": "true", "UNIQ_KEY": r.ID},
		message.DecodeProperties(recs[0].Properties))
}

func TestSendGoesRound(t *testing.T) {
	c := fakebroker.New(t, "a", "b")
	c.Topic("T", 2)
	p := newProducer(t, newClient(t, c))
	seen := map[Queue]int{}
	for range 8 {
		r, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x")})
		require.NoError(t, err)
		seen[r.Queue]++
	}
	assert.Equal(t, map[Queue]int{{"T", "a", 0}: 2, {"T", "a", 1}: 2, {"T", "b", 0}: 2, {"T", "b", 1}: 2}, seen)
}

func TestSendRefusedHere(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.MaxMessageSize = 10 })
	for name, m := range map[string]*Message{
		"no topic":          {Body: []byte("x")},
		"bad topic":         {Topic: "a b", Body: []byte("x")},
		"no body":           {Topic: "T"},
		"too large":         {Topic: "T", Body: []byte("12345678901")},
		"reserved property": {Topic: "T", Body: []byte("x"), Properties: map[string]string{"UNIQ_KEY": "1"}},
		"empty value":       {Topic: "T", Body: []byte("x"), Properties: map[string]string{"a": ""}},
		"control character": {Topic: "T", Body: []byte("x"), Properties: map[string]string{"a": "\x02"}},
		"key with a blank":  {Topic: "T", Body: []byte("x"), Keys: []string{"a b"}},
		"long properties":   {Topic: "T", Body: []byte("x"), Properties: map[string]string{"a": strings.Repeat("x", 33000)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Send(ctxFor(t), m)
			var wrong *MessageError
			assert.ErrorAs(t, err, &wrong)
		})
	}
	_, err := p.SendBatch(ctxFor(t), nil)
	assert.Error(t, err)
	_, err = p.SendBatch(ctxFor(t), []*Message{{Topic: "T", Body: []byte("x")}, {Topic: "U", Body: []byte("x")}})
	assert.Error(t, err)
	assert.Zero(t, c.Broker("a").Count(protocol.ReqSendMessageV2))
}

func TestSendUnknownTopic(t *testing.T) {
	c := fakebroker.New(t, "a")
	p := newProducer(t, newClient(t, c))
	_, err := p.Send(ctxFor(t), &Message{Topic: "nosuch", Body: []byte("x")})
	var route *RouteError
	require.ErrorAs(t, err, &route)
	assert.Equal(t, "nosuch", route.Topic)
	assert.Equal(t, int32(protocol.TopicNotExist), code(err))
}

func TestSendCreatesTopic(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Create = true
	cl := newClient(t, c)
	p := newProducer(t, cl)
	r, err := p.Send(ctxFor(t), &Message{Topic: "fresh", Body: []byte("x")})
	require.NoError(t, err)
	assert.Less(t, r.Queue.ID, int32(4))
	route, err := cl.Route(ctxFor(t), "fresh")
	require.NoError(t, err)
	assert.Len(t, route.Read, 4)
}

func TestSendCompressed(t *testing.T) {
	body := bytes.Repeat([]byte("compress me "), 1000)
	for _, kind := range []Compression{CompressZlib, CompressLZ4, CompressZstd, CompressNone} {
		c := fakebroker.New(t, "a")
		c.Topic("T", 1)
		p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.Compression = kind })
		_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: body})
		require.NoError(t, err)
		rec := c.Broker("a").Records("T", 0)[0]
		assert.Equal(t, kind != CompressNone, len(rec.Body) < len(body))
		plain, err := codec.Decompress(rec.Body, rec.SysFlag, 1<<20)
		require.NoError(t, err)
		assert.Equal(t, body, plain)
	}
}

func TestSendBatch(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c))
	var ms []*Message
	for _, b := range []string{"x", "y", "z"} {
		ms = append(ms, &Message{Topic: "T", Body: []byte(b), Tags: b})
	}
	r, err := p.SendBatch(ctxFor(t), ms)
	require.NoError(t, err)
	assert.Len(t, r.IDs, 3)
	assert.Equal(t, []string{"x", "y", "z"}, c.Broker("a").Messages("T", 0))
}

func TestSendAsyncKeepsOrder(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 4)
	p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.MaxInFlight = 16 })
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var want []string
	for i := range 500 {
		body := string(rune('a'+i%26)) + strings.Repeat("x", i%50)
		want = append(want, body)
		wg.Add(1)
		require.NoError(t, p.SendAsync(ctxFor(t), &Message{Topic: "T", Body: []byte(body), ShardKey: "key"}, func(_ Result, err error) {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
			wg.Done()
		}))
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	assert.Equal(t, want, c.Broker("a").Messages("T", int32(hashQueue("key", 4))))
}

func TestSendOneway(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c))
	id, err := p.SendOneway(ctxFor(t), &Message{Topic: "T", Body: []byte("gone")})
	require.NoError(t, err)
	assert.NotEmpty(t, id)
	eventually(t, func() bool { return len(c.Broker("a").Messages("T", 0)) == 1 }, "message stored")
}

func TestSendAvoidsFailedBroker(t *testing.T) {
	c := fakebroker.New(t, "a", "b")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c))
	for range 2 {
		_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x")})
		require.NoError(t, err)
	}
	c.Broker("a").Kill() // the name server still names it
	for range 6 {
		r, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("y")})
		require.NoError(t, err)
		assert.Equal(t, "b", r.Queue.Broker)
	}
}

func TestSendFollowsBroker(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c))
	_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	c.Broker("a").Kill()
	back := make(chan struct{})
	go func() {
		defer close(back)
		time.Sleep(200 * time.Millisecond) // the outage, no synchronisation
		c.Broker("a").Restart()
	}()
	r, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("y")})
	require.NoError(t, err)
	assert.Greater(t, r.Attempts, 1)
	<-back
}

func failSends(b *fakebroker.Broker, times int, fault fakebroker.Fault) {
	var mu sync.Mutex
	b.Fail(func(code int32, _ *remoting.Request) fakebroker.Fault {
		mu.Lock()
		defer mu.Unlock()
		if code == protocol.ReqSendMessageV2 && times > 0 {
			times--
			return fault
		}
		return nil
	})
}

func TestSendErrors(t *testing.T) {
	pinned := &Queue{"T", "a", 0}
	for name, row := range map[string]struct {
		fault          fakebroker.Fault
		times, retries int
		queue          *Queue
		stored         int
		attempts       int // in the error
		unknown        bool
	}{
		"refused for good":                    {fault: protocol.Errorf(protocol.MessageIllegal, "too long"), times: 1, attempts: 1},
		"system error, again":                 {fault: protocol.Errorf(protocol.SystemError, "x"), times: 2, stored: 1},
		"system error too often":              {fault: protocol.Errorf(protocol.SystemError, "x"), times: 9, attempts: 3},
		"busy for long":                       {fault: protocol.Errorf(protocol.SystemBusy, "x"), times: 6, stored: 1},
		"not serving, pinned":                 {fault: protocol.Errorf(protocol.ServiceNotAvailable, "x"), times: 4, queue: pinned, stored: 1},
		"no retries":                          {fault: protocol.Errorf(protocol.ServiceNotAvailable, "x"), times: 1, retries: -1, attempts: 1},
		"connection lost":                     {fault: fakebroker.Drop, times: 1, stored: 1},
		"connection lost, pinned":             {fault: fakebroker.Drop, times: 1, queue: pinned, attempts: 1, unknown: true},
		"no answer":                           {fault: fakebroker.Swallow, times: 1, stored: 1},
		"no answer, pinned":                   {fault: fakebroker.Swallow, times: 1, queue: pinned, attempts: 1, unknown: true},
		"no answer at all":                    {fault: fakebroker.Swallow, times: 9, attempts: 3, unknown: true},
		"stored but not flushed is a success": {stored: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakebroker.New(t, "a")
			c.Topic("T", 1)
			p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.Retries, cfg.Timeout = row.retries, 300*time.Millisecond })
			failSends(c.Broker("a"), row.times, row.fault)
			_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x"), Queue: row.queue})
			if row.attempts == 0 {
				require.NoError(t, err)
			} else {
				var failed *SendError
				require.ErrorAs(t, err, &failed)
				assert.Len(t, failed.Attempts, row.attempts)
				assert.Equal(t, row.unknown, failed.Unknown())
			}
			assert.Len(t, c.Broker("a").Messages("T", 0), row.stored)
		})
	}
}

func TestSendStatus(t *testing.T) {
	o := &outgoing{id: "id"}
	for code, want := range map[int32]Status{0: Stored, 10: NotFlushedInTime, 11: NoReplica, 12: NotReplicatedInTime} {
		r, err := o.result(Queue{"T", "a", 3}, "x", &protocol.Command{Code: code, Ext: map[string]string{"queueId": "5", "queueOffset": "9", "msgId": "m"}})
		require.NoError(t, err)
		assert.Equal(t, Result{Status: want, Queue: Queue{"T", "a", 5}, Offset: 9, ID: "id", OffsetID: "m"}, r)
	}
}

func TestSendContextEnds(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.Timeout = 300 * time.Millisecond })
	failSends(c.Broker("a"), 100, fakebroker.Swallow)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Send(ctx, &Message{Topic: "T", Body: []byte("x")})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var failed *SendError
	require.ErrorAs(t, err, &failed)
	assert.True(t, failed.Unknown())
}

func TestProducerClose(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c))
	var got error
	done := make(chan struct{})
	require.NoError(t, p.SendAsync(ctxFor(t), &Message{Topic: "T", Body: []byte("x")}, func(_ Result, err error) {
		got = err
		close(done)
	}))
	require.NoError(t, p.Close(ctxFor(t)))
	select {
	case <-done:
		require.NoError(t, got)
	default:
		t.Fatal("Close returned before the message was answered")
	}
	require.NoError(t, p.Close(ctxFor(t)))
	_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("x")})
	require.ErrorIs(t, err, ErrClosed)
	assert.Equal(t, 1, c.Broker("a").Count(protocol.ReqUnregisterClient))
}

func TestCloseFreesWhoWaits(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	p := newProducer(t, newClient(t, c), func(cfg *ProducerConfig) { cfg.MaxInFlight, cfg.Timeout, cfg.Retries = 1, 200*time.Millisecond, -1 })
	failSends(c.Broker("a"), 1, fakebroker.Swallow)
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := p.Send(context.Background(), &Message{Topic: "T", Body: []byte("x")}); err != nil {
				var failed *SendError
				assert.True(t, errors.Is(err, ErrClosed) || errors.As(err, &failed), "%v", err)
			}
		}()
	}
	eventually(t, func() bool { return c.Broker("a").Count(protocol.ReqSendMessageV2) > 0 }, "one is on its way")
	require.NoError(t, p.Close(ctxFor(t)))
	wg.Wait()
}

func TestHooksSeeSends(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	events := make(chan SentEvent, 4)
	p := newProducer(t, newClient(t, c, func(cfg *Config) { cfg.Hooks.Sent = func(e SentEvent) { events <- e } }))
	_, err := p.Send(ctxFor(t), &Message{Topic: "T", Body: []byte("abc")})
	require.NoError(t, err)
	e := <-events
	assert.Equal(t, "T", e.Topic)
	assert.Equal(t, 3, e.Bytes)
	assert.NoError(t, e.Err)
}

func TestNameServerFailover(t *testing.T) {
	c := fakebroker.New(t, "a")
	c.Topic("T", 1)
	cl := newClient(t, c, func(cfg *Config) { cfg.NameServers = append([]string{"127.0.0.1:1"}, cfg.NameServers...) })
	_, err := cl.Route(ctxFor(t), "T")
	require.NoError(t, err)
	none, err := New(Config{NameServers: []string{"127.0.0.1:1"}, RequestTimeout: time.Second})
	require.NoError(t, err)
	_, err = none.Route(ctxFor(t), "T")
	var connect *remoting.ConnectError
	require.ErrorAs(t, err, &connect)
	require.NoError(t, none.Close())
}

func TestQueueing(t *testing.T) {
	r := &Route{Topic: "T", Write: []Queue{{"T", "a", 0}, {"T", "a", 1}, {"T", "b", 0}}}
	s := &queueing{avoidSlow: true}
	s.report("a", 6*time.Second, nil)
	for range 6 {
		assert.Equal(t, "b", s.pick(r, "").Broker)
	}
	assert.Equal(t, "a", s.pick(r, "b").Broker, "a slow broker is better than one that failed")
	s.report("a", time.Millisecond, nil)
	seen := map[string]bool{}
	for range 6 {
		seen[s.pick(r, "").Broker] = true
	}
	assert.True(t, seen["a"] && seen["b"])
}

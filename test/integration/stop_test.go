package integration

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// routed says whether a name server leads to a broker for the topic.
func routed(c *rawConn, topic string) (bool, error) {
	a, err := c.call(105, map[string]string{"topic": topic}, nil, 5*time.Second)
	if err != nil {
		return false, err
	}
	if a.Code != 0 {
		return false, nil
	}
	var route struct {
		BrokerDatas []json.RawMessage `json:"brokerDatas"`
	}
	err = json.Unmarshal(a.Body, &route)
	return len(route.BrokerDatas) > 0, err
}

// awaitRoute waits until the topic has a broker.
func awaitRoute(t *testing.T, c *rawConn, topic string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		ok, err := routed(c, topic)
		must(t, err)
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no route to %s", topic)
		}
	}
}

// watchRoute looks at the route every few milliseconds until the returned function is called, which returns what it changed to, in order.
func watchRoute(t *testing.T, c *rawConn, topic string) (end func() []bool) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var changes []bool
	wg.Go(func() {
		was := true
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			now, err := routed(c, topic)
			if err != nil {
				t.Errorf("name server: %v", err)
				return
			}
			if now != was {
				changes = append(changes, now)
			}
			was = now
		}
	})
	return func() []bool { close(stop); wg.Wait(); return changes }
}

// TestStopUnderLoad stops a loaded broker with SIGTERM. It must end with 0 within 15 s, leave the route once and stay away, leave no abort
// file, and lose nothing. In between it is stopped while it starts, and told twice.
func TestStopUnderLoad(t *testing.T) {
	ns := cluster.Namesrv(t)
	ns.Start()
	root := filepath.Join(t.TempDir(), "store")
	broker := cluster.Broker(t, ns.Addr, root, map[string]string{"mappedFileSizeCommitLog": fmt.Sprint(4 << 20)})
	broker.Start()
	l := newLedger("Stopped")
	createTopic(t, broker.Addr, l.topic, queues)
	c, err := dialRaw(ns.Addr)
	must(t, err)
	defer c.Close()
	var longest time.Duration
	n := numRounds(3, 20)
	for round := 1; round <= n; round++ {
		awaitRoute(t, c, l.topic)
		changes := watchRoute(t, c, l.topic)
		stop := make(chan struct{})
		done := make(chan error, 1)
		go func() { done <- l.produce(broker.Addr, 4, 64, 1024, stop) }()
		time.Sleep(100*time.Millisecond + time.Duration(rand.Int64N(int64(300*time.Millisecond))))
		began := time.Now()
		code := broker.Stop(15 * time.Second)
		longest = max(longest, time.Since(began))
		time.Sleep(100 * time.Millisecond) // a registration under way would arrive now
		if got := changes(); code != 0 || len(got) != 1 || got[0] {
			t.Errorf("round %d: ended with %d, the route changed to %v; want 0 and once to nothing", round, code, got)
		}
		if _, err := os.Stat(filepath.Join(root, "abort")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("round %d: abort file after an orderly end: %v", round, err)
		}
		close(stop)
		must(t, <-done)
		must(t, broker.Launch())
		time.Sleep(time.Duration(rand.Int64N(int64(60 * time.Millisecond))))
		must(t, broker.Signal(syscall.SIGTERM))
		if round%2 == 0 {
			_ = broker.Signal(syscall.SIGTERM) // it may be gone already
		}
		if code := broker.Wait(15 * time.Second); code > 0 && round%2 == 1 {
			t.Errorf("round %d: stopped while it started, ended with %d\n%s", round, code, broker.Output())
		}
		if broker.Running() {
			t.Fatal("SIGTERM while starting was not heard")
		}
		broker.Start()
	}
	var zero [queues]int64
	l.check(t, broker.Addr, zero)
	if code := broker.Stop(15 * time.Second); code != 0 {
		t.Errorf("ended with %d", code)
	}
	inspect(t, root)
	t.Logf("%d stops under load, the longest took %v; %d acknowledged, %d refused, %d of unknown outcome, none lost", n, longest.Round(time.Millisecond), l.size(), l.refused, len(l.unknown))
}

// TestOffsetsOverRestart commits one way, as consumers do, and ends the broker 10 ms later.
func TestOffsetsOverRestart(t *testing.T) {
	broker := cluster.Broker(t, "", filepath.Join(t.TempDir(), "store"), nil)
	broker.Start()
	createTopic(t, broker.Addr, "Offsets", queues)
	createGroup(t, broker.Addr, "G")
	off := int64(0)
	late := 0
	n := numRounds(3, 20)
	for round := 1; round <= n; round++ {
		for _, kill := range []bool{false, true} {
			off += 1 + rand.Int64N(100)
			c, err := dialRaw(broker.Addr)
			must(t, err)
			must(t, c.oneway(15, map[string]string{"consumerGroup": "G", "topic": "Offsets", "queueId": "3", "commitOffset": strconv.FormatInt(off, 10)}, nil))
			time.Sleep(10 * time.Millisecond)
			if kill {
				broker.Kill()
			} else if code := broker.Stop(15 * time.Second); code != 0 {
				t.Errorf("ended with %d", code)
			}
			c.Close()
			broker.Start()
			c, err = dialRaw(broker.Addr)
			must(t, err)
			a, err := c.call(14, map[string]string{"consumerGroup": "G", "topic": "Offsets", "queueId": "3"}, nil, 5*time.Second)
			must(t, err)
			c.Close()
			if got := a.int("offset"); a.Code != 0 || got != off {
				late++
				if !kill || a.Code != 0 || got <= 0 {
					t.Errorf("killed %v: committed %d, after the restart code %d offset %d", kill, off, a.Code, got)
				}
			}
		}
	}
	t.Logf("%d restarts after a commit, half of them kills: %d kills came before the commit was written", 2*n, late)
}

// TestDelayedOverRestart ends the broker while half of 20,000 delayed messages are delivered. A stop in order must neither lose nor repeat
// one; a kill must not lose one.
func TestDelayedOverRestart(t *testing.T) {
	const total = 20000
	for _, kill := range []bool{false, true} {
		name := "SIGTERM"
		if kill {
			name = "SIGKILL"
		}
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			broker := cluster.Broker(t, "", root, nil)
			broker.Start()
			createTopic(t, broker.Addr, "Delayed", queues)
			c, err := dialRaw(broker.Addr)
			must(t, err)
			var sent sync.WaitGroup
			var mu sync.Mutex
			refused := 0
			slots := make(chan struct{}, 64)
			for n := 0; n < total; n++ {
				body := binary.BigEndian.AppendUint64(nil, uint64(n))
				slots <- struct{}{}
				sent.Add(1)
				c.send(310, sendExt("Delayed", n%queues, "DELAY\x011\x02"), body, func(a *answer, err error) {
					<-slots
					if err != nil || a.Code != 0 {
						mu.Lock()
						refused++
						mu.Unlock()
					}
					sent.Done()
				})
			}
			sent.Wait()
			if refused > 0 {
				t.Fatalf("%d sends were refused", refused)
			}
			at := int64(0)
			for end := time.Now().Add(20 * time.Second); at < total/2; time.Sleep(time.Millisecond) {
				if at, err = storedIn(c, "Delayed"); err != nil || time.Now().After(end) {
					t.Fatalf("%d of %d are delivered: %v", at, total, err)
				}
			}
			c.Close()
			if kill {
				broker.Kill()
			} else if code := broker.Stop(15 * time.Second); code != 0 {
				t.Errorf("ended with %d", code)
			}
			broker.Start()
			c, err = dialRaw(broker.Addr)
			must(t, err)
			defer c.Close()
			counts := map[uint64]int{}
			var from [queues]int64
			for end := time.Now().Add(20 * time.Second); len(counts) < total; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d of %d are delivered", len(counts), total)
				}
				countBodies(t, c, "Delayed", &from, counts)
			}
			time.Sleep(1200 * time.Millisecond) // a repetition would come with the next second
			countBodies(t, c, "Delayed", &from, counts)
			twice := 0
			for _, n := range counts {
				twice += n - 1
			}
			if !kill && twice > 0 {
				t.Errorf("%d of %d messages were delivered twice over an orderly restart", twice, total)
			}
			t.Logf("%s after %d of %d deliveries: none lost, %d delivered twice", name, at, total, twice)
			if code := broker.Stop(15 * time.Second); code != 0 {
				t.Errorf("ended with %d", code)
			}
			inspect(t, root)
		})
	}
}

// storedIn sums the ends of a topic's queues.
func storedIn(c *rawConn, topic string) (n int64, err error) {
	for q := 0; q < queues; q++ {
		a, err := c.call(30, map[string]string{"topic": topic, "queueId": strconv.Itoa(q)}, nil, 5*time.Second)
		if err != nil {
			return 0, err
		}
		n += max(a.int("offset"), 0)
	}
	return n, nil
}

// countBodies reads what is new in a topic's queues and counts the message numbers.
func countBodies(t *testing.T, c *rawConn, topic string, from *[queues]int64, counts map[uint64]int) {
	t.Helper()
	for q := 0; q < queues; q++ {
		recs, err := pullAll(c, topic, q, from[q])
		must(t, err)
		for i, r := range recs {
			if r.queueOffset != from[q]+int64(i) {
				t.Fatalf("%s/%d: offset %d where %d belongs", topic, q, r.queueOffset, from[q]+int64(i))
			}
			counts[binary.BigEndian.Uint64(r.body)]++
		}
		from[q] += int64(len(recs))
	}
}

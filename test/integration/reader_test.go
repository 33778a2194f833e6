package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// TestClientsThatStopReading has consumers and producers that send requests for ever and read no answer. The others must not be refused,
// the broker must not keep what they do not read, and it must end their connections after its write timeout.
func TestClientsThatStopReading(t *testing.T) {
	broker := cluster.Broker(t, "", filepath.Join(t.TempDir(), "store"), nil)
	broker.Start()
	createTopic(t, broker.Addr, "Stuck", queues)
	createTopic(t, broker.Addr, "Normal", queues)
	c, err := dialRaw(broker.Addr)
	must(t, err)
	defer c.Close()
	sendMany(t, c, "Stuck", 800, 64<<10)
	watch := time.Second
	if *long {
		watch = 20 * time.Second
	}
	alone := latencies(t, broker.Addr, watch/2)
	before := residentMiB(t, broker.Pid())

	const consumers, producers = 2, 10
	var stuck sync.WaitGroup
	began := time.Now()
	var mu sync.Mutex
	var ended []time.Duration
	var asked atomic.Int64
	for i := 0; i < consumers+producers; i++ {
		conn, err := net.Dial("tcp", broker.Addr)
		must(t, err)
		defer conn.Close()
		must(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
		stuck.Go(func() {
			for n := int32(1); ; n++ {
				var err error
				if i < consumers {
					err = writeRequest(conn, 11, 0, n, map[string]string{"consumerGroup": "StuckGroup", "topic": "Stuck", "queueId": strconv.Itoa(int(n) % queues), "queueOffset": "0", "maxMsgNums": "32",
						"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil)
				} else {
					err = writeRequest(conn, 310, 0, n, sendExt("Stuck", int(n)%queues, ""), make([]byte, 16))
				}
				asked.Add(1)
				if err != nil {
					mu.Lock()
					ended = append(ended, time.Since(began))
					mu.Unlock()
					return
				}
			}
		})
	}
	flooded := latencies(t, broker.Addr, watch/2)
	for was, end := int64(-1), time.Now().Add(8*time.Second); was != asked.Load() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		was = asked.Load() // until none of them gets further
	}
	beside := latencies(t, broker.Addr, watch)
	after := residentMiB(t, broker.Pid())
	t.Logf("a send takes %s alone, %s while %d clients that do not read send %d requests, %s when they cannot send more; anonymous memory %d MiB, then %d MiB", spreadOf(alone), spreadOf(flooded), consumers+producers,
		asked.Load(), spreadOf(beside), before, after)
	if after > before+64 {
		t.Errorf("anonymous memory grew from %d to %d MiB", before, after)
	}
	if !*long {
		return
	}
	closed := make(chan struct{})
	go func() { stuck.Wait(); close(closed) }()
	select {
	case <-closed:
		slices.Sort(ended)
		t.Logf("their connections were ended after %v to %v", ended[0].Round(time.Millisecond), ended[len(ended)-1].Round(time.Millisecond))
	case <-time.After(150 * time.Second): // one whose answers all fit into the sockets is idle, and ended for that
		t.Errorf("%d of %d connections that nobody reads from are still open", consumers+producers-len(ended), consumers+producers)
	}
}

func spreadOf(sorted []time.Duration) string {
	return fmt.Sprintf("%v (p99 %v, longest %v)", sorted[len(sorted)/2], sorted[len(sorted)*99/100], sorted[len(sorted)-1])
}

// latencies sends one message after the other for the given time and returns how long each took, sorted.
func latencies(t *testing.T, addr string, d time.Duration) (all []time.Duration) {
	t.Helper()
	c, err := dialRaw(addr)
	must(t, err)
	defer c.Close()
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		a, err := c.call(310, sendExt("Normal", len(all)%queues, fmt.Sprintf("KEYS\x01n%d\x02", len(all))), make([]byte, 100), 5*time.Second)
		if err != nil || a.Code != 0 {
			t.Fatalf("a normal client: %+v %v", a, err)
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}

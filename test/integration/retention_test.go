package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// sendMany sends n bodies of size bytes to the queues of a topic, 64 in flight, and wants all acknowledged.
func sendMany(t *testing.T, c *rawConn, topic string, n, size int) {
	t.Helper()
	var wg sync.WaitGroup
	refusals := make(chan string, n)
	slots := make(chan struct{}, 64)
	body := make([]byte, size)
	for i := 0; i < n; i++ {
		slots <- struct{}{}
		wg.Add(1)
		c.send(310, sendExt(topic, i%queues, fmt.Sprintf("KEYS\x01k%d\x02", i)), body, func(a *answer, err error) {
			if err != nil {
				refusals <- err.Error()
			} else if a.Code != 0 {
				refusals <- fmt.Sprint(a.Code, " ", a.Remark)
			}
			<-slots
			wg.Done()
		})
	}
	wg.Wait()
	if len(refusals) > 0 {
		t.Fatalf("%d of %d sends to %s were refused: %s", len(refusals), n, topic, <-refusals)
	}
}

// queueEnds asks for the minimum and maximum of a queue.
func queueEnds(t *testing.T, c *rawConn, topic string, queue int) (low, high int64) {
	t.Helper()
	ext := map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)}
	a, err := c.call(31, ext, nil, 5*time.Second)
	must(t, err)
	b, err := c.call(30, ext, nil, 5*time.Second)
	must(t, err)
	if a.Code != 0 || b.Code != 0 {
		t.Fatalf("%s/%d: minimum %+v, maximum %+v", topic, queue, a, b)
	}
	return a.int("offset"), b.int("offset")
}

// runtimeInfo reads GET_BROKER_RUNTIME_INFO.
func runtimeInfo(t *testing.T, c *rawConn) map[string]string {
	t.Helper()
	a, err := c.call(28, nil, nil, 5*time.Second)
	must(t, err)
	var body struct {
		Table map[string]string `json:"table"`
	}
	must(t, json.Unmarshal(a.Body, &body))
	return body.Table
}

// TestIdleTopicWhoseFilesWent writes to one topic, then to others until the files with the first one's messages may go, and deletes them.
// The idle topic must then be empty at its old end, a new consumer of it must wait without error and see the next message at once.
func TestIdleTopicWhoseFilesWent(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	broker := cluster.Broker(t, "", root, map[string]string{"mappedFileSizeCommitLog": fmt.Sprint(256 << 10), "mappedFileSizeConsumeQueue": "4000", "maxHashSlotNum": "500", "maxIndexNum": "1500",
		"fileReservedTime": "0", "deleteCommitLogFilesInterval": "1", "deleteConsumeQueueFilesInterval": "1"})
	broker.Start()
	for _, topic := range []string{"T1", "T2", "T3"} {
		createTopic(t, broker.Addr, topic, queues)
	}
	c, err := dialRaw(broker.Addr)
	must(t, err)
	defer c.Close()
	sendMany(t, c, "T1", 1000, 1000)
	end, err := strconv.ParseInt(runtimeInfo(t, c)["commitLogMaxOffset"], 10, 64)
	must(t, err)
	sendMany(t, c, "T2", 1000, 1000)
	sendMany(t, c, "T3", 1000, 1000)
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		a, err := c.call(329, nil, nil, 10*time.Second)
		must(t, err)
		if a.Code != 0 {
			t.Fatalf("delete old files: %+v", a)
		}
		low, err := strconv.ParseInt(runtimeInfo(t, c)["commitLogMinOffset"], 10, 64)
		must(t, err)
		if low >= end {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the log still begins at %d, below %d", low, end)
		}
	}
	if a, err := c.call(306, nil, nil, 10*time.Second); err != nil || a.Code != 0 {
		t.Fatalf("clean queues: %+v %v", a, err)
	}
	for restart := 0; restart < 3; restart++ { // as it is, after a stop, after a kill
		want := int64(125 + restart)
		for q := 0; q < queues; q++ {
			low, high := queueEnds(t, c, "T1", q)
			if q > 0 {
				want = 125
			}
			if high != want || low < 125 || low > high {
				t.Errorf("restart %d: T1/%d is %d to %d, want an empty queue at 125, or what was sent since", restart, q, low, high)
			}
		}
		a, err := c.call(11, map[string]string{"consumerGroup": "Late", "topic": "T1", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
			"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil, 5*time.Second)
		must(t, err)
		if low, _ := queueEnds(t, c, "T1", 0); a.Code != 21 || a.int("nextBeginOffset") != low {
			t.Errorf("restart %d: a pull below the minimum answers %+v; the minimum is %d", restart, a, low)
		}
		_, high := queueEnds(t, c, "T1", 0)
		type result struct {
			a    *answer
			err  error
			when time.Time
		}
		got := make(chan result, 1)
		c.send(11, map[string]string{"consumerGroup": "Late", "topic": "T1", "queueId": "0", "queueOffset": strconv.FormatInt(high, 10), "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
			"suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil, func(a *answer, err error) { got <- result{a, err, time.Now()} })
		select {
		case r := <-got:
			t.Fatalf("a consumer at the end does not wait: %+v %v", r.a, r.err)
		case <-time.After(200 * time.Millisecond):
		}
		sent := time.Now()
		b, err := c.call(310, sendExt("T1", 0, ""), []byte("new"), 5*time.Second)
		must(t, err)
		if b.Code != 0 || b.int("queueOffset") != high {
			t.Fatalf("restart %d: a new message gets %+v, want offset %d", restart, b, high)
		}
		select {
		case r := <-got:
			must(t, r.err)
			if recs, err := records(r.a.Body); r.a.Code != 0 || err != nil || len(recs) != 1 || string(recs[0].body) != "new" {
				t.Errorf("restart %d: the waiting consumer got %+v, %v", restart, r.a, err)
			}
			t.Logf("delivered %v after the send", r.when.Sub(sent).Round(time.Millisecond))
		case <-time.After(time.Second):
			t.Errorf("restart %d: the new message was not delivered within a second", restart)
		}
		c.Close()
		if restart == 0 {
			if code := broker.Stop(15 * time.Second); code != 0 {
				t.Errorf("ended with %d", code)
			}
			inspect(t, root)
		} else {
			broker.Kill()
		}
		broker.Start()
		c, err = dialRaw(broker.Addr)
		must(t, err)
	}
	if code := broker.Stop(15 * time.Second); code != 0 {
		t.Errorf("ended with %d", code)
	}
	inspect(t, root)
}

package integration

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const queues = 8

// place is where an acknowledged message must be found.
type place struct {
	queue  int
	offset int64
}

// ledger is what a producer was told.
type ledger struct {
	topic string

	mu      sync.Mutex
	acked   map[place]uint64 // message number by place
	unknown map[uint64]bool  // sent, but no success was heard
	refused int
	next    atomic.Uint64
	commits [queues]atomic.Int64 // newest acknowledged offset of the group, by queue
}

func newLedger(topic string) *ledger {
	return &ledger{topic: topic, acked: map[place]uint64{}, unknown: map[uint64]bool{}}
}

func (l *ledger) size() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.acked) }

// produce keeps inFlight messages of size bytes on the way over conns connections until stop closes or the connections break.
func (l *ledger) produce(addr string, conns, inFlight, size int, stop <-chan struct{}) error {
	var wg sync.WaitGroup
	errs := make(chan error, conns)
	for i := 0; i < conns; i++ {
		c, err := dialRaw(addr)
		if err != nil {
			return err
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer c.Close()
			slots := make(chan struct{}, inFlight/conns)
			for {
				select {
				case <-stop:
					for i := 0; i < cap(slots); i++ { // wait for the answers under way
						slots <- struct{}{}
					}
					return
				case slots <- struct{}{}:
				}
				n := l.next.Add(1)
				queue := int(n % queues)
				body := make([]byte, size)
				binary.BigEndian.PutUint64(body, n)
				l.mu.Lock()
				l.unknown[n] = true
				l.mu.Unlock()
				broken := false
				c.send(310, sendExt(l.topic, queue, fmt.Sprintf("KEYS\x01n%d\x02", n)), body, func(a *answer, err error) {
					l.heard(n, a, err)
					broken = err != nil
					<-slots
				})
				if broken {
					errs <- fmt.Errorf("connection lost")
					return
				}
			}
		}()
	}
	wg.Wait()
	return nil
}

func (l *ledger) heard(n uint64, a *answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return
	}
	if a.Code != 0 {
		l.refused++
		return
	}
	delete(l.unknown, n)
	l.acked[place{int(a.int("queueId")), a.int("queueOffset")}] = n
}

// commit moves the offsets of a group, which must exist, forward, one request after the other, until stop closes or the connection breaks.
func (l *ledger) commit(addr, group string, stop <-chan struct{}) {
	c, err := dialRaw(addr)
	if err != nil {
		return
	}
	defer c.Close()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		q := i % queues
		off := l.commits[q].Load() + 1 + rand.Int64N(5)
		a, err := c.call(15, map[string]string{"consumerGroup": group, "topic": l.topic, "queueId": strconv.Itoa(q), "commitOffset": strconv.FormatInt(off, 10)}, nil, 5*time.Second)
		if err != nil {
			return
		}
		if a.Code == 0 {
			l.commits[q].Store(off)
		}
	}
}

// pullAll reads a queue from the given offset to its end. Its offsets must be dense, and each answer must lead to the offset behind it.
func pullAll(c *rawConn, topic string, queue int, from int64) ([]stored, error) {
	return pullQueue(c, topic, queue, from, true)
}

// pullQueue is pullAll for a store whose damage may have left holes, unless dense is set.
func pullQueue(c *rawConn, topic string, queue int, from int64, dense bool) ([]stored, error) {
	var all []stored
	for next := from; ; {
		a, err := c.call(11, map[string]string{"consumerGroup": "Checker", "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(next, 10),
			"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil, 20*time.Second)
		if err != nil {
			return all, err
		}
		switch a.Code {
		case 0:
			recs, err := records(a.Body)
			if err != nil {
				return all, err
			}
			for i, r := range recs {
				if dense && r.queueOffset != next+int64(i) {
					return all, fmt.Errorf("pull %s/%d@%d: record %d has offset %d, next %d", topic, queue, next, i, r.queueOffset, a.int("nextBeginOffset"))
				}
			}
			if end := next + int64(len(recs)); dense && a.int("nextBeginOffset") != end {
				return all, fmt.Errorf("pull %s/%d@%d: %d records, next %d", topic, queue, next, len(recs), a.int("nextBeginOffset"))
			}
			all = append(all, recs...)
		case 19:
			return all, nil
		case 20, 21:
		default:
			return all, fmt.Errorf("pull %s/%d@%d: code %d %s", topic, queue, next, a.Code, a.Remark)
		}
		if n := a.int("nextBeginOffset"); n > next {
			next = n
		} else {
			return all, fmt.Errorf("pull %s/%d@%d: code %d, next %d", topic, queue, next, a.Code, n)
		}
	}
}

// check reads the queues from the given offsets and compares them with the ledger: every acknowledged message at its place, offsets
// dense, no message twice, nothing that was never sent. It returns the ends of the queues.
func (l *ledger) check(t *testing.T, addr string, from [queues]int64) (ends [queues]int64) {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[uint64]place{}
	found, lost := 0, 0
	var high [queues]int64 // behind the last acknowledged message
	for p := range l.acked {
		high[p.queue] = max(high[p.queue], p.offset+1)
	}
	for q := 0; q < queues; q++ {
		awaitQueue(t, c, l.topic, q, high[q])
		recs, err := pullAll(c, l.topic, q, from[q])
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range recs {
			p := place{q, from[q] + int64(i)}
			if r.queueOffset != p.offset || int(r.queue) != q {
				t.Fatalf("%s/%d: offset %d where %d belongs", l.topic, q, r.queueOffset, p.offset)
			}
			n := binary.BigEndian.Uint64(r.body)
			if other, ok := seen[n]; ok {
				t.Fatalf("message %d at %v and at %v", n, other, p)
			}
			seen[n] = p
			want, ok := l.acked[p]
			switch {
			case ok && want != n:
				t.Fatalf("%s/%d@%d holds message %d, acknowledged was %d", l.topic, q, p.offset, n, want)
			case !ok && !l.unknown[n]:
				t.Fatalf("%s/%d@%d holds message %d, which was never sent", l.topic, q, p.offset, n)
			case ok:
				found++
			}
		}
		ends[q] = from[q] + int64(len(recs))
	}
	for p, n := range l.acked {
		if p.offset >= from[p.queue] {
			if _, ok := seen[n]; !ok {
				lost++
				if lost < 10 {
					t.Errorf("lost: message %d, acknowledged at %s/%d@%d; the queue ends at %d", n, l.topic, p.queue, p.offset, ends[p.queue])
				}
			}
		}
	}
	if lost > 0 {
		t.Fatalf("%d acknowledged messages are lost, %d are there", lost, found)
	}
	return ends
}

// awaitQueue waits until a queue ends at or above an offset: what was just acknowledged reaches it a moment later. When it
// does not within 30 s, whoever reads the queue will find what is missing.
func awaitQueue(t *testing.T, c *rawConn, topic string, queue int, end int64) {
	t.Helper()
	for give := time.Now().Add(30 * time.Second); time.Now().Before(give); time.Sleep(time.Millisecond) {
		a, err := c.call(30, map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)}, nil, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.ParseInt(a.Ext["offset"], 10, 64); err == nil && n >= end {
			return
		}
	}
}

// checkCommits wants no group offset below the newest acknowledged commit.
func (l *ledger) checkCommits(t *testing.T, addr, group string) {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for q := 0; q < queues; q++ {
		want := l.commits[q].Load()
		if want == 0 {
			t.Fatalf("no commit of group %s on %s/%d was acknowledged", group, l.topic, q)
		}
		a, err := c.call(14, map[string]string{"consumerGroup": group, "topic": l.topic, "queueId": strconv.Itoa(q)}, nil, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if a.Code != 0 || a.int("offset") < want {
			t.Fatalf("group %s on %s/%d: code %d offset %d; %d was acknowledged", group, l.topic, q, a.Code, a.int("offset"), want)
		}
	}
}

// createTopic creates a topic with the given number of queues through the admin request.
func createTopic(t *testing.T, addr, topic string, n int) {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := c.call(17, map[string]string{"topic": topic, "defaultTopic": "TBW102", "readQueueNums": strconv.Itoa(n), "writeQueueNums": strconv.Itoa(n), "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, nil, 5*time.Second)
	if err != nil || a.Code != 0 {
		t.Fatalf("create topic %s: %v %+v", topic, err, a)
	}
}

// createGroup creates a consumer group through the admin request: offsets of unknown groups are refused.
func createGroup(t *testing.T, addr, group string) {
	t.Helper()
	c, err := dialRaw(addr)
	must(t, err)
	defer c.Close()
	body := fmt.Sprintf(`{"groupName":%q,"consumeEnable":true,"consumeFromMinEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,"whichBrokerWhenConsumeSlowly":1}`, group)
	a, err := c.call(200, nil, []byte(body), 5*time.Second)
	if err != nil || a.Code != 0 {
		t.Fatalf("create group %s: %v %+v", group, err, a)
	}
}

// firstAck sends until a message is acknowledged and returns how long that took from the given instant.
func (l *ledger) firstAck(t *testing.T, addr string, since time.Time) time.Duration {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		c, err := dialRaw(addr)
		if err != nil {
			continue
		}
		n := l.next.Add(1)
		body := make([]byte, 64)
		binary.BigEndian.PutUint64(body, n)
		l.mu.Lock()
		l.unknown[n] = true
		l.mu.Unlock()
		a, err := c.call(310, sendExt(l.topic, int(n%queues), ""), body, 5*time.Second)
		c.Close()
		l.heard(n, a, err)
		if err == nil && a.Code == 0 {
			return time.Since(since)
		}
	}
	t.Fatal("no send was acknowledged within 60 s")
	return 0
}

package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// scenario is one kind of load. In-flight requests of a connection are written one by one, as every existing client does.
type scenario struct {
	name     string
	conns    int
	inFlight int
	perCall  int // messages of one request
	kind     kind
	sync     bool // the servers flush before they answer
}

type kind uint8

const (
	sends kind = iota
	batches
	pulls
)

var scenarios = []scenario{
	{name: "send 1x64", conns: 1, inFlight: 64, perCall: 1},
	{name: "send 64x1", conns: 64, inFlight: 1, perCall: 1},
	{name: "sync send 64x1", conns: 64, inFlight: 1, perCall: 1, sync: true},
	{name: "sync send 1x64", conns: 1, inFlight: 64, perCall: 1, sync: true},
	{name: "batch 32, 4x8", conns: 4, inFlight: 8, perCall: 32, kind: batches},
	{name: "pull 32, 4x1", conns: 4, inFlight: 1, perCall: 32, kind: pulls},
}

const pullable = 64 << 10 // messages that are stored for pulls

func (s scenario) template(conn, size int) *template {
	switch s.kind {
	case batches:
		return batchOf(conn%4, size, s.perCall)
	case pulls:
		return pullFrame(0, s.perCall)
	}
	return single(conn%4, size)
}

// prepare waits until the server stores a message, which also creates the topic, and stores what will be pulled.
func (s scenario) prepare(addr string, size int) error {
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = call(addr, single(0, size), 1); last == nil {
			break
		}
	}
	if last != nil {
		return fmt.Errorf("not ready: %w", last)
	}
	if s.kind != pulls {
		return nil
	}
	if err := call(addr, batchOf(0, size, 32), pullable/32); err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		t := pullFrame(0, 1)
		t.setOffset(pullable - 1)
		if last = call(addr, t, 1); last == nil {
			return nil
		}
	}
	return fmt.Errorf("stored messages cannot be pulled: %w", last)
}

// call sends a request n times, one after the other.
func call(addr string, t *template, n int) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for i := range n {
		t.setOpaque(i)
		if err := c.send(t); err != nil {
			return err
		}
		if err := c.receive(1, func(r reply) error {
			if !r.ok() {
				return errors.New(string(r.header))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// peerConn is one connection with its read buffer.
type peerConn struct {
	conn net.Conn
	buf  []byte
	have int
}

func dial(addr string) (*peerConn, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return &peerConn{conn: c, buf: make([]byte, 256<<10)}, nil
}

func (c *peerConn) send(t *template) error {
	_, err := c.conn.Write(t.frame)
	return err
}

// receive reads until at least n answers have come and gives each to fn; it may take more when they came together.
func (c *peerConn) receive(n int, fn func(reply) error) error {
	for n > 0 {
		k, err := c.conn.Read(c.buf[c.have:])
		if err != nil {
			return err
		}
		c.have += k
		used := 0
		for {
			r, size, err := nextReply(c.buf[used:c.have])
			if err != nil {
				return err
			}
			if size == 0 {
				break
			}
			if err := fn(r); err != nil {
				return err
			}
			used += size
			n--
		}
		c.have = copy(c.buf, c.buf[used:c.have])
		if c.have == len(c.buf) {
			c.buf = append(c.buf, make([]byte, len(c.buf))...)
		}
	}
	return nil
}

// counts is what the connections of one run share.
type counts struct {
	messages atomic.Int64
	failed   atomic.Int64
	stop     atomic.Bool
	mu       sync.Mutex
	errs     []error
	hist     *hdrhistogram.Histogram
}

func (n *counts) fail(err error) {
	n.mu.Lock()
	n.errs = append(n.errs, err)
	n.mu.Unlock()
	n.stop.Store(true)
}

// run drives one server for a while.
func (s scenario) run(sv *server, size int, length time.Duration) (result, error) {
	conns := make([]*peerConn, s.conns)
	for i := range conns {
		c, err := dial(sv.addr)
		if err != nil {
			return result{}, err
		}
		defer c.conn.Close()
		conns[i] = c
	}
	n := &counts{hist: hdrhistogram.New(1, 60_000_000, 3)}
	cpu, machine := sv.cpu(), machineCPU()
	others := ownCPU()
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		t := s.template(i, size)
		wg.Go(func() {
			if s.inFlight == 1 {
				s.oneByOne(c, t, i, n)
			} else {
				s.pipelined(c, t, n)
			}
		})
	}
	timer := time.AfterFunc(length, func() { n.stop.Store(true) })
	wg.Wait()
	timer.Stop()
	took := time.Since(start)
	if len(n.errs) > 0 {
		return result{}, n.errs[0]
	}
	messages := n.messages.Load()
	r := result{Scenario: s.name, Server: sv.name, Seconds: took.Seconds(), Messages: messages, Failed: n.failed.Load(), Body: size,
		PerSecond: float64(messages) / took.Seconds()}
	used := sv.cpu() - cpu
	if messages > 0 {
		r.CPU = used.Seconds() * 1e6 / float64(messages)
	}
	r.Foreign = max(0, (machineCPU()-machine-used-(ownCPU()-others)).Seconds()/took.Seconds())
	if s.inFlight == 1 {
		r.P50, r.P99 = float64(n.hist.ValueAtQuantile(50)), float64(n.hist.ValueAtQuantile(99))
	}
	return r, nil
}

func (s scenario) judge(r reply, n *counts) error {
	got := s.perCall
	if s.kind == pulls && r.ok() {
		got = r.records()
	}
	if !r.ok() || got < 0 {
		if n.failed.Add(1) == 1 {
			fmt.Printf("first refusal: %s\n", r.header)
		}
		return nil
	}
	n.messages.Add(int64(got))
	return nil
}

// oneByOne is a client that waits for each answer; it takes the time of each. Pulls go round through the stored messages.
func (s scenario) oneByOne(c *peerConn, t *template, id int, n *counts) {
	hist := hdrhistogram.New(1, 60_000_000, 3)
	offset := id * pullable / max(s.conns, 1)
	for i := 0; !n.stop.Load(); i++ {
		t.setOpaque(i)
		if s.kind == pulls {
			t.setOffset(offset)
			if offset += s.perCall; offset+s.perCall > pullable {
				offset = 0
			}
		}
		start := time.Now()
		if err := c.send(t); err != nil {
			n.fail(err)
			break
		}
		if err := c.receive(1, func(r reply) error { return s.judge(r, n) }); err != nil {
			n.fail(err)
			break
		}
		_ = hist.RecordValue(max(1, time.Since(start).Microseconds())) // out of range only beyond a minute
	}
	n.mu.Lock()
	n.hist.Merge(hist)
	n.mu.Unlock()
}

// pipelined is a client with many requests in flight: one goroutine writes, this one reads.
func (s scenario) pipelined(c *peerConn, t *template, n *counts) {
	free := make(chan struct{}, s.inFlight)
	for range s.inFlight {
		free <- struct{}{}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !n.stop.Load(); i++ {
			<-free
			t.setOpaque(i)
			if err := c.send(t); err != nil {
				n.fail(err)
				return
			}
		}
		for range s.inFlight { // the answers still to come
			<-free
		}
		_ = c.conn.SetReadDeadline(time.Now()) // ends the reader
	})
	for {
		err := c.receive(1, func(r reply) error {
			free <- struct{}{}
			return s.judge(r, n)
		})
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && n.stop.Load() {
			break
		}
		if err != nil {
			n.fail(err)
			close(free)
			break
		}
	}
	wg.Wait()
}

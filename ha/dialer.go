package ha

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

// Times of a follower. The longest pause is RocketMQ's only one. The shortest ones matter: a follower often hears of a new
// master before that one is ready.
const (
	shortestPause = 20 * time.Millisecond
	longestPause  = 5 * time.Second
	dialTimeout   = 3 * time.Second
	readBuffer    = 256 << 10
)

// Errors of a follower that need somebody's attention; it goes on trying.
var (
	ErrAhead = errors.New("this log is longer than the master's")
	ErrGap   = errors.New("the master does not have the bytes that follow this log")
)

// FollowerConfig is what both kinds of follower need.
type FollowerConfig struct {
	Log          Log
	Dial         func(ctx context.Context, network, addr string) (net.Conn, error) // nil: TCP
	Heartbeat    time.Duration                                                     // something is sent at least that often
	Housekeeping time.Duration                                                     // a master that is silent for so long is gone
	AckFlushed   bool                                                              // acknowledge what is on disk, not what is in the page cache
	Logger       *slog.Logger
}

func (c *FollowerConfig) defaults() {
	c.Heartbeat = orDefault(c.Heartbeat, DefaultHeartbeat)
	c.Housekeeping = orDefault(c.Housekeeping, DefaultHousekeeping)
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// held is the mark of what may be acknowledged.
func (c *FollowerConfig) held() *watermark.Mark {
	if c.AckFlushed {
		return c.Log.Flushed()
	}
	return c.Log.Written()
}

// master is whom a follower copies from.
type master struct {
	addr  string // HA address, empty: not known
	epoch int32
}

// dialer keeps a follower connected. Its one goroutine runs session after session, each over one connection.
type dialer struct {
	cfg     *FollowerConfig
	session func(ctx context.Context, c net.Conn, to master) error
	buf     []byte // the goroutine's, kept from one connection to the next
	flow    flow
	read    atomic.Int64 // unix ns
	wrote   atomic.Int64
	flowing atomic.Bool // the session has something to show: the pause is short again

	stop   context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	change chan struct{} // room for one

	mu      sync.Mutex
	started bool
	to      master
	cancel  context.CancelFunc // of the present session
	err     error              // of the last one
}

func (d *dialer) init(cfg *FollowerConfig, session func(ctx context.Context, c net.Conn, to master) error) {
	d.cfg, d.session = cfg, session
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.change = make(chan struct{}, 1)
}

// set points to a master. Anything new ends the present connection and dials at once.
func (d *dialer) set(to master) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to == to {
		return
	}
	d.to, d.err = to, nil
	if d.cancel != nil {
		d.cancel()
	}
	poke(d.change)
}

// Start begins to follow. It does nothing the second time, or after Close.
func (d *dialer) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started || d.ctx.Err() != nil {
		return
	}
	d.started = true
	d.wg.Add(1)
	go d.run()
}

// Close ends the connection and waits for the goroutines: nothing is appended or cut afterwards. Twice is fine.
func (d *dialer) Close() {
	d.mu.Lock()
	d.stop()
	d.mu.Unlock()
	d.wg.Wait()
}

func (d *dialer) run() {
	defer d.wg.Done()
	d.buf = make([]byte, readBuffer)
	pause := shortestPause
	for d.ctx.Err() == nil {
		to, ctx, cancel := d.begin()
		if to.addr == "" {
			cancel()
			d.sleep(longestPause)
			continue
		}
		d.flowing.Store(false)
		err := d.connect(ctx, to)
		overtaken := ctx.Err() != nil
		cancel()
		if d.ctx.Err() != nil {
			return
		}
		if overtaken { // by another master: no reason to wait
			pause = shortestPause
			continue
		}
		if d.flowing.Swap(false) {
			pause = shortestPause
		}
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
		level := slog.LevelWarn
		if errors.Is(err, ErrAhead) || errors.Is(err, ErrGap) || errors.Is(err, ErrNoHistory) || errors.Is(err, ErrCommitted) {
			level = slog.LevelError
		}
		d.cfg.Logger.Log(d.ctx, level, "not following", "master", to.addr, "err", err, "again", pause)
		if d.sleep(pause) {
			pause = shortestPause
		} else {
			pause = min(pause+pause/2, longestPause)
		}
	}
}

func (d *dialer) begin() (master, context.Context, context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithCancel(d.ctx)
	d.cancel = cancel
	select {
	case <-d.change: // it is taken into account now
	default:
	}
	return d.to, ctx, cancel
}

// sleep waits and reports whether another master ended the wait.
func (d *dialer) sleep(pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.ctx.Done():
	case <-d.change:
		poke(d.change) // begin takes it
		return true
	}
	return false
}

func (d *dialer) connect(ctx context.Context, to master) error {
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	c, err := d.cfg.Dial(dial, "tcp", to.addr)
	cancel()
	if err != nil {
		return err
	}
	unhook := context.AfterFunc(ctx, func() { c.Close() }) //nolint:errcheck // it only has to end
	defer unhook()
	defer c.Close() //nolint:errcheck // whatever was to be said has been said
	return d.session(ctx, c, to)
}

// receive reads until the connection fails and gives what comes to take.
func (d *dialer) receive(c net.Conn, take func(p []byte) error) error {
	for {
		if err := c.SetReadDeadline(time.Now().Add(d.cfg.Housekeeping)); err != nil {
			return err
		}
		n, err := c.Read(d.buf)
		if err != nil {
			return err
		}
		now := time.Now()
		d.read.Store(now.UnixNano())
		d.flow.add(n, now)
		if err := take(d.buf[:n]); err != nil {
			return err
		}
	}
}

// report sends acks until done is closed or the connection fails: one when what is held has grown, and one each heartbeat.
// first is what the follower asks for.
func (d *dialer) report(done <-chan struct{}, c net.Conn, first message.LogOffset, put func(b []byte, off message.LogOffset) []byte) error {
	var a alarm
	wake := make(chan struct{}, 1)
	mark := d.cfg.held()
	a.init(mark, wake)
	defer a.stop()
	timer := time.NewTimer(d.cfg.Heartbeat)
	defer timer.Stop()
	b := make([]byte, handshakeSize)
	for off := first; ; {
		now := time.Now()
		if err := c.SetWriteDeadline(now.Add(d.cfg.Housekeeping)); err != nil {
			return err
		}
		if _, err := c.Write(put(b, off)); err != nil {
			return err
		}
		d.wrote.Store(now.UnixNano())
		timer.Reset(d.cfg.Heartbeat)
		for beat := false; !beat && message.LogOffset(mark.Load()) <= off; {
			a.above(off)
			select {
			case <-done:
				return ErrClosed
			case <-wake:
			case <-timer.C:
				beat = true
			}
		}
		off = max(off, message.LogOffset(mark.Load()))
	}
}

// start runs report on its own goroutine. end closes the connection, waits for it and tells its error.
func (d *dialer) start(c net.Conn, first message.LogOffset, put func(b []byte, off message.LogOffset) []byte) (end func() error) {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		err := d.report(done, c, first, put)
		c.Close() //nolint:errcheck // ends the reader
		result <- err
	}()
	return func() error {
		c.Close() //nolint:errcheck // ends the writer
		close(done)
		return <-result
	}
}

// next checks that a frame continues the log.
func (d *dialer) next(f *frame) error {
	end := d.cfg.Log.End()
	switch {
	case end == 0 || f.Size == 0 && f.At < 0:
		// An empty log takes the start of any segment; RocketMQ's empty master does not know its end.
	case f.At < end:
		return fmt.Errorf("%w: it ends at %d, the master continues at %d", ErrAhead, end, f.At)
	case f.At > end:
		return fmt.Errorf("%w: it ends at %d, the master continues at %d", ErrGap, end, f.At)
	}
	if !d.flowing.Load() {
		d.flowing.Store(true)
	}
	return nil
}

// settle returns the end of the log once what is below it may be acknowledged: the first ack is also what is asked for.
func (d *dialer) settle(ctx context.Context) (message.LogOffset, error) {
	end := d.cfg.Log.End()
	if d.cfg.AckFlushed && end > 0 {
		d.cfg.Log.FlushSoon()
		if err := d.cfg.Log.Flushed().Wait(ctx, int64(end)); err != nil {
			return 0, fmt.Errorf("flush before asking for more: %w", err)
		}
	}
	return end, nil
}

// Status is the present state for administrators.
func (d *dialer) Status() FollowerStatus {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	st := FollowerStatus{Master: d.to.addr, Connected: d.flowing.Load(), End: d.cfg.Log.End(), Rate: d.flow.rate(now), Read: at(d.read.Load()), Wrote: at(d.wrote.Load())}
	if !st.Connected {
		st.Err = d.err
	}
	return st
}

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

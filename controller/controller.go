package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/controller/machine"
	"github.com/epochmq/epochmq/remoting"
)

// Options of New that are not configuration keys.
type Options struct {
	Settings    *conf.Set // holds a registered Config; get-config and update-config requests go to it
	TLS         *remoting.TLSOptions
	Preregister []machine.Preregister // sets whose ids follow from the configuration; the leader makes them known
	Log         *slog.Logger

	// For tests: a network and a disk inside the process, and Raft's timing.
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Stores func(dir string) (*Stores, error)
	Tune   func(*raft.Config)
}

// Controller is one controller of a group. Close ends it and everything that it started.
type Controller struct {
	log      *slog.Logger
	opts     Options
	settings *conf.Set
	cfg      atomic.Pointer[Config]
	self     Peer
	peers    []Peer
	dir      string

	server *remoting.Server
	client *remoting.Client // to brokers
	fsm    *fsm
	live   *liveTable
	reads  *verifier
	door   *doorman

	raft   atomic.Pointer[raft.Raft]
	node   *node // owns Raft, its transport and stores; set by Start
	notify chan bool
	term   atomic.Pointer[term] // nil while this controller does not lead

	wake   chan struct{} // tells the expiry loop that a broker came
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	closed sync.Once
	err    error

	mu       sync.Mutex
	stopping bool           // guarded by mu, which term.publish and term.end hold too: spawn starts nothing more, use gives nothing
	users    sync.WaitGroup // callers of use; grows under mu

	failOnce sync.Once
	failure  chan error // holds one error, see Failed
}

// New makes a controller from the Config in its settings; nothing listens before Start.
func New(opts Options) (*Controller, error) {
	log := opts.Log
	if log == nil {
		log = slog.Default()
	}
	var cfg Config
	opts.Settings.Value(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	self, peers, err := cfg.self()
	if err != nil {
		return nil, err
	}
	dir, err := cfg.dir()
	if err != nil {
		return nil, err
	}
	c := &Controller{log: log, opts: opts, settings: opts.Settings, self: self, peers: peers, dir: dir, live: newLiveTable(),
		notify: make(chan bool, 16), wake: make(chan struct{}, 1), failure: make(chan error, 1)}
	c.cfg.Store(&cfg)
	c.fsm = newFSM(c.fail)
	c.reads = &verifier{use: c.use}
	c.door = &doorman{hosts: c.hosts, look: net.DefaultResolver.LookupIPAddr}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	opts.Settings.Forbid("configBlackList", "configStorePath", "rocketmqHome")
	opts.Settings.Forbid(strings.Split(cfg.ConfigBlackList, ";")...)
	opts.Settings.OnChange(&cfg, func(v any) {
		next := v.(Config)
		c.cfg.Store(&next)
		if t := c.term.Load(); t != nil {
			t.rescan()
		}
	})
	mux := remoting.NewMux()
	c.routes(mux)
	server := remoting.ServerConfig{BindAddress: bind(cfg.BindAddress), Port: portOf(self.RPC), SendBuffer: cfg.ServerSocketSndBufSize, ReadBuffer: cfg.ServerSocketRcvBufSize,
		GoAway: cfg.EnableShutdownGracefully, Limits: remoting.Limits{IdleTimeout: time.Duration(cfg.ServerChannelMaxIdleTimeSeconds) * time.Second}}
	if opts.TLS != nil {
		server.TLS = *opts.TLS
	}
	c.server = remoting.NewServer(server, mux, events{c}, log)
	c.client = remoting.NewClient(remoting.ClientConfig{TLS: c.outgoingTLS(), Dial: opts.Dial}, remoting.NewMux(), log)
	return c, nil
}

// outgoingTLS is nil unless every connection must be encrypted.
func (c *Controller) outgoingTLS() *remoting.TLSOptions {
	if c.opts.TLS == nil || c.opts.TLS.Mode != remoting.TLSEnforcing {
		return nil
	}
	return c.opts.TLS
}

// bind turns RocketMQ's "any address" into ours, which takes both families.
func bind(addr string) string {
	if addr == "0.0.0.0" {
		return ""
	}
	return addr
}

func portOf(addr string) int {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}

func (c *Controller) config() *Config { return c.cfg.Load() }

// hosts are the hosts that controllers of the group call from.
func (c *Controller) hosts() (list []string) {
	add := func(addr string) {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			list = append(list, host)
		}
	}
	for _, p := range c.peers {
		add(p.Raft)
	}
	if r := c.raft.Load(); r != nil {
		for _, s := range r.GetConfiguration().Configuration().Servers {
			add(string(s.Address))
		}
	}
	return list
}

// Start listens, starts Raft and returns. A group without a majority has no leader yet then.
func (c *Controller) Start() error {
	n, err := c.newNode()
	if err != nil {
		return err
	}
	c.node = n
	if err := c.listen(); err != nil {
		return err
	}
	c.wg.Go(c.lead)
	c.wg.Go(c.expire)
	if err := n.start(); err != nil {
		return err
	}
	c.log.Info("controller started", "id", c.self.ID, "addr", c.self.RPC, "group", c.config().Group(), "peers", len(c.peers), "folder", c.dir)
	return nil
}

func (c *Controller) listen() error {
	listen := c.opts.Listen
	if listen == nil {
		if c.self.Raft == c.self.RPC {
			return c.server.Start()
		}
		host := bind(c.config().BindAddress)
		listen = func(addr string) (net.Listener, error) {
			return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(portOf(addr))))
		}
	}
	for _, addr := range []string{c.self.RPC, c.self.Raft} {
		l, err := listen(addr)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", addr, err)
		}
		if err := c.server.Serve(l); err != nil {
			return errors.Join(err, l.Close())
		}
		if c.self.Raft == c.self.RPC {
			break
		}
	}
	return nil
}

// fail ends the controller for a reason that only an operator can take away.
func (c *Controller) fail(err error) {
	c.failOnce.Do(func() {
		c.log.Error("the controller cannot go on", "error", err)
		c.failure <- err
		c.cancel()
	})
}

// Failed gives the error that ended the controller by itself, once.
func (c *Controller) Failed() <-chan error { return c.failure }

// Addr is where brokers and administrators reach this controller.
func (c *Controller) Addr() string { return c.self.RPC }

// IsLeader says that this controller leads the group and answers requests that only a leader answers.
func (c *Controller) IsLeader() bool { return c.term.Load() != nil }

// Set is a broker set as this controller knows it, which may be behind; nil when unknown. It is never changed.
func (c *Controller) Set(name string) *machine.Set { return c.fsm.set(name) }

// Close hands leadership over, answers what is under way, and ends every goroutine. A second call returns what the first
// did.
func (c *Controller) Close() error {
	c.closed.Do(func() {
		if c.node != nil {
			c.node.handOver()
		}
		c.err = c.stop(true)
		c.log.Info("controller stopped", "id", c.self.ID)
	})
	return c.err
}

// Kill ends everything at once, as the death of the process would: leadership is not handed over and nothing is answered.
// Tests use it.
func (c *Controller) Kill() error {
	c.closed.Do(func() { c.err = c.stop(false) })
	return c.err
}

func (c *Controller) stop(gently bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs := []error{c.server.StopAccept()}
	if gently {
		if err := c.server.Drain(ctx); err != nil {
			c.log.Warn("some requests were not answered before the stop", "error", err)
		}
	}
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	c.cancel()
	c.users.Wait()
	if c.node != nil {
		errs = append(errs, c.node.close())
	}
	c.reads.close()
	errs = append(errs, c.server.Close(), c.client.Close())
	c.wg.Wait()
	return errors.Join(errs...)
}

// spawn runs fn on a goroutine that stop waits for, unless the controller stops.
func (c *Controller) spawn(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopping {
		c.wg.Go(fn)
	}
}

// use gives Raft to a caller that will wait for it to answer; done must be called then. r is nil when there is none any more.
// A Raft that is shut down forgets some of those who wait for what it had already taken, so stop lets them all go before.
// While it runs it answers in any case: a leader that cannot reach the others steps down.
func (c *Controller) use() (r *raft.Raft, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r = c.raft.Load(); c.stopping || r == nil {
		return nil, func() {}
	}
	c.users.Add(1)
	return r, c.users.Done
}

// lead opens and ends terms as Raft tells. It only switches: what takes time runs in the term.
func (c *Controller) lead() {
	var now *term
	end := func() {
		if now != nil {
			now.end()
			now = nil
		}
	}
	defer end()
	for {
		select {
		case leader := <-c.notify:
			end()
			if leader {
				now = newTerm(c)
				c.spawn(now.run)
			} else {
				c.log.Info("controller no longer leads", "id", c.self.ID)
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// kick lets the expiry loop look at the table again.
func (c *Controller) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// expire takes brokers down at the instant at which their time runs out.
func (c *Controller) expire() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		gone, next := c.live.expire(time.Now())
		for _, e := range gone {
			c.log.Warn("a broker is silent", "set", e.key.set, "id", e.key.id)
			if conn, ok := e.conn.(*remoting.Conn); ok && conn != nil {
				conn.Close()
			}
			c.look(e.key.set)
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next), time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// look makes the leader think about a set.
func (c *Controller) look(set string) {
	if t := c.term.Load(); t != nil {
		t.look(set)
	}
}

// events take brokers down whose connection closes.
type events struct{ c *Controller }

func (events) Opened(*remoting.Conn) {}

func (e events) Closed(conn *remoting.Conn, reason error) {
	for _, k := range e.c.live.disconnected(conn, time.Now()) {
		e.c.log.Warn("the connection of a broker closed", "set", k.set, "id", k.id, "reason", reason)
		e.c.look(k.set)
	}
}

// tlsDial gives the client's side of TLS for connections to other controllers, nil for plain ones.
func (c *Controller) tlsDial() func() (*tls.Config, error) {
	o := c.outgoingTLS()
	if o == nil {
		return nil
	}
	return o.ClientConfig
}

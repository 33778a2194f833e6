package controller

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// node owns the Raft object of a controller, its transport and its stores.
type node struct {
	c        *Controller
	log      hclog.Logger
	stores   *Stores
	id       raft.ServerID
	listener net.Listener

	mu     sync.Mutex
	trans  *raft.NetworkTransport // guarded by mu
	layer  *layer                 // guarded by mu
	closed bool                   // guarded by mu
}

// rpcTimeout bounds one call between controllers.
const rpcTimeout = 10 * time.Second

func (c *Controller) newNode() (*node, error) {
	n := &node{c: c, log: raftLog(c.log), id: raft.ServerID(c.self.ID)}
	open := c.opts.Stores
	if open == nil {
		open = func(dir string) (*Stores, error) { return openStores(dir, n.log) }
	}
	stores, err := open(c.dir)
	if err != nil {
		return nil, err
	}
	n.stores = stores
	n.listener = c.server.ListenPrefix(raftPreface)
	return n, nil
}

// raftConfig is Raft's configuration. A command is committed after one write to the disks of a majority; nothing waits for a
// timer. A lost leader is replaced after one to two seconds.
func (n *node) raftConfig() *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = n.id
	cfg.HeartbeatTimeout = time.Second
	cfg.ElectionTimeout = time.Second
	cfg.LeaderLeaseTimeout = 500 * time.Millisecond
	cfg.CommitTimeout = 50 * time.Millisecond
	cfg.SnapshotInterval = time.Minute
	cfg.SnapshotThreshold = 1024
	cfg.TrailingLogs = 2048
	cfg.ShutdownOnRemove = false
	cfg.NotifyCh = n.c.notify
	cfg.Logger = n.log
	if n.c.opts.Tune != nil {
		n.c.opts.Tune(cfg)
	}
	return cfg
}

// start starts Raft, after making the first configuration of a new group.
func (n *node) start() error {
	if err := n.stores.repair(n.c.log); err != nil {
		return err
	}
	has, err := raft.HasExistingState(n.stores.Log, n.stores.Stable, n.stores.Snapshots)
	if err != nil {
		return fmt.Errorf("look for Raft's state in %s: %w", n.c.dir, err)
	}
	if err := n.open(!has); err != nil {
		return err
	}
	n.c.wg.Go(n.snapshots)
	return nil
}

// open makes the Raft object.
func (n *node) open(bootstrap bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	l := &layer{Listener: n.listener, done: make(chan struct{}), log: n.c.log, preface: raftPreface, group: groupHash(n.c.config().Group()), dial: n.c.dial(),
		tls: n.c.tlsDial(), trusted: n.c.door.trusted, addr: n.c.self.Raft, conns: map[net.Conn]struct{}{}}
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: l, MaxPool: 3, Timeout: rpcTimeout, Logger: n.log, MsgpackUseNewTimeFormat: true})
	cfg := n.raftConfig()
	logs, err := raft.NewLogCache(512, n.stores.Log)
	if err == nil && bootstrap {
		err = raft.BootstrapCluster(cfg, n.stores.Log, n.stores.Stable, n.stores.Snapshots, trans, n.c.firstConfiguration())
	}
	var r *raft.Raft
	if err == nil {
		r, err = raft.NewRaft(cfg, n.c.fsm, logs, n.stores.Stable, n.stores.Snapshots, trans)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start Raft in %s: %w", n.c.dir, err), trans.Close())
	}
	n.trans, n.layer = trans, l
	n.c.raft.Store(r)
	n.reportMembership(r)
	return nil
}

var errClosed = errors.New("the controller is closed")

func (c *Controller) dial() dialFunc {
	if c.opts.Dial != nil {
		return c.opts.Dial
	}
	return (&net.Dialer{}).DialContext
}

// firstConfiguration has every configured peer as a voter: it is the same on each of them.
func (c *Controller) firstConfiguration() raft.Configuration {
	var cfg raft.Configuration
	for _, p := range c.peers {
		cfg.Servers = append(cfg.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Raft)})
	}
	slices.SortFunc(cfg.Servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return cfg
}

// reportMembership says when the group is another one than the configuration file's. It is not changed by starting.
func (n *node) reportMembership(r *raft.Raft) {
	have := map[string]bool{}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		have[string(s.ID)+"-"+string(s.Address)] = true
	}
	if len(have) == 0 {
		return
	}
	for _, p := range n.c.peers {
		if !have[p.ID+"-"+p.Raft] {
			n.c.log.Warn("a configured controller is no member of the group, which was made by another configuration", "id", p.ID, "addr", p.Raft)
		}
		delete(have, p.ID+"-"+p.Raft)
	}
	for m := range have {
		n.c.log.Warn("a member of the group is not in the configuration file", "member", m)
	}
}

// snapshots takes one whenever enough commands have followed the last. Raft takes others by itself, more rarely.
func (n *node) snapshots() {
	for {
		select {
		case <-n.c.fsm.many:
			if err := n.snapshot(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
				n.c.log.Warn("a snapshot was not taken", "error", err)
			}
		case <-n.c.ctx.Done():
			return
		}
	}
}

func (n *node) snapshot() error {
	r, done := n.c.use()
	defer done()
	if r == nil {
		return nil
	}
	return r.Snapshot().Error()
}

// handOver gives leadership to another controller, so that the group need not wait for a missing one.
func (n *node) handOver() {
	r := n.c.raft.Load()
	if r == nil || r.State() != raft.Leader || len(r.GetConfiguration().Configuration().Servers) < 2 {
		return
	}
	done := make(chan error, 1)
	go func() { done <- r.LeadershipTransfer().Error() }()
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			n.c.log.Warn("leadership was not handed over", "error", err)
		}
	case <-timer.C:
		n.c.log.Warn("leadership was not handed over in time")
	}
}

// shut ends the Raft object and its transport; stores stay open. The caller holds mu.
func (n *node) shutLocked() error {
	var errs []error
	if n.trans != nil {
		errs = append(errs, n.trans.Close())
	}
	if r := n.c.raft.Load(); r != nil {
		errs = append(errs, r.Shutdown().Error())
		n.trans.CloseStreams()
		n.c.raft.Store(nil)
	}
	n.trans, n.layer = nil, nil
	return errors.Join(errs...)
}

// close ends transport, Raft and stores, in this order.
func (n *node) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	err := n.shutLocked()
	return errors.Join(err, n.stores.Close())
}

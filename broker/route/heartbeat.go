package route

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// beat lets heartbeats go to these controllers, and to the leader, and to no others. Before the broker is registered
// there are none.
func (c *Controller) beat(addrs []string) {
	want := slices.Clone(addrs)
	if l := c.Leader(); l != "" {
		want = append(want, l)
	}
	if c.id.Load() == 0 || !c.registered {
		want = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr := range maps.Clone(c.beating) {
		if !slices.Contains(want, addr) {
			c.beating[addr]()
			delete(c.beating, addr)
		}
	}
	for _, addr := range want {
		if c.beating[addr] == nil {
			ctx, cancel := context.WithCancel(c.ctx)
			c.beating[addr] = cancel
			c.wg.Go(func() { c.heartbeats(ctx, addr) })
		}
	}
}

// heartbeats goes to one controller until ctx ends. A heartbeat is a request that is answered: the leader's answer says for
// how long from its sending no other master will be elected. A controller of RocketMQ answers without it.
func (c *Controller) heartbeats(ctx context.Context, addr string) {
	tick := time.NewTicker(c.cfg.HeartbeatPeriod)
	defer tick.Stop()
	down := false
	for {
		sent := time.Now()
		call, cancel := context.WithTimeout(ctx, c.cfg.HeartbeatLimit)
		a, err := c.caller.Call(call, addr, c.heartbeat())
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil && a.Code == protocol.Success {
			if ms, e := strconv.ParseInt(a.Ext["leaseMs"], 10, 32); e == nil && ms > 0 {
				c.lease.renew(sent.Add(time.Duration(ms) * time.Millisecond))
			}
		}
		if failed := err != nil; failed != down {
			if down = failed; failed {
				c.log.Warn("a controller does not take heartbeats", "controller", addr, "error", err)
				if addr == c.Leader() {
					c.Poll()
				}
			} else {
				c.log.Info("a controller takes heartbeats again", "controller", addr)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Controller) heartbeat() *protocol.Command {
	ext := map[string]string{"clusterName": c.cfg.Cluster, "brokerAddr": c.cfg.Addr, "brokerName": c.cfg.Name, "brokerId": text(c.id.Load()),
		"epoch": text(int64(c.state.Epoch())), "maxOffset": text(c.state.MaxOffset()), "confirmOffset": text(c.state.ConfirmOffset()),
		"heartbeatTimeoutMills": text(c.cfg.HeartbeatTimeout.Milliseconds()), "electionPriority": text(c.cfg.Priority)}
	if c.cfg.Learner {
		ext["asyncLearner"] = "true"
	}
	if c.state.SelfFencing() {
		ext["selfFencing"] = "true"
	}
	return protocol.NewRequest(protocol.ReqBrokerHeartbeat, ext, nil)
}

// lease is the time until which no other master can have been elected, on the monotonic clock.
type lease struct {
	mu      sync.Mutex
	until   time.Time // guarded by mu; zero: none was ever given
	changed chan struct{}
}

func (l *lease) init() { l.changed = make(chan struct{}, 1) }

func (l *lease) renew(until time.Time) {
	l.mu.Lock()
	later := until.After(l.until)
	if later {
		l.until = until
	}
	l.mu.Unlock()
	if later {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

func (l *lease) left() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until), !l.until.IsZero()
}

// watch tells when the lease ends and when it goes on again.
func (l *lease) watch(ctx context.Context, tell func(on bool)) {
	on, ever := false, false
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		left, granted := l.left()
		if now := granted && left > 0; now != on && (ever || now) {
			on, ever = now, true
			tell(on)
		}
		if on {
			timer.Reset(left)
		}
		select {
		case <-l.changed:
			timer.Stop()
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

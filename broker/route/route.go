// Package route keeps the name servers told of a broker: where it is and what topics it has.
//
// The main type is Registrar. It has one goroutine for each name server, so that one that does not answer holds up no
// other: the first registration is tried at once, then by timer, and as soon as a topic changes; a failed one is tried
// again with growing pauses. Close ends the goroutines before it takes the broker out of the route, so that nothing can
// put it back. What the name servers say of ordered topics is handed to a callback. It never reads routes and never
// decides roles.
package route

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Config says who the broker is and how it registers.
type Config struct {
	NameServers []string // host:port
	Cluster     string
	Name        string
	ID          int64
	Addr        string // advertised host:port
	HAAddr      string // host:port for replicas

	Permission func() int32  // brokerPermission: masks topics when it lacks reading or writing
	Period     time.Duration // between registrations
	Timeout    time.Duration // of one registration
	Force      bool          // register by timer even when the name server has the present version
	Compressed bool          // send the table compressed
}

// Caller sends a request to a name server.
type Caller interface {
	Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error)
}

// Topics is the table that is registered.
type Topics interface {
	All() ([]*topic.Config, topic.Version)
}

// Pauses before a failed registration is tried again, and how long leaving may take.
const (
	firstPause   = time.Second
	longestPause = 10 * time.Second
	leaveTimeout = 3 * time.Second
)

// Registrar registers one broker. Start once, Close twice is fine.
type Registrar struct {
	cfg     Config
	caller  Caller
	topics  Topics
	ordered func(topics []string)
	log     *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	loops  []*loop
	wg     sync.WaitGroup
	once   sync.Once
	first  chan struct{} // closed when every name server was told, or there is none
	told   atomic.Int64
}

// New makes a registrar. ordered is called with the names of the topics that a name server calls ordered; it may be nil.
func New(cfg Config, caller Caller, topics Topics, ordered func(topics []string), log *slog.Logger) *Registrar {
	r := &Registrar{cfg: cfg, caller: caller, topics: topics, ordered: ordered, log: log, first: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	for _, addr := range cfg.NameServers {
		r.loops = append(r.loops, &loop{r: r, addr: addr, kick: make(chan struct{}, 1)})
	}
	if len(r.loops) == 0 {
		close(r.first)
	}
	return r
}

// Start starts registering.
func (r *Registrar) Start() {
	for _, l := range r.loops {
		r.wg.Go(l.run)
	}
}

// Registered is closed when every name server has been told once.
func (r *Registrar) Registered() <-chan struct{} { return r.first }

// Changed tells the name servers of a change of the topic table. It does not block.
func (r *Registrar) Changed(c topic.Change) {
	for _, l := range r.loops {
		l.changed(c)
	}
}

// Await waits until the name servers have been told of every change up to now, at most for the limit. One that fails at present
// is not waited for. It must not be called on the goroutine that runs ordered.
func (r *Registrar) Await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, l := range r.loops {
		if !l.await(timer.C) {
			return
		}
	}
}

// Again registers everything anew soon, after a change of the broker's permission.
func (r *Registrar) Again() {
	for _, l := range r.loops {
		l.mu.Lock()
		l.full = true
		l.mu.Unlock()
		l.wake()
	}
}

// Close ends the goroutines, then takes the broker out of the route.
func (r *Registrar) Close() {
	r.once.Do(func() {
		r.cancel()
		r.wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		var all sync.WaitGroup
		for _, l := range r.loops {
			all.Go(func() { l.leave(ctx) })
		}
		all.Wait()
	})
}

// loop serves one name server.
type loop struct {
	r    *Registrar
	addr string
	kick chan struct{}

	mu      sync.Mutex
	updated map[string]*topic.Config // guarded by mu: to be told
	version topic.Version            // guarded by mu: after the last of updated
	full    bool                     // guarded by mu: tell everything
	asked   uint64                   // guarded by mu: changes so far
	told    uint64                   // guarded by mu: of those, the ones that the name server has been told of
	down    bool                     // guarded by mu: the last attempt failed
	moved   chan struct{}            // guarded by mu: closed after the attempt that comes next; nil: nobody waits

	known  bool // of run: the last registration succeeded
	failed bool // of run: it has been said that this name server fails
	once   bool // of run: it was told once
}

func (l *loop) changed(c topic.Change) {
	l.mu.Lock()
	if l.updated == nil {
		l.updated = map[string]*topic.Config{}
	}
	for _, t := range c.Updated {
		l.updated[t.Name] = t
	}
	l.full = l.full || len(c.Updated) == 0 || len(c.Deleted) > 0
	l.version = c.Version
	l.asked++
	l.mu.Unlock()
	l.wake()
}

// await is Await for one name server; false: the limit has passed.
func (l *loop) await(limit <-chan time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.asked; l.told < want && !l.down; {
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		ok := false
		select {
		case <-moved:
			ok = true
		case <-limit:
		case <-l.r.ctx.Done():
		}
		l.mu.Lock()
		if !ok {
			return false
		}
	}
	return true
}

// ended notes that an attempt for the first changes ended.
func (l *loop) ended(changes uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down = err != nil; err == nil {
		l.told = changes
	}
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

func (l *loop) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run registers at once, on every change and by timer, until the registrar is closed.
func (l *loop) run() {
	pause := firstPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	byTimer := false // the first registration never asks for the version before
	for {
		select {
		case <-l.r.ctx.Done():
			return
		case <-l.kick:
		case <-timer.C:
		}
		err := l.tell(byTimer)
		if l.r.ctx.Err() != nil {
			return
		}
		wait := l.r.cfg.Period
		if err != nil {
			wait, pause = pause, min(2*pause, longestPause)
		} else {
			pause = firstPause
		}
		byTimer = err == nil
		l.report(err)
		timer.Reset(wait)
	}
}

// report says once that a name server fails, and once that it works again.
func (l *loop) report(err error) {
	switch {
	case err != nil && !l.failed:
		l.r.log.Warn("cannot register at the name server", "namesrv", l.addr, "err", err)
	case err == nil && l.failed:
		l.r.log.Info("registered at the name server again", "namesrv", l.addr)
	}
	l.failed = err != nil
	if err == nil && !l.once {
		l.once = true
		if l.r.told.Add(1) == int64(len(l.r.loops)) {
			close(l.r.first)
		}
	}
}

// tell registers what has changed, or everything.
func (l *loop) tell(byTimer bool) (err error) {
	l.mu.Lock()
	updated, full, single, changes := l.updated, l.full, l.version, l.asked
	l.updated, l.full = nil, false
	l.mu.Unlock()
	defer func() { l.ended(changes, err) }()
	list, version := l.r.topics.All()
	if byTimer && len(updated) == 0 && !full && !l.r.cfg.Force {
		if changed, err := l.versionDiffers(version); err != nil || !changed {
			l.known = err == nil
			return err
		}
	}
	if l.known && !full && len(updated) == 1 {
		// One topic is accepted only by a name server that knows the broker: after its restart everything is told.
		// It goes with the version that it made: with a later one the next change of a topic would look like an old one.
		for _, t := range updated {
			if err := l.register([]*topic.Config{t}, single, false); err == nil {
				return nil
			}
		}
	}
	err = l.register(list, version, true)
	l.known = err == nil
	return err
}

func (l *loop) identity() map[string]string {
	c := &l.r.cfg
	return map[string]string{"brokerName": c.Name, "brokerAddr": c.Addr, "clusterName": c.Cluster, "brokerId": strconv.FormatInt(c.ID, 10)}
}

// wholeTable is a header field of ours: the table is everything the broker has, so that what is missing was deleted. A Java
// name server passes over it.
const wholeTable = "epochmqWholeTable"

// register is request 103.
func (l *loop) register(list []*topic.Config, version topic.Version, whole bool) error {
	c := &l.r.cfg
	body, err := registration(list, version, c.Permission(), c.Compressed)
	if err != nil {
		return err
	}
	ext := l.identity()
	ext["haServerAddr"] = c.HAAddr
	ext["compressed"] = strconv.FormatBool(c.Compressed)
	if whole {
		ext[wholeTable] = "true"
	}
	ext["bodyCrc32"] = strconv.FormatInt(int64(message.CRC(body)), 10)
	ctx, cancel := context.WithTimeout(l.r.ctx, c.Timeout)
	defer cancel()
	answer, err := l.r.caller.Call(ctx, l.addr, protocol.NewRequest(protocol.ReqRegisterBroker, ext, body))
	if err != nil {
		return err
	}
	if err := answer.Err(); err != nil {
		return fmt.Errorf("register broker: %w", err)
	}
	return l.takeOrder(answer.Body)
}

// takeOrder reads the topics of ORDER_TOPIC_CONFIG from an answer.
func (l *loop) takeOrder(body []byte) error {
	if len(body) == 0 || l.r.ordered == nil {
		return nil
	}
	var kv struct {
		Table map[string]string `json:"table"`
	}
	if err := fastjson.Unmarshal(body, &kv); err != nil {
		return fmt.Errorf("decode ordered topics: %w", err)
	}
	if len(kv.Table) == 0 {
		return nil
	}
	names := make([]string, 0, len(kv.Table))
	for name := range kv.Table {
		names = append(names, name)
	}
	l.r.ordered(names)
	return nil
}

// versionDiffers is request 322; it also keeps the broker alive in the name server.
func (l *loop) versionDiffers(version topic.Version) (bool, error) {
	body, err := fastjson.Marshal(version)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(l.r.ctx, l.r.cfg.Timeout)
	defer cancel()
	answer, err := l.r.caller.Call(ctx, l.addr, protocol.NewRequest(protocol.ReqQueryDataVersion, l.identity(), body))
	if err != nil {
		return false, err
	}
	if err := answer.Err(); err != nil {
		return false, fmt.Errorf("query data version: %w", err)
	}
	return answer.Ext["changed"] != "false", nil
}

// leave is request 104.
func (l *loop) leave(ctx context.Context) {
	answer, err := l.r.caller.Call(ctx, l.addr, protocol.NewRequest(protocol.ReqUnregisterBroker, l.identity(), nil))
	if err == nil {
		err = answer.Err()
	}
	if err != nil {
		l.r.log.Warn("cannot leave the name server", "namesrv", l.addr, "err", err)
	}
}

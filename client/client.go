package client

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Client holds what producers and consumers share: one connection per server, routes, heartbeats. It is safe for concurrent use. Its
// goroutines (one that refreshes routes and sends heartbeats, short ones that fetch routes) begin with the first producer or consumer and
// end in Close.
type Client struct {
	cfg    Config
	id     string
	host   netip.Addr
	log    *slog.Logger
	rpc    *remoting.Client
	ids    *message.UniqIDs
	ns     nameServers
	routes routeTable

	ctx    context.Context // ends in Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	beats  chan struct{} // asks for a heartbeat to all

	mu        sync.Mutex
	closed    bool
	started   bool
	producers map[string]int    // by group: how many
	groups    map[string]*group // consumer groups by name
	// introduced is when the last heartbeat of introduce that succeeded began, by address.
	introduced map[string]time.Time

	flights singleflight.Group // of introduce, by address
}

// New makes a client. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, host: localHost(), log: cfg.Logger, beats: make(chan struct{}, 1),
		producers: map[string]int{}, groups: map[string]*group{}, introduced: map[string]time.Time{}}
	c.id = cfg.clientID(c.host)
	c.ids = message.NewUniqIDs(c.host, os.Getpid())
	c.ns.addrs = cfg.NameServers
	c.routes.topics = map[string]*topicState{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.rpc = remoting.NewClient(c.remotingConfig(), c.callbacks(), cfg.Logger)
	return c, nil
}

// ID is how brokers list this client.
func (c *Client) ID() string { return c.id }

// Close ends all connections. Producers and consumers should be closed before; what they still wait for fails. Calling it twice is fine.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	groups := make([]*group, 0, len(c.groups))
	for _, g := range c.groups {
		groups = append(groups, g)
	}
	c.mu.Unlock()
	for _, g := range groups {
		g.cancel()
	}
	c.cancel()
	err := c.rpc.Close()
	c.wg.Wait()
	return err
}

// spawn runs fn on a goroutine that Close waits for; false after Close.
func (c *Client) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		fn()
	}()
	return true
}

// Call sends a request to a server and waits for its answer; without a deadline in ctx the client's RequestTimeout applies. An answer other
// than success is a *ServerError, beside the answer. Other errors are those of package remoting.
func (c *Client) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
	}
	c.dress(addr, cmd)
	answer, err := c.rpc.Call(ctx, addr, cmd)
	return answer, c.wrap(addr, answer, err)
}

// dress puts what is the same in all our requests.
func (c *Client) dress(addr string, cmd *protocol.Command) {
	cmd.Language = protocol.LangGo
	if c.cfg.BinaryHeaders {
		cmd.Form = protocol.Binary
	}
	if c.cfg.Credentials != nil {
		c.cfg.Credentials(addr, cmd)
	}
}

func (c *Client) newID() string {
	var buf [56]byte
	return string(c.ids.Append(buf[:0]))
}

func (c *Client) wrap(addr string, answer *protocol.Command, err error) error {
	switch {
	case errors.Is(err, remoting.ErrClosed) && c.ctx.Err() != nil:
		return ErrClosed
	case err != nil:
		return err
	case answer.Code != protocol.Success:
		return &ServerError{addr, answer.Code, answer.Remark}
	}
	return nil
}

// start begins the background work.
func (c *Client) startLocked() {
	if c.started {
		return
	}
	c.started = true
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.maintain()
	}()
}

// maintain refreshes the routes in use and tells brokers who we are.
func (c *Client) maintain() {
	routes := time.NewTicker(c.cfg.RouteInterval)
	defer routes.Stop()
	beats := time.NewTicker(c.cfg.HeartbeatInterval)
	defer beats.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-routes.C:
			names, _ := c.routes.all()
			for _, topic := range names {
				c.staleRoute(topic)
			}
		case <-look.C:
			for _, topic := range c.routes.missing() {
				c.staleRoute(topic)
			}
		case <-beats.C:
			c.beatAll(c.ctx)
		case <-c.beats:
			c.beatAll(c.ctx)
		}
	}
}

// routeChanged tells those who depend on a topic's route.
func (c *Client) routeChanged(r *Route) {
	c.mu.Lock()
	var affected []*group
	for _, g := range c.groups {
		if g.wants(r.Topic) {
			affected = append(affected, g)
		}
	}
	some := len(c.producers)+len(c.groups) > 0
	c.mu.Unlock()
	if some {
		c.askBeat() // it may hold a broker that does not know us
	}
	for _, g := range affected {
		g.wake()
	}
}

func (c *Client) askBeat() {
	select {
	case c.beats <- struct{}{}:
	default:
	}
}

func (c *Client) addProducer(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.producers[name]++
	c.startLocked()
	return nil
}

// dropProducer reports whether no producer of the group is left.
func (c *Client) dropProducer(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producers[name]--
	if c.producers[name] > 0 {
		return false
	}
	delete(c.producers, name)
	return true
}

func (c *Client) addGroup(g *group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if c.groups[g.cfg.name] != nil {
		return errors.New("client: a consumer of group " + g.cfg.name + " exists on this Client; use another Client for a second one")
	}
	c.groups[g.cfg.name] = g
	c.startLocked()
	return nil
}

func (c *Client) dropGroup(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups[g.cfg.name] == g {
		delete(c.groups, g.cfg.name)
	}
}

func (c *Client) group(name string) *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[name]
}

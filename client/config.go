package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Config is what a Client needs. Only NameServers must be set.
type Config struct {
	// NameServers are host:port addresses; all know the same.
	NameServers []string
	// Name tells clients of one host apart. A new one is made up when it is empty; broadcasting consumers, which keep their offsets under
	// it, then use DEFAULT.
	Name string
	// TLS switches all connections to TLS when not nil.
	TLS *remoting.TLSOptions
	// BinaryHeaders writes headers in RocketMQ's binary form instead of JSON.
	BinaryHeaders bool
	// RequestTimeout limits one request when the context does not (3 s).
	RequestTimeout time.Duration
	// RouteInterval is how often routes are read again without a reason (30 s).
	RouteInterval time.Duration
	// HeartbeatInterval is how often brokers are told who we are (30 s, must be below their 120 s).
	HeartbeatInterval time.Duration
	// Credentials may add fields to a request before it is sent, for example a signature. The fields stand in cmd.Fields, or in cmd.Ext when
	// that is nil. It must not block.
	Credentials func(addr string, cmd *protocol.Command)
	// Logger gets what happens in the background; nothing is logged that a call returns. slog.Default when nil.
	Logger *slog.Logger
	// Hooks see what is sent and received.
	Hooks Hooks
	// Dial replaces the network, for proxies and tests.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Hooks are functions that see events, for metrics and traces. Each may be nil, must not block, and may be called on any goroutine.
type Hooks struct {
	Sent       func(SentEvent)
	Pulled     func(PulledEvent)
	Handled    func(HandledEvent)
	Rebalanced func(RebalancedEvent)
}

// SentEvent is the end of a send, with all its attempts.
type SentEvent struct {
	Topic    string
	Messages int
	Bytes    int // of bodies, as sent
	Attempts int
	Took     time.Duration
	Err      error
}

// PulledEvent is one answer to a pull.
type PulledEvent struct {
	Group    string
	Queue    Queue
	Messages int
	Bytes    int
	Took     time.Duration // includes waiting at the broker
	Err      error
}

// HandledEvent is one call of a consumer's function.
type HandledEvent struct {
	Group    string
	Queue    Queue
	Messages int
	Took     time.Duration
	Err      error
}

// RebalancedEvent is a change of a member's queues.
type RebalancedEvent struct {
	Group          string
	Added, Removed []Queue
}

func (c Config) withDefaults() (Config, error) {
	if len(c.NameServers) == 0 {
		return c, errors.New("client: no name server given")
	}
	for _, a := range c.NameServers {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return c, fmt.Errorf("client: name server %q: %w", a, err)
		}
	}
	setDefault(&c.RequestTimeout, 3*time.Second)
	setDefault(&c.RouteInterval, 30*time.Second)
	setDefault(&c.HeartbeatInterval, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if strings.ContainsAny(c.Name, "@#/ ") {
		return c, fmt.Errorf("client: name %q holds one of @ # / or a blank", c.Name)
	}
	return c, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// clientID is host@name, as brokers list it.
func (c *Config) clientID(host netip.Addr) string {
	name := c.Name
	if name == "" {
		name = strconv.Itoa(os.Getpid()) + "#" + strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	return host.String() + "@" + name
}

func joinAddrs(addrs []string) string { return strings.Join(addrs, ";") }

// localHost is the first address of this machine that is not loopback, IPv4 before IPv6.
func localHost() netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	var v6 netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		switch ip := p.Addr(); {
		case ip.IsLoopback() || ip.IsLinkLocalUnicast():
		case ip.Is4():
			return ip
		case !v6.IsValid():
			v6 = ip
		}
	}
	if v6.IsValid() {
		return v6
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

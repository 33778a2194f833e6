package namesrv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Options of New that are not configuration keys.
type Options struct {
	Settings *conf.Set // holds a registered Config; get-config and update-config requests go to it
	TLS      remoting.TLSOptions
	Log      *slog.Logger
}

// Server is a name server. Its goroutines are those of its remoting server and client, and one that expires silent brokers; Close ends them.
type Server struct {
	log      *slog.Logger
	settings *conf.Set
	cfg      atomic.Pointer[Config]
	kv       *KV
	server   *remoting.Server
	client   *remoting.Client
	started  time.Time

	mu    sync.RWMutex
	table *Table // guarded by mu

	wake   chan struct{} // tells the expiry loop that a broker came
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	closed sync.Once
	err    error
}

// New makes a name server from the Config in its settings; nothing listens before Start. A key-value file that cannot be read is an error.
func New(opts Options) (*Server, error) {
	log := opts.Log
	if log == nil {
		log = slog.Default()
	}
	var cfg Config
	opts.Settings.Value(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	path := cfg.KVConfigPath
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("kvConfigPath is not set and there is no home folder: %w", err)
		}
		path = filepath.Join(home, "namesrv", "kvConfig.json")
	}
	kv, err := OpenKV(statefile.OS, path)
	if err != nil {
		return nil, fmt.Errorf("open key-value configuration: %w", err)
	}
	s := &Server{log: log, settings: opts.Settings, kv: kv, wake: make(chan struct{}, 1)}
	s.cfg.Store(&cfg)
	opts.Settings.Put("kvConfigPath", path) // so that listings show it
	s.table = NewTable(cfg.table())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	opts.Settings.Forbid("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
	opts.Settings.Forbid(strings.Split(cfg.ConfigBlackList, ";")...)
	opts.Settings.OnChange(&cfg, func(v any) {
		next := v.(Config)
		s.cfg.Store(&next)
		s.mu.Lock()
		s.table.Configure(next.table())
		s.mu.Unlock()
	})
	mux := remoting.NewMux()
	s.routes(mux)
	s.server = remoting.NewServer(remoting.ServerConfig{BindAddress: bind(cfg.BindAddress), Port: cfg.ListenPort, SendBuffer: cfg.ServerSocketSndBufSize, ReadBuffer: cfg.ServerSocketRcvBufSize,
		TLS: opts.TLS, GoAway: cfg.EnableShutdownGracefully, Limits: remoting.Limits{IdleTimeout: time.Duration(cfg.ServerChannelMaxIdleTimeSeconds) * time.Second}}, mux, channelEvents{s}, log)
	s.client = remoting.NewClient(remoting.ClientConfig{}, remoting.NewMux(), log)
	return s, nil
}

// bind turns RocketMQ's "any address" into ours, which takes both families.
func bind(addr string) string {
	if addr == "0.0.0.0" {
		return ""
	}
	return addr
}

func (s *Server) config() *Config { return s.cfg.Load() }

// Start listens and returns.
func (s *Server) Start() error {
	s.started = time.Now()
	if err := s.server.Start(); err != nil {
		return err
	}
	s.settings.Put("listenPort", strconv.Itoa(s.Port()))
	s.wg.Go(s.expire)
	s.log.Info("name server started", "addr", s.server.Addr())
	return nil
}

// Addr is where the server listens; nil before Start.
func (s *Server) Addr() net.Addr { return s.server.Addr() }

// Port is the port that the server listens on; 0 before Start.
func (s *Server) Port() int {
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// Close stops accepting, answers what is under way, and ends every goroutine. A second call returns what the first did.
func (s *Server) Close() error {
	s.closed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := s.server.StopAccept()
		if derr := s.server.Drain(ctx); derr != nil {
			s.log.Warn("some requests were not answered before the stop", "error", derr)
		}
		s.cancel()
		s.err = errors.Join(err, s.server.Close(), s.client.Close())
		s.wg.Wait()
		s.log.Info("name server stopped")
	})
	return s.err
}

// kick lets the expiry loop look at the table again.
func (s *Server) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// expire drops each broker at the instant at which its time runs out.
func (s *Server) expire() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		gone, next := s.dropExpired(time.Now())
		for _, e := range gone {
			s.log.Warn("broker gave no sign of life and is dropped", "broker", e.Broker, "id", e.ID, "addr", e.Addr)
			if c, ok := e.Channel.(*remoting.Conn); ok && c != nil {
				c.Close()
			}
		}
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next)+time.Millisecond, time.Millisecond)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

// dropExpired unregisters the brokers whose time has run out, under one lock so that no sign of life comes between.
func (s *Server) dropExpired(now time.Time) (gone []Expired, next time.Time) {
	var changes []*MinBrokerChange
	s.mu.Lock()
	gone, next = s.table.Expire(now)
	for _, e := range gone {
		changes = append(changes, s.table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel))
	}
	s.mu.Unlock()
	for _, c := range changes {
		s.notify(c)
	}
	return gone, next
}

// drop unregisters a broker whose connection closed, unless it has registered through another connection since.
func (s *Server) drop(e Expired) {
	s.mu.Lock()
	change := s.table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel)
	s.mu.Unlock()
	s.notify(change)
}

// notifyTimeout bounds one notification of a changed smallest broker id.
const notifyTimeout = 300 * time.Millisecond

// notify tells the members of a group about their new smallest broker id, apart from the caller.
func (s *Server) notify(c *MinBrokerChange) {
	if c == nil {
		return
	}
	ext := map[string]string{"minBrokerId": strconv.FormatInt(c.MinID, 10), "minBrokerAddr": c.MinAddr, "brokerName": c.Broker}
	if c.OfflineTo != "" {
		ext["offlineBrokerAddr"] = c.OfflineTo
	}
	if c.HAAddr != "" {
		ext["haBrokerAddr"] = c.HAAddr
	}
	s.wg.Go(func() {
		for _, addr := range c.Recipients {
			ctx, cancel := context.WithTimeout(s.ctx, notifyTimeout)
			if err := s.client.Oneway(ctx, addr, protocol.NewRequest(protocol.ReqNotifyMinBrokerIDChange, ext, nil)); err != nil {
				s.log.Warn("a broker was not told of the new smallest broker id", "addr", addr, "error", err)
			}
			cancel()
		}
	})
}

// channelEvents unregisters the brokers of a connection that closes.
type channelEvents struct{ s *Server }

func (channelEvents) Opened(*remoting.Conn) {}

func (e channelEvents) Closed(c *remoting.Conn, reason error) {
	e.s.mu.RLock()
	gone := e.s.table.OfChannel(c)
	e.s.mu.RUnlock()
	for _, b := range gone {
		e.s.log.Warn("the connection of a broker closed and the broker is dropped", "broker", b.Broker, "id", b.ID, "addr", b.Addr, "reason", reason)
		e.s.drop(b)
	}
}

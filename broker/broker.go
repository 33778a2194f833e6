// Package broker puts the parts of a broker together: the store, the features under broker/, the server and the name
// servers it registers at.
//
// The main type is Broker. cmd/epochmq runs one; a Go program may embed several in one process. New reads the settings,
// opens the store and builds everything; Start listens and registers; Close stops in the order of Close. Which request
// goes to which feature is in routes.go; what changes at run time is in live.go. A feature never sees the Broker: it gets
// the few methods it uses.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/broker/delay"
	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/lock"
	"github.com/epochmq/epochmq/broker/offset"
	"github.com/epochmq/epochmq/broker/produce"
	"github.com/epochmq/epochmq/broker/pull"
	"github.com/epochmq/epochmq/broker/put"
	"github.com/epochmq/epochmq/broker/query"
	"github.com/epochmq/epochmq/broker/route"
	"github.com/epochmq/epochmq/broker/stats"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Options are what a broker is given beside its settings. The zero value is right for a process of its own.
type Options struct {
	Log           *slog.Logger  // nil: slog.Default
	FS            mappedfile.FS // nil: the operating system's
	TLS           remoting.TLSOptions
	ProxyProtocol bool // believe PROXY headers

	// Address finds the address that clients shall use when brokerIP1 is not set; nil asks the interfaces.
	Address func() (string, error)
	// OnStarted is called once by Start, when clients can connect.
	OnStarted func(Addresses)
}

// Addresses say where a started broker is reached.
type Addresses struct {
	Listen      net.Addr // of the main port
	Fast        net.Addr // of the fast port, nil: none
	Advertised  string   // what name servers and clients are told
	Name        string
	NameServers []string
}

// Broker is one broker. Its methods may be called from any goroutine.
type Broker struct {
	set  *conf.Set
	opt  Options
	log  *slog.Logger
	conf atomic.Pointer[Config] // in force

	store    *store.Store
	topics   *topic.Table
	groups   *group.Configs
	registry *group.Registry
	offsets  *offset.Table
	locks    *lock.Table
	counts   *stats.Set
	door     *put.Door
	delays   *delay.Service
	hub      pull.Hub

	produce *produce.Handler
	pull    *pull.Handler
	query   *query.Handler
	commits *offset.Handler
	clients *group.Handler
	pools   pools
	server  *remoting.Server
	caller  *remoting.Client

	mu         sync.Mutex
	registrar  *route.Registrar // guarded by mu: nil before Start
	addr       Addresses        // guarded by mu
	version    topic.Version    // guarded by mu: of the settings
	started    bool             // guarded by mu
	closed     bool             // guarded by mu
	closeErr   error
	closeDone  chan struct{}
	stop       chan struct{}
	background sync.WaitGroup
}

// New opens the store under the settings' folder and builds a broker on it. It starts nothing, but a broker that was built
// must be closed. Roles that this version does not have are refused with *store.UnsupportedError.
func New(set *conf.Set, opt Options) (*Broker, error) {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.FS == nil {
		opt.FS = mappedfile.OS
	}
	if opt.Address == nil {
		opt.Address = func() (string, error) { return interfaceAddress(opt.Log) }
	}
	b := &Broker{set: set, opt: opt, log: opt.Log, closeDone: make(chan struct{}), stop: make(chan struct{}), version: topic.NewVersion()}
	if err := resolve(set, opt.Address); err != nil {
		return nil, err
	}
	var c Config
	var sc store.Config
	set.Value(&c)
	set.Value(&sc)
	if err := errors.Join(c.Validate(), single(&sc)); err != nil {
		return nil, err
	}
	for _, key := range nameServers(c.ConfigBlackList) {
		set.Forbid(key)
	}
	b.conf.Store(&c)
	st, err := store.Open(opt.FS, sc, store.Options{Log: opt.Log})
	if err != nil {
		return nil, err
	}
	b.store = st
	if err := b.build(&c, &sc); err != nil {
		return nil, errors.Join(err, b.discard())
	}
	return b, nil
}

// discard closes what New opened, when it fails.
func (b *Broker) discard() error {
	var errs []error
	if b.offsets != nil {
		errs = append(errs, b.offsets.Close())
	}
	return errors.Join(append(errs, b.store.Close())...)
}

// build makes every part.
func (b *Broker) build(c *Config, sc *store.Config) error {
	dir := filepath.Join(sc.Root(), "config")
	if err := b.opt.FS.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder %s: %w", dir, err)
	}
	file := func(name string) jsonFile { return jsonFile{stateFS{b.opt.FS}, filepath.Join(dir, name), b.log} }
	var err error
	if b.topics, err = topic.Open(b.topicOptions(c, sc, file("topics.json"))); err != nil {
		return err
	}
	if err := b.adoptTopics(); err != nil {
		return err
	}
	b.groups, err = group.OpenConfigs(group.Options{File: file("subscriptionGroup.json"),
		AutoCreate: func() bool { return b.conf.Load().AutoCreateSubscriptionGroup }})
	if err != nil {
		return err
	}
	b.offsets, err = offset.Open(offset.Options{File: file("consumerOffset.json"), FS: b.opt.FS,
		Dir: filepath.Join(sc.Root(), "epochmq", "offsets"), Step: int(c.ConsumerOffsetUpdateVersionStep), Log: b.log})
	if err != nil {
		return err
	}
	b.counts = stats.New(c.BrokerClusterName, b.topics.IsSystem, func() bool { return b.conf.Load().EnableDetailStat })
	b.registry = group.NewRegistry(group.RegistryOptions{Expiry: time.Duration(c.ChannelExpiredTimeout) * time.Millisecond, Notify: b.mayNotify})
	b.locks = lock.NewTable(0)
	b.door = put.New(b.store, nil)
	levels, err := delay.ParseLevels(sc.MessageDelayLevel)
	if err != nil {
		return err
	}
	b.delays = delay.New(delayConfig(c, sc), levels, b.store, b.door, file("delayOffset.json"), b.log)

	host, err := storeHost(c)
	if err != nil {
		return err
	}
	b.produce = produce.New(b.produceConfig(c, sc, host), produce.Deps{Store: b.store, Topics: b.told(), Groups: b.groups, Locks: b.locks,
		Door: b.door, Stats: b.counts, IDs: message.NewUniqIDs(host.Addr(), os.Getpid())})
	b.pull = pull.New(pullConfig(c), pull.Deps{Store: b.store, Topics: b.topics, Groups: b.groups, Consumers: b.registry,
		Offsets: b.offsets, Stats: b.counts})
	b.query = query.New(b.store, func() int { c := b.store.Config(); return c.DefaultQueryMaxNum })
	b.commits = offset.NewHandler(b.offsets, b.topics, b.groups, b.store, func() bool { return b.conf.Load().UseServerSideResetOffset }, b.log)
	b.clients = group.NewHandler(b.groups, b.registry, b.told(), func() group.HandlerConfig {
		c := b.conf.Load()
		return group.HandlerConfig{RejectPullConsumers: c.RejectPullConsumerEnable, RegisterProducers: c.EnableRegisterProducer}
	})
	b.hub.Register(b.delays.Arrived)
	b.hub.Register(b.pull.Arrived)
	b.store.OnArrival(b.hub.Arrived)

	b.pools = newPools(c)
	b.server = remoting.NewServer(b.serverConfig(c), b.routes(), events{b.registry, b.pull}, b.log)
	b.server.OnBatchEnd(b.commits.BatchEnd)
	b.server.OnBatchEnd(b.produce.BatchEnd)
	b.caller = remoting.NewClient(remoting.ClientConfig{}, nil, b.log)
	b.topics.OnChange(b.topicsChanged)
	b.watchSettings()
	return nil
}

func (b *Broker) topicOptions(c *Config, sc *store.Config, file topic.File) topic.Options {
	return topic.Options{File: file, BrokerName: c.BrokerName, ClusterName: c.BrokerClusterName, TraceTopic: c.MsgTraceTopicName,
		AutoCreateTopic:    func() bool { return b.conf.Load().AutoCreateTopicEnable },
		DefaultTopicQueues: func() int32 { return int32(b.conf.Load().DefaultTopicQueueNums) },
		ClusterTopic:       c.ClusterTopicEnable, BrokerTopic: c.BrokerTopicEnable, TraceTopicOn: c.TraceTopicEnable,
		TimerWheel: sc.TimerWheelEnable, ReviveQueues: int32(c.ReviveQueueNum)}
}

// mayNotify says whether the members of a group are told of changes.
func (b *Broker) mayNotify(name string) bool {
	g := b.groups.Lookup(name)
	return b.conf.Load().NotifyConsumerIdsChangedEnable && (g == nil || g.NotifyChanges)
}

// lockable says whether a group may hold a queue: both exist, and the queue is this broker's.
func (b *Broker) lockable(group string, q lock.Queue) bool {
	c := b.topics.Lookup(q.Topic)
	return c != nil && q.ID >= 0 && q.ID < max(c.ReadQueueNums, c.WriteQueueNums) && q.Broker == b.conf.Load().BrokerName && b.groups.Lookup(group) != nil
}

// events takes closed connections out of the registry and their pulls out of the parked ones.
type events struct {
	registry *group.Registry
	pull     *pull.Handler
}

// Opened does nothing: a connection becomes a client by its first heartbeat.
func (e events) Opened(*remoting.Conn) {}

// Closed takes the connection out of every group.
func (e events) Closed(c *remoting.Conn, _ error) {
	e.registry.Gone(group.PeerOf(c))
	e.pull.Gone(c)
}

// jsonFile is one of the files under config.
type jsonFile struct {
	fs   statefile.FS
	path string
	log  *slog.Logger
}

// Load reads the file or its copy.
func (f jsonFile) Load(parse func([]byte) error) (bool, error) {
	var refused error
	found, err := statefile.Load(f.fs, f.path, func(b []byte) error {
		err := parse(b)
		refused = errors.Join(refused, err)
		return err
	})
	if err == nil && refused != nil {
		f.log.Warn("a damaged file is passed over, its backup may be older", "file", f.path, "backup", f.path+".bak", "error", refused)
	}
	return found, err
}

// Save replaces the file and keeps the old one as a copy.
func (f jsonFile) Save(data []byte) error { return statefile.Write(f.fs, f.path, data) }

// stateFS lets statefile write through the store's file system.
type stateFS struct{ mappedfile.FS }

// WriteFileSync writes and syncs a file.
func (s stateFS) WriteFileSync(name string, data []byte, perm os.FileMode) error {
	return s.FS.WriteFile(name, data, perm)
}

// interfaceAddress picks the address of this machine that clients are told.
func interfaceAddress(log *slog.Logger) (string, error) {
	list, err := remoting.LocalInterfaces()
	if err != nil {
		return "", err
	}
	addr, warning := remoting.ChooseAddr(list)
	if warning != "" {
		log.Warn(warning)
	}
	if !addr.IsValid() {
		return "", errors.New("this machine has no usable address")
	}
	return addr.String(), nil
}

// storeHost is the address that stands in stored messages and in their ids.
func storeHost(c *Config) (netip.AddrPort, error) {
	text := strings.Trim(c.BrokerIP1, "[]")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		list, lookup := net.DefaultResolver.LookupNetIP(ctx, "ip", text)
		if lookup != nil || len(list) == 0 {
			return netip.AddrPort{}, fmt.Errorf("brokerIP1=%s is no address and cannot be resolved: %w", c.BrokerIP1, lookup)
		}
		addr = list[0]
	}
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), uint16(c.ListenPort)), nil
}

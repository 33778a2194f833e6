package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/epochmq/epochmq/broker/route"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/store"
)

// How long a stop waits for what is being answered.
const drainTimeout = 5 * time.Second

// Start starts the store and the features, listens, and begins to register. When it fails, or ctx ends before it is done,
// the broker is closed. The broker does not end with ctx.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	if b.started || b.closed {
		b.mu.Unlock()
		return errors.New("broker was started or closed before")
	}
	b.started = true
	b.mu.Unlock()
	if err := b.start(ctx); err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

func (b *Broker) start(ctx context.Context) error {
	c := b.conf.Load()
	b.store.Start()
	if err := b.delays.Start(); err != nil {
		return err
	}
	b.produce.Start()
	b.pull.Start()
	b.registry.Start()
	b.counts.Start()
	b.background.Go(b.flushOffsets)
	main, fast, err := b.listen(ctx, c)
	if err != nil {
		return err
	}
	if c, err = b.settlePort(c, main); err != nil {
		return errors.Join(err, closeAll(main, fast))
	}
	r := route.New(b.routeConfig(c), b.caller, b.topics, b.markOrdered, b.log)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errors.Join(remoting.ErrClosed, closeAll(main, fast))
	}
	b.registrar = r
	b.addr = Addresses{Listen: main.Addr(), Advertised: hostPort(c.BrokerIP1, c.ListenPort), Name: c.BrokerName, NameServers: nameServers(c.NamesrvAddr)}
	if fast != nil {
		b.addr.Fast = fast.Addr()
	}
	addr := b.addr
	b.mu.Unlock()
	if fast != nil {
		if err := b.server.ServeVIP(fast); err != nil {
			return errors.Join(err, closeAll(main, fast))
		}
	}
	if err := b.server.Serve(main); err != nil {
		return errors.Join(err, main.Close())
	}
	r.Start()
	b.log.Info("broker started", "name", c.BrokerName, "cluster", c.BrokerClusterName, "listen", addr.Listen, "advertised", addr.Advertised)
	if b.opt.OnStarted != nil {
		b.opt.OnStarted(addr)
	}
	return nil
}

func closeAll(list ...net.Listener) error {
	var errs []error
	for _, l := range list {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// listen opens the main port, and the fast port two below a configured main port.
func (b *Broker) listen(ctx context.Context, c *Config) (main, fast net.Listener, err error) {
	open := func(port int64) (net.Listener, error) {
		lc := net.ListenConfig{KeepAlive: -1}
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(bindAddress(c.BindAddress), strconv.FormatInt(port, 10)))
		if err != nil {
			return nil, fmt.Errorf("listen on port %d: %w", port, err)
		}
		return l, nil
	}
	if main, err = open(c.ListenPort); err != nil {
		return nil, nil, err
	}
	if c.ListenPort > 2 {
		if fast, err = open(c.ListenPort - 2); err != nil {
			return nil, nil, errors.Join(err, main.Close())
		}
	}
	return main, fast, nil
}

// bindAddress of 0.0.0.0, RocketMQ's default, means all addresses of both families.
func bindAddress(text string) string {
	if text == "0.0.0.0" {
		return ""
	}
	return text
}

// settlePort makes a port that the system chose the configured one.
func (b *Broker) settlePort(c *Config, main net.Listener) (*Config, error) {
	if c.ListenPort != 0 {
		return c, nil
	}
	tcp, ok := main.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listener %s has no port", main.Addr())
	}
	b.set.Put("listenPort", strconv.Itoa(tcp.Port))
	next := *c
	next.ListenPort = int64(tcp.Port)
	b.conf.Store(&next)
	sc := b.store.Config()
	host, err := storeHost(&next)
	if err != nil {
		return nil, err
	}
	b.produce.Apply(b.produceConfig(&next, &sc, host))
	return &next, nil
}

func (b *Broker) routeConfig(c *Config) route.Config {
	sc := b.store.Config()
	period := min(max(time.Duration(c.RegisterNameServerPeriod)*time.Millisecond, 10*time.Second), time.Minute)
	return route.Config{NameServers: nameServers(c.NamesrvAddr), Cluster: c.BrokerClusterName, Name: c.BrokerName, ID: 0,
		Addr: hostPort(c.BrokerIP1, c.ListenPort), HAAddr: hostPort(c.BrokerIP2, int64(sc.HaListenPort)),
		Permission: func() int32 { return int32(b.conf.Load().BrokerPermission) }, Period: period,
		Timeout: time.Duration(c.RegisterBrokerTimeoutMills) * time.Millisecond, Force: c.ForceRegister, Compressed: c.CompressedRegister}
}

// Addresses says where the broker is reached; zero before Start.
func (b *Broker) Addresses() Addresses {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addr
}

// Registered is closed when every name server knows the broker. It is nil before Start.
func (b *Broker) Registered() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.registrar == nil {
		return nil
	}
	return b.registrar.Registered()
}

// Store is the broker's store, for inspection.
func (b *Broker) Store() *store.Store { return b.store }

// Err is the cause when the store has stopped taking messages after a failed write or flush; nil while it is well.
func (b *Broker) Err() error { return b.store.Err() }

// flushOffsets writes consumerOffset.json at intervals.
func (b *Broker) flushOffsets() {
	tick := time.NewTicker(time.Duration(b.conf.Load().FlushConsumerOffsetInterval) * time.Millisecond)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-b.stop:
			return
		case <-tick.C:
		}
		err := b.offsets.Flush()
		if err != nil && !failed {
			b.log.Error("consumer offsets are not saved; they are in the journal", "err", err)
		}
		failed = err != nil
	}
}

// Close stops the broker: it leaves the name servers, stops accepting, answers what waits, ends the features, and flushes
// and closes the store. The error of a store that has failed is returned. A second call waits for the first.
func (b *Broker) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		<-b.closeDone
		return b.closeErr
	}
	b.closed = true
	registrar := b.registrar
	b.mu.Unlock()
	defer close(b.closeDone)

	if registrar != nil {
		registrar.Close()
	}
	errs := []error{b.server.StopAccept()}
	b.pull.Close()
	errs = append(errs, b.store.Flush(b.store.Log().End())) // lets go of the answers that wait for the disk
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := b.server.Drain(ctx); err != nil {
		b.log.Warn("some requests were not answered before the stop", "err", err)
	}
	errs = append(errs, b.server.Close())
	b.caller.Close()
	b.produce.Close()
	errs = append(errs, b.delays.Close())
	b.registry.Close()
	b.counts.Close()
	close(b.stop)
	b.background.Wait()
	errs = append(errs, b.offsets.Close(), b.store.Close())
	b.closeErr = errors.Join(errs...)
	return b.closeErr
}

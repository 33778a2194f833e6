package broker

import (
	"net/netip"
	"time"

	"github.com/epochmq/epochmq/broker/delay"
	"github.com/epochmq/epochmq/broker/produce"
	"github.com/epochmq/epochmq/broker/pull"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/store"
)

// watchSettings hands changes at run time to the parts. conf has checked them and written them to the file before.
func (b *Broker) watchSettings() {
	b.set.OnChange(new(Config), func(v any) { b.applyBroker(v.(Config)) })
	b.set.OnChange(new(store.Config), func(v any) { b.applyStore(v.(store.Config)) })
}

// applyBroker takes the live keys of the broker's settings.
func (b *Broker) applyBroker(next Config) {
	old := b.conf.Load()
	c := *old
	takeLive(&c, &next)
	b.conf.Store(&c)
	b.applyParts()
	if c.BrokerPermission == old.BrokerPermission {
		return
	}
	if err := b.topics.Touch(); err != nil { // a new version, so that name servers take the topics anew
		b.log.Error("the topic table's version is not saved", "err", err)
	}
	b.mu.Lock()
	r := b.registrar
	b.mu.Unlock()
	if r != nil {
		r.Again()
	}
}

func (b *Broker) applyStore(next store.Config) {
	restart, err := b.store.ApplyConfig(next)
	if err != nil {
		b.log.Error("store settings are not applied", "err", err)
		return
	}
	if len(restart) > 0 {
		b.log.Info("settings take effect at the next start", "keys", restart)
	}
	if levels, err := delay.ParseLevels(next.MessageDelayLevel); err == nil { // checked by store.Config.Validate
		b.delays.SetLevels(levels)
	}
	b.applyParts()
}

// applyParts gives every part its settings anew.
func (b *Broker) applyParts() {
	c, sc := b.conf.Load(), b.store.Config()
	if host, err := storeHost(c); err != nil {
		b.log.Error("settings of sends are not applied", "err", err)
	} else {
		b.produce.Apply(b.produceConfig(c, &sc, host))
	}
	b.pull.Apply(pullConfig(c))
	b.delays.Apply(delayConfig(c, &sc))
	b.mu.Lock()
	b.version = b.version.Next()
	b.mu.Unlock()
}

func (b *Broker) produceConfig(c *Config, sc *store.Config, host netip.AddrPort) produce.Config {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	p := produce.Config{BrokerClusterName: c.BrokerClusterName, RegionID: c.RegionId, TraceOn: c.TraceOn, BrokerPermission: int32(c.BrokerPermission),
		FastFailure: c.BrokerFastFailureEnable, WaitInQueue: ms(c.WaitTimeMillsInSendQueue), PageCacheBusy: ms(sc.OsPageCacheBusyTimeOutMills),
		SyncFlushTimeout: ms(sc.SyncFlushTimeout), MaxMessageSize: sc.MaxMessageSize, StoreHost: host}
	if c.StartAcceptSendRequestTimeStamp > 0 {
		p.StartAcceptSend = time.UnixMilli(c.StartAcceptSendRequestTimeStamp)
	}
	if levels, err := delay.ParseLevels(sc.MessageDelayLevel); err == nil { // checked by store.Config.Validate
		p.MaxDelayLevel = levels.Max()
	}
	return p
}

func pullConfig(c *Config) pull.Config {
	return pull.Config{BrokerPermission: int32(c.BrokerPermission), LitePullMessageEnable: c.LitePullMessageEnable, LongPollingEnable: c.LongPollingEnable,
		ShortPollingTime: time.Duration(c.ShortPollingTimeMills) * time.Millisecond, SlaveReadEnable: c.SlaveReadEnable, BrokerIP: c.BrokerIP1}
}

func delayConfig(c *Config, sc *store.Config) delay.Config {
	return delay.Config{FlushInterval: time.Duration(sc.FlushDelayOffsetInterval) * time.Millisecond, VersionStep: c.DelayOffsetUpdateVersionStep}
}

func (b *Broker) serverConfig(c *Config) remoting.ServerConfig {
	return remoting.ServerConfig{SendBuffer: int(c.ServerSocketSndBufSize), ReadBuffer: int(c.ServerSocketRcvBufSize),
		Limits: remoting.Limits{IdleTimeout: time.Duration(c.ServerChannelMaxIdleTimeSeconds) * time.Second},
		TLS:    b.opt.TLS, ProxyProtocol: b.opt.ProxyProtocol, MapError: mapError}
}

// topicsChanged follows a change of the topic table: the name servers are told.
func (b *Broker) topicsChanged(c topic.Change) {
	b.mu.Lock()
	r := b.registrar
	b.mu.Unlock()
	if r != nil {
		r.Changed(c)
	}
}

// markOrdered follows an answer of a name server.
func (b *Broker) markOrdered(topics []string) {
	if err := b.topics.SetOrder(topics); err != nil {
		b.log.Error("ordered topics are not saved", "err", err)
	}
}

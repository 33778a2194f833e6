package broker

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/store"
)

// NewSettings makes the set of every key that a broker knows, with its defaults. Load a file into it, put flags over it,
// then hand it to New.
func NewSettings(log *slog.Logger) (*conf.Set, error) {
	set := conf.New(log)
	for _, component := range []any{new(Config), new(store.Config)} {
		if err := set.Register(component); err != nil {
			return nil, err
		}
	}
	set.Forbid("rocketmqHome", "brokerConfigPath", "configBlackList")
	for _, k := range set.Keys() { // nobody should make the next start create or read folders of their choice
		if strings.HasPrefix(k.Name, "storePath") || strings.HasPrefix(k.Name, "readOnlyCommitLogStorePath") {
			set.Forbid(k.Name)
		}
	}
	return set, nil
}

// Validate checks what the broker itself honours. It runs at start and before every change at run time.
func (c *Config) Validate() error {
	switch {
	case c.EnableControllerMode:
		return &store.UnsupportedError{What: "enableControllerMode=true", Hint: "this version runs single masters; set it to false"}
	case c.ListenPort < 0 || c.ListenPort > 65535:
		return fmt.Errorf("listenPort=%d is no port", c.ListenPort)
	case c.BrokerPermission < 0 || c.BrokerPermission > 15:
		return fmt.Errorf("brokerPermission=%d is out of range, allowed 0 to 15 (4 read, 2 write)", c.BrokerPermission)
	case c.DefaultTopicQueueNums < 1 || c.DefaultTopicQueueNums > 1<<16:
		return fmt.Errorf("defaultTopicQueueNums=%d is out of range, allowed 1 to 65536", c.DefaultTopicQueueNums)
	}
	for _, l := range []struct {
		key      string
		v        int64
		min, max int64
	}{
		{"reviveQueueNum", c.ReviveQueueNum, 1, 1 << 16},
		{"flushConsumerOffsetInterval", c.FlushConsumerOffsetInterval, 100, 1 << 31},
		{"channelExpiredTimeout", c.ChannelExpiredTimeout, 1000, 1 << 40},
		{"registerBrokerTimeoutMills", c.RegisterBrokerTimeoutMills, 100, 1 << 31},
		{"serverChannelMaxIdleTimeSeconds", c.ServerChannelMaxIdleTimeSeconds, 1, 1 << 31},
		{"splitMetadataSize", c.SplitMetadataSize, 1, 1 << 31},
		{"shortPollingTimeMills", c.ShortPollingTimeMills, 0, 1 << 31},
		{"waitTimeMillsInSendQueue", c.WaitTimeMillsInSendQueue, 0, 1 << 31},
	} {
		if l.v < l.min || l.v > l.max {
			return fmt.Errorf("%s=%d is out of range, allowed %d to %d", l.key, l.v, l.min, l.max)
		}
	}
	if c.BrokerName != "" && !plainName(c.BrokerName) {
		return fmt.Errorf("brokerName=%q may hold letters, digits, %%, |, - and _ only", c.BrokerName)
	}
	if c.BrokerClusterName == "" || !plainName(c.BrokerClusterName) {
		return fmt.Errorf("brokerClusterName=%q must be a name of letters, digits, %%, |, - and _", c.BrokerClusterName)
	}
	return nil
}

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("%|-_", c) >= 0) {
			return false
		}
	}
	return true
}

// single refuses roles and guarantees that a broker without replicas cannot give.
func single(c *store.Config) error {
	switch {
	case c.BrokerRole == store.RoleSlave:
		return &store.UnsupportedError{What: "brokerRole=SLAVE", Hint: "this version runs single masters; use ASYNC_MASTER"}
	case c.InSyncReplicas > 1 || c.MinInSyncReplicas > 1:
		return &store.UnsupportedError{What: "inSyncReplicas or minInSyncReplicas above 1", Hint: "this version has no replicas, so no message could be acknowledged; set both to 1"}
	}
	return nil
}

// Resolve fills in what depends on the machine, as New does, so that the settings may be listed without a broker.
func Resolve(set *conf.Set, opt Options) error {
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.Address == nil {
		opt.Address = func() (string, error) { return interfaceAddress(opt.Log) }
	}
	return resolve(set, opt.Address)
}

// resolve fills in what depends on the machine, so that listings show what is in force.
func resolve(set *conf.Set, address func() (string, error)) error {
	var c Config
	var s store.Config
	set.Value(&c)
	set.Value(&s)
	cpu := int64(runtime.NumCPU())
	fill := func(key string, missing bool, value string) {
		if missing {
			set.Put(key, value)
		}
	}
	if c.BrokerName == "" {
		host, err := os.Hostname()
		if err != nil || !plainName(host) || host == "" {
			host = "DEFAULT_BROKER"
		}
		set.Put("brokerName", host)
	}
	if c.BrokerIP1 == "" {
		ip, err := address()
		if err != nil {
			return fmt.Errorf("find the address that clients shall use (set brokerIP1): %w", err)
		}
		set.Put("brokerIP1", ip)
		c.BrokerIP1 = ip
	}
	fill("brokerIP2", c.BrokerIP2 == "", c.BrokerIP1)
	fill("haListenPort", !set.Given("haListenPort") && c.ListenPort > 0, strconv.FormatInt(c.ListenPort+1, 10))
	fill("storePathRootDir", s.StorePathRootDir == "", s.Root())
	fill("storePathCommitLog", s.StorePathCommitLog == "", filepath.Join(s.Root(), "commitlog"))
	for key, n := range map[string][2]int64{
		"sendMessageThreadPoolNums":         {c.SendMessageThreadPoolNums, min(cpu, 4)},
		"putMessageFutureThreadPoolNums":    {c.PutMessageFutureThreadPoolNums, min(cpu, 4)},
		"pullMessageThreadPoolNums":         {c.PullMessageThreadPoolNums, 16 + 2*cpu},
		"litePullMessageThreadPoolNums":     {c.LitePullMessageThreadPoolNums, 16 + 2*cpu},
		"processReplyMessageThreadPoolNums": {c.ProcessReplyMessageThreadPoolNums, 16 + 2*cpu},
		"queryMessageThreadPoolNums":        {c.QueryMessageThreadPoolNums, 8 + cpu},
		"endTransactionThreadPoolNums":      {c.EndTransactionThreadPoolNums, 8 + 2*cpu},
		"heartbeatThreadPoolNums":           {c.HeartbeatThreadPoolNums, min(cpu, 32)},
		"clientCallbackExecutorThreads":     {c.ClientCallbackExecutorThreads, cpu},
	} {
		fill(key, n[0] <= 0, strconv.FormatInt(n[1], 10))
	}
	return nil
}

// hostPort joins an address and a port; IPv6 gets brackets.
func hostPort(host string, port int64) string {
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.FormatInt(port, 10))
}

// nameServers splits namesrvAddr.
func nameServers(text string) (list []string) {
	for a := range strings.SplitSeq(text, ";") {
		if a = strings.TrimSpace(a); a != "" {
			list = append(list, a)
		}
	}
	return list
}

package controller

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config holds every key of RocketMQ's controller and a few of ours. Tags: see package conf. Times are in milliseconds
// unless the key's name says otherwise.
type Config struct {
	ControllerType         string `property:"controllerType" default:"DLedger" effect:"honoured"`
	ControllerDLegerGroup  string `property:"controllerDLegerGroup" default:"" effect:"honoured"`
	ControllerDLegerPeers  string `property:"controllerDLegerPeers" default:"" effect:"honoured"`
	ControllerDLegerSelfID string `property:"controllerDLegerSelfId" default:"" effect:"honoured"`
	ControllerStorePath    string `property:"controllerStorePath" default:"" effect:"honoured"`

	JRaftGroupID            string `property:"jRaftGroupId" default:"jRaft-Controller" effect:"honoured"`
	JRaftServerID           string `property:"jRaftServerId" default:"localhost:9880" effect:"honoured"`
	JRaftInitConf           string `property:"jRaftInitConf" default:"localhost:9880,localhost:9881,localhost:9882" effect:"honoured"`
	JRaftControllerRPCAddr  string `property:"jRaftControllerRPCAddr" default:"localhost:9770,localhost:9771,localhost:9772" effect:"honoured"`
	JRaftElectionTimeoutMs  int64  `property:"jRaftElectionTimeoutMs" default:"1000" effect:"none: one second, as for the other type"`
	JRaftScanWaitTimeoutMs  int64  `property:"jRaftScanWaitTimeoutMs" default:"1000" effect:"none: silent brokers are noticed at the very instant"`
	JRaftSnapshotIntervalSs int64  `property:"jRaftSnapshotIntervalSecs" default:"3600" effect:"none: a snapshot follows a number of changes"`

	ScanNotActiveBrokerInterval int64 `property:"scanNotActiveBrokerInterval" default:"5000" effect:"none: silent brokers are noticed at the very instant"`
	ScanInactiveMasterInterval  int64 `property:"scanInactiveMasterInterval" default:"5000" live:"true" effect:"honoured"`
	ElectMasterMaxRetryCount    int   `property:"electMasterMaxRetryCount" default:"3" effect:"none: a set without master is looked after until it has one"`
	EnableElectUncleanMaster    bool  `property:"enableElectUncleanMaster" default:"false" live:"true" effect:"honoured"`
	NotifyBrokerRoleChanged     bool  `property:"notifyBrokerRoleChanged" default:"true" live:"true" effect:"honoured"`
	IsProcessReadEvent          bool  `property:"isProcessReadEvent" default:"false" effect:"none: reads are always linearizable"`
	ProcessReadEvent            bool  `property:"processReadEvent" default:"false" effect:"none: reads are always linearizable"`

	ControllerThreadPoolNums                 int   `property:"controllerThreadPoolNums" default:"16" effect:"honoured"`
	ControllerRequestThreadPoolQueueCapacity int   `property:"controllerRequestThreadPoolQueueCapacity" default:"50000" effect:"honoured"`
	MappedFileSize                           int64 `property:"mappedFileSize" default:"1073741824" effect:"none: Raft's log is one file that grows as needed"`

	ConfigStorePath string `property:"configStorePath" default:"" effect:"none: the file given at start is the one that is kept"`
	ConfigBlackList string `property:"configBlackList" default:"configBlackList;configStorePath" effect:"honoured"`
	RocketmqHome    string `property:"rocketmqHome" default:"" effect:"none: shown only"`
	ListenPort      int    `property:"listenPort" default:"19876" effect:"none: the port is that of this controller in controllerDLegerPeers"`
	BindAddress     string `property:"bindAddress" default:"0.0.0.0" effect:"honoured"`

	MetricsExporterType                 string `property:"metricsExporterType" default:"DISABLE" effect:"none: no metrics exporter"`
	MetricsGrpcExporterTarget           string `property:"metricsGrpcExporterTarget" default:"" effect:"none: no metrics exporter"`
	MetricsGrpcExporterHeader           string `property:"metricsGrpcExporterHeader" default:"" effect:"none: no metrics exporter"`
	MetricGrpcExporterTimeOutInMills    int64  `property:"metricGrpcExporterTimeOutInMills" default:"3000" effect:"none: no metrics exporter"`
	MetricGrpcExporterIntervalInMills   int64  `property:"metricGrpcExporterIntervalInMills" default:"60000" effect:"none: no metrics exporter"`
	MetricLoggingExporterIntervalInMs   int64  `property:"metricLoggingExporterIntervalInMills" default:"10000" effect:"none: no metrics exporter"`
	MetricsPromExporterPort             int    `property:"metricsPromExporterPort" default:"5557" effect:"none: no metrics exporter"`
	MetricsPromExporterHost             string `property:"metricsPromExporterHost" default:"" effect:"none: no metrics exporter"`
	MetricsLabel                        string `property:"metricsLabel" default:"" effect:"none: no metrics exporter"`
	MetricsInDelta                      bool   `property:"metricsInDelta" default:"false" effect:"none: no metrics exporter"`
	EnableShutdownGracefully            bool   `property:"enableShutdownGracefully" default:"false" effect:"honoured"`
	ShutdownWaitTimeSeconds             int    `property:"shutdownWaitTimeSeconds" default:"30" effect:"none: stopping waits for answers under way, at most 5 s"`
	ServerChannelMaxIdleTimeSeconds     int    `property:"serverChannelMaxIdleTimeSeconds" default:"120" effect:"honoured"`
	ServerSocketSndBufSize              int    `property:"serverSocketSndBufSize" default:"0" effect:"honoured"`
	ServerSocketRcvBufSize              int    `property:"serverSocketRcvBufSize" default:"0" effect:"honoured"`
	ServerSocketBacklog                 int    `property:"serverSocketBacklog" default:"1024" effect:"none: the system's limit applies"`
	WriteBufferHighWaterMark            int    `property:"writeBufferHighWaterMark" default:"0" effect:"none: bounded by the connection's own limits"`
	WriteBufferLowWaterMark             int    `property:"writeBufferLowWaterMark" default:"0" effect:"none: bounded by the connection's own limits"`
	ServerSelectorThreads               int    `property:"serverSelectorThreads" default:"3" effect:"none: no thread pools"`
	ServerWorkerThreads                 int    `property:"serverWorkerThreads" default:"8" effect:"none: no thread pools"`
	ServerCallbackExecutorThreads       int    `property:"serverCallbackExecutorThreads" default:"0" effect:"none: no thread pools"`
	ServerOnewaySemaphoreValue          int    `property:"serverOnewaySemaphoreValue" default:"256" effect:"none: bounded by bytes"`
	ServerAsyncSemaphoreValue           int    `property:"serverAsyncSemaphoreValue" default:"64" effect:"none: bounded by bytes"`
	ServerNettyWorkerGroupEnable        bool   `property:"serverNettyWorkerGroupEnable" default:"true" effect:"none: no Netty"`
	ServerPooledByteBufAllocatorEnabled bool   `property:"serverPooledByteBufAllocatorEnable" default:"true" effect:"none: no Netty"`
	UseEpollNativeSelector              bool   `property:"useEpollNativeSelector" default:"false" effect:"none: no Netty"`
}

// Peer is one controller of the group.
type Peer struct {
	ID   string // as in the configuration, n0 for example
	Raft string // host:port that the other controllers call
	RPC  string // host:port that brokers and administrators call
}

// jraft says that the configuration is that of RocketMQ's other Raft library.
func (c *Config) jraft() bool { return strings.EqualFold(c.ControllerType, "jRaft") }

// Group is the name of the group.
func (c *Config) Group() string {
	if c.jraft() {
		return c.JRaftGroupID
	}
	return c.ControllerDLegerGroup
}

// SelfID is the id of this controller in Peers.
func (c *Config) SelfID() string {
	if c.jraft() {
		return c.JRaftServerID
	}
	return c.ControllerDLegerSelfID
}

// Peers lists the group in the order of the configuration. The error names the key that is wrong.
func (c *Config) Peers() ([]Peer, error) {
	if c.jraft() {
		return c.jraftPeers()
	}
	var list []Peer
	for _, part := range strings.Split(c.ControllerDLegerPeers, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, addr, ok := strings.Cut(part, "-")
		if !ok || id == "" {
			return nil, fmt.Errorf("controllerDLegerPeers: %q is not id-host:port", part)
		}
		if err := checkAddr(addr); err != nil {
			return nil, fmt.Errorf("controllerDLegerPeers: %q: %w", part, err)
		}
		list = append(list, Peer{id, addr, addr})
	}
	return list, unique(list, "controllerDLegerPeers")
}

func (c *Config) jraftPeers() ([]Peer, error) {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == ' ' })
	}
	rafts, rpcs := split(c.JRaftInitConf), split(c.JRaftControllerRPCAddr)
	if len(rafts) != len(rpcs) {
		return nil, fmt.Errorf("jRaftInitConf has %d addresses and jRaftControllerRPCAddr %d", len(rafts), len(rpcs))
	}
	var list []Peer
	for i, addr := range rafts {
		for _, a := range []string{addr, rpcs[i]} {
			if err := checkAddr(a); err != nil {
				return nil, fmt.Errorf("jRaftInitConf, jRaftControllerRPCAddr: %w", err)
			}
		}
		list = append(list, Peer{addr, addr, rpcs[i]})
	}
	return list, unique(list, "jRaftInitConf")
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return fmt.Errorf("%q is not host:port", addr)
	}
	return nil
}

func unique(list []Peer, key string) error {
	seen := map[string]bool{}
	for _, p := range list {
		if seen[p.ID] || seen[p.Raft] {
			return fmt.Errorf("%s names %s at %s twice", key, p.ID, p.Raft)
		}
		seen[p.ID], seen[p.Raft] = true, true
	}
	if len(list) == 0 {
		return fmt.Errorf("%s is empty: name at least this controller, for example n0-127.0.0.1:9878", key)
	}
	return nil
}

// self finds this controller in the group.
func (c *Config) self() (Peer, []Peer, error) {
	peers, err := c.Peers()
	if err != nil {
		return Peer{}, nil, err
	}
	i := slices.IndexFunc(peers, func(p Peer) bool { return p.ID == c.SelfID() })
	if i < 0 {
		key, list := "controllerDLegerSelfId", "controllerDLegerPeers"
		if c.jraft() {
			key, list = "jRaftServerId", "jRaftInitConf"
		}
		return Peer{}, nil, fmt.Errorf("%s=%q is not among %s", key, c.SelfID(), list)
	}
	return peers[i], peers, nil
}

// dir is the folder of this controller, whatever other controllers the machine runs.
func (c *Config) dir() (string, error) {
	root := c.ControllerStorePath
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("controllerStorePath is not set and there is no home folder: %w", err)
		}
		root = filepath.Join(home, "DLedgerController")
		if c.jraft() {
			root = filepath.Join(home, "jRaftController")
		}
	}
	return filepath.Join(root, "raft-"+strings.NewReplacer("/", "_", ":", "_", `\`, "_").Replace(c.SelfID())), nil
}

// Validate refuses what cannot be run.
func (c *Config) Validate() error {
	if !c.jraft() && !strings.EqualFold(c.ControllerType, "DLedger") {
		return fmt.Errorf("controllerType=%s: it is DLedger or jRaft", c.ControllerType)
	}
	if c.Group() == "" {
		return fmt.Errorf("controllerDLegerGroup is empty: give the group a name")
	}
	if _, _, err := c.self(); err != nil {
		return err
	}
	if c.ScanInactiveMasterInterval <= 0 {
		return fmt.Errorf("scanInactiveMasterInterval=%d is not positive", c.ScanInactiveMasterInterval)
	}
	return nil
}

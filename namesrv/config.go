package namesrv

import "fmt"

// Config holds every key of RocketMQ's name server. Tags: see package conf. Times are in the unit of the key's name, else milliseconds.
type Config struct {
	ListenPort  int    `property:"listenPort" default:"9876" effect:"honoured"`
	BindAddress string `property:"bindAddress" default:"0.0.0.0" effect:"honoured"`

	RocketmqHome    string `property:"rocketmqHome" default:"" effect:"none: shown only"`
	KVConfigPath    string `property:"kvConfigPath" default:"" effect:"honoured"`
	ConfigStorePath string `property:"configStorePath" default:"" effect:"none: the file given at start is the one that is kept"`
	ConfigBlackList string `property:"configBlackList" default:"configBlackList;configStorePath;kvConfigPath" effect:"honoured"`
	ProductEnvName  string `property:"productEnvName" default:"center" live:"true" effect:"none: shown only"`
	ClusterTest     bool   `property:"clusterTest" default:"false" effect:"none: RocketMQ's own test environment"`

	OrderMessageEnable                bool  `property:"orderMessageEnable" default:"false" live:"true" effect:"honoured"`
	ReturnOrderTopicConfigToBroker    bool  `property:"returnOrderTopicConfigToBroker" default:"true" live:"true" effect:"honoured"`
	EnableAllTopicList                bool  `property:"enableAllTopicList" default:"true" live:"true" effect:"honoured"`
	EnableTopicList                   bool  `property:"enableTopicList" default:"true" live:"true" effect:"honoured"`
	SupportActingMaster               bool  `property:"supportActingMaster" default:"false" live:"true" effect:"honoured"`
	NotifyMinBrokerIDChanged          bool  `property:"notifyMinBrokerIdChanged" default:"false" live:"true" effect:"honoured"`
	DeleteTopicWithBrokerRegistration bool  `property:"deleteTopicWithBrokerRegistration" default:"false" live:"true" effect:"honoured"`
	NeedWaitForService                bool  `property:"needWaitForService" default:"false" live:"true" effect:"honoured"`
	WaitSecondsForService             int   `property:"waitSecondsForService" default:"45" live:"true" effect:"honoured"`
	ScanNotActiveBrokerInterval       int64 `property:"scanNotActiveBrokerInterval" default:"5000" effect:"none: silent brokers are dropped at the very instant"`
	UnRegisterBrokerQueueCapacity     int   `property:"unRegisterBrokerQueueCapacity" default:"3000" effect:"none: brokers are dropped at once, without a queue"`
	EnableControllerInNamesrv         bool  `property:"enableControllerInNamesrv" default:"false" effect:"honoured"`
	EnableShutdownGracefully          bool  `property:"enableShutdownGracefully" default:"false" effect:"honoured"`
	ShutdownWaitTimeSeconds           int   `property:"shutdownWaitTimeSeconds" default:"30" effect:"none: stopping waits for answers under way, at most 5 s"`

	ServerChannelMaxIdleTimeSeconds int `property:"serverChannelMaxIdleTimeSeconds" default:"120" effect:"honoured"`
	ServerSocketSndBufSize          int `property:"serverSocketSndBufSize" default:"0" effect:"honoured"`
	ServerSocketRcvBufSize          int `property:"serverSocketRcvBufSize" default:"0" effect:"honoured"`

	ServerSocketBacklog                  int  `property:"serverSocketBacklog" default:"1024" effect:"none: the system's limit applies"`
	WriteBufferHighWaterMark             int  `property:"writeBufferHighWaterMark" default:"0" effect:"none: bounded by the connection's own limits"`
	WriteBufferLowWaterMark              int  `property:"writeBufferLowWaterMark" default:"0" effect:"none: bounded by the connection's own limits"`
	DefaultThreadPoolNums                int  `property:"defaultThreadPoolNums" default:"16" effect:"none: no thread pools"`
	DefaultThreadPoolQueueCapacity       int  `property:"defaultThreadPoolQueueCapacity" default:"10000" effect:"none: no thread pools"`
	ClientRequestThreadPoolNums          int  `property:"clientRequestThreadPoolNums" default:"8" effect:"none: no thread pools"`
	ClientRequestThreadPoolQueueCapacity int  `property:"clientRequestThreadPoolQueueCapacity" default:"50000" effect:"none: no thread pools"`
	ServerSelectorThreads                int  `property:"serverSelectorThreads" default:"3" effect:"none: no thread pools"`
	ServerWorkerThreads                  int  `property:"serverWorkerThreads" default:"8" effect:"none: no thread pools"`
	ServerCallbackExecutorThreads        int  `property:"serverCallbackExecutorThreads" default:"0" effect:"none: no thread pools"`
	ServerOnewaySemaphoreValue           int  `property:"serverOnewaySemaphoreValue" default:"256" effect:"none: bounded by bytes"`
	ServerAsyncSemaphoreValue            int  `property:"serverAsyncSemaphoreValue" default:"64" effect:"none: bounded by bytes"`
	ServerNettyWorkerGroupEnable         bool `property:"serverNettyWorkerGroupEnable" default:"true" effect:"none: no Netty"`
	ServerPooledByteBufAllocatorEnable   bool `property:"serverPooledByteBufAllocatorEnable" default:"true" effect:"none: no Netty"`
	UseEpollNativeSelector               bool `property:"useEpollNativeSelector" default:"false" effect:"none: no Netty"`
}

// table is what the route table needs of it.
func (c *Config) table() TableConfig {
	return TableConfig{SupportActingMaster: c.SupportActingMaster, DeleteTopicsOnRegister: c.DeleteTopicWithBrokerRegistration,
		NotifyMinBrokerIDChanged: c.NotifyMinBrokerIDChanged}
}

// Validate refuses what the name server cannot do.
func (c *Config) Validate() error {
	switch {
	case c.ListenPort < 0 || c.ListenPort > 65535:
		return fmt.Errorf("listenPort=%d: a port is between 1 and 65535, or 0 for any free one", c.ListenPort)
	case c.WaitSecondsForService < 0:
		return fmt.Errorf("waitSecondsForService=%d is negative", c.WaitSecondsForService)
	}
	return nil
}

package broker

// Config holds every key of RocketMQ's BrokerConfig and of its network configuration in its own spelling. The tags say
// the key, its default, whether a change at run time takes effect (live), and whether the broker honours it (effect:
// "honoured", or "none:" and why). Times are milliseconds, sizes bytes unless the key says otherwise. A key without
// effect is accepted, kept and shown. The keys of the store are in store.Config.
type Config struct {
	// Who the broker is and where it is reached.
	BrokerName        string `property:"brokerName" default:"" live:"false" effect:"honoured"`
	BrokerClusterName string `property:"brokerClusterName" default:"DefaultCluster" live:"false" effect:"honoured"`
	BrokerIP1         string `property:"brokerIP1" default:"" live:"false" effect:"honoured"`
	BrokerIP2         string `property:"brokerIP2" default:"" live:"false" effect:"honoured"`
	ListenPort        int64  `property:"listenPort" default:"10911" live:"false" effect:"honoured"`
	BindAddress       string `property:"bindAddress" default:"0.0.0.0" live:"false" effect:"honoured"`
	NamesrvAddr       string `property:"namesrvAddr" default:"" live:"false" effect:"honoured"`
	RocketmqHome      string `property:"rocketmqHome" default:"" live:"false" effect:"honoured"`

	// Who may change what.
	ConfigBlackList string `property:"configBlackList" default:"configBlackList;brokerConfigPath" live:"false" effect:"honoured"`

	// What the broker lets clients do.
	BrokerPermission                   int64 `property:"brokerPermission" default:"6" live:"true" effect:"honoured"`
	AutoCreateTopicEnable              bool  `property:"autoCreateTopicEnable" default:"true" live:"true" effect:"honoured"`
	AutoCreateSubscriptionGroup        bool  `property:"autoCreateSubscriptionGroup" default:"true" live:"true" effect:"honoured"`
	DefaultTopicQueueNums              int64 `property:"defaultTopicQueueNums" default:"8" live:"true" effect:"honoured"`
	RejectPullConsumerEnable           bool  `property:"rejectPullConsumerEnable" default:"false" live:"true" effect:"honoured"`
	EnableRegisterProducer             bool  `property:"enableRegisterProducer" default:"true" live:"true" effect:"honoured"`
	LitePullMessageEnable              bool  `property:"litePullMessageEnable" default:"true" live:"true" effect:"honoured"`
	StartAcceptSendRequestTimeStamp    int64 `property:"startAcceptSendRequestTimeStamp" default:"0" live:"true" effect:"honoured"`
	EnableMixedMessageType             bool  `property:"enableMixedMessageType" default:"false" live:"true" effect:"honoured"`
	ValidateSystemTopicWhenUpdateTopic bool  `property:"validateSystemTopicWhenUpdateTopic" default:"true" live:"true" effect:"honoured"`
	NotifyConsumerIdsChangedEnable     bool  `property:"notifyConsumerIdsChangedEnable" default:"true" live:"true" effect:"honoured"`
	SlaveReadEnable                    bool  `property:"slaveReadEnable" default:"false" live:"true" effect:"honoured"`

	// What the broker tells and traces.
	RegionId                 string `property:"regionId" default:"DefaultRegion" live:"true" effect:"honoured"`
	TraceOn                  bool   `property:"traceOn" default:"true" live:"true" effect:"honoured"`
	LongPollingEnable        bool   `property:"longPollingEnable" default:"true" live:"true" effect:"honoured"`
	ShortPollingTimeMills    int64  `property:"shortPollingTimeMills" default:"1000" live:"true" effect:"honoured"`
	UseServerSideResetOffset bool   `property:"useServerSideResetOffset" default:"true" live:"true" effect:"honoured"`
	AutoDeleteUnusedStats    bool   `property:"autoDeleteUnusedStats" default:"true" live:"true" effect:"honoured"`
	EnableDetailStat         bool   `property:"enableDetailStat" default:"true" live:"true" effect:"honoured"`

	// Topics that exist from the start.
	ClusterTopicEnable bool   `property:"clusterTopicEnable" default:"true" live:"false" effect:"honoured"`
	BrokerTopicEnable  bool   `property:"brokerTopicEnable" default:"true" live:"false" effect:"honoured"`
	TraceTopicEnable   bool   `property:"traceTopicEnable" default:"false" live:"false" effect:"honoured"`
	MsgTraceTopicName  string `property:"msgTraceTopicName" default:"RMQ_SYS_TRACE_TOPIC" live:"false" effect:"honoured"`
	ReviveQueueNum     int64  `property:"reviveQueueNum" default:"8" live:"false" effect:"honoured"`

	// Offsets.
	FlushConsumerOffsetInterval     int64 `property:"flushConsumerOffsetInterval" default:"5000" live:"false" effect:"honoured"`
	ConsumerOffsetUpdateVersionStep int64 `property:"consumerOffsetUpdateVersionStep" default:"500" live:"false" effect:"honoured"`

	// Lists of topics and groups in pages.
	EnableSplitMetadata bool  `property:"enableSplitMetadata" default:"true" live:"true" effect:"honoured"`
	SplitMetadataSize   int64 `property:"splitMetadataSize" default:"2000" live:"true" effect:"honoured"`

	// Delay levels.
	DelayOffsetUpdateVersionStep int64 `property:"delayOffsetUpdateVersionStep" default:"200" live:"false" effect:"honoured"`

	// Clients and their connections.
	ChannelExpiredTimeout           int64 `property:"channelExpiredTimeout" default:"120000" live:"false" effect:"honoured"`
	ServerChannelMaxIdleTimeSeconds int64 `property:"serverChannelMaxIdleTimeSeconds" default:"120" live:"false" effect:"honoured"`
	ServerSocketSndBufSize          int64 `property:"serverSocketSndBufSize" default:"0" live:"false" effect:"honoured"`
	ServerSocketRcvBufSize          int64 `property:"serverSocketRcvBufSize" default:"0" live:"false" effect:"honoured"`

	// Name servers.
	RegisterNameServerPeriod   int64 `property:"registerNameServerPeriod" default:"30000" live:"false" effect:"honoured"`
	RegisterBrokerTimeoutMills int64 `property:"registerBrokerTimeoutMills" default:"24000" live:"false" effect:"honoured"`
	ForceRegister              bool  `property:"forceRegister" default:"true" live:"false" effect:"honoured"`
	CompressedRegister         bool  `property:"compressedRegister" default:"false" live:"false" effect:"honoured"`

	// Overload. The sizes of pools are the limits of requests that wait, the waiting times are limits from the arrival of a frame.
	BrokerFastFailureEnable            bool  `property:"brokerFastFailureEnable" default:"true" live:"false" effect:"honoured"`
	WaitTimeMillsInSendQueue           int64 `property:"waitTimeMillsInSendQueue" default:"200" live:"false" effect:"honoured"`
	WaitTimeMillsInAdminBrokerQueue    int64 `property:"waitTimeMillsInAdminBrokerQueue" default:"5000" live:"false" effect:"honoured"`
	QueryThreadPoolQueueCapacity       int64 `property:"queryThreadPoolQueueCapacity" default:"20000" live:"false" effect:"honoured"`
	AdminBrokerThreadPoolQueueCapacity int64 `property:"adminBrokerThreadPoolQueueCapacity" default:"10000" live:"false" effect:"honoured"`
	QueryMessageThreadPoolNums         int64 `property:"queryMessageThreadPoolNums" default:"0" live:"false" effect:"honoured"`
	AdminBrokerThreadPoolNums          int64 `property:"adminBrokerThreadPoolNums" default:"16" live:"false" effect:"honoured"`
	HeartbeatThreadPoolNums            int64 `property:"heartbeatThreadPoolNums" default:"0" live:"false" effect:"honoured"`
	HeartbeatThreadPoolQueueCapacity   int64 `property:"heartbeatThreadPoolQueueCapacity" default:"50000" live:"false" effect:"honoured"`
	WaitTimeMillsInHeartbeatQueue      int64 `property:"waitTimeMillsInHeartbeatQueue" default:"31000" live:"false" effect:"honoured"`

	// Roles that need several brokers: a broker that is told to take one refuses to start.
	EnableControllerMode bool `property:"enableControllerMode" default:"false" live:"false" effect:"honoured"`

	// Goroutines take the place of pools.
	AckMessageThreadPoolNums               int64 `property:"ackMessageThreadPoolNums" default:"16" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	AckThreadPoolQueueCapacity             int64 `property:"ackThreadPoolQueueCapacity" default:"100000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	AsyncSendEnable                        bool  `property:"asyncSendEnable" default:"true" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ClientCallbackExecutorThreads          int64 `property:"clientCallbackExecutorThreads" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ClientManageThreadPoolNums             int64 `property:"clientManageThreadPoolNums" default:"32" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ClientManagerThreadPoolQueueCapacity   int64 `property:"clientManagerThreadPoolQueueCapacity" default:"1000000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ClientWorkerThreads                    int64 `property:"clientWorkerThreads" default:"4" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ConsumerManageThreadPoolNums           int64 `property:"consumerManageThreadPoolNums" default:"32" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ConsumerManagerThreadPoolQueueCapacity int64 `property:"consumerManagerThreadPoolQueueCapacity" default:"1000000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	DisableCallbackExecutor                bool  `property:"disableCallbackExecutor" default:"false" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	DisableNettyWorkerGroup                bool  `property:"disableNettyWorkerGroup" default:"false" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	EnableFastChannelEventProcess          bool  `property:"enableFastChannelEventProcess" default:"false" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	EndTransactionPoolQueueCapacity        int64 `property:"endTransactionPoolQueueCapacity" default:"100000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	EndTransactionThreadPoolNums           int64 `property:"endTransactionThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	LitePullMessageThreadPoolNums          int64 `property:"litePullMessageThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	PullMessageThreadPoolNums              int64 `property:"pullMessageThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	LoadBalanceProcessorThreadPoolNums     int64 `property:"loadBalanceProcessorThreadPoolNums" default:"32" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	LoadBalanceThreadPoolQueueCapacity     int64 `property:"loadBalanceThreadPoolQueueCapacity" default:"100000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ProcessReplyMessageThreadPoolNums      int64 `property:"processReplyMessageThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	PutMessageFutureThreadPoolNums         int64 `property:"putMessageFutureThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	PutThreadPoolQueueCapacity             int64 `property:"putThreadPoolQueueCapacity" default:"10000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	RecoverConcurrently                    bool  `property:"recoverConcurrently" default:"false" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	RecoverThreadPoolNums                  int64 `property:"recoverThreadPoolNums" default:"32" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ReplyThreadPoolQueueCapacity           int64 `property:"replyThreadPoolQueueCapacity" default:"10000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	SendMessageThreadPoolNums              int64 `property:"sendMessageThreadPoolNums" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ServerCallbackExecutorThreads          int64 `property:"serverCallbackExecutorThreads" default:"0" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ServerNettyWorkerGroupEnable           bool  `property:"serverNettyWorkerGroupEnable" default:"true" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ServerSelectorThreads                  int64 `property:"serverSelectorThreads" default:"3" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	ServerWorkerThreads                    int64 `property:"serverWorkerThreads" default:"8" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	WaitTimeMillsInAckQueue                int64 `property:"waitTimeMillsInAckQueue" default:"3000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	WaitTimeMillsInTransactionQueue        int64 `property:"waitTimeMillsInTransactionQueue" default:"3000" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`
	HighSpeedMode                          bool  `property:"highSpeedMode" default:"false" live:"false" effect:"none: requests run on goroutines, this pool has no counterpart"`

	// Netty.
	ClientAsyncSemaphoreValue          int64  `property:"clientAsyncSemaphoreValue" default:"65535" live:"false" effect:"none: belongs to the Java network library"`
	ClientOnewaySemaphoreValue         int64  `property:"clientOnewaySemaphoreValue" default:"65535" live:"false" effect:"none: belongs to the Java network library"`
	ServerAsyncSemaphoreValue          int64  `property:"serverAsyncSemaphoreValue" default:"64" live:"false" effect:"none: belongs to the Java network library"`
	ServerOnewaySemaphoreValue         int64  `property:"serverOnewaySemaphoreValue" default:"256" live:"false" effect:"none: belongs to the Java network library"`
	ClientPooledByteBufAllocatorEnable bool   `property:"clientPooledByteBufAllocatorEnable" default:"false" live:"false" effect:"none: belongs to the Java network library"`
	ServerPooledByteBufAllocatorEnable bool   `property:"serverPooledByteBufAllocatorEnable" default:"true" live:"false" effect:"none: belongs to the Java network library"`
	UseEpollNativeSelector             bool   `property:"useEpollNativeSelector" default:"false" live:"false" effect:"none: belongs to the Java network library"`
	WriteBufferHighWaterMark           int64  `property:"writeBufferHighWaterMark" default:"0" live:"false" effect:"none: belongs to the Java network library"`
	WriteBufferLowWaterMark            int64  `property:"writeBufferLowWaterMark" default:"0" live:"false" effect:"none: belongs to the Java network library"`
	ClientCloseSocketIfTimeout         bool   `property:"clientCloseSocketIfTimeout" default:"true" live:"false" effect:"none: belongs to the Java network library"`
	ClientSocketRcvBufSize             int64  `property:"clientSocketRcvBufSize" default:"0" live:"false" effect:"none: belongs to the Java network library"`
	ClientSocketSndBufSize             int64  `property:"clientSocketSndBufSize" default:"0" live:"false" effect:"none: belongs to the Java network library"`
	ClientChannelMaxIdleTimeSeconds    int64  `property:"clientChannelMaxIdleTimeSeconds" default:"120" live:"false" effect:"none: belongs to the Java network library"`
	ChannelNotActiveInterval           int64  `property:"channelNotActiveInterval" default:"60000" live:"false" effect:"none: belongs to the Java network library"`
	ConnectTimeoutMillis               int64  `property:"connectTimeoutMillis" default:"3000" live:"false" effect:"none: belongs to the Java network library"`
	MaxReconnectIntervalTimeSeconds    int64  `property:"maxReconnectIntervalTimeSeconds" default:"60" live:"false" effect:"none: belongs to the Java network library"`
	IsScanAvailableNameSrv             bool   `property:"isScanAvailableNameSrv" default:"true" live:"false" effect:"none: belongs to the Java network library"`
	EnableReconnectForGoAway           bool   `property:"enableReconnectForGoAway" default:"true" live:"false" effect:"none: belongs to the Java network library"`
	EnableShutdownGracefully           bool   `property:"enableShutdownGracefully" default:"false" live:"false" effect:"none: belongs to the Java network library"`
	ShutdownWaitTimeSeconds            int64  `property:"shutdownWaitTimeSeconds" default:"30" live:"false" effect:"none: belongs to the Java network library"`
	SocksProxyConfig                   string `property:"socksProxyConfig" default:"{}" live:"false" effect:"none: belongs to the Java network library"`
	EnableNetWorkFlowControl           bool   `property:"enableNetWorkFlowControl" default:"false" live:"false" effect:"none: belongs to the Java network library"`
	TransferMsgByHeap                  bool   `property:"transferMsgByHeap" default:"true" live:"false" effect:"none: belongs to the Java network library"`

	// Timers, transactions, pop and filters of later versions.
	AllowRecallWhenBrokerNotWriteable    bool   `property:"allowRecallWhenBrokerNotWriteable" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	AppendAckAsync                       bool   `property:"appendAckAsync" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	AppendCkAsync                        bool   `property:"appendCkAsync" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	DefaultMessageRequestMode            string `property:"defaultMessageRequestMode" default:"PULL" live:"false" effect:"none: the feature is not part of this version"`
	DefaultPopShareQueueNum              int64  `property:"defaultPopShareQueueNum" default:"-1" live:"false" effect:"none: the feature is not part of this version"`
	EnableCalcFilterBitMap               bool   `property:"enableCalcFilterBitMap" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnablePropertyFilter                 bool   `property:"enablePropertyFilter" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnableNotifyAfterPopOrderLockRelease bool   `property:"enableNotifyAfterPopOrderLockRelease" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	EnableNotifyBeforePopCalculateLag    bool   `property:"enableNotifyBeforePopCalculateLag" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	EnablePopBatchAck                    bool   `property:"enablePopBatchAck" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnablePopBufferMerge                 bool   `property:"enablePopBufferMerge" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnablePopLog                         bool   `property:"enablePopLog" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnablePopMessageThreshold            bool   `property:"enablePopMessageThreshold" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnableRetryTopicV2                   bool   `property:"enableRetryTopicV2" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EnableSkipLongAwaitingAck            bool   `property:"enableSkipLongAwaitingAck" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	ExpectConsumerNumUseFilter           int64  `property:"expectConsumerNumUseFilter" default:"32" live:"false" effect:"none: the feature is not part of this version"`
	FilterDataCleanTimeSpan              int64  `property:"filterDataCleanTimeSpan" default:"86400000" live:"false" effect:"none: the feature is not part of this version"`
	FilterSupportRetry                   bool   `property:"filterSupportRetry" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	InitPopOffsetByCheckMsgInMem         bool   `property:"initPopOffsetByCheckMsgInMem" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	MaxErrorRateOfBloomFilter            int64  `property:"maxErrorRateOfBloomFilter" default:"20" live:"false" effect:"none: the feature is not part of this version"`
	MaxPopPollingSize                    int64  `property:"maxPopPollingSize" default:"100000" live:"false" effect:"none: the feature is not part of this version"`
	PopCkMaxBufferSize                   int64  `property:"popCkMaxBufferSize" default:"200000" live:"false" effect:"none: the feature is not part of this version"`
	PopCkOffsetMaxQueueSize              int64  `property:"popCkOffsetMaxQueueSize" default:"20000" live:"false" effect:"none: the feature is not part of this version"`
	PopCkStayBufferTime                  int64  `property:"popCkStayBufferTime" default:"10000" live:"false" effect:"none: the feature is not part of this version"`
	PopCkStayBufferTimeOut               int64  `property:"popCkStayBufferTimeOut" default:"3000" live:"false" effect:"none: the feature is not part of this version"`
	PopConsumerFSServiceInit             bool   `property:"popConsumerFSServiceInit" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	PopConsumerKVServiceEnable           bool   `property:"popConsumerKVServiceEnable" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	PopConsumerKVServiceInit             bool   `property:"popConsumerKVServiceInit" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	PopConsumerKVServiceLog              bool   `property:"popConsumerKVServiceLog" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	PopFromRetryProbability              int64  `property:"popFromRetryProbability" default:"20" live:"false" effect:"none: the feature is not part of this version"`
	PopInflightMessageThreshold          int64  `property:"popInflightMessageThreshold" default:"10000" live:"false" effect:"none: the feature is not part of this version"`
	PopLongPollingForceNotifyInterval    int64  `property:"popLongPollingForceNotifyInterval" default:"800" live:"false" effect:"none: the feature is not part of this version"`
	PopPollingMapSize                    int64  `property:"popPollingMapSize" default:"100000" live:"false" effect:"none: the feature is not part of this version"`
	PopPollingSize                       int64  `property:"popPollingSize" default:"1024" live:"false" effect:"none: the feature is not part of this version"`
	PopResponseReturnActualRetryTopic    bool   `property:"popResponseReturnActualRetryTopic" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	PopReviveMaxAttemptTimes             int64  `property:"popReviveMaxAttemptTimes" default:"16" live:"false" effect:"none: the feature is not part of this version"`
	PopReviveMaxReturnSizePerRead        int64  `property:"popReviveMaxReturnSizePerRead" default:"16384" live:"false" effect:"none: the feature is not part of this version"`
	RecallMessageEnable                  bool   `property:"recallMessageEnable" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	RetrieveMessageFromPopRetryTopicV1   bool   `property:"retrieveMessageFromPopRetryTopicV1" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	ReviveAckWaitMs                      int64  `property:"reviveAckWaitMs" default:"180000" live:"false" effect:"none: the feature is not part of this version"`
	ReviveInterval                       int64  `property:"reviveInterval" default:"1000" live:"false" effect:"none: the feature is not part of this version"`
	ReviveMaxSlow                        int64  `property:"reviveMaxSlow" default:"3" live:"false" effect:"none: the feature is not part of this version"`
	ReviveScanTime                       int64  `property:"reviveScanTime" default:"10000" live:"false" effect:"none: the feature is not part of this version"`
	ServerLoadBalancerEnable             bool   `property:"serverLoadBalancerEnable" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	LoadBalancePollNameServerInterval    int64  `property:"loadBalancePollNameServerInterval" default:"30000" live:"false" effect:"none: the feature is not part of this version"`
	SkipWhenCKRePutReachMaxTimes         bool   `property:"skipWhenCKRePutReachMaxTimes" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	StoreReplyMessageEnable              bool   `property:"storeReplyMessageEnable" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	TransactionCheckInterval             int64  `property:"transactionCheckInterval" default:"30000" live:"false" effect:"none: the feature is not part of this version"`
	TransactionCheckMax                  int64  `property:"transactionCheckMax" default:"15" live:"false" effect:"none: the feature is not part of this version"`
	TransactionMetricFlushInterval       int64  `property:"transactionMetricFlushInterval" default:"10000" live:"false" effect:"none: the feature is not part of this version"`
	TransactionOpBatchInterval           int64  `property:"transactionOpBatchInterval" default:"3000" live:"false" effect:"none: the feature is not part of this version"`
	TransactionOpMsgMaxSize              int64  `property:"transactionOpMsgMaxSize" default:"4096" live:"false" effect:"none: the feature is not part of this version"`
	TransactionTimeOut                   int64  `property:"transactionTimeOut" default:"6000" live:"false" effect:"none: the feature is not part of this version"`
	UseStaticSubscription                bool   `property:"useStaticSubscription" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	ClearRetryTopicWhenDeleteTopic       bool   `property:"clearRetryTopicWhenDeleteTopic" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	EnableBroadcastOffsetStore           bool   `property:"enableBroadcastOffsetStore" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	BroadcastOffsetExpireMaxSecond       int64  `property:"broadcastOffsetExpireMaxSecond" default:"300" live:"false" effect:"none: the feature is not part of this version"`
	BroadcastOffsetExpireSecond          int64  `property:"broadcastOffsetExpireSecond" default:"120" live:"false" effect:"none: the feature is not part of this version"`
	LockInStrictMode                     bool   `property:"lockInStrictMode" default:"false" live:"false" effect:"none: the feature is not part of this version"`
	EstimateAccumulation                 bool   `property:"estimateAccumulation" default:"true" live:"false" effect:"none: the feature is not part of this version"`
	SubscriptionExpiredTimeout           int64  `property:"subscriptionExpiredTimeout" default:"600000" live:"false" effect:"none: the feature is not part of this version"`

	// Replication, controller, acting master of later versions.
	EnableSlaveActingMaster         bool   `property:"enableSlaveActingMaster" default:"false" live:"false" effect:"none: replication is not part of this version"`
	IsBrokerContainer               bool   `property:"isBrokerContainer" default:"false" live:"false" effect:"none: replication is not part of this version"`
	IsInBrokerContainer             bool   `property:"isInBrokerContainer" default:"false" live:"false" effect:"none: replication is not part of this version"`
	BrokerElectionPriority          int64  `property:"brokerElectionPriority" default:"2147483647" live:"false" effect:"none: replication is not part of this version"`
	BrokerHeartbeatInterval         int64  `property:"brokerHeartbeatInterval" default:"1000" live:"false" effect:"none: replication is not part of this version"`
	BrokerNotActiveTimeoutMillis    int64  `property:"brokerNotActiveTimeoutMillis" default:"10000" live:"false" effect:"none: replication is not part of this version"`
	CheckSyncStateSetPeriod         int64  `property:"checkSyncStateSetPeriod" default:"5000" live:"false" effect:"none: replication is not part of this version"`
	CompatibleWithOldNameSrv        bool   `property:"compatibleWithOldNameSrv" default:"true" live:"false" effect:"none: replication is not part of this version"`
	ControllerAddr                  string `property:"controllerAddr" default:"" live:"false" effect:"none: replication is not part of this version"`
	ControllerHeartBeatTimeoutMills int64  `property:"controllerHeartBeatTimeoutMills" default:"10000" live:"false" effect:"none: replication is not part of this version"`
	EnableRemoteEscape              bool   `property:"enableRemoteEscape" default:"false" live:"false" effect:"none: replication is not part of this version"`
	FetchControllerAddrByDnsLookup  bool   `property:"fetchControllerAddrByDnsLookup" default:"false" live:"false" effect:"none: replication is not part of this version"`
	ForwardTimeout                  int64  `property:"forwardTimeout" default:"3000" live:"false" effect:"none: replication is not part of this version"`
	SendHeartbeatTimeoutMillis      int64  `property:"sendHeartbeatTimeoutMillis" default:"1000" live:"false" effect:"none: replication is not part of this version"`
	SkipPreOnline                   bool   `property:"skipPreOnline" default:"false" live:"false" effect:"none: replication is not part of this version"`
	SyncBrokerMemberGroupPeriod     int64  `property:"syncBrokerMemberGroupPeriod" default:"1000" live:"false" effect:"none: replication is not part of this version"`
	SyncBrokerMetadataPeriod        int64  `property:"syncBrokerMetadataPeriod" default:"5000" live:"false" effect:"none: replication is not part of this version"`
	SyncControllerMetadataPeriod    int64  `property:"syncControllerMetadataPeriod" default:"10000" live:"false" effect:"none: replication is not part of this version"`
	CleanOfflineBrokerInterval      int64  `property:"cleanOfflineBrokerInterval" default:"30000" live:"false" effect:"none: replication is not part of this version"`

	// Access control of a later version.
	AclEnable                      bool   `property:"aclEnable" default:"false" live:"false" effect:"none: access control is not part of this version"`
	AuthConfigPath                 string `property:"authConfigPath" default:"" live:"false" effect:"none: access control is not part of this version"`
	AuthenticationMetadataProvider string `property:"authenticationMetadataProvider" default:"" live:"false" effect:"none: access control is not part of this version"`
	AuthorizationMetadataProvider  string `property:"authorizationMetadataProvider" default:"" live:"false" effect:"none: access control is not part of this version"`

	// Metrics of a later version.
	MetricGrpcExporterIntervalInMills    int64  `property:"metricGrpcExporterIntervalInMills" default:"60000" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricGrpcExporterTimeOutInMills     int64  `property:"metricGrpcExporterTimeOutInMills" default:"3000" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricLoggingExporterIntervalInMills int64  `property:"metricLoggingExporterIntervalInMills" default:"10000" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsExporterType                  string `property:"metricsExporterType" default:"DISABLE" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsGrpcExporterHeader            string `property:"metricsGrpcExporterHeader" default:"" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsGrpcExporterTarget            string `property:"metricsGrpcExporterTarget" default:"" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsInDelta                       bool   `property:"metricsInDelta" default:"false" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsLabel                         string `property:"metricsLabel" default:"" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsOtelCardinalityLimit          int64  `property:"metricsOtelCardinalityLimit" default:"50000" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsPromExporterHost              string `property:"metricsPromExporterHost" default:"" live:"false" effect:"none: metrics exporters are not part of this version"`
	MetricsPromExporterPort              int64  `property:"metricsPromExporterPort" default:"5557" live:"false" effect:"none: metrics exporters are not part of this version"`
	AccountStatsPrintZeroValues          bool   `property:"accountStatsPrintZeroValues" default:"true" live:"false" effect:"none: metrics exporters are not part of this version"`
	CommercialBaseCount                  int64  `property:"commercialBaseCount" default:"1" live:"false" effect:"none: metrics exporters are not part of this version"`
	CommercialSizePerMsg                 int64  `property:"commercialSizePerMsg" default:"4096" live:"false" effect:"none: metrics exporters are not part of this version"`
	EnableLmqStats                       bool   `property:"enableLmqStats" default:"false" live:"false" effect:"none: metrics exporters are not part of this version"`
	MaxStatsIdleTimeInMinutes            int64  `property:"maxStatsIdleTimeInMinutes" default:"-1" live:"false" effect:"none: metrics exporters are not part of this version"`

	// Cold data control of a later version.
	CgColdReadThreshold     int64 `property:"cgColdReadThreshold" default:"3145728" live:"false" effect:"none: cold reads leave the hot loop and are limited there"`
	ColdCtrStrategyEnable   bool  `property:"coldCtrStrategyEnable" default:"false" live:"false" effect:"none: cold reads leave the hot loop and are limited there"`
	GlobalColdReadThreshold int64 `property:"globalColdReadThreshold" default:"104857600" live:"false" effect:"none: cold reads leave the hot loop and are limited there"`
	UsePIDColdCtrStrategy   bool  `property:"usePIDColdCtrStrategy" default:"true" live:"false" effect:"none: cold reads leave the hot loop and are limited there"`

	// Registration in pieces.
	EnableSingleTopicRegister bool  `property:"enableSingleTopicRegister" default:"false" live:"false" effect:"none: the table is registered in one piece, one changed topic alone"`
	EnableSplitRegistration   bool  `property:"enableSplitRegistration" default:"false" live:"false" effect:"none: the table is registered in one piece, one changed topic alone"`
	SplitRegistrationSize     int64 `property:"splitRegistrationSize" default:"800" live:"false" effect:"none: the table is registered in one piece, one changed topic alone"`

	// Other.
	DisableConsumeIfConsumerReadSlowly bool   `property:"disableConsumeIfConsumerReadSlowly" default:"false" live:"false" effect:"none: no effect in this version"`
	ConsumerFallbehindThreshold        int64  `property:"consumerFallbehindThreshold" default:"17179869184" live:"false" effect:"none: no effect in this version"`
	RealTimeNotifyConsumerChange       bool   `property:"realTimeNotifyConsumerChange" default:"true" live:"false" effect:"none: no effect in this version"`
	ConfigManagerVersion               string `property:"configManagerVersion" default:"v1" live:"false" effect:"none: no effect in this version"`
	EnableCreateSysGroup               bool   `property:"enableCreateSysGroup" default:"true" live:"false" effect:"none: no effect in this version"`
	FetchNameSrvAddrByDnsLookup        bool   `property:"fetchNameSrvAddrByDnsLookup" default:"false" live:"false" effect:"none: no effect in this version"`
	FetchNamesrvAddrByAddressServer    bool   `property:"fetchNamesrvAddrByAddressServer" default:"false" live:"false" effect:"none: no effect in this version"`
	FetchNamesrvAddrInterval           int64  `property:"fetchNamesrvAddrInterval" default:"10000" live:"false" effect:"none: no effect in this version"`
	FlushConsumerOffsetHistoryInterval int64  `property:"flushConsumerOffsetHistoryInterval" default:"60000" live:"false" effect:"none: no effect in this version"`
	IsolateLogEnable                   bool   `property:"isolateLogEnable" default:"false" live:"false" effect:"none: no effect in this version"`
	MessageStorePlugIn                 string `property:"messageStorePlugIn" default:"" live:"false" effect:"none: no effect in this version"`
	PrintChannelGroups                 bool   `property:"printChannelGroups" default:"false" live:"false" effect:"none: no effect in this version"`
	PrintChannelGroupsMinNum           int64  `property:"printChannelGroupsMinNum" default:"5" live:"false" effect:"none: no effect in this version"`
	UpdateNameServerAddrPeriod         int64  `property:"updateNameServerAddrPeriod" default:"120000" live:"false" effect:"none: no effect in this version"`

	// Shown only.
	WaitTimeMillsInPullQueue        int64 `property:"waitTimeMillsInPullQueue" default:"5000" live:"false" effect:"none: shown in the runtime info; sends and pulls run on their connection and wait in no queue"`
	WaitTimeMillsInLitePullQueue    int64 `property:"waitTimeMillsInLitePullQueue" default:"5000" live:"false" effect:"none: shown in the runtime info; sends and pulls run on their connection and wait in no queue"`
	SendThreadPoolQueueCapacity     int64 `property:"sendThreadPoolQueueCapacity" default:"10000" live:"false" effect:"none: shown in the runtime info; sends and pulls run on their connection and wait in no queue"`
	PullThreadPoolQueueCapacity     int64 `property:"pullThreadPoolQueueCapacity" default:"100000" live:"false" effect:"none: shown in the runtime info; sends and pulls run on their connection and wait in no queue"`
	LitePullThreadPoolQueueCapacity int64 `property:"litePullThreadPoolQueueCapacity" default:"100000" live:"false" effect:"none: shown in the runtime info; sends and pulls run on their connection and wait in no queue"`

	// Decided otherwise.
	BrokerId int64 `property:"brokerId" default:"0" live:"false" effect:"none: a master has id 0"`

	// TLS.
	UseTLS bool `property:"useTLS" default:"false" live:"false" effect:"none: the server takes TLS and plain connections by the TLS property file; the broker calls name servers in plain"`

	// Always so.
	AccountStatsEnable       bool  `property:"accountStatsEnable" default:"true" live:"false" effect:"none: counters are always kept, transaction messages always refused, the backlog of a socket is the system's"`
	RejectTransactionMessage bool  `property:"rejectTransactionMessage" default:"false" live:"false" effect:"none: counters are always kept, transaction messages always refused, the backlog of a socket is the system's"`
	ServerSocketBacklog      int64 `property:"serverSocketBacklog" default:"1024" live:"false" effect:"none: counters are always kept, transaction messages always refused, the backlog of a socket is the system's"`
}

package store

// Config holds every key of RocketMQ's MessageStoreConfig in its own spelling. The tags say the key, its default,
// whether a change at run time takes effect (live), and whether the store honours it (effect: "honoured", another
// reader of the key, or "none:" and why). Sizes are bytes, times milliseconds unless the key's group says otherwise.
// A key without effect is accepted, kept and shown.
type Config struct {
	// Paths, files, log.
	StorePathRootDir                 string `property:"storePathRootDir" default:"" live:"false" effect:"honoured"`
	StorePathCommitLog               string `property:"storePathCommitLog" default:"" live:"false" effect:"honoured"`
	StorePathDLedgerCommitLog        string `property:"storePathDLedgerCommitLog" default:"" live:"false" effect:"none: a folder with a DLedger log is refused at start"`
	StorePathEpochFile               string `property:"storePathEpochFile" default:"" live:"false" effect:"none: replication is not part of this version"`
	StorePathBrokerIdentity          string `property:"storePathBrokerIdentity" default:"" live:"false" effect:"none: replication is not part of this version"`
	ReadOnlyCommitLogStorePaths      string `property:"readOnlyCommitLogStorePaths" default:"" live:"false" effect:"honoured"`
	MappedFileSizeCommitLog          int64  `property:"mappedFileSizeCommitLog" default:"1073741824" live:"false" effect:"honoured"`
	MappedFileSizeConsumeQueue       int64  `property:"mappedFileSizeConsumeQueue" default:"6000000" live:"false" effect:"honoured"`
	MapperFileSizeBatchConsumeQueue  int64  `property:"mapperFileSizeBatchConsumeQueue" default:"13800000" live:"false" effect:"none: batch, light and extended queues are not part of this version"`
	EnableConsumeQueueExt            bool   `property:"enableConsumeQueueExt" default:"false" live:"false" effect:"honoured"`
	MappedFileSizeConsumeQueueExt    int64  `property:"mappedFileSizeConsumeQueueExt" default:"50331648" live:"false" effect:"none: batch, light and extended queues are not part of this version"`
	BitMapLengthConsumeQueueExt      int    `property:"bitMapLengthConsumeQueueExt" default:"64" live:"false" effect:"none: batch, light and extended queues are not part of this version"`
	StoreType                        string `property:"storeType" default:"default" live:"false" effect:"honoured"`
	MaxMessageSize                   int    `property:"maxMessageSize" default:"4194304" live:"true" effect:"honoured"`
	MaxTopicLength                   int    `property:"maxTopicLength" default:"127" live:"false" effect:"none: no effect in RocketMQ either"`
	AutoMessageVersionOnTopicLen     bool   `property:"autoMessageVersionOnTopicLen" default:"true" live:"false" effect:"honoured"`
	EnabledAppendPropCRC             bool   `property:"enabledAppendPropCRC" default:"false" live:"false" effect:"honoured"`
	ForceVerifyPropCRC               bool   `property:"forceVerifyPropCRC" default:"false" live:"false" effect:"honoured"`
	CheckCRCOnRecover                bool   `property:"checkCRCOnRecover" default:"true" live:"false" effect:"honoured"`
	MaxChecksumRange                 int64  `property:"maxChecksumRange" default:"1073741824" live:"false" effect:"none: replication is not part of this version"`
	DuplicationEnable                bool   `property:"duplicationEnable" default:"false" live:"false" effect:"honoured"`
	WriteWithoutMmap                 bool   `property:"writeWithoutMmap" default:"false" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	PutConsumeQueueDataByFileChannel bool   `property:"putConsumeQueueDataByFileChannel" default:"true" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	EnableLmq                        bool   `property:"enableLmq" default:"false" live:"false" effect:"honoured"`
	EnableMultiDispatch              bool   `property:"enableMultiDispatch" default:"false" live:"false" effect:"none: batch, light and extended queues are not part of this version"`
	MaxLmqConsumeQueueNum            int    `property:"maxLmqConsumeQueueNum" default:"20000" live:"false" effect:"none: no effect in RocketMQ either"`
	EnableCompaction                 bool   `property:"enableCompaction" default:"true" live:"false" effect:"none: compacted topics are not part of this version"`
	CompactionMappedFileSize         int64  `property:"compactionMappedFileSize" default:"104857600" live:"false" effect:"none: compacted topics are not part of this version"`
	CompactionCqMappedFileSize       int64  `property:"compactionCqMappedFileSize" default:"10485760" live:"false" effect:"none: compacted topics are not part of this version"`
	CompactionScheduleInternal       int    `property:"compactionScheduleInternal" default:"900000" live:"false" effect:"none: compacted topics are not part of this version"`
	MaxOffsetMapSize                 int64  `property:"maxOffsetMapSize" default:"104857600" live:"false" effect:"none: compacted topics are not part of this version"`
	CompactionThreadNum              int    `property:"compactionThreadNum" default:"6" live:"false" effect:"none: compacted topics are not part of this version"`

	// Locks, put path, flow control.
	UseReentrantLockWhenPutMessage        bool  `property:"useReentrantLockWhenPutMessage" default:"true" live:"false" effect:"none: one appender stages and writes, no lock kind is chosen"`
	UseABSLock                            bool  `property:"useABSLock" default:"false" live:"false" effect:"none: one appender stages and writes, no lock kind is chosen"`
	SpinLockCollisionRetreatOptimalDegree int   `property:"spinLockCollisionRetreatOptimalDegree" default:"1000" live:"false" effect:"none: one appender stages and writes, no lock kind is chosen"`
	TopicQueueLockNum                     int   `property:"topicQueueLockNum" default:"32" live:"false" effect:"none: one appender stages and writes, no lock kind is chosen"`
	OsPageCacheBusyTimeOutMills           int64 `property:"osPageCacheBusyTimeOutMills" default:"1000" live:"true" effect:"honoured by the broker, which refuses sends while the oldest unwritten byte is older"`
	DebugLockEnable                       bool  `property:"debugLockEnable" default:"false" live:"false" effect:"none: one appender stages and writes, no lock kind is chosen"`
	PutMsgIndexHightWater                 int   `property:"putMsgIndexHightWater" default:"600000" live:"false" effect:"none: no effect in RocketMQ either"`
	PutMessageTimeout                     int64 `property:"putMessageTimeout" default:"8000" live:"false" effect:"none: no effect in RocketMQ either"`
	MaxAsyncPutMessageRequests            int   `property:"maxAsyncPutMessageRequests" default:"5000" live:"false" effect:"none: no effect in RocketMQ either"`
	DispatchFromSenderThread              bool  `property:"dispatchFromSenderThread" default:"false" live:"false" effect:"none: no effect in RocketMQ either"`
	DefaultQueryMaxNum                    int   `property:"defaultQueryMaxNum" default:"32" live:"true" effect:"honoured by the broker, which bounds key queries with it"`

	// Flush, memory.
	FlushDiskType                     string `property:"flushDiskType" default:"ASYNC_FLUSH" live:"false" effect:"honoured"`
	FlushIntervalCommitLog            int64  `property:"flushIntervalCommitLog" default:"500" live:"false" effect:"honoured"`
	FlushCommitLogTimed               bool   `property:"flushCommitLogTimed" default:"true" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	FlushCommitLogLeastPages          int    `property:"flushCommitLogLeastPages" default:"4" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	FlushCommitLogThoroughInterval    int64  `property:"flushCommitLogThoroughInterval" default:"10000" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	CommitIntervalCommitLog           int64  `property:"commitIntervalCommitLog" default:"200" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	CommitCommitLogLeastPages         int    `property:"commitCommitLogLeastPages" default:"4" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	CommitCommitLogThoroughInterval   int64  `property:"commitCommitLogThoroughInterval" default:"200" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	WakeCommitWhenPutMessage          bool   `property:"wakeCommitWhenPutMessage" default:"true" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	WakeFlushWhenPutMessage           bool   `property:"wakeFlushWhenPutMessage" default:"false" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	FlushIntervalConsumeQueue         int64  `property:"flushIntervalConsumeQueue" default:"1000" live:"true" effect:"honoured"`
	FlushConsumeQueueLeastPages       int    `property:"flushConsumeQueueLeastPages" default:"2" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	FlushConsumeQueueThoroughInterval int64  `property:"flushConsumeQueueThoroughInterval" default:"60000" live:"true" effect:"honoured"`
	SyncFlushTimeout                  int64  `property:"syncFlushTimeout" default:"5000" live:"true" effect:"honoured by the broker, which bounds the wait of an acknowledgement with it"`
	EnableRunningFlagsInFlush         bool   `property:"enableRunningFlagsInFlush" default:"false" live:"false" effect:"none: flushes are bounded by time, every append wakes the flusher"`
	TransientStorePoolEnable          bool   `property:"transientStorePoolEnable" default:"false" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	TransientStorePoolSize            int64  `property:"transientStorePoolSize" default:"5" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	FastFailIfNoBufferInStorePool     bool   `property:"fastFailIfNoBufferInStorePool" default:"false" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	WarmMapedFileEnable               bool   `property:"warmMapedFileEnable" default:"false" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	FlushLeastPagesWhenWarmMapedFile  int    `property:"flushLeastPagesWhenWarmMapedFile" default:"4096" live:"false" effect:"none: the log is written with pwrite into allocated segments; there is no pool between append and page cache"`
	DataReadAheadEnable               bool   `property:"dataReadAheadEnable" default:"true" live:"false" effect:"honoured"`
	MappedFileSwapEnable              bool   `property:"mappedFileSwapEnable" default:"true" live:"false" effect:"none: no effect in RocketMQ either"`
	CommitLogForceSwapMapInterval     int64  `property:"commitLogForceSwapMapInterval" default:"43200000" live:"false" effect:"none: no effect in RocketMQ either"`
	CommitLogSwapMapInterval          int64  `property:"commitLogSwapMapInterval" default:"3600000" live:"false" effect:"none: no effect in RocketMQ either"`
	CommitLogSwapMapReserveFileNum    int    `property:"commitLogSwapMapReserveFileNum" default:"100" live:"false" effect:"none: no effect in RocketMQ either"`
	LogicQueueForceSwapMapInterval    int64  `property:"logicQueueForceSwapMapInterval" default:"43200000" live:"false" effect:"none: no effect in RocketMQ either"`
	LogicQueueSwapMapInterval         int64  `property:"logicQueueSwapMapInterval" default:"3600000" live:"false" effect:"none: no effect in RocketMQ either"`
	CleanSwapedMapInterval            int64  `property:"cleanSwapedMapInterval" default:"300000" live:"false" effect:"none: no effect in RocketMQ either"`
	LogicQueueSwapMapReserveFileNum   int    `property:"logicQueueSwapMapReserveFileNum" default:"20" live:"false" effect:"none: no effect in RocketMQ either"`

	// Dispatch, recovery.
	DispatchCqThreads                               int  `property:"dispatchCqThreads" default:"10" live:"false" effect:"none: no effect in RocketMQ either"`
	DispatchCqCacheNum                              int  `property:"dispatchCqCacheNum" default:"4096" live:"false" effect:"none: no effect in RocketMQ either"`
	EnableAsyncReput                                bool `property:"enableAsyncReput" default:"true" live:"false" effect:"none: no effect in RocketMQ either"`
	RecheckReputOffsetFromCq                        bool `property:"recheckReputOffsetFromCq" default:"false" live:"false" effect:"none: recovery starts at its own mark and repairs every queue and the index by itself"`
	ReadUnCommitted                                 bool `property:"readUnCommitted" default:"false" live:"true" effect:"honoured"`
	EnableBuildConsumeQueueConcurrently             bool `property:"enableBuildConsumeQueueConcurrently" default:"false" live:"false" effect:"none: dispatch takes parsed entries from the append path"`
	BatchDispatchRequestThreadPoolNums              int  `property:"batchDispatchRequestThreadPoolNums" default:"16" live:"false" effect:"none: dispatch takes parsed entries from the append path"`
	MaxRecoveryCommitlogFiles                       int  `property:"maxRecoveryCommitlogFiles" default:"30" live:"false" effect:"none: no effect in RocketMQ either"`
	EnableAcceleratedRecovery                       bool `property:"enableAcceleratedRecovery" default:"false" live:"false" effect:"none: recovery starts at its own mark and repairs every queue and the index by itself"`
	EnableLogConsumeQueueRepeatedlyBuildWhenRecover bool `property:"enableLogConsumeQueueRepeatedlyBuildWhenRecover" default:"false" live:"false" effect:"none: recovery starts at its own mark and repairs every queue and the index by itself"`

	// Index and reads.
	MessageIndexEnable                bool  `property:"messageIndexEnable" default:"true" live:"false" effect:"honoured"`
	MessageIndexSafe                  bool  `property:"messageIndexSafe" default:"false" live:"false" effect:"none: recovery starts at its own mark and repairs every queue and the index by itself"`
	MaxHashSlotNum                    int   `property:"maxHashSlotNum" default:"5000000" live:"false" effect:"honoured"`
	MaxIndexNum                       int   `property:"maxIndexNum" default:"20000000" live:"false" effect:"honoured"`
	MaxMsgsNumBatch                   int   `property:"maxMsgsNumBatch" default:"64" live:"true" effect:"honoured"`
	MaxTransferBytesOnMessageInMemory int   `property:"maxTransferBytesOnMessageInMemory" default:"262144" live:"true" effect:"honoured"`
	MaxTransferCountOnMessageInMemory int   `property:"maxTransferCountOnMessageInMemory" default:"32" live:"true" effect:"honoured"`
	MaxTransferBytesOnMessageInDisk   int   `property:"maxTransferBytesOnMessageInDisk" default:"65536" live:"true" effect:"honoured"`
	MaxTransferCountOnMessageInDisk   int   `property:"maxTransferCountOnMessageInDisk" default:"8" live:"true" effect:"honoured"`
	AccessMessageInMemoryMaxRatio     int   `property:"accessMessageInMemoryMaxRatio" default:"40" live:"true" effect:"honoured"`
	AccessMessageInMemoryHotRatio     int   `property:"accessMessageInMemoryHotRatio" default:"26" live:"false" effect:"none: cold reads leave the connection loop by themselves"`
	MaxFilterMessageSize              int64 `property:"maxFilterMessageSize" default:"16000" live:"true" effect:"honoured"`
	TravelCqFileNumWhenGetMessage     int   `property:"travelCqFileNumWhenGetMessage" default:"1" live:"true" effect:"honoured"`
	PullBatchMaxMessageCount          int   `property:"pullBatchMaxMessageCount" default:"160" live:"false" effect:"none: no effect in RocketMQ either"`
	OffsetCheckInSlave                bool  `property:"offsetCheckInSlave" default:"false" live:"true" effect:"honoured"`
	DiskFallRecorded                  bool  `property:"diskFallRecorded" default:"true" live:"false" effect:"none: lag is always known"`
	SearchBcqByCacheEnable            bool  `property:"searchBcqByCacheEnable" default:"true" live:"false" effect:"none: batch, light and extended queues are not part of this version"`
	MaxConsumeQueueScan               int   `property:"maxConsumeQueueScan" default:"20000" live:"false" effect:"none: read by the lag estimate, not part of this version"`
	SampleCountThreshold              int   `property:"sampleCountThreshold" default:"5000" live:"false" effect:"none: read by the lag estimate, not part of this version"`
	ColdDataFlowControlEnable         bool  `property:"coldDataFlowControlEnable" default:"false" live:"false" effect:"none: cold reads leave the connection loop by themselves"`
	ColdDataScanEnable                bool  `property:"coldDataScanEnable" default:"false" live:"false" effect:"none: cold reads leave the connection loop by themselves"`
	TimerColdDataCheckIntervalMs      int64 `property:"timerColdDataCheckIntervalMs" default:"60000" live:"false" effect:"none: cold reads leave the connection loop by themselves"`
	SampleSteps                       int   `property:"sampleSteps" default:"32" live:"false" effect:"none: cold reads leave the connection loop by themselves"`

	// Deletion.
	CleanResourceInterval                  int64   `property:"cleanResourceInterval" default:"10000" live:"true" effect:"honoured"`
	DeleteWhen                             string  `property:"deleteWhen" default:"04" live:"true" effect:"honoured"`
	FileReservedTime                       int64   `property:"fileReservedTime" default:"72" live:"true" effect:"honoured"`
	DeleteFileBatchMax                     int     `property:"deleteFileBatchMax" default:"10" live:"true" effect:"honoured"`
	DeleteCommitLogFilesInterval           int64   `property:"deleteCommitLogFilesInterval" default:"100" live:"true" effect:"honoured"`
	DeleteConsumeQueueFilesInterval        int64   `property:"deleteConsumeQueueFilesInterval" default:"100" live:"true" effect:"honoured"`
	DestroyMapedFileIntervalForcibly       int64   `property:"destroyMapedFileIntervalForcibly" default:"120000" live:"false" effect:"none: segments are counted, an unlinked one is unmapped when its last reader ends"`
	RedeleteHangedFileInterval             int64   `property:"redeleteHangedFileInterval" default:"120000" live:"false" effect:"none: segments are counted, an unlinked one is unmapped when its last reader ends"`
	DiskMaxUsedSpaceRatio                  int     `property:"diskMaxUsedSpaceRatio" default:"75" live:"true" effect:"honoured"`
	DiskSpaceCleanForciblyRatio            int     `property:"diskSpaceCleanForciblyRatio" default:"85" live:"true" effect:"honoured"`
	DiskSpaceWarningLevelRatio             int     `property:"diskSpaceWarningLevelRatio" default:"90" live:"true" effect:"honoured"`
	CleanFileForciblyEnable                bool    `property:"cleanFileForciblyEnable" default:"true" live:"true" effect:"honoured"`
	ReplicasPerDiskPartition               int     `property:"replicasPerDiskPartition" default:"1" live:"false" effect:"none: each broker is expected to have a file system of its own"`
	LogicalDiskSpaceCleanForciblyThreshold float64 `property:"logicalDiskSpaceCleanForciblyThreshold" default:"0.8" live:"false" effect:"none: each broker is expected to have a file system of its own"`
	MaxBatchDeleteFilesNum                 int     `property:"maxBatchDeleteFilesNum" default:"50" live:"false" effect:"none: no effect in RocketMQ either"`
	CorrectLogicMinOffsetSleepInterval     int64   `property:"correctLogicMinOffsetSleepInterval" default:"1" live:"false" effect:"none: minimum offsets are corrected with every deletion"`
	CorrectLogicMinOffsetForceInterval     int64   `property:"correctLogicMinOffsetForceInterval" default:"300000" live:"false" effect:"none: minimum offsets are corrected with every deletion"`
	EnableCleanExpiredOffset               bool    `property:"enableCleanExpiredOffset" default:"false" live:"false" effect:"none: no effect in RocketMQ either"`

	// HA and roles.
	BrokerRole                       string `property:"brokerRole" default:"ASYNC_MASTER" live:"false" effect:"honoured"`
	HaListenPort                     int    `property:"haListenPort" default:"10912" live:"false" effect:"none: replication is not part of this version"`
	HaSendHeartbeatInterval          int64  `property:"haSendHeartbeatInterval" default:"5000" live:"false" effect:"none: replication is not part of this version"`
	HaHousekeepingInterval           int64  `property:"haHousekeepingInterval" default:"20000" live:"false" effect:"none: replication is not part of this version"`
	HaTransferBatchSize              int64  `property:"haTransferBatchSize" default:"32768" live:"false" effect:"none: replication is not part of this version"`
	HaMasterAddress                  string `property:"haMasterAddress" default:"" live:"false" effect:"none: replication is not part of this version"`
	HaMaxGapNotInSync                int    `property:"haMaxGapNotInSync" default:"268435456" live:"false" effect:"none: replication is not part of this version"`
	HaFlowControlEnable              bool   `property:"haFlowControlEnable" default:"false" live:"false" effect:"none: replication is not part of this version"`
	MaxHaTransferByteInSecond        int    `property:"maxHaTransferByteInSecond" default:"104857600" live:"false" effect:"none: replication is not part of this version"`
	HaMaxTimeSlaveNotCatchup         int64  `property:"haMaxTimeSlaveNotCatchup" default:"15000" live:"false" effect:"none: replication is not part of this version"`
	SlaveTimeout                     int64  `property:"slaveTimeout" default:"3000" live:"false" effect:"none: replication is not part of this version"`
	TotalReplicas                    int    `property:"totalReplicas" default:"1" live:"false" effect:"none: replication is not part of this version"`
	InSyncReplicas                   int    `property:"inSyncReplicas" default:"1" live:"false" effect:"none: replication is not part of this version"`
	MinInSyncReplicas                int    `property:"minInSyncReplicas" default:"1" live:"false" effect:"none: replication is not part of this version"`
	AllAckInSyncStateSet             bool   `property:"allAckInSyncStateSet" default:"false" live:"false" effect:"none: replication is not part of this version"`
	EnableAutoInSyncReplicas         bool   `property:"enableAutoInSyncReplicas" default:"false" live:"false" effect:"none: replication is not part of this version"`
	SyncMasterFlushOffsetWhenStartup bool   `property:"syncMasterFlushOffsetWhenStartup" default:"false" live:"false" effect:"none: replication is not part of this version"`
	MaxSlaveResendLength             int    `property:"maxSlaveResendLength" default:"268435456" live:"false" effect:"none: no effect in RocketMQ either"`
	SyncFromLastFile                 bool   `property:"syncFromLastFile" default:"false" live:"false" effect:"none: replication is not part of this version"`
	AsyncLearner                     bool   `property:"asyncLearner" default:"false" live:"false" effect:"none: replication is not part of this version"`
	DisappearTimeAfterStart          int64  `property:"disappearTimeAfterStart" default:"-1" live:"false" effect:"none: replication is not part of this version"`
	EnableDLegerCommitLog            bool   `property:"enableDLegerCommitLog" default:"false" live:"false" effect:"honoured"`
	DLegerGroup                      string `property:"dLegerGroup" default:"" live:"false" effect:"none: a folder with a DLedger log is refused at start"`
	DLegerPeers                      string `property:"dLegerPeers" default:"" live:"false" effect:"none: a folder with a DLedger log is refused at start"`
	DLegerSelfId                     string `property:"dLegerSelfId" default:"" live:"false" effect:"none: a folder with a DLedger log is refused at start"`
	PreferredLeaderId                string `property:"preferredLeaderId" default:"" live:"false" effect:"none: a folder with a DLedger log is refused at start"`
	EnableBatchPush                  bool   `property:"enableBatchPush" default:"false" live:"false" effect:"none: a folder with a DLedger log is refused at start"`

	// Delay and timer.
	MessageDelayLevel                        string `property:"messageDelayLevel" default:"1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h" live:"true" effect:"honoured"`
	FlushDelayOffsetInterval                 int64  `property:"flushDelayOffsetInterval" default:"10000" live:"false" effect:"honoured by the broker, which delivers delayed messages"`
	EnableScheduleMessageStats               bool   `property:"enableScheduleMessageStats" default:"true" live:"false" effect:"none: delayed messages are delivered in order, one level at a time"`
	EnableScheduleAsyncDeliver               bool   `property:"enableScheduleAsyncDeliver" default:"false" live:"false" effect:"none: delayed messages are delivered in order, one level at a time"`
	ScheduleAsyncDeliverMaxPendingLimit      int    `property:"scheduleAsyncDeliverMaxPendingLimit" default:"2000" live:"false" effect:"none: delayed messages are delivered in order, one level at a time"`
	ScheduleAsyncDeliverMaxResendNum2Blocked int    `property:"scheduleAsyncDeliverMaxResendNum2Blocked" default:"3" live:"false" effect:"none: delayed messages are delivered in order, one level at a time"`
	TimerWheelEnable                         bool   `property:"timerWheelEnable" default:"true" live:"false" effect:"none: timer messages are not part of this version"`
	MappedFileSizeTimerLog                   int64  `property:"mappedFileSizeTimerLog" default:"104857600" live:"false" effect:"none: timer messages are not part of this version"`
	TimerPrecisionMs                         int    `property:"timerPrecisionMs" default:"1000" live:"false" effect:"none: timer messages are not part of this version"`
	TimerRollWindowSlot                      int    `property:"timerRollWindowSlot" default:"172800" live:"false" effect:"none: timer messages are not part of this version"`
	TimerFlushIntervalMs                     int64  `property:"timerFlushIntervalMs" default:"1000" live:"false" effect:"none: timer messages are not part of this version"`
	TimerGetMessageThreadNum                 int    `property:"timerGetMessageThreadNum" default:"3" live:"false" effect:"none: timer messages are not part of this version"`
	TimerPutMessageThreadNum                 int    `property:"timerPutMessageThreadNum" default:"3" live:"false" effect:"none: timer messages are not part of this version"`
	TimerEnableDisruptor                     bool   `property:"timerEnableDisruptor" default:"false" live:"false" effect:"none: timer messages are not part of this version"`
	TimerEnableCheckMetrics                  bool   `property:"timerEnableCheckMetrics" default:"true" live:"false" effect:"none: timer messages are not part of this version"`
	TimerCheckMetricsWhen                    string `property:"timerCheckMetricsWhen" default:"05" live:"false" effect:"none: timer messages are not part of this version"`
	TimerInterceptDelayLevel                 bool   `property:"timerInterceptDelayLevel" default:"false" live:"false" effect:"none: no effect in RocketMQ either"`
	TimerMaxDelaySec                         int    `property:"timerMaxDelaySec" default:"259200" live:"false" effect:"none: timer messages are not part of this version"`
	TimerStopEnqueue                         bool   `property:"timerStopEnqueue" default:"false" live:"false" effect:"none: timer messages are not part of this version"`
	TimerStopDequeue                         bool   `property:"timerStopDequeue" default:"false" live:"false" effect:"none: timer messages are not part of this version"`
	TimerSkipUnknownError                    bool   `property:"timerSkipUnknownError" default:"false" live:"false" effect:"none: timer messages are not part of this version"`
	TimerWarmEnable                          bool   `property:"timerWarmEnable" default:"false" live:"false" effect:"none: no effect in RocketMQ either"`
	TimerEnableRetryUntilSuccess             bool   `property:"timerEnableRetryUntilSuccess" default:"false" live:"false" effect:"none: timer messages are not part of this version"`
	TimerCongestNumEachSlot                  int    `property:"timerCongestNumEachSlot" default:"2147483647" live:"false" effect:"none: timer messages are not part of this version"`
	TimerMetricSmallThreshold                int    `property:"timerMetricSmallThreshold" default:"1000000" live:"false" effect:"none: timer messages are not part of this version"`
	TimerProgressLogIntervalMs               int64  `property:"timerProgressLogIntervalMs" default:"10000" live:"false" effect:"none: timer messages are not part of this version"`
	TimerWheelSlots                          int    `property:"timerWheelSlots" default:"1209600" live:"false" effect:"none: timer messages are not part of this version"`

	// RocksDB and combined queues.
	CleanRocksDBDirtyCQIntervalMin                int64  `property:"cleanRocksDBDirtyCQIntervalMin" default:"60" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	StatRocksDBCQIntervalSec                      int64  `property:"statRocksDBCQIntervalSec" default:"10" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	MemTableFlushIntervalMs                       int64  `property:"memTableFlushIntervalMs" default:"3600000" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	RealTimePersistRocksDBConfig                  bool   `property:"realTimePersistRocksDBConfig" default:"true" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	EnableRocksDBLog                              bool   `property:"enableRocksDBLog" default:"false" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	RocksdbCQDoubleWriteEnable                    bool   `property:"rocksdbCQDoubleWriteEnable" default:"false" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	CombineCQLoadingCQTypes                       string `property:"combineCQLoadingCQTypes" default:"default;defaultRocksDB" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	CombineCQPreferCQType                         string `property:"combineCQPreferCQType" default:"default" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	CombineAssignOffsetCQType                     string `property:"combineAssignOffsetCQType" default:"default" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	CombineCQEnableCheckSelf                      bool   `property:"combineCQEnableCheckSelf" default:"false" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	CombineCQMaxExtraSearchCommitLogFiles         int    `property:"combineCQMaxExtraSearchCommitLogFiles" default:"3" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	BottomMostCompressionTypeForConsumeQueueStore string `property:"bottomMostCompressionTypeForConsumeQueueStore" default:"zstd" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	RocksdbCompressionType                        string `property:"rocksdbCompressionType" default:"lz4" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	RocksdbFlushWalFrequency                      int    `property:"rocksdbFlushWalFrequency" default:"1024" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
	RocksdbWalFileRollingThreshold                int    `property:"rocksdbWalFileRollingThreshold" default:"1073741824" live:"false" effect:"none: RocksDB queues and configuration are refused at start"`
}

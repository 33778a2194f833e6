package protocol

import "strconv"

// Code is a request or response code of the wire.
type Code = int32

// Request codes.
const (
	ReqSendMessage                          Code = 10
	ReqPullMessage                          Code = 11
	ReqQueryMessage                         Code = 12
	ReqQueryBrokerOffset                    Code = 13
	ReqQueryConsumerOffset                  Code = 14
	ReqUpdateConsumerOffset                 Code = 15
	ReqUpdateAndCreateTopic                 Code = 17
	ReqUpdateAndCreateTopicList             Code = 18
	ReqGetAllTopicConfig                    Code = 21
	ReqGetTopicConfigList                   Code = 22
	ReqGetTopicNameList                     Code = 23
	ReqUpdateBrokerConfig                   Code = 25
	ReqGetBrokerConfig                      Code = 26
	ReqTriggerDeleteFiles                   Code = 27
	ReqGetBrokerRuntimeInfo                 Code = 28
	ReqSearchOffsetByTimestamp              Code = 29
	ReqGetMaxOffset                         Code = 30
	ReqGetMinOffset                         Code = 31
	ReqGetEarliestMsgStoreTime              Code = 32
	ReqViewMessageByID                      Code = 33
	ReqHeartBeat                            Code = 34
	ReqUnregisterClient                     Code = 35
	ReqConsumerSendMsgBack                  Code = 36
	ReqEndTransaction                       Code = 37
	ReqGetConsumerListByGroup               Code = 38
	ReqCheckTransactionState                Code = 39
	ReqNotifyConsumerIDsChanged             Code = 40
	ReqLockBatchMQ                          Code = 41
	ReqUnlockBatchMQ                        Code = 42
	ReqGetAllConsumerOffset                 Code = 43
	ReqGetAllDelayOffset                    Code = 45
	ReqCheckClientConfig                    Code = 46
	ReqGetClientConfig                      Code = 47
	ReqGetTimerCheckPoint                   Code = 60
	ReqGetTimerMetrics                      Code = 61
	ReqPutKVConfig                          Code = 100
	ReqGetKVConfig                          Code = 101
	ReqDeleteKVConfig                       Code = 102
	ReqRegisterBroker                       Code = 103
	ReqUnregisterBroker                     Code = 104
	ReqGetRouteInfoByTopic                  Code = 105
	ReqGetBrokerClusterInfo                 Code = 106
	ReqUpdateAndCreateSubscriptionGroup     Code = 200
	ReqGetAllSubscriptionGroupConfig        Code = 201
	ReqGetTopicStatsInfo                    Code = 202
	ReqGetConsumerConnectionList            Code = 203
	ReqGetProducerConnectionList            Code = 204
	ReqWipeWritePermOfBroker                Code = 205
	ReqGetAllTopicListFromNameServer        Code = 206
	ReqDeleteSubscriptionGroup              Code = 207
	ReqGetConsumeStats                      Code = 208
	ReqSuspendConsumer                      Code = 209
	ReqResumeConsumer                       Code = 210
	ReqResetConsumerOffsetInConsumer        Code = 211
	ReqResetConsumerOffsetInBroker          Code = 212
	ReqAdjustConsumerThreadPool             Code = 213
	ReqWhoConsumeTheMessage                 Code = 214
	ReqDeleteTopicInBroker                  Code = 215
	ReqDeleteTopicInNamesrv                 Code = 216
	ReqRegisterTopicInNamesrv               Code = 217
	ReqGetKVListByNamespace                 Code = 219
	ReqResetConsumerClientOffset            Code = 220
	ReqGetConsumerStatusFromClient          Code = 221
	ReqInvokeBrokerToResetOffset            Code = 222
	ReqInvokeBrokerToGetConsumerStatus      Code = 223
	ReqGetTopicsByCluster                   Code = 224
	ReqUpdateAndCreateSubscriptionGroupList Code = 225
	ReqQueryTopicConsumeByWho               Code = 300
	ReqRegisterFilterServer                 Code = 301
	ReqRegisterMessageFilterClass           Code = 302
	ReqQueryConsumeTimeSpan                 Code = 303
	ReqGetSystemTopicListFromNS             Code = 304
	ReqGetSystemTopicListFromBroker         Code = 305
	ReqCleanExpiredConsumeQueue             Code = 306
	ReqGetConsumerRunningInfo               Code = 307
	ReqQueryCorrectionOffset                Code = 308
	ReqConsumeMessageDirectly               Code = 309
	ReqSendMessageV2                        Code = 310
	ReqGetUnitTopicList                     Code = 311
	ReqGetHasUnitSubTopicList               Code = 312
	ReqGetHasUnitSubUnUnitTopicList         Code = 313
	ReqCloneGroupOffset                     Code = 314
	ReqViewBrokerStatsData                  Code = 315
	ReqCleanUnusedTopic                     Code = 316
	ReqGetBrokerConsumeStats                Code = 317
	ReqUpdateNamesrvConfig                  Code = 318
	ReqGetNamesrvConfig                     Code = 319
	ReqSendBatchMessage                     Code = 320
	ReqQueryConsumeQueue                    Code = 321
	ReqQueryDataVersion                     Code = 322
	ReqResumeCheckHalfMessage               Code = 323
	ReqSendReplyMessage                     Code = 324
	ReqSendReplyMessageV2                   Code = 325
	ReqPushReplyMessageToClient             Code = 326
	ReqAddWritePermOfBroker                 Code = 327
	ReqGetAllProducerInfo                   Code = 328
	ReqDeleteExpiredCommitLog               Code = 329
	ReqQueryTopicsByConsumer                Code = 343
	ReqQuerySubscriptionByConsumer          Code = 345
	ReqGetTopicConfig                       Code = 351
	ReqGetSubscriptionGroupConfig           Code = 352
	ReqUpdateAndGetGroupForbidden           Code = 353
	ReqCheckRocksDBCQWriteProgress          Code = 354
	ReqExportRocksDBConfigToJSON            Code = 355
	ReqLitePullMessage                      Code = 361
	ReqRecallMessage                        Code = 370
	ReqQueryAssignment                      Code = 400
	ReqSetMessageRequestMode                Code = 401
	ReqGetAllMessageRequestMode             Code = 402
	ReqUpdateAndCreateStaticTopic           Code = 513
	ReqGetBrokerMemberGroup                 Code = 901
	ReqAddBroker                            Code = 902
	ReqRemoveBroker                         Code = 903
	ReqBrokerHeartbeat                      Code = 904
	ReqNotifyMinBrokerIDChange              Code = 905
	ReqExchangeBrokerHAInfo                 Code = 906
	ReqGetBrokerHAStatus                    Code = 907
	ReqResetMasterFlushOffset               Code = 908
	ReqControllerAlterSyncStateSet          Code = 1001
	ReqControllerElectMaster                Code = 1002
	ReqControllerRegisterBroker             Code = 1003
	ReqControllerGetReplicaInfo             Code = 1004
	ReqControllerGetMetadataInfo            Code = 1005
	ReqControllerGetSyncStateData           Code = 1006
	ReqGetBrokerEpochCache                  Code = 1007
	ReqNotifyBrokerRoleChanged              Code = 1008
	ReqUpdateControllerConfig               Code = 1009
	ReqGetControllerConfig                  Code = 1010
	ReqCleanBrokerData                      Code = 1011
	ReqControllerGetNextBrokerID            Code = 1012
	ReqControllerApplyBrokerID              Code = 1013
	ReqUpdateColdDataFlowCtrConfig          Code = 2001
	ReqRemoveColdDataFlowCtrConfig          Code = 2002
	ReqGetColdDataFlowCtrInfo               Code = 2003
	ReqSetCommitLogReadMode                 Code = 2004
	ReqAuthCreateUser                       Code = 3001
	ReqAuthUpdateUser                       Code = 3002
	ReqAuthDeleteUser                       Code = 3003
	ReqAuthGetUser                          Code = 3004
	ReqAuthListUser                         Code = 3005
	ReqAuthCreateACL                        Code = 3006
	ReqAuthUpdateACL                        Code = 3007
	ReqAuthDeleteACL                        Code = 3008
	ReqAuthGetACL                           Code = 3009
	ReqAuthListACL                          Code = 3010
	ReqPopMessage                           Code = 200050
	ReqAckMessage                           Code = 200051
	ReqPeekMessage                          Code = 200052
	ReqChangeMessageInvisibleTime           Code = 200053
	ReqNotification                         Code = 200054
	ReqPollingInfo                          Code = 200055
	ReqPopRollback                          Code = 200056
	ReqBatchAckMessage                      Code = 200151
)

// Response codes.
const (
	RPCTimeOut                           Code = -1006
	RPCSendToChannelFailed               Code = -1004
	RPCAddrIsNull                        Code = -1002
	RPCUnknown                           Code = -1000
	Success                              Code = 0
	SystemError                          Code = 1
	SystemBusy                           Code = 2
	RequestCodeNotSupported              Code = 3
	TransactionFailed                    Code = 4
	FlushDiskTimeout                     Code = 10
	SlaveNotAvailable                    Code = 11
	FlushSlaveTimeout                    Code = 12
	MessageIllegal                       Code = 13
	ServiceNotAvailable                  Code = 14
	VersionNotSupported                  Code = 15
	NoPermission                         Code = 16
	TopicNotExist                        Code = 17
	TopicExistAlready                    Code = 18
	PullNotFound                         Code = 19
	PullRetryImmediately                 Code = 20
	PullOffsetMoved                      Code = 21
	QueryNotFound                        Code = 22
	SubscriptionParseFailed              Code = 23
	SubscriptionNotExist                 Code = 24
	SubscriptionNotLatest                Code = 25
	SubscriptionGroupNotExist            Code = 26
	FilterDataNotExist                   Code = 27
	FilterDataNotLatest                  Code = 28
	InvalidParameter                     Code = 29
	TransactionShouldCommit              Code = 200
	TransactionShouldRollback            Code = 201
	TransactionStateUnknow               Code = 202
	TransactionStateGroupWrong           Code = 203
	NoBuyerID                            Code = 204
	NotInCurrentUnit                     Code = 205
	ConsumerNotOnline                    Code = 206
	ConsumeMsgTimeout                    Code = 207
	NoMessage                            Code = 208
	PollingFull                          Code = 209
	PollingTimeout                       Code = 210
	BrokerNotExist                       Code = 211
	BrokerDispatchNotComplete            Code = 212
	BroadcastConsumption                 Code = 213
	FlowControl                          Code = 215
	NotLeaderForQueue                    Code = 501
	IllegalOperation                     Code = 604
	GoAway                               Code = 1500
	ControllerFencedMasterEpoch          Code = 2000
	ControllerFencedSyncStateSetEpoch    Code = 2001
	ControllerInvalidMaster              Code = 2002
	ControllerInvalidReplicas            Code = 2003
	ControllerMasterNotAvailable         Code = 2004
	ControllerInvalidRequest             Code = 2005
	ControllerBrokerNotAlive             Code = 2006
	ControllerNotLeader                  Code = 2007
	ControllerBrokerMetadataNotExist     Code = 2008
	ControllerInvalidCleanBrokerMetadata Code = 2009
	ControllerBrokerNeedToBeRegistered   Code = 2010
	ControllerMasterStillExist           Code = 2011
	ControllerElectMasterFailed          Code = 2012
	ControllerAlterSyncStateSetFailed    Code = 2013
	ControllerBrokerIDInvalid            Code = 2014
	ControllerJRaftInternalError         Code = 2015
	ControllerBrokerLiveInfoNotExists    Code = 2016
	UserNotExist                         Code = 3001
	PolicyNotExist                       Code = 3002
)

// RequestName is RocketMQ's name of a request code, or its number when it has none.
func RequestName(c Code) string { return nameOf(requestNames, c) }

// ResponseName is RocketMQ's name of a response code, or its number when it has none.
func ResponseName(c Code) string { return nameOf(responseNames, c) }

func nameOf(names map[Code]string, c Code) string {
	if n, ok := names[c]; ok {
		return n
	}
	return strconv.Itoa(int(c))
}

var requestNames = map[Code]string{
	ReqSendMessage:                          "SEND_MESSAGE",
	ReqPullMessage:                          "PULL_MESSAGE",
	ReqQueryMessage:                         "QUERY_MESSAGE",
	ReqQueryBrokerOffset:                    "QUERY_BROKER_OFFSET",
	ReqQueryConsumerOffset:                  "QUERY_CONSUMER_OFFSET",
	ReqUpdateConsumerOffset:                 "UPDATE_CONSUMER_OFFSET",
	ReqUpdateAndCreateTopic:                 "UPDATE_AND_CREATE_TOPIC",
	ReqUpdateAndCreateTopicList:             "UPDATE_AND_CREATE_TOPIC_LIST",
	ReqGetAllTopicConfig:                    "GET_ALL_TOPIC_CONFIG",
	ReqGetTopicConfigList:                   "GET_TOPIC_CONFIG_LIST",
	ReqGetTopicNameList:                     "GET_TOPIC_NAME_LIST",
	ReqUpdateBrokerConfig:                   "UPDATE_BROKER_CONFIG",
	ReqGetBrokerConfig:                      "GET_BROKER_CONFIG",
	ReqTriggerDeleteFiles:                   "TRIGGER_DELETE_FILES",
	ReqGetBrokerRuntimeInfo:                 "GET_BROKER_RUNTIME_INFO",
	ReqSearchOffsetByTimestamp:              "SEARCH_OFFSET_BY_TIMESTAMP",
	ReqGetMaxOffset:                         "GET_MAX_OFFSET",
	ReqGetMinOffset:                         "GET_MIN_OFFSET",
	ReqGetEarliestMsgStoreTime:              "GET_EARLIEST_MSG_STORETIME",
	ReqViewMessageByID:                      "VIEW_MESSAGE_BY_ID",
	ReqHeartBeat:                            "HEART_BEAT",
	ReqUnregisterClient:                     "UNREGISTER_CLIENT",
	ReqConsumerSendMsgBack:                  "CONSUMER_SEND_MSG_BACK",
	ReqEndTransaction:                       "END_TRANSACTION",
	ReqGetConsumerListByGroup:               "GET_CONSUMER_LIST_BY_GROUP",
	ReqCheckTransactionState:                "CHECK_TRANSACTION_STATE",
	ReqNotifyConsumerIDsChanged:             "NOTIFY_CONSUMER_IDS_CHANGED",
	ReqLockBatchMQ:                          "LOCK_BATCH_MQ",
	ReqUnlockBatchMQ:                        "UNLOCK_BATCH_MQ",
	ReqGetAllConsumerOffset:                 "GET_ALL_CONSUMER_OFFSET",
	ReqGetAllDelayOffset:                    "GET_ALL_DELAY_OFFSET",
	ReqCheckClientConfig:                    "CHECK_CLIENT_CONFIG",
	ReqGetClientConfig:                      "GET_CLIENT_CONFIG",
	ReqGetTimerCheckPoint:                   "GET_TIMER_CHECK_POINT",
	ReqGetTimerMetrics:                      "GET_TIMER_METRICS",
	ReqPutKVConfig:                          "PUT_KV_CONFIG",
	ReqGetKVConfig:                          "GET_KV_CONFIG",
	ReqDeleteKVConfig:                       "DELETE_KV_CONFIG",
	ReqRegisterBroker:                       "REGISTER_BROKER",
	ReqUnregisterBroker:                     "UNREGISTER_BROKER",
	ReqGetRouteInfoByTopic:                  "GET_ROUTEINFO_BY_TOPIC",
	ReqGetBrokerClusterInfo:                 "GET_BROKER_CLUSTER_INFO",
	ReqUpdateAndCreateSubscriptionGroup:     "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
	ReqGetAllSubscriptionGroupConfig:        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG",
	ReqGetTopicStatsInfo:                    "GET_TOPIC_STATS_INFO",
	ReqGetConsumerConnectionList:            "GET_CONSUMER_CONNECTION_LIST",
	ReqGetProducerConnectionList:            "GET_PRODUCER_CONNECTION_LIST",
	ReqWipeWritePermOfBroker:                "WIPE_WRITE_PERM_OF_BROKER",
	ReqGetAllTopicListFromNameServer:        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
	ReqDeleteSubscriptionGroup:              "DELETE_SUBSCRIPTIONGROUP",
	ReqGetConsumeStats:                      "GET_CONSUME_STATS",
	ReqSuspendConsumer:                      "SUSPEND_CONSUMER",
	ReqResumeConsumer:                       "RESUME_CONSUMER",
	ReqResetConsumerOffsetInConsumer:        "RESET_CONSUMER_OFFSET_IN_CONSUMER",
	ReqResetConsumerOffsetInBroker:          "RESET_CONSUMER_OFFSET_IN_BROKER",
	ReqAdjustConsumerThreadPool:             "ADJUST_CONSUMER_THREAD_POOL",
	ReqWhoConsumeTheMessage:                 "WHO_CONSUME_THE_MESSAGE",
	ReqDeleteTopicInBroker:                  "DELETE_TOPIC_IN_BROKER",
	ReqDeleteTopicInNamesrv:                 "DELETE_TOPIC_IN_NAMESRV",
	ReqRegisterTopicInNamesrv:               "REGISTER_TOPIC_IN_NAMESRV",
	ReqGetKVListByNamespace:                 "GET_KVLIST_BY_NAMESPACE",
	ReqResetConsumerClientOffset:            "RESET_CONSUMER_CLIENT_OFFSET",
	ReqGetConsumerStatusFromClient:          "GET_CONSUMER_STATUS_FROM_CLIENT",
	ReqInvokeBrokerToResetOffset:            "INVOKE_BROKER_TO_RESET_OFFSET",
	ReqInvokeBrokerToGetConsumerStatus:      "INVOKE_BROKER_TO_GET_CONSUMER_STATUS",
	ReqGetTopicsByCluster:                   "GET_TOPICS_BY_CLUSTER",
	ReqUpdateAndCreateSubscriptionGroupList: "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
	ReqQueryTopicConsumeByWho:               "QUERY_TOPIC_CONSUME_BY_WHO",
	ReqRegisterFilterServer:                 "REGISTER_FILTER_SERVER",
	ReqRegisterMessageFilterClass:           "REGISTER_MESSAGE_FILTER_CLASS",
	ReqQueryConsumeTimeSpan:                 "QUERY_CONSUME_TIME_SPAN",
	ReqGetSystemTopicListFromNS:             "GET_SYSTEM_TOPIC_LIST_FROM_NS",
	ReqGetSystemTopicListFromBroker:         "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
	ReqCleanExpiredConsumeQueue:             "CLEAN_EXPIRED_CONSUMEQUEUE",
	ReqGetConsumerRunningInfo:               "GET_CONSUMER_RUNNING_INFO",
	ReqQueryCorrectionOffset:                "QUERY_CORRECTION_OFFSET",
	ReqConsumeMessageDirectly:               "CONSUME_MESSAGE_DIRECTLY",
	ReqSendMessageV2:                        "SEND_MESSAGE_V2",
	ReqGetUnitTopicList:                     "GET_UNIT_TOPIC_LIST",
	ReqGetHasUnitSubTopicList:               "GET_HAS_UNIT_SUB_TOPIC_LIST",
	ReqGetHasUnitSubUnUnitTopicList:         "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
	ReqCloneGroupOffset:                     "CLONE_GROUP_OFFSET",
	ReqViewBrokerStatsData:                  "VIEW_BROKER_STATS_DATA",
	ReqCleanUnusedTopic:                     "CLEAN_UNUSED_TOPIC",
	ReqGetBrokerConsumeStats:                "GET_BROKER_CONSUME_STATS",
	ReqUpdateNamesrvConfig:                  "UPDATE_NAMESRV_CONFIG",
	ReqGetNamesrvConfig:                     "GET_NAMESRV_CONFIG",
	ReqSendBatchMessage:                     "SEND_BATCH_MESSAGE",
	ReqQueryConsumeQueue:                    "QUERY_CONSUME_QUEUE",
	ReqQueryDataVersion:                     "QUERY_DATA_VERSION",
	ReqResumeCheckHalfMessage:               "RESUME_CHECK_HALF_MESSAGE",
	ReqSendReplyMessage:                     "SEND_REPLY_MESSAGE",
	ReqSendReplyMessageV2:                   "SEND_REPLY_MESSAGE_V2",
	ReqPushReplyMessageToClient:             "PUSH_REPLY_MESSAGE_TO_CLIENT",
	ReqAddWritePermOfBroker:                 "ADD_WRITE_PERM_OF_BROKER",
	ReqGetAllProducerInfo:                   "GET_ALL_PRODUCER_INFO",
	ReqDeleteExpiredCommitLog:               "DELETE_EXPIRED_COMMITLOG",
	ReqQueryTopicsByConsumer:                "QUERY_TOPICS_BY_CONSUMER",
	ReqQuerySubscriptionByConsumer:          "QUERY_SUBSCRIPTION_BY_CONSUMER",
	ReqGetTopicConfig:                       "GET_TOPIC_CONFIG",
	ReqGetSubscriptionGroupConfig:           "GET_SUBSCRIPTIONGROUP_CONFIG",
	ReqUpdateAndGetGroupForbidden:           "UPDATE_AND_GET_GROUP_FORBIDDEN",
	ReqCheckRocksDBCQWriteProgress:          "CHECK_ROCKSDB_CQ_WRITE_PROGRESS",
	ReqExportRocksDBConfigToJSON:            "EXPORT_ROCKSDB_CONFIG_TO_JSON",
	ReqLitePullMessage:                      "LITE_PULL_MESSAGE",
	ReqRecallMessage:                        "RECALL_MESSAGE",
	ReqQueryAssignment:                      "QUERY_ASSIGNMENT",
	ReqSetMessageRequestMode:                "SET_MESSAGE_REQUEST_MODE",
	ReqGetAllMessageRequestMode:             "GET_ALL_MESSAGE_REQUEST_MODE",
	ReqUpdateAndCreateStaticTopic:           "UPDATE_AND_CREATE_STATIC_TOPIC",
	ReqGetBrokerMemberGroup:                 "GET_BROKER_MEMBER_GROUP",
	ReqAddBroker:                            "ADD_BROKER",
	ReqRemoveBroker:                         "REMOVE_BROKER",
	ReqBrokerHeartbeat:                      "BROKER_HEARTBEAT",
	ReqNotifyMinBrokerIDChange:              "NOTIFY_MIN_BROKER_ID_CHANGE",
	ReqExchangeBrokerHAInfo:                 "EXCHANGE_BROKER_HA_INFO",
	ReqGetBrokerHAStatus:                    "GET_BROKER_HA_STATUS",
	ReqResetMasterFlushOffset:               "RESET_MASTER_FLUSH_OFFSET",
	ReqControllerAlterSyncStateSet:          "CONTROLLER_ALTER_SYNC_STATE_SET",
	ReqControllerElectMaster:                "CONTROLLER_ELECT_MASTER",
	ReqControllerRegisterBroker:             "CONTROLLER_REGISTER_BROKER",
	ReqControllerGetReplicaInfo:             "CONTROLLER_GET_REPLICA_INFO",
	ReqControllerGetMetadataInfo:            "CONTROLLER_GET_METADATA_INFO",
	ReqControllerGetSyncStateData:           "CONTROLLER_GET_SYNC_STATE_DATA",
	ReqGetBrokerEpochCache:                  "GET_BROKER_EPOCH_CACHE",
	ReqNotifyBrokerRoleChanged:              "NOTIFY_BROKER_ROLE_CHANGED",
	ReqUpdateControllerConfig:               "UPDATE_CONTROLLER_CONFIG",
	ReqGetControllerConfig:                  "GET_CONTROLLER_CONFIG",
	ReqCleanBrokerData:                      "CLEAN_BROKER_DATA",
	ReqControllerGetNextBrokerID:            "CONTROLLER_GET_NEXT_BROKER_ID",
	ReqControllerApplyBrokerID:              "CONTROLLER_APPLY_BROKER_ID",
	ReqUpdateColdDataFlowCtrConfig:          "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
	ReqRemoveColdDataFlowCtrConfig:          "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
	ReqGetColdDataFlowCtrInfo:               "GET_COLD_DATA_FLOW_CTR_INFO",
	ReqSetCommitLogReadMode:                 "SET_COMMITLOG_READ_MODE",
	ReqAuthCreateUser:                       "AUTH_CREATE_USER",
	ReqAuthUpdateUser:                       "AUTH_UPDATE_USER",
	ReqAuthDeleteUser:                       "AUTH_DELETE_USER",
	ReqAuthGetUser:                          "AUTH_GET_USER",
	ReqAuthListUser:                         "AUTH_LIST_USER",
	ReqAuthCreateACL:                        "AUTH_CREATE_ACL",
	ReqAuthUpdateACL:                        "AUTH_UPDATE_ACL",
	ReqAuthDeleteACL:                        "AUTH_DELETE_ACL",
	ReqAuthGetACL:                           "AUTH_GET_ACL",
	ReqAuthListACL:                          "AUTH_LIST_ACL",
	ReqPopMessage:                           "POP_MESSAGE",
	ReqAckMessage:                           "ACK_MESSAGE",
	ReqPeekMessage:                          "PEEK_MESSAGE",
	ReqChangeMessageInvisibleTime:           "CHANGE_MESSAGE_INVISIBLETIME",
	ReqNotification:                         "NOTIFICATION",
	ReqPollingInfo:                          "POLLING_INFO",
	ReqPopRollback:                          "POP_ROLLBACK",
	ReqBatchAckMessage:                      "BATCH_ACK_MESSAGE",
}

var responseNames = map[Code]string{
	RPCTimeOut:                           "RPC_TIME_OUT",
	RPCSendToChannelFailed:               "RPC_SEND_TO_CHANNEL_FAILED",
	RPCAddrIsNull:                        "RPC_ADDR_IS_NULL",
	RPCUnknown:                           "RPC_UNKNOWN",
	Success:                              "SUCCESS",
	SystemError:                          "SYSTEM_ERROR",
	SystemBusy:                           "SYSTEM_BUSY",
	RequestCodeNotSupported:              "REQUEST_CODE_NOT_SUPPORTED",
	TransactionFailed:                    "TRANSACTION_FAILED",
	FlushDiskTimeout:                     "FLUSH_DISK_TIMEOUT",
	SlaveNotAvailable:                    "SLAVE_NOT_AVAILABLE",
	FlushSlaveTimeout:                    "FLUSH_SLAVE_TIMEOUT",
	MessageIllegal:                       "MESSAGE_ILLEGAL",
	ServiceNotAvailable:                  "SERVICE_NOT_AVAILABLE",
	VersionNotSupported:                  "VERSION_NOT_SUPPORTED",
	NoPermission:                         "NO_PERMISSION",
	TopicNotExist:                        "TOPIC_NOT_EXIST",
	TopicExistAlready:                    "TOPIC_EXIST_ALREADY",
	PullNotFound:                         "PULL_NOT_FOUND",
	PullRetryImmediately:                 "PULL_RETRY_IMMEDIATELY",
	PullOffsetMoved:                      "PULL_OFFSET_MOVED",
	QueryNotFound:                        "QUERY_NOT_FOUND",
	SubscriptionParseFailed:              "SUBSCRIPTION_PARSE_FAILED",
	SubscriptionNotExist:                 "SUBSCRIPTION_NOT_EXIST",
	SubscriptionNotLatest:                "SUBSCRIPTION_NOT_LATEST",
	SubscriptionGroupNotExist:            "SUBSCRIPTION_GROUP_NOT_EXIST",
	FilterDataNotExist:                   "FILTER_DATA_NOT_EXIST",
	FilterDataNotLatest:                  "FILTER_DATA_NOT_LATEST",
	InvalidParameter:                     "INVALID_PARAMETER",
	TransactionShouldCommit:              "TRANSACTION_SHOULD_COMMIT",
	TransactionShouldRollback:            "TRANSACTION_SHOULD_ROLLBACK",
	TransactionStateUnknow:               "TRANSACTION_STATE_UNKNOW",
	TransactionStateGroupWrong:           "TRANSACTION_STATE_GROUP_WRONG",
	NoBuyerID:                            "NO_BUYER_ID",
	NotInCurrentUnit:                     "NOT_IN_CURRENT_UNIT",
	ConsumerNotOnline:                    "CONSUMER_NOT_ONLINE",
	ConsumeMsgTimeout:                    "CONSUME_MSG_TIMEOUT",
	NoMessage:                            "NO_MESSAGE",
	PollingFull:                          "POLLING_FULL",
	PollingTimeout:                       "POLLING_TIMEOUT",
	BrokerNotExist:                       "BROKER_NOT_EXIST",
	BrokerDispatchNotComplete:            "BROKER_DISPATCH_NOT_COMPLETE",
	BroadcastConsumption:                 "BROADCAST_CONSUMPTION",
	FlowControl:                          "FLOW_CONTROL",
	NotLeaderForQueue:                    "NOT_LEADER_FOR_QUEUE",
	IllegalOperation:                     "ILLEGAL_OPERATION",
	GoAway:                               "GO_AWAY",
	ControllerFencedMasterEpoch:          "CONTROLLER_FENCED_MASTER_EPOCH",
	ControllerFencedSyncStateSetEpoch:    "CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH",
	ControllerInvalidMaster:              "CONTROLLER_INVALID_MASTER",
	ControllerInvalidReplicas:            "CONTROLLER_INVALID_REPLICAS",
	ControllerMasterNotAvailable:         "CONTROLLER_MASTER_NOT_AVAILABLE",
	ControllerInvalidRequest:             "CONTROLLER_INVALID_REQUEST",
	ControllerBrokerNotAlive:             "CONTROLLER_BROKER_NOT_ALIVE",
	ControllerNotLeader:                  "CONTROLLER_NOT_LEADER",
	ControllerBrokerMetadataNotExist:     "CONTROLLER_BROKER_METADATA_NOT_EXIST",
	ControllerInvalidCleanBrokerMetadata: "CONTROLLER_INVALID_CLEAN_BROKER_METADATA",
	ControllerBrokerNeedToBeRegistered:   "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED",
	ControllerMasterStillExist:           "CONTROLLER_MASTER_STILL_EXIST",
	ControllerElectMasterFailed:          "CONTROLLER_ELECT_MASTER_FAILED",
	ControllerAlterSyncStateSetFailed:    "CONTROLLER_ALTER_SYNC_STATE_SET_FAILED",
	ControllerBrokerIDInvalid:            "CONTROLLER_BROKER_ID_INVALID",
	ControllerJRaftInternalError:         "CONTROLLER_JRAFT_INTERNAL_ERROR",
	ControllerBrokerLiveInfoNotExists:    "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS",
	UserNotExist:                         "USER_NOT_EXIST",
	PolicyNotExist:                       "POLICY_NOT_EXIST",
}

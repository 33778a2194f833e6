package broker

import (
	"fmt"

	"github.com/epochmq/epochmq/broker/admin"
	"github.com/epochmq/epochmq/broker/lock"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// routes is the table of request code, where it runs, and who answers it. Codes that are not here get code 3.
func (b *Broker) routes() *remoting.Mux {
	m := remoting.NewMux()
	inline, query, adm, clients := remoting.Inline, remoting.Slow(b.pools.query), remoting.Slow(b.pools.admin), remoting.Slow(b.pools.clients)
	locks := lock.NewHandler(b.locks, b.lockable)
	a := b.adminHandlers()
	for _, r := range []struct {
		code    protocol.Code
		mode    remoting.Mode
		handler remoting.Handler
	}{
		{protocol.ReqSendMessage, inline, b.produce.Send},
		{protocol.ReqSendMessageV2, inline, b.produce.Send},
		{protocol.ReqSendBatchMessage, inline, b.produce.Send},
		{protocol.ReqConsumerSendMsgBack, clients, b.produce.SendBack},

		{protocol.ReqQueryConsumerOffset, inline, b.commits.Query},
		{protocol.ReqUpdateConsumerOffset, inline, b.commits.Update},
		{protocol.ReqLockBatchMQ, inline, locks.Lock},
		{protocol.ReqUnlockBatchMQ, inline, locks.Unlock},
		{protocol.ReqGetConsumerListByGroup, inline, b.clients.List},
		{protocol.ReqHeartBeat, clients, b.clients.Heartbeat},
		{protocol.ReqUnregisterClient, clients, b.clients.Unregister},
		{protocol.ReqCheckClientConfig, clients, b.clients.CheckConfig},

		{protocol.ReqQueryMessage, query, b.query.ByKey},
		{protocol.ReqViewMessageByID, query, b.query.ByOffset},
		{protocol.ReqSearchOffsetByTimestamp, query, b.query.OffsetByTime},
		{protocol.ReqGetMaxOffset, query, b.query.MaxOffset},
		{protocol.ReqGetMinOffset, query, b.query.MinOffset},
		{protocol.ReqGetEarliestMsgStoreTime, query, b.query.EarliestTime},

		{protocol.ReqUpdateAndCreateTopic, adm, a.topics.Update},
		{protocol.ReqUpdateAndCreateTopicList, adm, a.topics.UpdateList},
		{protocol.ReqUpdateAndCreateStaticTopic, adm, a.topics.StaticTopic},
		{protocol.ReqDeleteTopicInBroker, adm, a.topics.Delete},
		{protocol.ReqGetAllTopicConfig, adm, a.topics.All},
		{protocol.ReqGetTopicConfig, adm, a.topics.Get},
		{protocol.ReqGetTopicStatsInfo, adm, a.topics.Stats},
		{protocol.ReqGetSystemTopicListFromBroker, adm, a.topics.SystemTopics},
		{protocol.ReqQueryTopicConsumeByWho, adm, a.topics.ConsumedBy},
		{protocol.ReqQueryTopicsByConsumer, adm, a.topics.ReadBy},

		{protocol.ReqUpdateAndCreateSubscriptionGroup, adm, a.groups.Update},
		{protocol.ReqUpdateAndCreateSubscriptionGroupList, adm, a.groups.UpdateList},
		{protocol.ReqDeleteSubscriptionGroup, adm, a.groups.Delete},
		{protocol.ReqGetAllSubscriptionGroupConfig, adm, a.groups.All},
		{protocol.ReqGetSubscriptionGroupConfig, adm, a.groups.Get},
		{protocol.ReqUpdateAndGetGroupForbidden, adm, a.groups.ReadPermission},
		{protocol.ReqQuerySubscriptionByConsumer, adm, a.groups.Subscription},

		{protocol.ReqGetConsumeStats, adm, a.progress.Stats},
		{protocol.ReqGetBrokerConsumeStats, adm, a.progress.BrokerStats},
		{protocol.ReqQueryConsumeTimeSpan, adm, a.progress.TimeSpan},
		{protocol.ReqQueryCorrectionOffset, adm, a.progress.Correction},
		{protocol.ReqCloneGroupOffset, adm, a.progress.Clone},
		{protocol.ReqGetAllConsumerOffset, adm, a.progress.AllConsumer},
		{protocol.ReqGetAllDelayOffset, adm, a.progress.AllDelay},
		{protocol.ReqInvokeBrokerToResetOffset, adm, a.reset.Reset},
		{protocol.ReqInvokeBrokerToGetConsumerStatus, adm, a.reset.ConsumerStatus},

		{protocol.ReqGetConsumerConnectionList, adm, a.clients.Consumers},
		{protocol.ReqGetProducerConnectionList, adm, a.clients.ProducersOf},
		{protocol.ReqGetAllProducerInfo, adm, a.clients.AllProducers},
		{protocol.ReqGetConsumerRunningInfo, adm, a.clients.RunningInfo},
		{protocol.ReqConsumeMessageDirectly, adm, a.clients.ConsumeDirectly},

		{protocol.ReqUpdateBrokerConfig, adm, a.settings.Update},
		{protocol.ReqGetBrokerConfig, adm, a.settings.Get},
		{protocol.ReqGetBrokerRuntimeInfo, adm, a.runtime.Info},
		{protocol.ReqViewBrokerStatsData, adm, a.statistics.View},

		{protocol.ReqQueryConsumeQueue, adm, a.files.Queue},
		{protocol.ReqCleanExpiredConsumeQueue, adm, a.files.CleanExpiredQueues},
		{protocol.ReqCleanUnusedTopic, adm, a.files.CleanUnusedTopics},
		{protocol.ReqDeleteExpiredCommitLog, adm, a.files.DeleteExpiredLog},
		{protocol.ReqGetBrokerHAStatus, adm, a.files.HAStatus},
		{protocol.ReqCheckRocksDBCQWriteProgress, adm, a.files.RocksDBProgress},
	} {
		m.Handle(r.code, r.mode, r.handler)
	}
	m.Handle(protocol.ReqPullMessage, inline, b.pull.Pull, remoting.NotOnVIP)
	m.Handle(protocol.ReqLitePullMessage, inline, b.pull.Pull, remoting.NotOnVIP)
	// What a later version serves is refused by name, so that its operator reads why.
	for code, what := range map[protocol.Code]string{
		protocol.ReqPopMessage: "pop consumption", protocol.ReqAckMessage: "pop consumption", protocol.ReqBatchAckMessage: "pop consumption",
		protocol.ReqChangeMessageInvisibleTime: "pop consumption", protocol.ReqNotification: "pop consumption", protocol.ReqPollingInfo: "pop consumption",
		protocol.ReqSetMessageRequestMode: "pop consumption", protocol.ReqEndTransaction: "transactions", protocol.ReqRecallMessage: "timed messages",
	} {
		m.Handle(code, inline, unsupported(what))
	}
	return m
}

// unsupported answers code 3 as an unknown code gets it, and names the feature.
func unsupported(what string) remoting.Handler {
	return func(req *remoting.Request, _ *remoting.Response) error {
		return &protocol.Error{Code: protocol.RequestCodeNotSupported, Remark: fmt.Sprintf(" request type %d not supported: %s", req.Code, what)}
	}
}

// adminSet is the admin handlers.
type adminSet struct {
	topics     *admin.Topics
	groups     *admin.Groups
	progress   *admin.Progress
	reset      *admin.Reset
	clients    *admin.Clients
	settings   *admin.Settings
	runtime    *admin.Runtime
	statistics *admin.Statistics
	files      *admin.Files
}

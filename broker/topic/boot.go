package topic

import "strings"

// bootTopics are the topics of remoting.md 3.4 that a broker has from its first start.
func (t *Table) bootTopics() []*Config {
	o := &t.opt
	list := []*Config{NewConfig(SelfTestTopic, 1)}
	add := func(name string, queues, perm int32) {
		c := NewConfig(name, queues)
		c.Perm = perm
		list = append(list, c)
	}
	const rw = PermRead | PermWrite
	if o.AutoCreateTopic() {
		add(DefaultTopic, o.DefaultTopicQueues(), rw|PermInherit)
	}
	add(BenchmarkTopic, 1024, rw)
	add(o.ClusterName, 16, permIf(o.ClusterTopic))
	if o.BrokerName != o.ClusterName {
		add(o.BrokerName, 1, permIf(o.BrokerTopic))
	}
	add(OffsetMoved, 1, rw)
	add(ScheduleTopic, 18, rw)
	if o.TraceTopicOn {
		add(o.TraceTopic, 1, rw)
	}
	add(o.ClusterName+"_REPLY_TOPIC", 1, rw)
	add(reviveTopic(o.ClusterName), max(1, o.ReviveQueues), rw)
	add("rmq_sys_SYNC_BROKER_MEMBER_"+o.BrokerName, 1, PermInherit)
	add(HalfTopic, 1, rw)
	add(OpHalfTopic, 1, rw)
	if o.TimerWheel {
		add(TimerTopic, 1, rw)
	}
	return list
}

func permIf(open bool) int32 {
	if open {
		return PermInherit | PermRead | PermWrite
	}
	return PermInherit
}

func reviveTopic(cluster string) string { return "rmq_sys_REVIVE_LOG_" + cluster }

// systemNames are the fixed names of topics that clients may neither create nor delete.
var systemNames = map[string]bool{
	DefaultTopic: true, ScheduleTopic: true, BenchmarkTopic: true, HalfTopic: true, OpHalfTopic: true,
	"TRANS_CHECK_MAX_TIME_TOPIC": true, SelfTestTopic: true, OffsetMoved: true, "CHECKPOINT_TOPIC": true,
	"RMQ_SYS_TRACE_TOPIC": true,
}

// IsSystem says whether the name belongs to the broker: a fixed name, the prefix rmq_sys_, the names of the cluster
// and the broker, the reply topic and the trace topic.
func (t *Table) IsSystem(name string) bool {
	o := &t.opt
	return systemNames[name] || strings.HasPrefix(name, "rmq_sys_") || name == o.ClusterName || name == o.BrokerName ||
		name == o.ClusterName+"_REPLY_TOPIC" || name == o.TraceTopic
}

// SystemNames lists the names of IsSystem that have no prefix rule, and those with it that exist.
func (t *Table) SystemNames() []string {
	o := &t.opt
	seen := map[string]bool{}
	var out []string
	add := func(n string) {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	for n := range systemNames {
		add(n)
	}
	add(o.TraceTopic)
	add(o.ClusterName)
	add(o.BrokerName)
	add(o.ClusterName + "_REPLY_TOPIC")
	for _, n := range t.snap.Load().order {
		if strings.HasPrefix(n, "rmq_sys_") {
			add(n)
		}
	}
	return out
}

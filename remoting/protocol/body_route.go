package protocol

import (
	"github.com/epochmq/epochmq/internal/fastjson"
)

// DataVersion tells two states of a table apart. Newer compares StateVersion, Counter, Timestamp in that order.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
}

// MessageQueue names one queue of one broker; fields in the order in which it is written as a map key.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// QueueData is what one broker offers of a topic.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// BrokerData is one broker group: its addresses by broker id, 0 is the master.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           *string          `json:"zoneName"`
	MasterEpoch        int64            `json:"epochmqMasterEpoch,omitempty"` // ours: of the master in BrokerAddrs, 0 outside of controller mode
}

// TopicRouteData answers GET_ROUTEINFO_BY_TOPIC. Format: spec remoting, 2.3 and 3.3.
type TopicRouteData struct {
	BrokerDatas               []BrokerData                     `json:"brokerDatas"`
	FilterServerTable         map[string][]string              `json:"filterServerTable"`
	OrderTopicConf            *string                          `json:"orderTopicConf"`
	QueueDatas                []QueueData                      `json:"queueDatas"`
	TopicQueueMappingByBroker map[string]TopicQueueMappingInfo `json:"topicQueueMappingByBroker"`
}

// Encode writes the route in RocketMQ's form with bare broker ids, or in standard JSON.
func (r *TopicRouteData) Encode(standard bool) ([]byte, error) {
	if r.BrokerDatas == nil {
		r.BrokerDatas = []BrokerData{}
	}
	if r.QueueDatas == nil {
		r.QueueDatas = []QueueData{}
	}
	if r.FilterServerTable == nil {
		r.FilterServerTable = map[string][]string{}
	}
	if standard {
		return fastjson.MarshalBrowser(r)
	}
	return fastjson.Marshal(r)
}

// TopicQueueMappingInfo is the short form of a static topic's mapping.
type TopicQueueMappingInfo struct {
	BrokerName  string          `json:"bname"`
	CurrIDMap   map[int32]int32 `json:"currIdMap"`
	Dirty       bool            `json:"dirty"`
	Epoch       int64           `json:"epoch"`
	Scope       string          `json:"scope,omitempty"`
	Topic       string          `json:"topic"`
	TotalQueues int32           `json:"totalQueues"`
}

// ClusterInfo answers GET_BROKER_CLUSTER_INFO.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"`
}

// BrokerMemberGroup is one broker group in the answer to GET_BROKER_MEMBER_GROUP.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// BrokerMemberGroupBody answers GET_BROKER_MEMBER_GROUP.
type BrokerMemberGroupBody struct {
	BrokerMemberGroup BrokerMemberGroup `json:"brokerMemberGroup"`
}

// TopicList is a list of topic names.
type TopicList struct {
	BrokerAddr *string  `json:"brokerAddr"`
	TopicList  []string `json:"topicList"`
}

// GroupList is a list of group names.
type GroupList struct {
	GroupList []string `json:"groupList"`
}

// KVTable is a table of names and values.
type KVTable struct {
	Table map[string]string `json:"table"`
}

package broker

import (
	"reflect"
	"time"

	"github.com/epochmq/epochmq/broker/admin"
	"github.com/epochmq/epochmq/remoting"
)

// pools are the classes of slow requests.
type pools struct {
	query, admin, clients *remoting.Class
}

func newPools(c *Config) pools {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	wait := func(n int64) time.Duration {
		if !c.BrokerFastFailureEnable {
			return 0
		}
		return ms(n)
	}
	return pools{
		query:   remoting.NewClass("query", int(c.QueryMessageThreadPoolNums), int(c.QueryThreadPoolQueueCapacity), wait(c.WaitTimeMillsInAdminBrokerQueue)),
		admin:   remoting.NewClass("admin", int(c.AdminBrokerThreadPoolNums), int(c.AdminBrokerThreadPoolQueueCapacity), wait(c.WaitTimeMillsInAdminBrokerQueue)),
		clients: remoting.NewClass("heartbeat", max(8, int(c.HeartbeatThreadPoolNums)), int(c.HeartbeatThreadPoolQueueCapacity), wait(c.WaitTimeMillsInHeartbeatQueue)),
	}
}

// poolInfo is what the runtime info says of the pools. Sends and pulls have none: their waiting is the age of the oldest
// message that the disk has not taken, and parked pulls do not wait for a goroutine.
func (b *Broker) poolInfo() []admin.Pool {
	c := b.conf.Load()
	return []admin.Pool{
		{Name: "send", Capacity: int(c.SendThreadPoolQueueCapacity), HeadWait: b.store.Busy()},
		{Name: "pull", Capacity: int(c.PullThreadPoolQueueCapacity)},
		{Name: "litePull", Capacity: int(c.LitePullThreadPoolQueueCapacity)},
		{Name: "ack", Capacity: int(c.AckThreadPoolQueueCapacity)},
		{Name: "query", Waiting: b.pools.query.Waiting(), Capacity: b.pools.query.Capacity(), HeadWait: b.pools.query.HeadWait()},
	}
}

// takeLive copies the fields with the tag live:"true" of next into c.
func takeLive(c, next *Config) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for i := range to.NumField() {
		if to.Type().Field(i).Tag.Get("live") == "true" {
			to.Field(i).Set(from.Field(i))
		}
	}
}

package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/group"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

func TestNumbersAsJavaPrintsThem(t *testing.T) {
	require.Equal(t, "0.0", double(0))
	require.Equal(t, "4.196642685851319", double(4.196642685851319))
	require.Equal(t, "0 B", human(0))
	require.Equal(t, "1.5 KiB", human(1536))
	require.Equal(t, "252.0 GiB", human(252<<30))
	require.Equal(t, "1.0 EiB", human(1<<60))
	require.Equal(t, "  ", rate(store.Rate{}))
	require.Equal(t, "1.5  ", rate(store.Rate{PerSecond: [3]float64{1.5}, Known: [3]bool{true}}))
	require.Equal(t, "007", millis(1007))
	require.Equal(t, "null", distribution(&store.Stats{}))
	require.Equal(t, "[<=0ms]:0 [0~10ms]:0 ", distribution(&store.Stats{PutDistributionKnown: true})[:len("[<=0ms]:0 [0~10ms]:0 ")])
}

// table is a TopicTable that takes everything.
type table struct{ updated []*topic.Config }

func (t *table) Lookup(string) *topic.Config           { return nil }
func (t *table) All() ([]*topic.Config, topic.Version) { return t.updated, topic.Version{} }
func (t *table) Update(list ...*topic.Config) error {
	t.updated = append(t.updated, list...)
	return nil
}
func (t *table) IsSystem(string) bool  { return false }
func (t *table) SystemNames() []string { return nil }

func request(t testing.TB, code int32, body []byte, ext map[string]string) *remoting.Request {
	r, err := remoting.NewRequest(nil, protocol.NewRequest(code, ext, body))
	require.NoError(t, err)
	return r
}

func FuzzTopicList(f *testing.F) {
	f.Add([]byte(`{"topicConfigList":[{"attributes":{"+message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"GoldenL1","topicSysFlag":0,"writeQueueNums":1}]}`))
	f.Add([]byte(`{"topicConfigList":[null,{"topicName":"../x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tab := &table{}
		h := &Topics{Config: func() TopicsConfig { return TopicsConfig{} }, Table: tab}
		if err := h.UpdateList(request(t, protocol.ReqUpdateAndCreateTopicList, data, nil), new(remoting.Response)); err != nil {
			require.Empty(t, tab.updated, "a refused list changes nothing")
			return
		}
		for _, c := range tab.updated {
			require.NoError(t, topicError(c.Name))
			require.True(t, c.ReadQueueNums >= 0 && c.WriteQueueNums >= 0 && c.Perm <= 7)
		}
	})
}

// groupTable is a GroupTable that takes everything.
type groupTable struct{ updated []*group.Config }

func (t *groupTable) All() ([]*group.Config, group.Version)      { return t.updated, group.Version{} }
func (t *groupTable) FindOrCreate([]byte) (*group.Config, error) { return nil, nil }
func (t *groupTable) Update(list ...*group.Config) error {
	t.updated = append(t.updated, list...)
	return nil
}
func (t *groupTable) Delete(string) (bool, error)                  { return false, nil }
func (t *groupTable) Forbidden(string, string, int) bool           { return false }
func (t *groupTable) SetForbidden(string, string, int, bool) error { return nil }
func (t *groupTable) ForbiddenTable() map[string]map[string]int32  { return nil }

func FuzzGroup(f *testing.F) {
	f.Add([]byte(`{"attributes":{"+x":"y"},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"retryMaxTimes":16,"retryQueueNums":1,"other":[1]}`))
	f.Add([]byte(`{"groupName":"a/b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tab := &groupTable{}
		h := &Groups{Table: tab, Prepare: func(*group.Config) error { return nil }}
		if err := h.Update(request(t, protocol.ReqUpdateAndCreateSubscriptionGroup, data, nil), new(remoting.Response)); err != nil {
			require.Empty(t, tab.updated)
			return
		}
		require.NoError(t, groupError(tab.updated[0].Name))
		require.NoError(t, put(new(remoting.Response), tab.updated[0].Fields()))
	})
}

func FuzzClientStatus(f *testing.F) {
	f.Add([]byte(`{"consumerTable":{},"messageQueueTable":{{"brokerName":"a","queueId":3,"topic":"T"}:5}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := messageQueueTable(data); n != nil {
			require.NoError(t, put(new(remoting.Response), map[string]any{"x": n}))
		}
	})
}

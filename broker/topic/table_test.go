package topic_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker/topic"
)

// memory is a File in memory.
type memory struct {
	mu    sync.Mutex
	data  []byte
	saves int
	fail  error
}

func (m *memory) Load(parse func([]byte) error) (bool, error) {
	if m.data == nil {
		return false, nil
	}
	return true, parse(m.data)
}

func (m *memory) Save(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.data, m.saves = append([]byte(nil), data...), m.saves+1
	return nil
}

func options(f topic.File) topic.Options {
	return topic.Options{File: f, BrokerName: "broker-a", ClusterName: "C", AutoCreateTopic: func() bool { return true },
		DefaultTopicQueues: func() int32 { return 8 }, ClusterTopic: true, BrokerTopic: true, TimerWheel: true, ReviveQueues: 8}
}

func open(t *testing.T, f topic.File) *topic.Table {
	t.Helper()
	table, err := topic.Open(options(f))
	require.NoError(t, err)
	return table
}

func TestBootTopics(t *testing.T) {
	table := open(t, &memory{})
	for name, want := range map[string][2]int32{"SELF_TEST_TOPIC": {1, 6}, "TBW102": {8, 7}, "BenchmarkTest": {1024, 6}, "C": {16, 7},
		"broker-a": {1, 7}, "OFFSET_MOVED_EVENT": {1, 6}, "SCHEDULE_TOPIC_XXXX": {18, 6}, "C_REPLY_TOPIC": {1, 6},
		"rmq_sys_REVIVE_LOG_C": {8, 6}, "rmq_sys_SYNC_BROKER_MEMBER_broker-a": {1, 1}, "RMQ_SYS_TRANS_HALF_TOPIC": {1, 6},
		"RMQ_SYS_TRANS_OP_HALF_TOPIC": {1, 6}, "rmq_sys_wheel_timer": {1, 6}} {
		c := table.Lookup(name)
		require.NotNil(t, c, name)
		require.Equal(t, want, [2]int32{c.WriteQueueNums, c.Perm}, name)
		require.True(t, table.IsSystem(name), name)
	}
	require.Nil(t, table.Lookup("RMQ_SYS_TRACE_TOPIC"), "off")
	require.True(t, table.IsSystem("RMQ_SYS_TRACE_TOPIC"))
	require.False(t, table.IsSystem("orders"))
}

func TestFileForm(t *testing.T) {
	for _, name := range []string{"mixed-clean", "rolled-clean"} {
		golden, err := os.ReadFile(filepath.Join("testdata", "java-"+name+"-topics.json"))
		require.NoError(t, err)
		f := &memory{data: golden}
		o := options(f)
		o.BrokerName, o.ClusterName, o.TraceTopicOn = "golden-a", "GoldenCluster", true
		table, err := topic.Open(o)
		require.NoError(t, err)
		require.Zero(t, f.saves, "the broker had every boot topic")
		require.NoError(t, table.Touch())
		got, want := strings.SplitAfterN(string(f.data), "},", 2), strings.SplitAfterN(string(golden), "},", 2)
		require.Equal(t, want[1], got[1], "all behind the version is byte-identical")
	}
}

func TestOlderFile(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "java-v4.9.4-clean-topics.json"))
	require.NoError(t, err)
	table := open(t, &memory{data: golden})
	c := table.Lookup("TBW102")
	require.NotNil(t, c.Attributes)
	require.Equal(t, int32(7), c.Perm)
}

func TestCreateOnSend(t *testing.T) {
	allowed := true
	o := options(&memory{})
	o.AutoCreateTopic = func() bool { return allowed }
	table, err := topic.Open(o)
	require.NoError(t, err)
	before := table.Version()
	c, err := table.CreateOnSend("orders", "TBW102", 4, topic.SysFlagUnit)
	require.NoError(t, err)
	require.Equal(t, &topic.Config{Name: "orders", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6, FilterType: "SINGLE_TAG",
		SysFlag: topic.SysFlagUnit, Attributes: map[string]string{}}, c)
	require.Equal(t, before.Counter+1, table.Version().Counter)
	c, err = table.CreateOnSend("many", "TBW102", 100, 0)
	require.NoError(t, err)
	require.Equal(t, int32(8), c.WriteQueueNums, "at most the template's")
	c, err = table.CreateOnSend("few", "TBW102", -3, 0)
	require.NoError(t, err)
	require.Equal(t, int32(0), c.WriteQueueNums)

	allowed = false
	for _, def := range []string{"TBW102", "none", "BenchmarkTest"} {
		c, err = table.CreateOnSend("other", def, 4, 0)
		require.NoError(t, err)
		require.Nil(t, c, def)
	}
	c, err = table.CreateOnSend("%RETRY%g", "TBW102", 4, 0)
	require.NoError(t, err)
	require.Equal(t, int32(1), c.WriteQueueNums)
	c, err = table.CreateOnSend("orders", "none", 9, 0)
	require.NoError(t, err)
	require.Equal(t, int32(4), c.WriteQueueNums, "it exists")
}

func TestChangesAreOnDiskBeforeTheyAreSeen(t *testing.T) {
	f := &memory{}
	table := open(t, f)
	var seen []topic.Change
	table.OnChange(func(c topic.Change) {
		require.Contains(t, string(f.data), `"new"`)
		seen = append(seen, c)
	})
	require.NoError(t, table.Update(topic.NewConfig("new", 4)))
	require.Len(t, seen, 1)
	require.Equal(t, "new", seen[0].Updated[0].Name)
	require.NoError(t, table.Update(topic.NewConfig("new", 4)))
	require.Len(t, seen, 1, "equal: nothing changed")

	f.fail = errors.New("no space")
	require.ErrorIs(t, table.Update(topic.NewConfig("lost", 4)), f.fail)
	require.Nil(t, table.Lookup("lost"))
	f.fail = nil
	table = open(t, f)
	require.NotNil(t, table.Lookup("new"))
	existed, err := table.Delete("new")
	require.NoError(t, err)
	require.True(t, existed)
	require.Nil(t, open(t, f).Lookup("new"))
	existed, err = table.Delete("new")
	require.NoError(t, err)
	require.False(t, existed)
}

func TestAttributes(t *testing.T) {
	table := open(t, &memory{})
	with := func(attrs string) *topic.Config {
		c := topic.NewConfig("a", 4)
		m, err := topic.ParseAttributes(attrs)
		require.NoError(t, err)
		c.Attributes = m
		return c
	}
	refused := func(attrs, remark string) {
		t.Helper()
		var bad *topic.AttributeError
		require.ErrorAs(t, table.Update(with(attrs)), &bad)
		require.Equal(t, remark, bad.Remark)
	}
	refused("-message.type", "only add attribute is supported while creating topic. key: message.type")
	refused("+no.such=1", "unsupported key: no.such")
	require.NoError(t, table.Update(with("+message.type=FIFO,+queue.type=SimpleCQ")))
	require.Equal(t, map[string]string{"message.type": "FIFO", "queue.type": "SimpleCQ"}, table.Lookup("a").Attributes)
	refused("+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type")
	refused("-reserve.time", "attempt to delete a nonexistent key: reserve.time")
	require.NoError(t, table.Update(with("-message.type,+reserve.time=5")))
	require.Equal(t, map[string]string{"reserve.time": "5", "queue.type": "SimpleCQ"}, table.Lookup("a").Attributes)
	for text, remark := range map[string]string{"a=b": "add/alter attribute format is wrong: a", "+a": "delete attribute format is wrong: +a",
		"+a=b,+a=c": "key duplication: +a"} {
		_, err := topic.ParseAttributes(text)
		require.EqualError(t, err, remark)
	}
}

func TestOrderFlags(t *testing.T) {
	f := &memory{}
	table := open(t, f)
	require.NoError(t, table.Update(topic.NewConfig("a", 4)))
	saves := f.saves
	require.NoError(t, table.SetOrder([]string{"a", "unknown"}))
	require.True(t, table.Lookup("a").Order)
	require.NoError(t, table.SetOrder([]string{"a", "unknown"}))
	require.Equal(t, saves+1, f.saves)
}

func TestBrokenFileStopsTheStart(t *testing.T) {
	for _, data := range []string{"{", `[]`, `{"topicConfigTable":{"a":{"perm":"x"}}}`, "\x00\x00"} {
		_, err := topic.Open(options(&memory{data: []byte(data)}))
		require.Error(t, err, data)
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	table := open(t, &memory{})
	name := []byte("TBW102")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if table.Get(name) == nil {
			t.Fatal("lost")
		}
	}))
}

func FuzzTopicsFile(f *testing.F) {
	for _, name := range []string{"mixed-clean", "rolled-clean", "v4.9.4-clean"} {
		data, err := os.ReadFile(filepath.Join("testdata", "java-"+name+"-topics.json"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &memory{data: data}
		table, err := topic.Open(options(m))
		if err != nil {
			return
		}
		require.NoError(t, table.Touch())
		_, err = topic.Open(options(m))
		require.NoError(t, err, "what was written is read")
	})
}

func FuzzAttributes(f *testing.F) {
	f.Add("+message.type=FIFO,-reserve.time")
	f.Add("+a=,+=b,-")
	f.Fuzz(func(t *testing.T, text string) {
		attrs, err := topic.ParseAttributes(text)
		if err != nil {
			return
		}
		c := topic.NewConfig("a", 1)
		c.Attributes = attrs
		m := &memory{}
		table, err := topic.Open(options(m))
		require.NoError(t, err)
		if table.Update(c) == nil {
			require.NotNil(t, table.Lookup("a"))
		}
	})
}

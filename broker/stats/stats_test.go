package stats_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(detail bool) *stats.Set {
	return stats.New("C", func(t string) bool { return t == "SYS" }, func() bool { return detail })
}

func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(true)
		s.Start()
		defer s.Close()
		require.Nil(t, s.Item(stats.TopicPutNums, "T"), "nothing was counted yet")
		for range 60 {
			s.Put([]byte("T"), 3, 1, 2, 100)
			s.Got([]byte("G"), []byte("T"), 3, 1, 50)
			s.Put([]byte("SYS"), 0, 1, 1, 1)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		m := s.Item(stats.TopicPutNums, "T").Minute()
		require.Equal(t, int64(120), m.Sum)
		require.InDelta(t, 2, m.TPS, 0.001)
		require.InDelta(t, 2, m.Avg, 0.001)
		require.InDelta(t, 100, s.Item(stats.QueuePutSize, "T@3").Minute().Avg, 0.001)
		require.Equal(t, int64(60), s.Item(stats.QueueGetNums, "T@3@G").Minute().Sum)
		require.InDelta(t, 1, s.MinuteTPS(stats.GroupGetNums, "T@G"), 0.001)
		require.Equal(t, int64(180), s.Item(stats.BrokerPutNums, "C").Value())
		put, got, _, _, _, _ := s.Totals()
		require.Equal(t, int64(120), put)
		require.Equal(t, int64(60), got)

		s.DropGroup("G")
		require.Nil(t, s.Item(stats.GroupGetNums, "T@G"))
		require.Nil(t, s.Item(stats.QueueGetNums, "T@3@G"))
		s.Got([]byte("G"), []byte("T"), 3, 1, 50)
		require.Equal(t, int64(1), s.Item(stats.GroupGetNums, "T@G").Value())
		s.DropTopic("T")
		require.Nil(t, s.Item(stats.TopicPutNums, "T"))
		require.NotNil(t, s.Item(stats.TopicPutNums, "SYS"))
	})
}

func TestMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(false)
		s.Start()
		defer s.Close()
		time.Sleep(time.Minute)
		s.Put([]byte("T"), 0, 1, 5, 1)
		time.Sleep(24 * time.Hour)
		s.Put([]byte("T"), 0, 1, 5, 1)
		put, _, today, _, yesterday, _ := s.Totals()
		require.Equal(t, []int64{10, 5, 0}, []int64{put, today, yesterday})
	})
}

func TestCountingAllocatesNothing(t *testing.T) {
	s := open(true)
	topic, group := []byte("T"), []byte("G")
	s.Put(topic, 0, 1, 1, 1)
	s.Got(group, topic, 0, 1, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Put(topic, 0, 1, 1, 1)
		s.Got(group, topic, 0, 1, 1)
	}))
}

package client

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// routeServer answers route questions: with the masters of two brokers, or not at all while silent.
type routeServer struct {
	addr   string
	asked  atomic.Int32
	answer atomic.Pointer[string]
}

func newRouteServer(t *testing.T) *routeServer {
	s := &routeServer{}
	stop := make(chan struct{})
	mux := remoting.NewMux()
	mux.Handle(protocol.ReqGetRouteInfoByTopic, remoting.Slow(remoting.NewClass("route", 10, 10, 0)), func(_ *remoting.Request, resp *remoting.Response) error {
		s.asked.Add(1)
		a := s.answer.Load()
		if a == nil {
			<-stop // a name server that hangs
			return nil
		}
		if *a == "" {
			return &protocol.Error{Code: protocol.TopicNotExist, Remark: "no such topic"}
		}
		resp.Body.Bytes = []byte(*a)
		return nil
	})
	s.addr = wiretest.Serve(t, mux)
	t.Cleanup(func() { close(stop) })
	return s
}

// knows lets the server answer; epoch 0 stands for a broker outside of controller mode.
func (s *routeServer) knows(masterA string, epochA int, masterB string, epochB int) {
	broker := func(name, addr string, epoch int) string {
		ours := ""
		if epoch > 0 {
			ours = fmt.Sprintf(`,"epochmqMasterEpoch":%d`, epoch)
		}
		return fmt.Sprintf(`{"brokerAddrs":{0:"%s"},"brokerName":"%s","cluster":"c"%s}`, addr, name, ours)
	}
	queue := `{"brokerName":"%s","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}`
	text := fmt.Sprintf(`{"brokerDatas":[%s,%s],"filterServerTable":{},"queueDatas":[%s,%s]}`, broker("a", masterA, epochA), broker("b", masterB, epochB),
		fmt.Sprintf(queue, "a"), fmt.Sprintf(queue, "b"))
	s.answer.Store(&text)
}

func TestNewestRoute(t *testing.T) {
	one, two, three := newRouteServer(t), newRouteServer(t), newRouteServer(t)
	cl, err := New(Config{NameServers: []string{one.addr, two.addr, three.addr}, RequestTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cl.Close()) })
	one.knows("a1:1", 3, "b1:1", 7)
	two.knows("a2:1", 4, "b0:1", 6)
	masters := func(since time.Time) []string {
		r, err := cl.RefreshRoute(ctxFor(t), "T", since)
		require.NoError(t, err)
		return []string{r.Master("a"), r.Master("b")}
	}
	require.Equal(t, []string{"a1:1", "b1:1"}, masters(time.Time{}), "without a failure one name server is enough")
	require.EqualValues(t, 0, two.asked.Load())

	// The third hangs, and holds nothing up for long.
	start := time.Now()
	require.Equal(t, []string{"a2:1", "b1:1"}, masters(time.Now()), "of each broker the newest master")
	require.Less(t, time.Since(start), 15*time.Second)
	require.EqualValues(t, 1, three.asked.Load())

	// Without epochs the name server in use counts.
	one.knows("a1:1", 0, "b1:1", 0)
	two.knows("a2:1", 0, "b2:1", 0)
	require.Equal(t, []string{"a1:1", "b1:1"}, masters(time.Now()))

	// One that does not know the topic is no answer while another knows it.
	empty := ""
	one.answer.Store(&empty)
	require.Equal(t, []string{"a2:1", "b2:1"}, masters(time.Now()))
	two.answer.Store(&empty)
	r, err := cl.RefreshRoute(ctxFor(t), "T2", time.Now())
	require.Nil(t, r)
	require.EqualValues(t, protocol.TopicNotExist, code(err))
}

package route_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/broker/route"
	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers is a set of name servers.
type servers struct {
	mu    sync.Mutex
	down  map[string]error
	hang  map[string]bool
	fresh map[string]bool // refuses a single topic
	calls []call
	kv    string
	same  bool // 322 says nothing changed
}

type call struct {
	addr string
	code int32
	at   time.Time
	cmd  *protocol.Command
}

func (s *servers) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	s.mu.Lock()
	s.calls = append(s.calls, call{addr, cmd.Code, time.Now(), cmd})
	down, hang, fresh, same := s.down[addr], s.hang[addr], s.fresh[addr], s.same
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if down != nil {
		return nil, down
	}
	answer := &protocol.Command{Code: protocol.Success, Ext: map[string]string{}}
	switch cmd.Code {
	case protocol.ReqRegisterBroker:
		if fresh && strings.Count(string(cmd.Body), "topicName") == 1 {
			answer.Code, answer.Remark = protocol.SystemError, "register broker failed"
			return answer, nil
		}
		s.mu.Lock()
		delete(s.fresh, addr)
		s.mu.Unlock()
		answer.Body = []byte(s.kv)
	case protocol.ReqQueryDataVersion:
		answer.Ext["changed"] = map[bool]string{true: "false", false: "true"}[same]
	}
	return answer, nil
}

func (s *servers) take(addr string) (out []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.calls[:0:0]
	for _, c := range s.calls {
		if c.addr == addr {
			out = append(out, c)
		} else {
			rest = append(rest, c)
		}
	}
	s.calls = rest
	return out
}

type table struct{ list []*topic.Config }

func (t *table) All() ([]*topic.Config, topic.Version) { return t.list, topic.Version{Counter: 7} }

func config(addrs ...string) route.Config {
	return route.Config{NameServers: addrs, Cluster: "C", Name: "a", Addr: "1.2.3.4:10911", HAAddr: "1.2.3.4:10912",
		Permission: func() int32 { return 6 }, Period: 30 * time.Second, Timeout: 24 * time.Second, Force: true}
}

func topics() *table {
	return &table{[]*topic.Config{topic.NewConfig("t1", 4), topic.NewConfig("t2", 4), topic.NewConfig("t3", 4)}}
}

func codes(calls []call) (out []int32) {
	for _, c := range calls {
		out = append(out, c.code)
	}
	return out
}

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{down: map[string]error{}, kv: `{"table":{"t1":"a:4"}}`}
		var ordered []string
		r := route.New(config("n1", "n2"), s, topics(), func(l []string) { ordered = l }, slog.New(slog.DiscardHandler))
		r.Start()
		synctest.Wait()
		<-r.Registered()
		require.Equal(t, []string{"t1"}, ordered)
		first := s.take("n1")
		require.Equal(t, []int32{103}, codes(first), "at once")
		require.Equal(t, map[string]string{"brokerName": "a", "brokerAddr": "1.2.3.4:10911", "clusterName": "C", "brokerId": "0",
			"haServerAddr": "1.2.3.4:10912", "compressed": "false", "epochmqWholeTable": "true", "bodyCrc32": first[0].cmd.Ext["bodyCrc32"]}, first[0].cmd.Ext)
		require.Equal(t, 3, strings.Count(string(first[0].cmd.Body), "topicName"))

		time.Sleep(time.Minute + time.Second)
		require.Equal(t, []int32{103, 103}, codes(s.take("n1")), "by timer")

		r.Changed(topic.Change{Updated: []*topic.Config{topic.NewConfig("t2", 8)}})
		synctest.Wait()
		calls := s.take("n1")
		require.Equal(t, []int32{103}, codes(calls))
		require.Equal(t, 1, strings.Count(string(calls[0].cmd.Body), "topicName"), "the one topic")
		r.Changed(topic.Change{Deleted: []string{"t2"}})
		synctest.Wait()
		require.Equal(t, 3, strings.Count(string(s.take("n1")[0].cmd.Body), "topicName"), "everything")

		r.Close()
		r.Close()
		require.Equal(t, []int32{104}, codes(s.take("n1")))
		calls = s.take("n2")
		require.Equal(t, int32(104), calls[len(calls)-1].code)
		time.Sleep(time.Hour)
		require.Empty(t, s.take("n1"), "it does not come back")
	})
}

func TestNameServerThatWasRestartedGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{fresh: map[string]bool{}}
		r := route.New(config("n1"), s, topics(), nil, slog.New(slog.DiscardHandler))
		r.Start()
		defer r.Close()
		synctest.Wait()
		s.take("n1")
		s.mu.Lock()
		s.fresh["n1"] = true
		s.mu.Unlock()
		r.Changed(topic.Change{Updated: []*topic.Config{topic.NewConfig("t2", 8)}})
		synctest.Wait()
		calls := s.take("n1")
		require.Len(t, calls, 2)
		require.Equal(t, 3, strings.Count(string(calls[1].cmd.Body), "topicName"))
	})
}

func TestOneDeadNameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{down: map[string]error{"n1": errors.New("refused")}, hang: map[string]bool{"n3": true}}
		r := route.New(config("n1", "n2", "n3"), s, topics(), nil, slog.New(slog.DiscardHandler))
		r.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		n := len(s.take("n1"))
		require.Greater(t, n, 6, "retried soon")
		require.Less(t, n, 12, "with growing pauses")
		require.Equal(t, []int32{103, 103, 103}, codes(s.take("n2")))
		select {
		case <-r.Registered():
			t.Fatal("not all are told")
		default:
		}
		s.mu.Lock()
		s.down = nil
		s.mu.Unlock()
		time.Sleep(11 * time.Second)
		require.NotEmpty(t, s.take("n1"))
		start := time.Now()
		r.Close()
		require.LessOrEqual(t, time.Since(start), 3*time.Second)
	})
}

func TestVersionIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{same: true}
		c := config("n1")
		c.Force = false
		r := route.New(c, s, topics(), nil, slog.New(slog.DiscardHandler))
		r.Start()
		defer r.Close()
		time.Sleep(31 * time.Second)
		require.Equal(t, []int32{103, 322}, codes(s.take("n1")))
		s.mu.Lock()
		s.same = false
		s.mu.Unlock()
		time.Sleep(30 * time.Second)
		require.Equal(t, []int32{322, 103}, codes(s.take("n1")))
		r.Again()
		synctest.Wait()
		require.Equal(t, []int32{103}, codes(s.take("n1")))
	})
}

func TestPermissionAndCompression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		c := config("n1")
		c.Compressed, c.Permission = true, func() int32 { return 4 }
		r := route.New(c, s, &table{[]*topic.Config{topic.NewConfig("t1", 4)}}, nil, slog.New(slog.DiscardHandler))
		r.Start()
		synctest.Wait()
		r.Close()
		z, err := zlib.NewReader(bytes.NewReader(s.take("n1")[0].cmd.Body))
		require.NoError(t, err)
		plain, err := io.ReadAll(z)
		require.NoError(t, err)
		require.Contains(t, string(plain), "t1 4 4 4 SINGLE_TAG {}")
		require.Contains(t, string(plain), `{"counter":7,"stateVersion":0,"timestamp":0}`)
	})
}

func TestNoNameServer(t *testing.T) {
	r := route.New(config(), &servers{}, topics(), nil, slog.New(slog.DiscardHandler))
	r.Start()
	<-r.Registered()
	r.Changed(topic.Change{})
	r.Close()
}

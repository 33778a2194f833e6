package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/namesrv"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func startNamesrv(t testing.TB, dir string, port int) *namesrv.Server {
	t.Helper()
	set := conf.New(nil)
	require.NoError(t, set.Register(new(namesrv.Config)))
	for k, v := range map[string]string{"listenPort": strconv.Itoa(port), "bindAddress": "127.0.0.1", "kvConfigPath": dir + "/kvConfig.json",
		"configStorePath": dir + "/namesrv.properties", "rocketmqHome": dir} {
		set.Put(k, v)
	}
	s, err := namesrv.New(namesrv.Options{Settings: set, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	return s
}

// route asks a name server until it knows a topic, or does not.
func (w *world) route(addr, topic string, want bool) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		a, err := w.client.Call(ctx, addr, protocol.NewRequest(protocol.ReqGetRouteInfoByTopic, map[string]string{"topic": topic}, nil))
		cancel()
		if err == nil && a.Success() == want {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("route of %s at %s: want %v, got %v %v", topic, addr, want, a, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestNameServersAreTold(t *testing.T) {
	dir := t.TempDir()
	n1, n2 := startNamesrv(t, t.TempDir(), 0), startNamesrv(t, dir, 0)
	defer func() { require.NoError(t, n1.Close()) }()
	a1, a2 := fmt.Sprintf("127.0.0.1:%d", n1.Port()), fmt.Sprintf("127.0.0.1:%d", n2.Port())
	w := start(t, t.TempDir(), "namesrvAddr", a1+";"+a2)
	<-w.b.Registered()
	for _, a := range []string{a1, a2} {
		w.route(a, "TBW102", true)
		w.route(a, "orders", false)
	}
	w.send("orders", "0", "x")
	w.route(a1, "orders", true)
	w.route(a2, "orders", true)

	// A name server is restarted; the next topic brings everything back.
	port := n2.Port()
	require.NoError(t, n2.Close())
	n2 = startNamesrv(t, dir, port)
	defer func() { require.NoError(t, n2.Close()) }()
	w.createTopic("late", "2")
	w.route(a2, "late", true)
	w.route(a2, "orders", true)

	client := remoting.NewClient(remoting.ClientConfig{}, nil, nil)
	defer client.Close()
	require.NoError(t, w.b.Close())
	w2 := &world{t: t, client: client}
	w2.route(a1, "orders", false)
	w2.route(a2, "orders", false)
}

func TestNameServerThatIsNotThere(t *testing.T) {
	w := start(t, t.TempDir(), "namesrvAddr", "127.0.0.1:1")
	w.send("orders", "0", "x") // serves all the same
	select {
	case <-w.b.Registered():
		t.Fatal("nobody was told")
	default:
	}
	began := time.Now()
	require.NoError(t, w.b.Close())
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestPortInUse(t *testing.T) {
	w := start(t, t.TempDir())
	_, port := splitAddr(t, w.addr)
	set, err := broker.NewSettings(nil)
	require.NoError(t, err)
	for k, v := range settings(t, t.TempDir(), "listenPort", port) {
		set.Put(k, v)
	}
	b, err := broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(context.Background()), "listen on port "+port)
	require.NoError(t, b.Close(), "it was closed by the failed start")
}

func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[:i], addr[i+1:]
		}
	}
	t.Fatal(addr)
	return "", ""
}

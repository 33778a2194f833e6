package client

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/client/internal/fakebroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient makes a client of a cluster that ends with the test.
func newClient(t testing.TB, c *fakebroker.Cluster, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{NameServers: []string{c.NameServer()}, RequestTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for _, fn := range change {
		fn(&cfg)
	}
	cl, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cl.Close()) })
	return cl
}

func newProducer(t testing.TB, cl *Client, change ...func(*ProducerConfig)) *Producer {
	t.Helper()
	cfg := ProducerConfig{Group: "pg", Timeout: 500 * time.Millisecond}
	for _, fn := range change {
		fn(&cfg)
	}
	p, err := NewProducer(cl, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(ctxFor(t))) })
	return p
}

func ctxFor(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, 15*time.Second, 5*time.Millisecond, what)
}

package broker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/broker"
)

// TestDamagedFiles damages each JSON file in each way, with a good copy beside it and without.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	w := start(t, dir)
	w.createTopic("orders", "4")
	w.createGroup("G")
	w.ok(15, "", "consumerGroup", "G", "topic", "orders", "queueId", "0", "commitOffset", "17")
	require.NoError(t, w.b.Close())
	for _, name := range []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json"} {
		good, err := os.ReadFile(filepath.Join(dir, "config", name))
		require.NoError(t, err)
		for what, bad := range map[string][]byte{"half": good[:len(good)/2], "random": []byte("\x91\x00\xff{{"), "old bytes behind": append(append([]byte{}, good...), "}old}"...), "empty": {}} {
			for _, copied := range []bool{true, false} {
				t.Run(name+" "+what, func(t *testing.T) {
					d := t.TempDir()
					require.NoError(t, os.CopyFS(d, os.DirFS(dir)))
					path := filepath.Join(d, "config", name)
					require.NoError(t, os.WriteFile(path, bad, 0o644))
					require.NoError(t, os.RemoveAll(path+".bak"))
					if copied {
						require.NoError(t, os.WriteFile(path+".bak", good, 0o644))
						w := start(t, d)
						off, _ := w.offset("G", "orders", "0")
						require.Equal(t, "17", off)
						w.ok(351, "", "topic", "orders")
						return
					}
					set, err := broker.NewSettings(nil)
					require.NoError(t, err)
					for k, v := range settings(t, d) {
						set.Put(k, v)
					}
					b, err := broker.New(set, broker.Options{Log: slog.New(slog.DiscardHandler)})
					if err == nil {
						err = b.Start(context.Background())
					}
					require.ErrorContains(t, err, name)
				})
			}
		}
	}
}

package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// A Java broker that ran in between leaves our marks behind: they say nothing of the queues then, not even of a topic that
// was deleted and came back.
func TestAnotherBrokerRanInBetween(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		cfg := simConfig(AsyncFlush)
		cfg.StorePathRootDir = dir
		s := mustOpen(t, mappedfile.OS, cfg, testOptions())
		s.Start()
		put(t, s, "t", 0, numbered(50, 10)...)
		put(t, s, "gone", 0, numbered(50, 10)...)
		require.NoError(t, s.Close())
		old := t.TempDir()
		require.NoError(t, os.CopyFS(old, os.DirFS(filepath.Join(dir, "epochmq"))))

		s = mustOpen(t, mappedfile.OS, cfg, testOptions()) // plays the other broker
		s.Start()
		require.NoError(t, s.DeleteTopic("gone"))
		put(t, s, "gone", 0, numbered(3, 10)...)
		put(t, s, "t", 0, numbered(30, 10)...)
		require.NoError(t, s.Close())
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "epochmq")))
		require.NoError(t, os.CopyFS(filepath.Join(dir, "epochmq"), os.DirFS(old)))
		if killed {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "abort"), []byte("1"), 0o644))
		}

		s = mustOpen(t, mappedfile.OS, cfg, testOptions())
		s.Start()
		settle(t, s)
		agree(t, s)
		_, high, _ := s.Bounds([]byte("gone"), 0)
		require.EqualValues(t, 3, high)
		_, high, _ = s.Bounds([]byte("t"), 0)
		require.EqualValues(t, 80, high)
		n := 0
		allRecords(t, s, "gone", 0, func(message.QueueOffset, *message.Record) { n++ })
		require.Equal(t, 3, n)
		require.NoError(t, s.Close())
	}
}

package store

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// testOptions are options that make a test repeat.
func testOptions() Options { return Options{Log: quiet, RAM: 1 << 33, BootID: "boot-1"} }

func mustOpen(t testing.TB, fsys mappedfile.FS, cfg Config, o Options) *Store {
	t.Helper()
	s, err := Open(fsys, cfg, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// settle waits until everything appended is dispatched and indexed.
func settle(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.Flush(s.log.End()))
	require.NoError(t, s.d.done.Wait(t.Context(), s.visible()))
	if s.indexer == nil {
		return
	}
	for !s.indexer.caught.Load() {
		select {
		case <-s.indexer.gone:
			require.True(t, s.indexer.caught.Load(), "index catch-up failed")
		case <-time.After(time.Millisecond):
		}
	}
}

// allRecords reads every message of a queue through Get.
func allRecords(t testing.TB, s *Store, topic string, id int32, visit func(at message.QueueOffset, rec *message.Record)) {
	t.Helper()
	low, high, _ := s.Bounds([]byte(topic), id)
	var r Result
	for at := low; at < high; {
		require.NoError(t, s.Get(&Query{Topic: []byte(topic), QueueID: id, Offset: at, MaxMsgs: 32}, &r))
		if r.Status == Found {
			n := 0
			for _, v := range r.Views {
				for b := v.Bytes(); len(b) > 0; n++ {
					var rec message.Record
					require.NoError(t, message.Parse(b, &rec))
					visit(rec.QueueOffset, &rec)
					b = b[rec.Size:]
				}
			}
			require.Equal(t, r.Count, n)
		}
		require.Greater(t, r.Next, at, "status %v", r.Status)
		at = r.Next
		r.Release()
	}
}

func TestLogPaths(t *testing.T) {
	for _, c := range []struct {
		root, list, readOnly string
		want                 string
	}{
		{"/a,b", "", "", "/a,b/commitlog"},
		{"/a,b", "/a,b/commitlog", "", "/a,b/commitlog"},
		{"/a", "/x,/y", "", "/x /y"},
		{"/a", "/x,/y", "/x", "/y"},
	} {
		cfg := Defaults()
		cfg.StorePathRootDir, cfg.StorePathCommitLog, cfg.ReadOnlyCommitLogStorePaths = c.root, c.list, c.readOnly
		writable, _ := cfg.LogPaths()
		if got := strings.Join(writable, " "); got != c.want {
			t.Errorf("root %s, list %q, read-only %q: %s, want %s", c.root, c.list, c.readOnly, got, c.want)
		}
	}
}

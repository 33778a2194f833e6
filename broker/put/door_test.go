package put

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, flush string) *store.Store {
	cfg := store.Defaults()
	cfg.StorePathRootDir = t.TempDir()
	cfg.MappedFileSizeCommitLog = 1 << 20
	cfg.MappedFileSizeConsumeQueue = 20000
	cfg.MaxMessageSize = 200_000
	cfg.FlushDiskType = flush
	st, err := store.Open(mappedfile.OS, cfg, store.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	st.Start()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func msg(size int) *message.Message {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	return &message.Message{Topic: []byte("T"), Body: make([]byte, size), BornHost: host, StoreHost: host}
}

func TestPut(t *testing.T) {
	for _, flush := range []string{store.AsyncFlush, store.SyncFlush} {
		st := open(t, flush)
		d := New(st, nil)
		ctx := context.Background()
		require.NoError(t, d.Put(ctx, msg(10)))
		end := int64(st.Log().End())
		require.Positive(t, end)
		require.Equal(t, end, st.Written().Load())
		if flush == store.SyncFlush {
			require.Equal(t, end, st.Flushed().Load())
		}

		n, err := d.PutAll(ctx, []*message.Message{msg(60_000), msg(60_000), msg(60_000), msg(5)})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.EqualValues(t, 5, st.MaxOffset([]byte("T"), 0, false))

		n, err = d.PutAll(ctx, []*message.Message{msg(1), msg(100_000), msg(300_000), msg(1)})
		require.ErrorIs(t, err, store.ErrTooLarge)
		require.NotErrorIs(t, err, ErrUncertain)
		require.Equal(t, 2, n, "those before the refused one are stored")
		require.EqualValues(t, 7, st.MaxOffset([]byte("T"), 0, false))
	}
}

func TestGate(t *testing.T) {
	st := open(t, store.AsyncFlush)
	closed := errors.New("not the master")
	d := New(st, func() (*watermark.Mark, error) { return nil, closed })
	require.ErrorIs(t, d.Put(context.Background(), msg(1)), closed)
	require.Zero(t, st.Log().End())
}

// deaf is a store whose flushed mark never moves.
type deaf struct {
	*store.Store
	mark *watermark.Mark
}

func (d deaf) Flushed() *watermark.Mark { return d.mark }
func (d deaf) SyncFlush() bool          { return true }

func TestUncertain(t *testing.T) {
	st := open(t, store.AsyncFlush)
	mark := watermark.New(0)
	d := New(deaf{st, mark}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := d.Put(ctx, msg(1))
	require.ErrorIs(t, err, ErrUncertain)
	require.ErrorIs(t, err, context.Canceled)

	fail := errors.New("disk broke")
	mark.Fail(fail)
	err = d.Put(context.Background(), msg(1))
	require.ErrorIs(t, err, ErrUncertain)
	require.ErrorIs(t, err, fail)
}

package commitlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const dir = "/store/commitlog"

// quiet is a log whose flusher does nothing by itself.
func quiet(segment int64) Config {
	return Config{Paths: []string{dir}, SegmentSize: segment, FlushInterval: time.Hour, NoPrepare: true, RingSize: 256}
}

func open(t testing.TB, fsys mappedfile.FS, cfg Config) *Log {
	t.Helper()
	l, err := Open(fsys, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

var (
	born   = netip.MustParseAddrPort("10.0.0.1:40000")
	stored = netip.MustParseAddrPort("10.0.0.2:10911")
)

func msg(body string, props ...string) *message.Message {
	var p []byte
	for i := 0; i < len(props); i += 2 {
		p = message.AppendProperty(p, props[i], props[i+1])
	}
	return &message.Message{
		Topic: []byte("TopicTest"), QueueID: 1, BornTime: 1700000000000, BornHost: born, StoreHost: stored,
		Body: []byte(body), Properties: p,
	}
}

// sized makes a message whose record has n bytes.
func sized(n int) *message.Message {
	return msg(strings.Repeat("b", n-minRecord-len("TopicTest")))
}

func put(t testing.TB, l *Log, q *Queue, m *message.Message) Placed {
	t.Helper()
	b := l.NewBatch()
	require.NoError(t, b.Add(m, q))
	p, err := l.Append(b)
	require.NoError(t, err)
	return p
}

func bytesAt(t testing.TB, l *Log, from, to message.LogOffset) []byte {
	t.Helper()
	v, err := l.View(from, int(to-from))
	require.NoError(t, err)
	defer v.Release()
	require.Equal(t, int(to-from), v.Len())
	return bytes.Clone(v.Bytes())
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

const goldenRecord = `0000007b daa320a7 3610a686 00000001 00000000 0000000000000007 0000000000001000 00000000
0000018bcfe56800 0a000001 00009c40 0000018bcfe5687b 0a000002 00002a9f 00000000 0000000000000000
00000005 68656c6c6f 09 546f70696354657374 0012 4b455953016b3102 544147530154616741 02`

func TestAppendGoldenRecord(t *testing.T) {
	l := open(t, mappedfile.NewSim(1), quiet(4096))
	require.NoError(t, l.AppendRaw(4096, nil))
	require.EqualValues(t, 4096, l.Min())
	q := NewQueue("TopicTest", 1, 7)
	b := l.NewBatch()
	require.NoError(t, b.Add(msg("hello", "KEYS", "k1", "TAGS", "TagA"), q))
	p, err := l.Append(b)
	require.NoError(t, err)
	require.NoError(t, l.Write(p.End))
	rec := bytesAt(t, l, p.Start, p.End)
	message.Patch(rec, 7, 4096, 1700000000123)
	require.Equal(t, unhex(t, goldenRecord), rec)
	e := b.Entry(0)
	require.EqualValues(t, 2598919, e.TagsCode)
	require.EqualValues(t, 7, e.QueueOffset)
	require.EqualValues(t, 8, q.Next())
	require.Equal(t, []int32{2746024}, e.KeyHashes())
}

func TestAppendedCRCGolden(t *testing.T) {
	cfg := quiet(4096)
	cfg.AppendCRC, cfg.VerifyPropCRC = true, true
	sim := mappedfile.NewSim(1)
	l := open(t, sim, cfg)
	require.NoError(t, l.AppendRaw(4096, nil))
	q := NewQueue("TopicTest", 1, 7)
	p := put(t, l, q, msg("hello", "__CRC32#", "old", "KEYS", "k1", "TAGS", "TagA"))
	require.NoError(t, l.Write(p.End))
	rec := bytesAt(t, l, p.Start, p.End)
	require.Len(t, rec, 143)
	require.True(t, propCRCValid(rec))
	message.Patch(rec, 7, 4096, 1700000000123)
	putPropCRC(rec)
	require.Equal(t, "__CRC32#\x013331770631\x02", string(rec[123:]))

	require.NoError(t, l.Close())
	again := open(t, sim, cfg)
	r, err := again.Recover(0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Records)
	cfg.AppendCRC = false
	require.NoError(t, again.Close())
	plain := open(t, sim, cfg)
	_, err = plain.Recover(0, nil)
	require.NoError(t, err)
	end := put(t, plain, q, msg("no property")).End
	require.NoError(t, plain.Close())
	last := open(t, sim, cfg)
	r, err = last.Recover(0, nil)
	require.NoError(t, err)
	require.ErrorContains(t, r.Damage, "__CRC32#")
	require.Less(t, r.End, end)
}

func TestRollOver(t *testing.T) {
	const size = 1024
	for _, c := range []struct {
		name     string
		leaves   int
		sameFile bool
	}{{"leaves 9 bytes", 9, true}, {"leaves 8 bytes", 8, true}, {"leaves 7 bytes", 7, false}, {"leaves none", 0, false}} {
		t.Run(c.name, func(t *testing.T) {
			sim := mappedfile.NewSim(1)
			l := open(t, sim, quiet(size))
			q := NewQueue("TopicTest", 1, 0)
			put(t, l, q, sized(300))
			p := put(t, l, q, sized(size-300-c.leaves))
			require.NoError(t, l.Write(l.End()))
			want := message.LogOffset(300)
			if !c.sameFile {
				want = size
				require.Equal(t, unhex(t, "000002d4 cbd43194"), bytesAt(t, l, 300, 308))
				require.Equal(t, make([]byte, size-308), bytesAt(t, l, 308, size))
			}
			require.Equal(t, want, p.Start)
			next := put(t, l, q, sized(200))
			if c.sameFile {
				require.EqualValues(t, size, next.Start)
				require.NoError(t, l.Write(l.End()))
				require.Equal(t, unhex(t, fmt.Sprintf("%08x cbd43194", c.leaves)), bytesAt(t, l, p.End, p.End+8))
			}
			require.NoError(t, l.Close())
			again := open(t, sim, quiet(size))
			r, err := again.Recover(0, nil)
			require.NoError(t, err)
			require.EqualValues(t, 3, r.Records)
			require.Equal(t, next.End, r.End)
			require.NoError(t, r.Damage)
			require.Zero(t, r.Dropped)
		})
	}
}

func TestAppendLimits(t *testing.T) {
	cfg := quiet(1 << 20)
	cfg.MaxBody = 1000
	l := open(t, mappedfile.NewSim(1), cfg)
	q := NewQueue("TopicTest", 1, 0)
	b := l.NewBatch()
	_, err := l.Append(b)
	require.Error(t, err, "empty")
	require.NoError(t, b.Add(sized(1000+recordOverhead+1), q))
	_, err = l.Append(b)
	require.ErrorIs(t, err, ErrTooLarge)
	b.Reset()
	require.NoError(t, b.Add(sized(1000+recordOverhead), q))
	_, err = l.Append(b)
	require.NoError(t, err)

	small := open(t, mappedfile.NewSim(1), quiet(1024))
	b = small.NewBatch()
	require.NoError(t, b.Add(sized(1024-7), q))
	_, err = small.Append(b)
	require.ErrorIs(t, err, ErrTooLarge)
	require.EqualValues(t, 1, q.Next(), "a refused batch takes no offset")
	_, err = small.Append(new(Batch))
	require.Error(t, err)
}

func TestBatchIsContiguousAndLargerThanAStage(t *testing.T) {
	cfg := quiet(1 << 20)
	cfg.StageSize, cfg.Stages = 4096, 2
	sim := mappedfile.NewSim(1)
	l := open(t, sim, cfg)
	q := NewQueue("TopicTest", 1, 5)
	put(t, l, q, sized(700))
	b := l.NewBatch()
	for range 50 {
		require.NoError(t, b.Add(sized(1000), q))
	}
	p, err := l.Append(b)
	require.NoError(t, err)
	put(t, l, q, sized(800))
	require.EqualValues(t, 700, p.Start)
	require.EqualValues(t, 50700, p.End)
	for i := range 50 {
		require.EqualValues(t, 700+1000*i, b.Entry(i).LogOffset)
		require.EqualValues(t, 6+i, b.Entry(i).QueueOffset)
	}
	require.NoError(t, l.Flush(l.End()))
	n := 0
	next, err := l.Scan(0, l.End(), func(rec *message.Record) error {
		require.EqualValues(t, 5+n, rec.QueueOffset)
		require.True(t, rec.BodyValid())
		n++
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, l.End(), next)
	require.Equal(t, 52, n)
}

func TestTransactionOffsets(t *testing.T) {
	l := open(t, mappedfile.NewSim(1), quiet(1<<16))
	q := NewQueue("TopicTest", 1, 3)
	for _, c := range []struct {
		flag       int32
		want, next message.QueueOffset
	}{
		{0, 3, 4}, {message.TransactionPrepared, 0, 4}, {message.TransactionRollback, 0, 4}, {message.TransactionCommit, 4, 5},
		{message.FlagCompressed, 5, 6},
	} {
		m := msg("x")
		m.SysFlag = c.flag
		b := l.NewBatch()
		require.NoError(t, b.Add(m, q))
		_, err := l.Append(b)
		require.NoError(t, err)
		require.Equal(t, c.want, b.Entry(0).QueueOffset)
		require.Equal(t, c.next, q.Next())
	}
}

func TestEntryProperties(t *testing.T) {
	l := open(t, mappedfile.NewSim(1), quiet(1<<16))
	q := NewQueue("orders", 0, 0)
	b := l.NewBatch()
	require.NoError(t, b.Add(msg("x", "UNIQ_KEY", "first", "KEYS", " k1  k2 ", "UNIQ_KEY", "AC1200010001", "DELAY", "3"), q))
	e := b.Entry(0)
	require.Equal(t, []int32{q.KeyHash([]byte("AC1200010001")), -390723708, q.KeyHash([]byte("k2"))}, e.KeyHashes())
	require.Zero(t, e.TagsCode)
	require.Zero(t, e.DelayLevel)
	require.NoError(t, b.Add(msg("x", "KEYS", "1 2 3 4 5 6 7", "UNIQ_KEY", "u"), q))
	require.True(t, b.Entry(1).MoreKeys)
	require.Len(t, b.Entry(1).KeyHashes(), MaxEntryKeys)
	delayed := NewQueue("SCHEDULE_TOPIC_XXXX", 2, 0)
	require.NoError(t, b.Add(msg("x", "DELAY", "3", "TAGS", "a"), delayed))
	require.EqualValues(t, 3, b.Entry(2).DelayLevel)
	_, err := l.Append(b)
	require.NoError(t, err)
	require.NoError(t, l.Write(l.End()))
	i := 0
	_, err = l.Scan(0, l.End(), func(rec *message.Record) error {
		var scanned Entry
		scanned.Fill(rec, b.Entry(i).Queue)
		require.Equal(t, *b.Entry(i), scanned, "the dispatcher sees the same after a gap")
		i++
		return nil
	})
	require.NoError(t, err)
}

func TestKeyHashIsJavas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic, key := rapid.String().Draw(t, "topic"), rapid.String().Draw(t, "key")
		if got, want := NewQueue(topic, 0, 0).KeyHash([]byte(key)), message.HashString(topic+"#"+key); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestStoreTimeNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(mappedfile.NewSim(1), quiet(1<<16))
		require.NoError(t, err)
		defer l.Close()
		q := NewQueue("TopicTest", 1, 0)
		now := time.Now().UnixMilli()
		require.Equal(t, now, put(t, l, q, msg("a")).StoreTime)
		l.RaiseStoreTime(now + 5000)
		require.Equal(t, now+5000, put(t, l, q, msg("b")).StoreTime)
		time.Sleep(10 * time.Second)
		require.Equal(t, now+10000, put(t, l, q, msg("c")).StoreTime)
	})
}

// A byte is flushed at most one interval after it was appended, whatever comes behind it.
func TestAsyncFlushIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1 << 20)
		cfg.FlushInterval = 500 * time.Millisecond
		l, err := Open(mappedfile.NewSim(1), cfg)
		require.NoError(t, err)
		defer l.Close()
		q := NewQueue("TopicTest", 1, 0)
		for range 5 {
			start := time.Now()
			p := put(t, l, q, msg("first"))
			go func() {
				for range 10 {
					time.Sleep(100 * time.Millisecond)
					put(t, l, q, msg("more"))
				}
			}()
			require.NoError(t, l.Flushed().Wait(t.Context(), int64(p.End)))
			require.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
			time.Sleep(2 * time.Second)
			require.EqualValues(t, l.End(), l.Flushed().Load())
			require.EqualValues(t, l.End(), l.Confirmed().Load())
		}
	})
}

func TestSyncFlushFollowsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quiet(1 << 20)
		cfg.SyncFlush = true
		l, err := Open(mappedfile.NewSim(1), cfg)
		require.NoError(t, err)
		defer l.Close()
		start := time.Now()
		p := put(t, l, NewQueue("TopicTest", 1, 0), msg("x"))
		require.NoError(t, l.Write(p.End))
		require.NoError(t, l.Flushed().Wait(t.Context(), int64(p.End)))
		require.NoError(t, l.Confirmed().Wait(t.Context(), int64(p.End)))
		require.Zero(t, time.Since(start))
		p = put(t, l, NewQueue("TopicTest", 1, 0), msg("y"))
		l.FlushSoon()
		require.NoError(t, l.Flushed().Wait(t.Context(), int64(p.End)))
		require.Zero(t, time.Since(start))
	})
}

func TestConcurrentAppends(t *testing.T) {
	cfg := quiet(64 << 10)
	cfg.NoPrepare, cfg.SyncFlush = false, true
	cfg.StageSize, cfg.Stages, cfg.RingSize = 4096, 3, 256
	l := open(t, mappedfile.OS, Config{
		Paths: []string{t.TempDir()}, SegmentSize: cfg.SegmentSize, SyncFlush: true, StageSize: 4096, Stages: 3, RingSize: 256,
	})
	queues := []*Queue{NewQueue("TopicTest", 0, 0), NewQueue("TopicTest", 1, 0), NewQueue("Other", 0, 0)}
	const workers, each = 8, 150
	var mu sync.Mutex
	want := map[message.LogOffset]Entry{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := l.NewBatch()
			for i := range each {
				b.Reset()
				for range 1 + i%3 {
					if err := b.Add(sized(200+(w*37+i*91)%5000), queues[(w+i)%3]); err != nil {
						t.Error(err)
					}
				}
				p, err := l.Append(b)
				if err == nil && i%2 == 0 {
					err = l.Write(p.End)
				}
				if err == nil && i%16 == 0 {
					err = l.Flush(p.End)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for k := range b.Len() {
					want[b.Entry(k).LogOffset] = *b.Entry(k)
				}
				mu.Unlock()
			}
		})
	}
	// The dispatcher and a reader run beside the appends.
	stop := make(chan struct{})
	got := map[message.LogOffset]Entry{}
	var follower sync.WaitGroup
	follower.Go(func() {
		byName := map[string]*Queue{"TopicTest/0": queues[0], "TopicTest/1": queues[1], "Other/0": queues[2]}
		pos := message.LogOffset(0)
		buf := make([]Entry, 64)
		for {
			limit := message.LogOffset(l.Confirmed().Load())
			n, gap := l.Next(pos, limit, buf)
			for _, e := range buf[:n] {
				got[e.LogOffset], pos = e, e.End()
			}
			if n == 0 && gap > pos {
				next, err := l.Scan(pos, gap, func(rec *message.Record) error {
					e := want0(rec)
					_ = byName
					got[rec.LogOffset] = e
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				pos = next
			}
			if n == 0 && gap == pos {
				select {
				case <-stop:
					if pos == l.End() {
						return
					}
				default:
				}
				if v, err := l.View(0, 1<<20); err == nil {
					_ = bytes.Count(v.Bytes(), []byte{'b'})
					v.Release()
				}
			}
		}
	})
	wg.Wait()
	require.NoError(t, l.Flush(l.End()))
	close(stop)
	follower.Wait()
	require.Len(t, got, len(want))
	next := map[*Queue]message.QueueOffset{}
	pos := message.LogOffset(0)
	_, err := l.Scan(0, l.End(), func(rec *message.Record) error {
		e, ok := want[rec.LogOffset]
		require.True(t, ok)
		require.Equal(t, e.QueueOffset, rec.QueueOffset)
		require.Equal(t, next[e.Queue], rec.QueueOffset, "queue offsets follow log order without holes")
		require.Equal(t, e.QueueOffset, got[rec.LogOffset].QueueOffset)
		require.GreaterOrEqual(t, rec.LogOffset, pos)
		next[e.Queue]++
		pos = rec.LogOffset
		return nil
	})
	require.NoError(t, err)
}

func want0(rec *message.Record) Entry {
	var e Entry
	e.Fill(rec, NewQueue(string(rec.Topic), rec.QueueID, 0))
	return e
}

func TestRingGaps(t *testing.T) {
	cfg := quiet(1 << 16)
	cfg.RingSize = 4
	l := open(t, mappedfile.NewSim(1), cfg)
	q := NewQueue("TopicTest", 1, 0)
	var ends []message.LogOffset
	for range 6 {
		ends = append(ends, put(t, l, q, sized(200)).End)
	}
	require.NoError(t, l.Write(l.End()))
	buf := make([]Entry, 10)
	n, gap := l.Next(0, 100, buf)
	require.Equal(t, []any{0, message.LogOffset(0)}, []any{n, gap}, "limit inside the first record")
	n, gap = l.Next(0, ends[1], buf[:1])
	require.Equal(t, 1, n)
	n, _ = l.Next(ends[0], ends[5], buf)
	require.Equal(t, 3, n)
	n, gap = l.Next(ends[3], ends[5], buf)
	require.Equal(t, []any{0, ends[5]}, []any{n, gap}, "two were left out")
	put(t, l, q, sized(200))
	require.NoError(t, l.Write(l.End()))
	n, gap = l.Next(ends[3], l.End(), buf)
	require.Equal(t, []any{0, ends[5]}, []any{n, gap})
	next, err := l.Scan(ends[3], gap, func(*message.Record) error { return nil })
	require.NoError(t, err)
	require.Equal(t, gap, next)
	n, _ = l.Next(gap, l.End(), buf)
	require.Equal(t, 1, n)
	n, gap = l.Next(l.End(), l.End(), buf)
	require.Equal(t, []any{0, l.End()}, []any{n, gap})
}

func TestViews(t *testing.T) {
	l := open(t, mappedfile.OS, Config{Paths: []string{t.TempDir()}, SegmentSize: 4096, FlushInterval: time.Hour})
	q := NewQueue("TopicTest", 1, 0)
	a := put(t, l, q, sized(500))
	b := put(t, l, q, sized(600))
	_, err := l.View(0, 10)
	require.ErrorIs(t, err, ErrOutOfRange, "staged bytes are not to be seen")
	require.NoError(t, l.Write(a.End))
	c := put(t, l, q, sized(100))
	v, err := l.View(a.Start, 1<<20)
	require.NoError(t, err)
	require.EqualValues(t, b.End, v.Len())
	v.Release()
	require.NoError(t, l.Write(c.End))

	va, err := l.View(a.Start, 500)
	require.NoError(t, err)
	vb, err := l.Record(b.Start)
	require.NoError(t, err)
	require.Equal(t, 600, vb.Len())
	vc, err := l.Record(c.Start)
	require.NoError(t, err)
	_, ok := va.Join(vc)
	require.False(t, ok)
	vab, ok := va.Join(vb)
	require.True(t, ok)
	vabc, ok := vab.Join(vc)
	require.True(t, ok)
	require.Equal(t, 1200, vabc.Len())
	require.True(t, vabc.Resident())
	f, off, n := vabc.File()
	require.NotNil(t, f)
	p := make([]byte, n)
	_, err = f.ReadAt(p, off)
	require.NoError(t, err)
	require.Equal(t, vabc.Bytes(), p)
	n, err = vabc.ReadAt(p, 1100)
	require.Error(t, err)
	require.Equal(t, 100, n)
	require.Equal(t, vabc.Bytes()[1100:], p[:100])
	_, err = l.Record(b.Start + 1)
	require.ErrorIs(t, err, ErrBoundary)

	for l.End() < 3*4096 {
		put(t, l, q, sized(1000))
	}
	require.NoError(t, l.Flush(l.End()))
	dropped, err := l.DropBefore(2*4096, 0)
	require.NoError(t, err)
	require.Equal(t, 2, dropped)
	require.EqualValues(t, 2*4096, l.Min())
	require.Equal(t, p[:100], vabc.Bytes()[1100:], "held views outlive their file")
	vabc.Retain()
	vabc.Release()
	vabc.Release()
	_, err = l.View(0, 1)
	require.ErrorIs(t, err, ErrOutOfRange)
	View{}.Release()
}

func TestAppendRaw(t *testing.T) {
	master := open(t, mappedfile.NewSim(1), quiet(2048))
	q := NewQueue("TopicTest", 1, 0)
	for i := range 30 {
		put(t, master, q, sized(150+i*17))
	}
	require.NoError(t, master.Write(master.End()))
	sim := mappedfile.NewSim(2)
	cfg := quiet(2048)
	cfg.StageSize, cfg.Stages = 512, 2
	slave := open(t, sim, cfg)
	require.ErrorIs(t, slave.AppendRaw(7, []byte("x")), ErrNotAtEnd)
	pos := message.LogOffset(2048)
	for pos < master.End() {
		v, err := master.View(pos, 777)
		require.NoError(t, err)
		require.NoError(t, slave.AppendRaw(pos, v.Bytes()))
		pos += message.LogOffset(v.Len())
		v.Release()
	}
	require.ErrorIs(t, slave.AppendRaw(0, []byte("x")), ErrNotAtEnd)
	require.Equal(t, master.End(), slave.End())
	require.NoError(t, slave.Flush(slave.End()))
	for base := message.LogOffset(2048); base < master.End(); base += 2048 {
		to := min(base+2048, master.End())
		require.Equal(t, bytesAt(t, master, base, to), bytesAt(t, slave, base, to))
	}
	require.NoError(t, slave.Close())
	again := open(t, sim, quiet(2048))
	r, err := again.Recover(0, nil)
	require.NoError(t, err)
	require.Equal(t, master.End(), r.End)
}

func TestDiskFullIsNoFence(t *testing.T) {
	sim := mappedfile.NewSim(1)
	sim.SetSpace(2 * 1024)
	l := open(t, sim, quiet(1024))
	q := NewQueue("TopicTest", 1, 0)
	put(t, l, q, sized(700))
	put(t, l, q, sized(700))
	b := l.NewBatch()
	require.NoError(t, b.Add(sized(700), q))
	_, err := l.Append(b)
	require.ErrorIs(t, err, ErrFull)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, l.Err())
	require.EqualValues(t, 2, q.Next())
	put(t, l, q, sized(150))
	sim.SetSpace(-1)
	p, err := l.Append(b)
	require.NoError(t, err)
	require.EqualValues(t, 2048, p.Start)
	require.NoError(t, l.Flush(l.End()))
}

func TestFirstErrorFences(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault mappedfile.Fault
		call  func(l *Log, end message.LogOffset) error
	}{
		{"write", mappedfile.Fault{Op: mappedfile.OpWrite, Err: syscall.EIO, Count: 1}, (*Log).Write},
		{"full disk while writing", mappedfile.Fault{Op: mappedfile.OpWrite, Err: syscall.ENOSPC, Count: 1}, (*Log).Write},
		{"flush", mappedfile.Fault{Op: mappedfile.OpSync, Err: syscall.EIO, Count: 1}, (*Log).Flush},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := mappedfile.NewSim(1)
			l := open(t, sim, quiet(4096))
			q := NewQueue("TopicTest", 1, 0)
			good := put(t, l, q, msg("good"))
			require.NoError(t, l.Flush(good.End))
			bad := put(t, l, q, msg("bad"))
			answered := make(chan error, 2)
			done := func(err error) { answered <- err }
			l.Flushed().Add(&watermark.Waiter{At: int64(bad.End), Done: done})
			sim.Fail(c.fault)
			err := c.call(l, bad.End)
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, c.fault.Err)
			require.ErrorIs(t, <-answered, ErrFenced)
			require.ErrorIs(t, c.call(l, bad.End), ErrFenced, "nothing is tried again")
			_, err = l.Append(l.batchOf(t, q))
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, l.Flush(bad.End), ErrFenced)
			require.EqualValues(t, good.End, l.Flushed().Load())
			require.NotEmpty(t, bytesAt(t, l, 0, good.End), "readers go on")
			require.ErrorIs(t, l.Close(), ErrFenced)
			require.ErrorIs(t, l.Close(), ErrFenced)
		})
	}
}

// TestConfirmedStaysBelowAFence fences from another goroutine's place: after the write, before the mark moves. What is confirmed must be
// readable, otherwise queues get entries that no view can serve.
func TestConfirmedStaysBelowAFence(t *testing.T) {
	for _, sync := range []bool{false, true} {
		t.Run(fmt.Sprintf("sync %v", sync), func(t *testing.T) {
			cfg := quiet(1 << 16)
			cfg.SyncFlush = sync
			l := open(t, mappedfile.NewSim(1), cfg)
			q := NewQueue("TopicTest", 1, 0)
			put(t, l, q, msg("seen"))
			require.NoError(t, l.Flush(l.End()))
			put(t, l, q, msg("too late"))
			_, err := l.write(l.end.Load())
			require.NoError(t, err)
			failed := errors.New("a queue cannot be flushed")
			l.setFence(failed)
			l.written.Fail(failed)
			l.flushed.Fail(failed)
			_ = l.Write(l.End())
			_ = l.Flush(l.End())
			require.LessOrEqual(t, l.confirmed.Load(), l.written.Load())
			if sync {
				require.LessOrEqual(t, l.confirmed.Load(), l.flushed.Load())
			}
			l.failMarks()
		})
	}
}

func (l *Log) batchOf(t *testing.T, q *Queue) *Batch {
	b := l.NewBatch()
	require.NoError(t, b.Add(msg("x"), q))
	return b
}

func TestSegmentSyncErrorFences(t *testing.T) {
	sim := mappedfile.NewSim(1)
	l := open(t, sim, quiet(1024))
	q := NewQueue("TopicTest", 1, 0)
	put(t, l, q, sized(900))
	sim.Fail(mappedfile.Fault{Op: mappedfile.OpSyncDir, Count: 1})
	b := l.NewBatch()
	require.NoError(t, b.Add(sized(900), q))
	_, err := l.Append(b)
	require.ErrorIs(t, err, ErrFenced)
}

func TestClose(t *testing.T) {
	sim := mappedfile.NewSim(1)
	l := open(t, sim, quiet(4096))
	q := NewQueue("TopicTest", 1, 0)
	p := put(t, l, q, msg("x"))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.EqualValues(t, p.End, l.Flushed().Load(), "close flushes")
	_, err := l.Append(l.batchOf(t, q))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, l.Written().Wait(t.Context(), int64(p.End)+1), ErrClosed)

	again := open(t, sim.Crash(), quiet(4096))
	_, err = again.Append(again.batchOf(t, q))
	require.ErrorIs(t, err, ErrState, "recover comes first")
	r, err := again.Recover(0, nil)
	require.NoError(t, err)
	require.Equal(t, p.End, r.End)
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(mappedfile.NewSim(1), quiet(4096))
		require.NoError(t, err)
		defer l.Close()
		require.Zero(t, l.Busy())
		p := put(t, l, NewQueue("TopicTest", 1, 0), msg("x"))
		time.Sleep(3 * time.Second)
		require.Equal(t, 3*time.Second, l.Busy())
		require.NoError(t, l.Write(p.End))
		require.Zero(t, l.Busy())
	})
}

func TestAppendDoesNotAllocate(t *testing.T) {
	sim := mappedfile.NewSim(1)
	cfg := quiet(64 << 20)
	cfg.AppendCRC = true
	for _, crc := range []bool{false, true} {
		cfg.AppendCRC = crc
		cfg.Paths = []string{fmt.Sprint("/", crc)}
		l := open(t, sim, cfg)
		q := NewQueue("TopicTest", 1, 0)
		m := msg(strings.Repeat("x", 1024), "KEYS", "k1 k2", "TAGS", "TagA", "UNIQ_KEY", "AC1200010001", "a", "1", "b", "2")
		b := l.NewBatch()
		buf := make([]Entry, 8)
		pos := message.LogOffset(0)
		step := func() {
			b.Reset()
			if err := b.Add(m, q); err != nil {
				t.Fatal(err)
			}
			p, err := l.Append(b)
			if err == nil {
				err = l.Write(p.End)
			}
			if err != nil {
				t.Fatal(err)
			}
			n, _ := l.Next(pos, p.End, buf)
			if n != 1 {
				t.Fatal(n)
			}
			pos = buf[0].End()
			v, err := l.View(p.Start, int(p.End-p.Start))
			if err != nil || !v.Resident() {
				t.Fatal(err)
			}
			v.Release()
		}
		step()
		require.Zero(t, testing.AllocsPerRun(1000, step))
	}
}

func TestErrorsAreTyped(t *testing.T) {
	sim := mappedfile.NewSim(1)
	require.NoError(t, sim.MkdirAll(dir, 0o755))
	require.NoError(t, sim.WriteFile(dir+"/foreign", nil, 0o644))
	_, err := Open(sim, quiet(4096))
	var corrupt *mappedfile.CorruptError
	require.True(t, errors.As(err, &corrupt))
	_, err = Open(sim, Config{Paths: []string{"/x"}, SegmentSize: 1 << 40})
	require.Error(t, err)
}

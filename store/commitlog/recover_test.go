package commitlog

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const javaSegment = 262144

// unpack writes a captured log into a folder.
func unpack(t testing.TB, fsys mappedfile.FS, name, to string) {
	t.Helper()
	f, err := os.Open("testdata/java-" + name + ".commitlog.tar.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, fsys.MkdirAll(to, 0o755))
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, fsys.WriteFile(filepath.Join(to, h.Name), b, 0o644))
		require.NoError(t, fsys.SyncDir(to))
	}
}

type javaRecord struct {
	at      message.LogOffset
	size    int32
	topic   string
	queue   int32
	qOffset message.QueueOffset
}

func javaRecords(t testing.TB, name string) []javaRecord {
	t.Helper()
	f, err := os.Open("testdata/java-" + name + ".messages.tsv.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var list []javaRecord
	for s := bufio.NewScanner(z); s.Scan(); {
		var r javaRecord
		_, err := fmt.Sscan(s.Text(), &r.at, &r.size, &r.topic, &r.queue, &r.qOffset)
		require.NoError(t, err)
		list = append(list, r)
	}
	return list
}

func TestRecoverJavaLogs(t *testing.T) {
	for name, end := range map[string]message.LogOffset{"rolled-clean": 936326, "killed": 403423} {
		for kind, fsys := range map[string]mappedfile.FS{"os": mappedfile.OS, "sim": mappedfile.NewSim(1)} {
			t.Run(name+" "+kind, func(t *testing.T) {
				where := dir
				if kind == "os" {
					where = t.TempDir()
				}
				unpack(t, fsys, name, where)
				before := contents(t, fsys, where)
				cfg := quiet(javaSegment)
				cfg.Paths = []string{where}
				l := open(t, fsys, cfg)
				var got []javaRecord
				r, err := l.Recover(0, func(rec *message.Record) error {
					got = append(got, javaRecord{rec.LogOffset, rec.Size, string(rec.Topic), rec.QueueID, rec.QueueOffset})
					return nil
				})
				require.NoError(t, err)
				require.Equal(t, javaRecords(t, name), got)
				require.Equal(t, end, r.End)
				require.NoError(t, r.Damage)
				require.Zero(t, r.Dropped)
				got = nil
				_, err = l.Scan(0, l.End(), func(rec *message.Record) error {
					got = append(got, javaRecord{rec.LogOffset, rec.Size, string(rec.Topic), rec.QueueID, rec.QueueOffset})
					return nil
				})
				require.NoError(t, err)
				require.Equal(t, javaRecords(t, name), got)
				require.NoError(t, l.Close())
				after := contents(t, fsys, where)
				for f, b := range after {
					require.Equal(t, before[f], b, "%s: nothing was changed", f)
				}
			})
		}
	}
}

func contents(t testing.TB, fsys mappedfile.FS, where string) map[string][]byte {
	t.Helper()
	list, err := fsys.ReadDir(where)
	require.NoError(t, err)
	m := map[string][]byte{}
	for _, e := range list {
		m[e.Name()], err = fsys.ReadFile(filepath.Join(where, e.Name()))
		require.NoError(t, err)
	}
	return m
}

// TestRecoverDamagedJavaLog follows what Java makes of damaged copies; wrong physical offsets, which Java accepts, are cut.
func TestRecoverDamagedJavaLog(t *testing.T) {
	const last, end, inFile = 402898, 403423, 402898 - javaSegment
	second := dir + "/" + mappedfile.Name(javaSegment)
	cases := []struct {
		name   string
		damage func(t *testing.T, s *mappedfile.Sim)
		end    message.LogOffset
		broken bool
	}{
		{"as is", func(*testing.T, *mappedfile.Sim) {}, end, false},
		{"tail half zero", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, inFile+262, make([]byte, 263)))
		}, last, true},
		{"tail body", func(t *testing.T, s *mappedfile.Sim) {
			flip(t, s, second, inFile+100)
		}, last, true},
		{"tail size huge", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, inFile, []byte{0x7F, 0xFF, 0xFF, 0xFF}))
		}, last, true},
		{"tail size negative", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, inFile, []byte{0xFF, 0xFF, 0xFF, 0xFF}))
		}, last, true},
		{"tail size 8", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, inFile, []byte{0, 0, 0, 8}))
		}, last, true},
		{"tail physical offset", func(t *testing.T, s *mappedfile.Sim) {
			flip(t, s, second, inFile+message.PosLogOffset+7)
		}, last, true},
		{"garbage behind", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, end-javaSegment, []byte("garbage garbage")))
		}, end, true},
		{"magic behind", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Damage(second, end-javaSegment, unhex(t, "00100000 daa320a7 01020304")))
		}, end, true},
		{"body in the middle", func(t *testing.T, s *mappedfile.Sim) {
			flip(t, s, second, 331379-javaSegment+100)
		}, 331379, true},
		{"first file missing", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Remove(dir+"/"+mappedfile.Name(0)))
		}, end, false},
		{"last file missing, the empty next one there", func(t *testing.T, s *mappedfile.Sim) {
			require.NoError(t, s.Remove(second))
			require.NoError(t, s.WriteFile(dir+"/"+mappedfile.Name(2*javaSegment), make([]byte, javaSegment), 0o644))
		}, 2 * javaSegment, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sim := mappedfile.NewSim(1)
			unpack(t, sim, "killed", dir)
			c.damage(t, sim)
			require.NoError(t, sim.SyncDir(dir))
			l := open(t, sim, quiet(javaSegment))
			r, err := l.Recover(0, nil)
			require.NoError(t, err)
			require.Equal(t, c.end, r.End)
			require.Equal(t, c.broken, r.Damage != nil, "%v", r.Damage)
			if c.broken {
				require.Positive(t, r.Dropped)
				var corrupt *mappedfile.CorruptError
				require.True(t, errors.As(r.Damage, &corrupt))
				require.Equal(t, second, corrupt.File)
			}
			requireZeroAbove(t, sim, l)
			q := NewQueue("T", 0, 0)
			p := put(t, l, q, msg("new"))
			require.Equal(t, c.end, p.Start)
			require.NoError(t, l.Close())
			again := open(t, sim.Crash(), quiet(javaSegment))
			r, err = again.Recover(0, nil)
			require.NoError(t, err)
			require.Equal(t, p.End, r.End)
			require.Zero(t, r.Dropped)
		})
	}
}

func flip(t testing.TB, s *mappedfile.Sim, name string, off int64) {
	b, err := s.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, s.Damage(name, off, []byte{b[off] ^ 0x40}))
}

// requireZeroAbove checks that no byte above the end of the log is left in any file.
func requireZeroAbove(t testing.TB, fsys mappedfile.FS, l *Log) {
	t.Helper()
	for name, b := range contents(t, fsys, dir) {
		base, ok := mappedfile.ParseName(name)
		require.True(t, ok)
		from := min(max(int64(l.End())-base, 0), int64(len(b)))
		for i, c := range b[from:] {
			if c != 0 {
				t.Fatalf("%s: byte %d is %x, the log ends at %d", name, from+int64(i), c, l.End())
			}
		}
	}
}

func TestRecoverRefusesToCutWhatWasDurable(t *testing.T) {
	sim := mappedfile.NewSim(1)
	unpack(t, sim, "killed", dir)
	flip(t, sim, dir+"/"+mappedfile.Name(javaSegment), 331379-javaSegment+100)
	before := contents(t, sim, dir)
	cfg := quiet(javaSegment)
	cfg.DurableTo = 331380
	l := open(t, sim, cfg)
	_, err := l.Recover(0, nil)
	var corrupt *mappedfile.CorruptError
	require.True(t, errors.As(err, &corrupt), "%v", err)
	require.Equal(t, before, contents(t, sim, dir))
	_, err = l.Append(l.batchOf(t, NewQueue("T", 0, 0)))
	require.ErrorIs(t, err, ErrState)
	require.NoError(t, l.Close())
	cfg.DurableTo = 331379
	_, err = open(t, sim, cfg).Recover(0, nil)
	require.NoError(t, err)
}

func TestRecoverReadErrorCutsNothing(t *testing.T) {
	sim := mappedfile.NewSim(1)
	unpack(t, sim, "killed", dir)
	before := contents(t, sim, dir)
	l := open(t, sim, quiet(javaSegment))
	sim.Fail(mappedfile.Fault{Op: mappedfile.OpRead, Skip: 1, Count: 1})
	_, err := l.Recover(0, nil)
	require.Error(t, err)
	stop := errors.New("stop")
	_, err = l.Recover(0, func(*message.Record) error { return stop })
	require.ErrorIs(t, err, stop)
	_, err = l.Recover(1<<40, nil)
	require.ErrorIs(t, err, ErrOutOfRange)
	require.Equal(t, before, contents(t, sim, dir))
	r, err := l.Recover(0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 752, r.Records)
}

func TestRecoverFromTheMiddleAndOverAGap(t *testing.T) {
	sim := mappedfile.NewSim(1)
	unpack(t, sim, "rolled-clean", dir)
	recs := javaRecords(t, "rolled-clean")
	l := open(t, sim, quiet(javaSegment))
	r, err := l.Recover(recs[1000].at, nil)
	require.NoError(t, err)
	require.EqualValues(t, len(recs)-1000, r.Records)
	require.Equal(t, recs[1000].at, r.Start)
	require.NoError(t, l.Close())

	require.NoError(t, sim.Remove(dir+"/"+mappedfile.Name(javaSegment)))
	l = open(t, sim, quiet(javaSegment))
	var got []message.LogOffset
	r, err = l.Recover(0, func(rec *message.Record) error { got = append(got, rec.LogOffset); return nil })
	require.NoError(t, err)
	require.EqualValues(t, 936326, r.End)
	require.Equal(t, []mappedfile.Gap{{From: javaSegment, To: 2 * javaSegment}}, r.Gaps)
	require.Equal(t, r.Gaps, l.Gaps())
	var want []message.LogOffset
	for _, rec := range recs {
		if rec.at < javaSegment || rec.at >= 2*javaSegment {
			want = append(want, rec.at)
		}
	}
	require.Equal(t, want, got)
	got = nil
	_, err = l.Scan(0, l.End(), func(rec *message.Record) error { got = append(got, rec.LogOffset); return nil })
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = l.View(javaSegment, 100)
	require.ErrorIs(t, err, ErrOutOfRange)
}

func TestLargeRecordIsReadThroughTheMap(t *testing.T) {
	sim := mappedfile.NewSim(1)
	l := open(t, sim, quiet(8<<20))
	q := NewQueue("TopicTest", 1, 0)
	put(t, l, q, sized(scanBuffer+100))
	put(t, l, q, sized(3<<20))
	end := put(t, l, q, sized(100)).End
	require.NoError(t, l.Close())
	again := open(t, sim, quiet(8<<20))
	r, err := again.Recover(0, nil)
	require.NoError(t, err)
	require.Equal(t, end, r.End)
	require.EqualValues(t, 3, r.Records)
}

func TestScanReportsDamage(t *testing.T) {
	sim := mappedfile.NewSim(1)
	l := open(t, sim, quiet(1<<16))
	q := NewQueue("TopicTest", 1, 0)
	a := put(t, l, q, msg("a"))
	b := put(t, l, q, msg("b"))
	require.NoError(t, l.Flush(b.End))
	next, err := l.Scan(0, a.End+5, func(*message.Record) error { return nil })
	require.NoError(t, err)
	require.Equal(t, a.End, next, "a record above to is left out")
	stop := errors.New("stop")
	next, err = l.Scan(0, b.End, func(rec *message.Record) error {
		if rec.LogOffset == b.Start {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, b.Start, next)
	require.NoError(t, sim.Damage(dir+"/"+mappedfile.Name(0), int64(a.End)+4, []byte{1}))
	next, err = l.Scan(0, b.End, func(*message.Record) error { return nil })
	var corrupt *mappedfile.CorruptError
	require.True(t, errors.As(err, &corrupt))
	require.EqualValues(t, a.End, corrupt.Offset)
	require.Equal(t, a.End, next)
}

func TestTruncate(t *testing.T) {
	sim := mappedfile.NewSim(1)
	l := open(t, sim, quiet(2048))
	q := NewQueue("TopicTest", 1, 0)
	var at []message.LogOffset
	for range 12 {
		at = append(at, put(t, l, q, sized(600)).Start)
	}
	end := l.End()
	require.NoError(t, l.Truncate(end))
	require.ErrorIs(t, l.Truncate(at[4]+1), ErrBoundary)
	require.ErrorIs(t, l.Truncate(end+1), ErrOutOfRange)
	require.NoError(t, l.Flush(end))

	below, err := l.View(at[4], 600)
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- l.Truncate(at[4]) }()
	for l.Written().Load() != int64(at[4]) { // the marks go down before the bytes
		_ = l.End()
	}
	select {
	case <-done:
		t.Fatal("a reader holds the bytes")
	default:
	}
	require.Equal(t, byte('b'), below.Bytes()[100])
	below.Release()
	require.NoError(t, <-done)

	require.Equal(t, at[4], l.End())
	require.EqualValues(t, at[4], l.Flushed().Load())
	require.EqualValues(t, at[4], l.Confirmed().Load())
	requireZeroAbove(t, sim, l)
	_, err = l.View(at[4], 1)
	require.ErrorIs(t, err, ErrOutOfRange)
	q.SetNext(4)
	n, gap := l.Next(at[4], l.End(), make([]Entry, 9))
	require.Zero(t, n)
	require.Equal(t, at[4], gap)
	require.Equal(t, at[4], put(t, l, q, sized(500)).Start)
	require.NoError(t, l.Write(l.End()))
	n, _ = l.Next(at[4], l.End(), make([]Entry, 9))
	require.Equal(t, 1, n)
	require.NoError(t, l.Truncate(0))
	requireZeroAbove(t, sim, l)
	require.EqualValues(t, 0, put(t, l, q, sized(500)).Start)
}

func TestLastSegmentInReadOnlyFolder(t *testing.T) {
	sim := mappedfile.NewSim(1)
	unpack(t, sim, "killed", "/old")
	cfg := quiet(javaSegment)
	cfg.ReadOnlyPaths = []string{"/old"}
	_, err := open(t, sim, cfg).Recover(0, nil)
	require.ErrorContains(t, err, "read-only")
	require.NoError(t, sim.MkdirAll(dir, 0o755))
	require.NoError(t, sim.Rename("/old/"+mappedfile.Name(javaSegment), dir+"/"+mappedfile.Name(javaSegment)))
	l := open(t, sim, cfg)
	r, err := l.Recover(0, nil)
	require.NoError(t, err)
	require.EqualValues(t, 752, r.Records)
	put(t, l, NewQueue("T", 0, 0), msg("x"))
}

// FuzzRecover damages a log of two segments: whatever it holds, Recover ends at a boundary of valid records, leaves nothing
// above, and finds the same end again.
func FuzzRecover(f *testing.F) {
	sim := mappedfile.NewSim(1)
	unpack(f, sim, "killed", dir)
	first, err := sim.ReadFile(dir + "/" + mappedfile.Name(0))
	require.NoError(f, err)
	const size = 4 << 10
	f.Add(first[:2*size])
	f.Add(first[:size/2])
	blank := slices.Clone(first[:size])
	recs := javaRecords(f, "killed")
	for _, r := range recs {
		if left := int64(size) - int64(r.at); left < 1000 {
			binary.BigEndian.PutUint32(blank[r.at:], uint32(left))
			binary.BigEndian.PutUint32(blank[r.at+4:], message.MagicBlank)
			break
		}
	}
	f.Add(append(blank, first[:size]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2*size {
			data = data[:2*size]
		}
		data = append(data, make([]byte, 2*size-len(data))...)
		sim := mappedfile.NewSim(1)
		if err := errors.Join(sim.MkdirAll(dir, 0o755),
			sim.WriteFile(dir+"/"+mappedfile.Name(0), data[:size], 0o644),
			sim.WriteFile(dir+"/"+mappedfile.Name(size), data[size:], 0o644)); err != nil {
			t.Fatal(err)
		}
		var ends []message.LogOffset
		for range 2 {
			l, err := Open(sim, quiet(size))
			if err != nil {
				t.Fatal(err)
			}
			pos := message.LogOffset(0)
			r, err := l.Recover(0, func(rec *message.Record) error {
				if rec.LogOffset < pos || !rec.BodyValid() {
					t.Fatalf("record %d after %d", rec.LogOffset, pos)
				}
				pos = rec.LogOffset + message.LogOffset(rec.Size)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			requireZeroAbove(t, sim, l)
			if len(ends) > 0 && (r.Dropped != 0 || r.Damage != nil) {
				t.Fatalf("second time: %+v", r)
			}
			ends = append(ends, r.End)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if ends[0] != ends[1] {
			t.Fatal(ends)
		}
	})
}

package mappedfile

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const testSize = 8192

func openSequence(t *testing.T, fsys FS, cfg Config) *Sequence {
	t.Helper()
	cfg.SegmentSize = testSize
	q, err := OpenSequence(fsys, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

func TestSequenceGrowsFindsAndDrops(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		dir := filepath.Join(root, "log")
		q := openSequence(t, fsys, Config{Paths: []string{dir}})
		require.Nil(t, q.Find(0))
		require.Zero(t, q.End())
		for base := int64(3 * testSize); base < 8*testSize; base += testSize {
			s, err := q.Append(base)
			require.NoError(t, err)
			require.NoError(t, s.WriteAt([]byte{byte(base / testSize)}, 100))
		}
		_, err := q.Append(3 * testSize)
		require.Error(t, err)
		require.EqualValues(t, 3*testSize, q.Min())
		require.EqualValues(t, 8*testSize, q.End())
		require.Nil(t, q.Find(3*testSize-1))
		require.Nil(t, q.Find(8*testSize))
		held := q.Find(4*testSize + 100)
		require.EqualValues(t, 4*testSize, held.Base())
		view, err := held.Bytes()
		require.NoError(t, err)

		n, err := q.DropFront(6*testSize, 0)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		_, err = fsys.Stat(held.Path())
		require.Error(t, err, "unlinked at once")
		require.EqualValues(t, 4, view[100], "and readable until released")
		held.Release()
		<-held.Gone()
		require.False(t, held.Acquire())

		n, err = q.DropFront(1<<40, 1)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = q.DropFront(1<<40, 0)
		require.NoError(t, err)
		require.Zero(t, n, "the last segment stays")

		require.NoError(t, q.Prepare(8*testSize))
		list, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.NoError(t, q.DropBack(0))
		list, err = fsys.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

func TestSequenceLoadRules(t *testing.T) {
	name := func(i int64) string { return Name(i * testSize) }
	cases := []struct {
		name    string
		files   map[string]int
		bad     string // the file that the error names
		removed string
		gaps    int
	}{
		{name: "empty folder"},
		{name: "whole files", files: map[string]int{name(1): testSize, name(2): testSize}},
		{name: "trailing empty file", files: map[string]int{name(1): testSize, name(2): 0}, removed: name(2)},
		{name: "only an empty file", files: map[string]int{name(0): 0}, removed: name(0)},
		{name: "empty file in the middle", files: map[string]int{name(1): testSize, name(2): 0, name(3): testSize}, bad: name(2)},
		{name: "two empty files", files: map[string]int{name(1): 0, name(2): 0}, bad: name(1)},
		{name: "short last file", files: map[string]int{name(1): testSize, name(2): 100}, bad: name(2)},
		{name: "long file", files: map[string]int{name(1): testSize + 1}, bad: name(1)},
		{name: "foreign name", files: map[string]int{name(1): testSize, "readme": 3}, bad: "readme"},
		{name: "misaligned name", files: map[string]int{Name(testSize + 8): testSize}, bad: Name(testSize + 8)},
		{name: "number too large", files: map[string]int{"99999999999999999999": testSize}, bad: "99999999999999999999"},
		{name: "gap", files: map[string]int{name(1): testSize, name(4): testSize}, gaps: 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, fsys FS, root string) {
				dir := filepath.Join(root, "log")
				require.NoError(t, fsys.MkdirAll(filepath.Join(dir, "subfolder"), 0o755))
				for f, n := range c.files {
					require.NoError(t, fsys.WriteFile(filepath.Join(dir, f), make([]byte, n), 0o644))
				}
				q, err := OpenSequence(fsys, Config{Paths: []string{dir}, SegmentSize: testSize})
				left := len(c.files)
				if c.bad != "" {
					var corrupt *CorruptError
					require.True(t, errors.As(err, &corrupt), "%v", err)
					require.Equal(t, filepath.Join(dir, c.bad), corrupt.File)
				} else {
					require.NoError(t, err)
					require.Len(t, q.Gaps(), c.gaps)
					require.NoError(t, q.Close())
				}
				if c.removed != "" {
					left--
					_, err := fsys.Stat(filepath.Join(dir, c.removed))
					require.ErrorIs(t, err, os.ErrNotExist)
				}
				list, err := fsys.ReadDir(dir)
				require.NoError(t, err)
				require.Len(t, list, left+1, "nothing else was touched")
			})
		})
	}
}

func TestSequenceOverSeveralFolders(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		a, b, old := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "old")
		require.NoError(t, fsys.MkdirAll(old, 0o755))
		require.NoError(t, fsys.WriteFile(filepath.Join(old, Name(0)), make([]byte, testSize), 0o644))
		full := ""
		cfg := Config{Paths: []string{b, a}, ReadOnly: []string{old}, SegmentSize: testSize, Full: func(p string) bool { return p == full }}
		q, err := OpenSequence(fsys, cfg)
		require.NoError(t, err)
		require.True(t, q.First().ReadOnly())
		for i := int64(1); i <= 4; i++ {
			if i == 4 {
				full = a
			}
			s, err := q.Append(i * testSize)
			require.NoError(t, err)
			want := map[bool]string{true: a, false: b}[i == 2]
			require.Equal(t, filepath.Join(want, Name(i*testSize)), s.Path())
		}
		require.NoError(t, q.Close())
		q, err = OpenSequence(fsys, cfg)
		require.NoError(t, err)
		require.Len(t, q.Segments(), 5)
		require.NoError(t, q.Close())

		require.NoError(t, fsys.WriteFile(filepath.Join(a, Name(testSize)), make([]byte, testSize), 0o644))
		_, err = OpenSequence(fsys, cfg)
		require.ErrorContains(t, err, "the same segment exists")
	})
}

func TestSequenceFindsAcrossGaps(t *testing.T) {
	s := NewSim(1)
	require.NoError(t, s.MkdirAll("/l", 0o755))
	for _, i := range []int64{2, 3, 6, 7, 9} {
		require.NoError(t, s.WriteFile("/l/"+Name(i*testSize), make([]byte, testSize), 0o644))
	}
	q := openSequence(t, s, Config{Paths: []string{"/l"}})
	require.Equal(t, []Gap{{4 * testSize, 6 * testSize}, {8 * testSize, 9 * testSize}}, q.Gaps())
	for i := int64(0); i < 12; i++ {
		for _, off := range []int64{i * testSize, i*testSize + testSize - 1} {
			seg := q.Find(off)
			if i == 2 || i == 3 || i == 6 || i == 7 || i == 9 {
				require.Equal(t, i*testSize, seg.Base())
				seg.Release()
			} else {
				require.Nil(t, seg, "%d", i)
			}
		}
	}
	after := q.After(4 * testSize)
	require.EqualValues(t, 6*testSize, after.Base())
	after.Release()
	require.Nil(t, q.After(9*testSize+1))
}

func TestSequenceCreateFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault Fault
	}{
		{"allocate", Fault{Op: OpAllocate, Err: syscall.ENOSPC, Count: 1}},
		{"sync", Fault{Op: OpSync, Count: 1}},
		{"sync folder", Fault{Op: OpSyncDir, Count: 1}},
		{"open", Fault{Op: OpOpen, Err: syscall.EMFILE, Count: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewSim(1)
			q := openSequence(t, s, Config{Paths: []string{"/l"}})
			_, err := q.Append(0)
			require.NoError(t, err)
			s.Fail(c.fault)
			_, err = q.Append(testSize)
			require.Error(t, err)
			var failed *SyncError
			require.Equal(t, c.fault.Op == OpSync || c.fault.Op == OpSyncDir, errors.As(err, &failed))
			list, err := s.ReadDir("/l")
			require.NoError(t, err)
			require.Len(t, list, 1, "no rest of it is left")
			_, err = q.Append(testSize)
			require.NoError(t, err, "the next attempt works")
		})
	}
}

// A segment that was handed out survives a power cut with its full length, and so do all before it.
func TestSequenceCrashWhileGrowing(t *testing.T) {
	for seed := range uint64(300) {
		s := NewSim(seed)
		s.SetTorn(true)
		require.NoError(t, s.MkdirAll("/l", 0o755))
		q, err := OpenSequence(s, Config{Paths: []string{"/l"}, SegmentSize: testSize})
		require.NoError(t, err)
		n := int64(seed%4) + 1
		for i := range n {
			_, err := q.Append(i * testSize)
			require.NoError(t, err)
		}
		s.Fail(Fault{Op: []Op{OpAllocate, OpSync, OpSyncDir, OpOpen}[seed%4]}) // stop somewhere in the next one
		_, err = q.Append(n * testSize)
		require.Error(t, err)
		c := s.Crash()
		q2, err := OpenSequence(c, Config{Paths: []string{"/l"}, SegmentSize: testSize})
		require.NoError(t, err)
		require.GreaterOrEqual(t, q2.End(), n*testSize)
		require.NoError(t, q2.Close())
		s.Heal()
		require.NoError(t, q.Close())
	}
}

func TestSegmentUnmapIdle(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		q := openSequence(t, fsys, Config{Paths: []string{filepath.Join(root, "log")}})
		s, err := q.Append(0)
		require.NoError(t, err)
		require.NoError(t, s.WriteAt([]byte("here"), 0))
		require.False(t, s.UnmapIdle(), "never mapped")
		require.True(t, s.Acquire())
		view, err := s.Bytes()
		require.NoError(t, err)
		require.False(t, s.UnmapIdle(), "asked for since the last call")
		require.False(t, s.UnmapIdle(), "held")
		require.Equal(t, "here", string(view[:4]))
		s.Release()
		require.True(t, s.UnmapIdle())
		require.False(t, s.Mapped())
		require.NoError(t, s.WriteAt([]byte("more"), 4), "the descriptor stays")
		require.True(t, s.Acquire())
		view, err = s.Bytes()
		require.NoError(t, err)
		require.Equal(t, "heremore", string(view[:8]))
		require.NoError(t, q.DropBack(0))
		s.UnmapIdle()
		require.False(t, s.UnmapIdle(), "the one count is the reader's")
		require.False(t, s.Trim())
		require.Equal(t, "heremore", string(view[:8]))
		s.Release()
		<-s.Gone()
	})
}

func TestSegmentTrimAndReaders(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		q := openSequence(t, fsys, Config{Paths: []string{root}, Sparse: true, NoSync: true})
		s, err := q.Append(0)
		require.NoError(t, err)
		require.NoError(t, s.WriteAt([]byte("x"), 7))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 300 {
					seg := q.Find(7)
					b, err := seg.Bytes()
					if err != nil || b[7] != 'x' {
						t.Errorf("%v", err)
					}
					seg.Release()
				}
			})
		}
		for range 300 {
			s.Trim()
			s.UnmapIdle()
		}
		wg.Wait()
		require.True(t, s.Trim())
		require.False(t, s.Mapped())
		var p [1]byte
		_, err = s.ReadAt(p[:], 7)
		require.NoError(t, err)
		require.Error(t, s.WriteAt(make([]byte, 2), testSize-1), "never longer")
	})
}

func TestSegmentLastData(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		q := openSequence(t, fsys, Config{Paths: []string{root}})
		s, err := q.Append(0)
		require.NoError(t, err)
		last, err := s.LastData(10)
		require.NoError(t, err)
		require.EqualValues(t, 10, last)
		require.NoError(t, s.WriteAt([]byte{1}, 20))
		require.NoError(t, s.WriteAt([]byte{1}, 6000))
		last, err = s.LastData(0)
		require.NoError(t, err)
		require.EqualValues(t, 6001, last)
		require.NoError(t, s.Zero(21, testSize-21))
		last, err = s.LastData(0)
		require.NoError(t, err)
		require.EqualValues(t, 21, last)
		last, err = s.LastData(21)
		require.NoError(t, err)
		require.EqualValues(t, 21, last)
	})
}

func TestSequenceRenewWaitsForReaders(t *testing.T) {
	q := openSequence(t, NewSim(1), Config{Paths: []string{"/l"}})
	_, err := q.Append(0)
	require.NoError(t, err)
	reader := q.Find(5)
	old := q.Renew(5)
	fresh := q.Find(5)
	require.NotSame(t, old, fresh)
	fresh.Release()
	select {
	case <-old.Gone():
		t.Fatal("a reader still holds it")
	default:
	}
	reader.Release()
	<-old.Gone()
}

func TestPrepareFromManyGoroutines(t *testing.T) {
	q := openSequence(t, NewSim(1), Config{Paths: []string{"/l"}})
	for i := range int64(20) {
		var wg sync.WaitGroup
		q.PrepareAsync(i * testSize)
		for range 4 {
			wg.Go(func() {
				if err := q.Prepare(i * testSize); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, ok := q.Next(i * testSize)
		require.True(t, ok)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("00000000000000001024")
	f.Add("09223372036854775807")
	f.Add("09223372036854775808")
	f.Fuzz(func(t *testing.T, name string) {
		v, ok := ParseName(name)
		if ok && (v < 0 || Name(v) != name) {
			t.Fatalf("%q -> %d", name, v)
		}
	})
}

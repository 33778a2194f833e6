package epoch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func golden(t testing.TB, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return b
}

func TestGoldenFiles(t *testing.T) {
	want := List{{1, 0}, {2, 203956}, {3, 297979}}
	for n := 1; n <= 3; n++ {
		b := golden(t, fmt.Sprintf("java-%d.txt", n))
		l, err := Parse(b)
		require.NoError(t, err)
		require.Equal(t, want[:n], l)
		require.Equal(t, string(b), string(l.Marshal()))
	}
	require.Equal(t, "0\n0\n", string(List(nil).Marshal()))
}

func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "count only": "1\n", "no number": "x\n0\n", "wrong sum": "1\n5\n1-0\n", "wrong count": "2\n0\n1-0\n", "huge count": "9999999999\n0\n1-0\n",
		"no dash": "1\n0\n10\n", "negative": "1\n0\n-1-0\n", "not ascending": "2\n0\n2-0\n1-10\n", "same start": "2\n0\n1-5\n2-5\n", "too big": "1\n0\n4294967296-0\n",
	} {
		_, err := Parse([]byte(text))
		require.Error(t, err, name)
	}
	l, err := Parse([]byte("2\r\n0\r\n1-0\r\n7-12\r\n"))
	require.NoError(t, err)
	require.Equal(t, List{{1, 0}, {7, 12}}, l)
	l, err = Parse([]byte("0\n0\n"))
	require.NoError(t, err)
	require.Empty(t, l)
}

func FuzzParse(f *testing.F) {
	for n := 1; n <= 3; n++ {
		f.Add(golden(f, fmt.Sprintf("java-%d.txt", n)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			return
		}
		require.NoError(t, l.Validate())
		again, err := Parse(l.Marshal())
		require.NoError(t, err)
		require.Equal(t, len(l), len(again))
		require.True(t, same(l, again))
	})
}

const path = "/store/epochFileCheckpoint"

func TestFileReopen(t *testing.T) {
	fs := mappedfile.NewSim(1)
	f, err := Open(fs, path, 0, 0)
	require.NoError(t, err)
	require.NoError(t, f.Begin(1, 0, 0, 0))
	require.NoError(t, f.Append(Entry{2, 203956}))
	require.NoError(t, f.Append(Entry{3, 297979}))
	require.ErrorIs(t, f.Append(Entry{3, 300000}), ErrStale)
	b, err := fs.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(golden(t, "java-3.txt")), string(b))
	b, err = fs.ReadFile(path + ".bak")
	require.NoError(t, err)
	require.Equal(t, string(golden(t, "java-2.txt")), string(b))

	f, err = Open(fs, path, 0, 333557)
	require.NoError(t, err)
	require.Equal(t, List{{1, 0}, {2, 203956}, {3, 297979}}, f.List())
	f, err = Open(fs, path, 0, 297979)
	require.NoError(t, err)
	require.Equal(t, List{{1, 0}, {2, 203956}}, f.List(), "an epoch without bytes is gone after a restart")
	f, err = Open(fs, path, 0, 333557)
	require.NoError(t, err)
	require.Equal(t, List{{1, 0}, {2, 203956}}, f.List(), "and does not come back when the log has grown")
	require.NoError(t, f.CutOffset(0))
	f, err = Open(fs, path, 0, 333557)
	require.NoError(t, err)
	require.Empty(t, f.List(), "the backup does not bring removed entries back")
	require.NoError(t, f.DropBefore(5))
}

func TestFileDamaged(t *testing.T) {
	fs := mappedfile.NewSim(1)
	f, err := Open(fs, path, 0, 0)
	require.NoError(t, err)
	require.NoError(t, f.Append(Entry{1, 0}))
	require.NoError(t, f.Append(Entry{2, 100}))
	require.NoError(t, fs.WriteFile(path, []byte("2\n17\n1-0\n2-100\n"), 0o644))
	f, err = Open(fs, path, 0, 500)
	require.NoError(t, err)
	require.Equal(t, List{{1, 0}}, f.List(), "the backup is read")
	require.NoError(t, fs.WriteFile(path+".bak", []byte("x"), 0o644))
	_, err = Open(fs, path, 0, 500)
	require.Error(t, err)
	_, err = Open(fs, path, 500, 500)
	require.NoError(t, err, "an empty log has no history to lose")
}

// TestFileCrash ends a run at each call of the file system: afterwards the list is the old one or the new one, and the new
// one if Append had returned. (I13)
func TestFileCrash(t *testing.T) {
	old, next := List{{1, 0}, {2, 100}}, List{{1, 0}, {2, 100}, {3, 200}}
	for step := range 12 {
		sim := mappedfile.NewSim(uint64(step))
		f, err := Open(sim, path, 0, 1000)
		require.NoError(t, err)
		for _, e := range old {
			require.NoError(t, f.Append(e))
		}
		stop := &stopping{FS: sim, left: step}
		g, err := Open(stop, path, 0, 1000)
		if err != nil {
			continue
		}
		err = g.Append(next[2])
		if err != nil {
			require.Equal(t, old, g.List(), "not in force before it is durable")
			require.ErrorIs(t, g.Append(Entry{9, 900}), errStopped, "a failed write is final")
		}
		for name, fs := range map[string]statefile.FS{"power": sim.Crash(), "kill": sim.Kill()} {
			h, err2 := Open(fs, path, 0, 1000)
			require.NoError(t, err2, name)
			if err == nil {
				require.Equal(t, next, h.List(), name)
			} else if len(h.List()) != len(next) {
				require.Equal(t, old, h.List(), name)
			}
		}
	}
}

var errStopped = errors.New("stopped")

// stopping is a file system on which calls fail from one of them on.
type stopping struct {
	statefile.FS
	left int
}

func (s *stopping) next() error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return nil
}

func (s *stopping) WriteFile(name string, b []byte, perm os.FileMode) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.FS.WriteFile(name, b, perm)
}

func (s *stopping) Rename(a, b string) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.FS.Rename(a, b)
}

func (s *stopping) Link(a, b string) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.FS.Link(a, b)
}

func (s *stopping) SyncDir(name string) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.FS.SyncDir(name)
}

func TestLimitOnBegin(t *testing.T) {
	f, err := Open(mappedfile.NewSim(1), path, 0, 0)
	require.NoError(t, err)
	var l List
	for i := range int32(MaxEntries) {
		l = append(l, Entry{i, message.LogOffset(i) * 10})
	}
	f.list.Store(&l)
	require.NoError(t, f.Begin(5000, 0, 99_999, 99_999))
	require.Len(t, f.List(), MaxEntries)
	require.Equal(t, Entry{5000, 99_999}, f.List()[MaxEntries-1])
	require.Equal(t, Entry{1, 10}, f.List()[0])
}

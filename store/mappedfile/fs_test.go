package mappedfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// both runs a test over the operating system and over the double: they must agree.
func both(t *testing.T, fn func(t *testing.T, fsys FS, root string)) {
	t.Run("os", func(t *testing.T) { fn(t, OS, t.TempDir()) })
	t.Run("sim", func(t *testing.T) { fn(t, NewSim(1), "/store") })
}

func TestFileCalls(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		dir := filepath.Join(root, "a", "b")
		require.NoError(t, fsys.MkdirAll(dir, 0o755))
		require.NoError(t, fsys.MkdirAll(dir, 0o755))
		name := filepath.Join(dir, "f")
		_, err := fsys.OpenFile(name, os.O_RDWR, 0)
		require.ErrorIs(t, err, fs.ErrNotExist)
		f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		require.NoError(t, err)
		_, err = fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		require.ErrorIs(t, err, fs.ErrExist)

		require.NoError(t, f.Allocate(10000))
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, 10000, size)
		m, err := f.Map(10000)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("hello"), 5000)
		require.NoError(t, err)
		require.Equal(t, "hello", string(m.Bytes()[5000:5005]), "map and pwrite are coherent")
		require.True(t, m.Resident(5000, 5))
		m.Advise(AdviseRandom, 0, 10000)
		require.NoError(t, f.Datasync())
		start, end, err := f.NextData(0, 10000)
		require.NoError(t, err)
		require.LessOrEqual(t, start, int64(5000))
		require.GreaterOrEqual(t, end, int64(5005))
		require.NoError(t, f.Zero(5001, 3))
		require.Equal(t, "h\x00\x00\x00o", string(m.Bytes()[5000:5005]))
		require.NoError(t, m.Unmap())
		require.Error(t, m.Unmap())
		require.NoError(t, f.Close())

		require.NoError(t, fsys.WriteFile(name+"2", []byte("two"), 0o644))
		require.NoError(t, fsys.Link(name+"2", name+"3"))
		require.ErrorIs(t, fsys.Link(name+"2", name+"3"), fs.ErrExist)
		require.NoError(t, fsys.Rename(name+"2", name))
		b, err := fsys.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "two", string(b))
		require.NoError(t, fsys.SyncDir(dir))
		require.NoError(t, fsys.SyncFS(dir))
		list, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, "f", list[0].Name())
		require.Error(t, fsys.Remove(dir), "not empty")
		require.NoError(t, fsys.Remove(name))
		require.ErrorIs(t, fsys.Remove(name), fs.ErrNotExist)
		total, avail, err := fsys.Usage(root)
		require.NoError(t, err)
		require.Positive(t, total)
		require.LessOrEqual(t, avail, total)
	})
}

func TestLock(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, root string) {
		require.NoError(t, fsys.MkdirAll(root, 0o755))
		name := filepath.Join(root, "lock")
		l, err := fsys.Lock(name)
		require.NoError(t, err)
		b, err := fsys.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "lock", string(b))
		_, err = fsys.Lock(name)
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, l.Close())
		l, err = fsys.Lock(name)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
}

// TestLockAgainstPOSIX takes the lock as a Java broker does, from another process.
func TestLockAgainstPOSIX(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to hold a POSIX record lock")
	}
	name := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(name, []byte("lock"), 0o644))
	cmd := exec.Command(python, "-c", "import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1,0,0)\nprint('held',flush=True)\nsys.stdin.read()", name)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 4))
	require.NoError(t, err)
	_, err = OS.Lock(name)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	l, err := OS.Lock(name)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestSimCrashKeepsWhatWasSynced(t *testing.T) {
	s := NewSim(1)
	require.NoError(t, s.MkdirAll("/d", 0o755))
	open := func(s *Sim, name string, flag int) File {
		f, err := s.OpenFile(name, flag, 0o644)
		require.NoError(t, err)
		return f
	}
	f := open(s, "/d/f", os.O_CREATE|os.O_RDWR)
	_, err := f.WriteAt(bytes.Repeat([]byte{1}, 2000), 0)
	require.NoError(t, err)
	require.NoError(t, f.Datasync())
	_, err = s.Crash().Stat("/d/f")
	require.ErrorIs(t, err, fs.ErrNotExist, "content synced, entry not")
	require.NoError(t, s.SyncDir("/d"))
	_, err = f.WriteAt(bytes.Repeat([]byte{2}, 2000), 1000)
	require.NoError(t, err)

	b, err := s.Crash().ReadFile("/d/f")
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{1}, 2000), b)
	b, err = s.Kill().ReadFile("/d/f")
	require.NoError(t, err)
	require.Equal(t, append(bytes.Repeat([]byte{1}, 1000), bytes.Repeat([]byte{2}, 2000)...), b)

	require.NoError(t, s.Remove("/d/f"))
	_, err = s.Crash().Stat("/d/f")
	require.NoError(t, err, "the removal is not durable")
	require.NoError(t, s.SyncDir("/d"))
	_, err = s.Crash().Stat("/d/f")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSimTornCrashKeepsSomeSectors(t *testing.T) {
	s := NewSim(7)
	s.SetTorn(true)
	require.NoError(t, s.WriteFile("/f", make([]byte, 64*sector), 0o644))
	require.NoError(t, s.SyncDir("/"))
	f, err := s.OpenFile("/f", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{9}, 64*sector), 0)
	require.NoError(t, err)
	b, err := s.Crash().ReadFile("/f")
	require.NoError(t, err)
	kept := 0
	for i := 0; i < len(b); i += sector {
		want := bytes.Repeat([]byte{b[i]}, sector)
		require.Equal(t, want, b[i:i+sector], "sectors are whole")
		if b[i] == 9 {
			kept++
		}
	}
	require.Greater(t, kept, 5)
	require.Less(t, kept, 59)
}

func TestSimFaults(t *testing.T) {
	s := NewSim(1)
	require.NoError(t, s.WriteFile("/a.x", []byte("0123456789"), 0o644))
	require.NoError(t, s.SyncDir("/"))
	f, err := s.OpenFile("/a.x", os.O_RDWR, 0)
	require.NoError(t, err)
	s.Fail(Fault{Op: OpWrite, Pattern: "a.*", Skip: 1, Count: 1, Err: syscall.ENOSPC})
	_, err = f.WriteAt([]byte("A"), 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("B"), 1)
	require.ErrorIs(t, err, syscall.ENOSPC)
	_, err = f.WriteAt([]byte("C"), 2)
	require.NoError(t, err)

	s.Fail(Fault{Op: OpSync, Count: 1})
	var failed *SyncError
	require.True(t, errors.As(f.Datasync(), &failed))
	require.ErrorIs(t, failed, syscall.EIO)
	require.NoError(t, f.Datasync(), "the next one succeeds")
	b, err := s.Crash().ReadFile("/a.x")
	require.NoError(t, err)
	require.Equal(t, "0123456789", string(b), "and has lost what the failed one covered")

	s.Heal()
	s.SetSpace(12)
	require.ErrorIs(t, f.Allocate(13), syscall.ENOSPC)
	require.NoError(t, f.Allocate(12))
	_, avail, err := s.Usage("/")
	require.NoError(t, err)
	require.Zero(t, avail)
}

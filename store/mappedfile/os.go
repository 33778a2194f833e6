package mappedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osFS) Remove(name string) error                   { return os.Remove(name) }
func (osFS) Rename(oldName, newName string) error       { return os.Rename(oldName, newName) }
func (osFS) Link(oldName, newName string) error         { return os.Link(oldName, newName) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }

// Mkdir makes one folder; it is durable after SyncDir of its parent.
func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (o osFS) MkdirAll(name string, perm fs.FileMode) error {
	if st, err := os.Stat(name); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: name, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := o.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	if err := os.Mkdir(name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.SyncDir(parent)
}

func (osFS) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	if err = d.Sync(); err != nil {
		err = &SyncError{File: name, Err: err}
	}
	return errors.Join(err, d.Close())
}

func (osFS) SyncFS(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	if err = syncFS(d); err != nil {
		err = &SyncError{File: name, Err: err}
	}
	return errors.Join(err, d.Close())
}

func (osFS) Usage(path string) (total, avail int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	err = unix.FcntlFlock(f.Fd(), lockCommand, &lock)
	if errors.Is(err, unix.EINVAL) && lockCommand != unix.F_SETLK {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrLocked
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte("lock"), 0)
		}
		if err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, errors.Join(err, f.Close()))
	}
	return f, nil
}

// osFile is an open file of the operating system.
type osFile struct{ f *os.File }

func (o *osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o *osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Fd() *os.File                             { return o.f }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o *osFile) Datasync() error {
	err := control(o.f, func(fd int) error { return dataSync(fd) })
	if err != nil {
		return &SyncError{File: o.f.Name(), Err: err}
	}
	return nil
}

// Allocate keeps the length until all blocks are there: an interrupted fallocate must not leave a file of odd length,
// which would stop the next start.
func (o *osFile) Allocate(size int64) error {
	err := control(o.f, func(fd int) error { return allocate(fd, size) })
	reserved := err == nil
	if err != nil && !errors.Is(err, errNotSupported) {
		return &fs.PathError{Op: "fallocate", Path: o.f.Name(), Err: err}
	}
	old, err := o.Size()
	if err != nil {
		return err
	}
	if old < size {
		if err := o.f.Truncate(size); err != nil {
			return err
		}
	}
	if reserved {
		return nil
	}
	return o.fill(old, size)
}

// fill reserves blocks by writing zeros where fallocate is not supported.
func (o *osFile) fill(off, end int64) error {
	zero := make([]byte, 1<<20)
	for off < end {
		n := min(int64(len(zero)), end-off)
		if _, err := o.f.WriteAt(zero[:n], off); err != nil {
			return err
		}
		off += n
	}
	return nil
}

func (o *osFile) Zero(off, n int64) error {
	if n <= 0 {
		return nil
	}
	err := control(o.f, func(fd int) error { return zeroRange(fd, off, n) })
	if errors.Is(err, errNotSupported) {
		return o.fill(off, off+n)
	}
	if err != nil {
		return &fs.PathError{Op: "zero", Path: o.f.Name(), Err: err}
	}
	return nil
}

func (o *osFile) NextData(off, size int64) (start, end int64, err error) {
	start, end = off, size
	err = control(o.f, func(fd int) error {
		var err error
		start, end, err = nextData(fd, off, size)
		return err
	})
	if err != nil { // a file system without SEEK_DATA: all of it may be data
		return off, size, nil
	}
	return min(start, size), min(end, size), nil
}

func (o *osFile) Map(size int64) (Mapping, error) {
	m, err := mmap.MapRegion(o.f, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: o.f.Name(), Err: err}
	}
	return &osMapping{m: m}, nil
}

// control runs fn with the descriptor and repeats it when a signal interrupts it.
func control(f *os.File, fn func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = c.Control(func(fd uintptr) {
		for {
			if inner = fn(int(fd)); inner != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return inner
}

var pageSize = int64(os.Getpagesize())

type osMapping struct{ m mmap.MMap }

func (o *osMapping) Bytes() []byte { return o.m }
func (o *osMapping) Unmap() error  { return o.m.Unmap() }

// pages widens [off, off+n) to whole pages of the map.
func (o *osMapping) pages(off, n int64) []byte {
	from := off &^ (pageSize - 1)
	to := min(off+n, int64(len(o.m)))
	if off < 0 || n <= 0 || from >= to {
		return nil
	}
	return o.m[from:to]
}

func (o *osMapping) Advise(a Advice, off, n int64) {
	p := o.pages(off, n)
	if len(p) == 0 {
		return
	}
	advice := unix.MADV_NORMAL
	switch a {
	case AdviseRandom:
		advice = unix.MADV_RANDOM
	case AdviseSequential:
		advice = unix.MADV_SEQUENTIAL
	case AdviseWillNeed:
		advice = unix.MADV_WILLNEED
	case AdviseDontNeed:
		advice = unix.MADV_DONTNEED
	}
	_ = unix.Madvise(p, advice) // advice only
}

// residentPages is one vector of mincore, for ranges of up to 1 MiB at a time.
type residentPages [256]byte

var residentPool = sync.Pool{New: func() any { return new(residentPages) }}

func (o *osMapping) Resident(off, n int64) bool {
	p := o.pages(off, n)
	vec := residentPool.Get().(*residentPages)
	defer residentPool.Put(vec)
	for len(p) > 0 {
		step := min(len(p), len(vec)*int(pageSize))
		if !resident(p[:step], vec[:]) {
			return false
		}
		p = p[step:]
	}
	return true
}

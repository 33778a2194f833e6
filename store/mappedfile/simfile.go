package mappedfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"syscall"
)

// Op is a kind of call that a Sim can let fail.
type Op uint8

// Kinds of calls.
const (
	OpOpen Op = iota
	OpRead
	OpWrite
	OpSync
	OpSyncDir
	OpAllocate // also Truncate
	OpRemove
	OpRename
	OpMkdir
	OpMap
	OpZero
)

// Fault lets calls fail: those of one kind on files whose base name matches Pattern (path.Match; empty: all), after Skip
// calls went well, Count times (0: for ever), with Err. A failed write leaves a part of its bytes; a failed sync leaves
// nothing to be synced later, as Linux does.
type Fault struct {
	Op      Op
	Pattern string
	Skip    int
	Count   int
	Err     error
	hits    int
}

// Fail adds a fault.
func (s *Sim) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Err == nil {
		f.Err = syscall.EIO
	}
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Sim) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Sim) faultLocked(op Op, name string) error {
	for _, f := range s.faults {
		if f.Op != op {
			continue
		}
		if f.Pattern != "" {
			if ok, err := path.Match(f.Pattern, path.Base(name)); err != nil || !ok {
				continue
			}
		}
		f.hits++
		if f.hits <= f.Skip || (f.Count > 0 && f.hits > f.Skip+f.Count) {
			continue
		}
		return fmt.Errorf("%s: %w", name, f.Err)
	}
	return nil
}

func sectors(n int) int { return (n + sector - 1) / sector }

func (n *inode) isDirty(i int) bool {
	return i/64 < len(n.dirty) && n.dirty[i/64]&(1<<(i%64)) != 0
}

func (n *inode) touch(from, to int) {
	for i := from / sector; i < sectors(to); i++ {
		n.dirty[i/64] |= 1 << (i % 64)
	}
}

func (n *inode) resize(size int64) {
	if size <= int64(cap(n.data)) {
		old := len(n.data)
		n.data = n.data[:size]
		if int(size) > old {
			clear(n.data[old:])
		}
	} else {
		data := make([]byte, size)
		copy(data, n.data)
		n.data = data
	}
	words := (sectors(int(size)) + 63) / 64
	for len(n.dirty) < words {
		n.dirty = append(n.dirty, 0)
	}
}

func (n *inode) sync() {
	if len(n.stable) != len(n.data) {
		stable := make([]byte, len(n.data))
		copy(stable, n.stable)
		n.stable = stable
	}
	for w, bits := range n.dirty {
		for b := 0; bits != 0; b, bits = b+1, bits>>1 {
			if bits&1 == 0 {
				continue
			}
			if from := (w*64 + b) * sector; from < len(n.data) {
				copy(n.stable[from:min(from+sector, len(n.data))], n.data[from:])
			}
		}
		n.dirty[w] = 0
	}
}

func (s *Sim) resizeLocked(name string, n *inode, size int64) error {
	if s.budget >= 0 && size > int64(len(n.data)) && s.usedLocked()+size-int64(len(n.data)) > s.budget {
		return fmt.Errorf("%s: %w", name, syscall.ENOSPC)
	}
	if n.mapped > 0 && size > int64(cap(n.data)) {
		return fmt.Errorf("%s: cannot grow while mapped", name)
	}
	n.resize(size)
	n.mtime = s.tickLocked()
	return nil
}

// simFile is an open file of a Sim.
type simFile struct {
	s        *Sim
	n        *inode
	name     string
	readOnly bool
	closed   bool
}

func (f *simFile) usableLocked() error {
	if f.closed {
		return fmt.Errorf("%s: %w", f.name, os.ErrClosed)
	}
	return nil
}

func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := errors.Join(f.usableLocked(), f.s.faultLocked(OpRead, f.name)); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *simFile) WriteAt(p []byte, off int64) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return 0, err
	}
	if f.readOnly {
		return 0, fmt.Errorf("%s: %w", f.name, syscall.EBADF)
	}
	fault := f.s.faultLocked(OpWrite, f.name)
	if fault != nil {
		p = p[:f.s.rng.IntN(len(p)+1)]
	}
	if end := off + int64(len(p)); end > int64(len(f.n.data)) {
		if err := f.s.resizeLocked(f.name, f.n, end); err != nil {
			return 0, err
		}
	}
	copy(f.n.data[off:], p)
	f.n.touch(int(off), int(off)+len(p))
	f.n.mtime = f.s.tickLocked()
	return len(p), fault
}

func (f *simFile) Datasync() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return err
	}
	if err := f.s.faultLocked(OpSync, f.name); err != nil {
		clear(f.n.dirty)
		return &SyncError{File: f.name, Err: err}
	}
	f.n.sync()
	return nil
}

func (f *simFile) Truncate(size int64) error { return f.setSize(size, false) }
func (f *simFile) Allocate(size int64) error { return f.setSize(size, true) }

func (f *simFile) setSize(size int64, onlyGrow bool) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := errors.Join(f.usableLocked(), f.s.faultLocked(OpAllocate, f.name)); err != nil {
		return err
	}
	if onlyGrow && size <= int64(len(f.n.data)) {
		return nil
	}
	return f.s.resizeLocked(f.name, f.n, size)
}

func (f *simFile) Size() (int64, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return int64(len(f.n.data)), f.usableLocked()
}

func (f *simFile) Zero(off, n int64) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := errors.Join(f.usableLocked(), f.s.faultLocked(OpZero, f.name)); err != nil {
		return err
	}
	end := min(off+n, int64(len(f.n.data)))
	if off < 0 || off >= end {
		return nil
	}
	clear(f.n.data[off:end])
	f.n.touch(int(off), int(end))
	return nil
}

func (f *simFile) NextData(off, size int64) (start, end int64, err error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for ; off < size && off < int64(len(f.n.data)); off++ {
		if f.n.data[off] != 0 {
			return off, min(size, int64(len(f.n.data))), f.usableLocked()
		}
	}
	return size, size, f.usableLocked()
}

func (f *simFile) Map(size int64) (Mapping, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := errors.Join(f.usableLocked(), f.s.faultLocked(OpMap, f.name)); err != nil {
		return nil, err
	}
	if size > int64(len(f.n.data)) {
		return nil, fmt.Errorf("%s: map of %d bytes, the file has %d", f.name, size, len(f.n.data))
	}
	f.n.mapped++
	return &simMapping{s: f.s, n: f.n, b: f.n.data[:size:size]}, nil
}

func (f *simFile) Fd() *os.File { return nil }

func (f *simFile) Close() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.usableLocked(); err != nil {
		return err
	}
	f.closed = true
	return nil
}

// simMapping is the file's own memory.
type simMapping struct {
	s *Sim
	n *inode
	b []byte
}

func (m *simMapping) Bytes() []byte               { return m.b }
func (m *simMapping) Advise(Advice, int64, int64) {}

func (m *simMapping) Resident(int64, int64) bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return !m.s.cold
}

func (m *simMapping) Unmap() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.b == nil {
		return errors.New("unmapped twice")
	}
	m.b = nil
	m.n.mapped--
	return nil
}

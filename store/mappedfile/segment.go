package mappedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Segment is one file of fixed length. Its owner holds one count; whoever reads or writes takes another with Acquire and
// gives it back with Release. One count guards both the map and the descriptor: Remove unlinks at once, and unmap and
// close happen when the count reaches zero. Descriptor and map are opened when first needed.
//
// Invariant: the length never changes while the segment is in use; a cut zeroes in place.
type Segment struct {
	fs       FS
	path     string
	base     int64 // offset of the first byte in the sequence
	size     int64
	advice   Advice
	readOnly bool

	refs    atomic.Int64 // 0: gone, trimming: Trim is closing
	dropped atomic.Bool  // the owner's count was given back
	read    atomic.Bool  // the map was asked for since the last UnmapIdle
	gone    chan struct{}

	file    atomic.Pointer[openFile]
	mapping atomic.Pointer[openMap]
	mu      sync.Mutex // opening and closing of file and mapping
}

type openFile struct{ File }
type openMap struct{ Mapping }

const trimming = -1

// NewSegment describes the existing file path of size bytes; it opens nothing. advice is given for every map of it.
func NewSegment(fsys FS, path string, base, size int64, advice Advice) *Segment {
	s := &Segment{fs: fsys, path: path, base: base, size: size, advice: advice, gone: make(chan struct{})}
	s.refs.Store(1)
	return s
}

// Base is the sequence offset of the first byte.
func (s *Segment) Base() int64 { return s.base }

// Size is the length in bytes.
func (s *Segment) Size() int64 { return s.size }

// End is the sequence offset behind the last byte.
func (s *Segment) End() int64 { return s.base + s.size }

// Path is the file's name.
func (s *Segment) Path() string { return s.path }

// ReadOnly reports whether the file lies in a folder that is not written.
func (s *Segment) ReadOnly() bool { return s.readOnly }

// ModTime is the time of the last change of the file, which drives retention.
func (s *Segment) ModTime() (time.Time, error) {
	st, err := s.fs.Stat(s.path)
	if err != nil {
		return time.Time{}, err
	}
	return st.ModTime(), nil
}

// Acquire adds a count; false when the segment is gone.
func (s *Segment) Acquire() bool {
	for {
		n := s.refs.Load()
		switch {
		case n == 0:
			return false
		case n == trimming:
			s.mu.Lock() // until Trim is done
			s.mu.Unlock()
		case s.refs.CompareAndSwap(n, n+1):
			return true
		}
	}
}

// Release gives a count back. The last one closes.
func (s *Segment) Release() {
	for {
		n := s.refs.Load()
		switch {
		case n == 0:
			panic("mappedfile: released more often than acquired: " + s.path)
		case n == trimming:
			s.mu.Lock() // until Trim is done
			s.mu.Unlock()
			continue
		case !s.refs.CompareAndSwap(n, n-1):
			continue
		}
		if n == 1 {
			s.mu.Lock()
			s.closeLocked()
			s.mu.Unlock()
			close(s.gone)
		}
		return
	}
}

// Gone is closed when the last count was given back.
func (s *Segment) Gone() <-chan struct{} { return s.gone }

// Close gives the owner's count back; the file stays. Twice is fine.
func (s *Segment) Close() {
	if !s.dropped.Swap(true) {
		s.Release()
	}
}

// Remove unlinks the file at once and gives the owner's count back. Readers that hold a count go on reading.
func (s *Segment) Remove() error {
	err := s.fs.Remove(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.Close()
	}
	return err
}

// Trim closes descriptor and map if only the owner holds a count, and reports whether it did. They are opened again when
// needed.
func (s *Segment) Trim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimLocked() {
		return false
	}
	s.closeLocked()
	s.refs.Store(1)
	return true
}

// CloseFile closes the descriptor and keeps the map, if only the owner holds a count.
func (s *Segment) CloseFile() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimLocked() {
		return false
	}
	if f := s.file.Swap(nil); f != nil {
		_ = f.Close() // nothing was written since the last sync that this could report
	}
	s.refs.Store(1)
	return true
}

// UnmapIdle ends the map, and with it the page tables that grew while it was read, if nobody asked for it since the last call and only the
// owner holds a count. It reports whether it did; the map is made again when needed. Writers are not disturbed: the descriptor stays.
func (s *Segment) UnmapIdle() bool {
	if s.read.Swap(false) || !s.Mapped() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimLocked() {
		return false
	}
	s.unmapLocked()
	s.refs.Store(1)
	return true
}

// claimLocked keeps everybody out if only the owner holds a count. A single count of a removed segment is a reader's.
func (s *Segment) claimLocked() bool {
	if !s.refs.CompareAndSwap(1, trimming) {
		return false
	}
	if s.dropped.Load() {
		s.refs.Store(1)
		return false
	}
	return true
}

func (s *Segment) unmapLocked() {
	if m := s.mapping.Swap(nil); m != nil {
		if err := m.Unmap(); err != nil {
			panic(fmt.Sprintf("mappedfile: unmap %s: %v", s.path, err))
		}
	}
}

func (s *Segment) closeLocked() {
	s.unmapLocked()
	if f := s.file.Swap(nil); f != nil {
		_ = f.Close() // durability is the business of Sync, which came before
	}
}

func (s *Segment) open() (File, error) {
	if f := s.file.Load(); f != nil {
		return f.File, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

func (s *Segment) openLocked() (File, error) {
	if f := s.file.Load(); f != nil {
		return f.File, nil
	}
	flag := os.O_RDWR
	if s.readOnly {
		flag = os.O_RDONLY
	}
	f, err := s.fs.OpenFile(s.path, flag, 0)
	if err != nil {
		return nil, err
	}
	s.file.Store(&openFile{f})
	return f, nil
}

// Bytes is the whole segment through its map, made when first asked for. It is valid while the caller holds a count and
// must not be written to.
func (s *Segment) Bytes() ([]byte, error) {
	m, err := s.mapped()
	if err != nil {
		return nil, err
	}
	return m.Bytes(), nil
}

func (s *Segment) mapped() (Mapping, error) {
	if !s.read.Load() { // a store for every view would pass the cache line around
		s.read.Store(true)
	}
	if m := s.mapping.Load(); m != nil {
		return m.Mapping, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mapping.Load(); m != nil {
		return m.Mapping, nil
	}
	f, err := s.openLocked()
	if err != nil {
		return nil, err
	}
	m, err := f.Map(s.size)
	if err != nil {
		return nil, err
	}
	if s.advice != AdviseNormal {
		m.Advise(s.advice, 0, s.size)
	}
	s.mapping.Store(&openMap{m})
	return m, nil
}

// Mapped reports whether a map exists now.
func (s *Segment) Mapped() bool { return s.mapping.Load() != nil }

// Resident reports whether [off, off+n) of the segment can be read through the map without waiting for the disk.
func (s *Segment) Resident(off, n int64) bool {
	m, err := s.mapped()
	return err == nil && m.Resident(off, n)
}

// Advise passes advice for [off, off+n) on, if the segment is mapped.
func (s *Segment) Advise(a Advice, off, n int64) {
	if m := s.mapping.Load(); m != nil {
		m.Advise(a, off, n)
	}
}

// Fd is the descriptor for sendfile, nil in a simulation.
func (s *Segment) Fd() (*os.File, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	return f.Fd(), nil
}

// ReadAt reads from the file, not through the map.
func (s *Segment) ReadAt(p []byte, off int64) (int, error) {
	f, err := s.open()
	if err != nil {
		return 0, err
	}
	if off < 0 || off >= s.size {
		return 0, io.EOF
	}
	if rest := s.size - off; int64(len(p)) > rest {
		n, err := f.ReadAt(p[:rest], off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	}
	return f.ReadAt(p, off)
}

// WriteAt writes all of p or fails; it never makes the file longer.
func (s *Segment) WriteAt(p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > s.size {
		return fmt.Errorf("write %s: %d bytes at %d are beyond its %d bytes", s.path, len(p), off, s.size)
	}
	f, err := s.open()
	if err != nil {
		return err
	}
	n, err := f.WriteAt(p, off)
	if err != nil {
		return fmt.Errorf("write %s at %d: %w", s.path, off+int64(n), err)
	}
	if n != len(p) {
		return fmt.Errorf("write %s at %d: %w", s.path, off, io.ErrShortWrite)
	}
	return nil
}

// Sync makes everything written durable. An error is a *SyncError and final.
func (s *Segment) Sync() error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return f.Datasync()
}

// Reserve makes sure that every block is allocated, for a file that another program may have left with holes.
func (s *Segment) Reserve() error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return f.Allocate(s.size)
}

// Zero makes [off, off+n) read as zero. It is durable after Sync.
func (s *Segment) Zero(off, n int64) error {
	f, err := s.open()
	if err != nil {
		return err
	}
	return f.Zero(off, n)
}

// LastData returns the position behind the last byte at or after off that is not zero, or off when all are zero. All ranges
// are asked for before the first is read: reading ahead brings blocks that were allocated and never written into the page
// cache, where they then count as data, up to the end of the file.
func (s *Segment) LastData(off int64) (int64, error) {
	f, err := s.open()
	if err != nil {
		return off, err
	}
	type span struct{ start, end int64 }
	var spans []span
	for at := off; at < s.size; {
		start, end, err := f.NextData(at, s.size)
		if err != nil {
			return off, err
		}
		if start = max(start, at); start < end {
			spans = append(spans, span{start, end})
		}
		if end <= at {
			break
		}
		at = end
	}
	buf := make([]byte, min(64<<10, s.size))
	for i := len(spans) - 1; i >= 0; i-- { // the last one with data decides
		last, err := s.lastByte(f, spans[i].start, spans[i].end, buf)
		if err != nil || last > spans[i].start {
			return last, err
		}
	}
	return off, nil
}

// lastByte returns the position behind the last byte in [start, end) that is not zero, or start.
func (s *Segment) lastByte(f File, start, end int64, buf []byte) (int64, error) {
	for end > start {
		p := buf[:min(int64(len(buf)), end-start)]
		at := end - int64(len(p))
		if n, err := f.ReadAt(p, at); err != nil && n < len(p) {
			return end, fmt.Errorf("read %s at %d: %w", s.path, at, err)
		}
		for i := len(p) - 1; i >= 0; i-- {
			if p[i] != 0 {
				return at + int64(i) + 1, nil
			}
		}
		end = at
	}
	return start, nil
}

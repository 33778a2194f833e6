package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// member is something a ring bounds. used is cleared when the hand of the ring passes.
type member interface {
	comparable
	usedFlag() *atomic.Bool
}

// ring bounds how many members are open by second chance: a use only sets a flag, so that hot paths take no lock.
type ring[M member] struct {
	limit int
	mu    sync.Mutex
	all   []M
	hand  int
}

// add takes m in and returns the members that must be closed for it; the caller closes them without a lock.
func (r *ring[M]) add(m M) (victims []M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.all) >= r.limit {
		v := r.nextLocked()
		victims = append(victims, v)
	}
	r.all = append(r.all, m)
	return victims
}

// nextLocked removes and returns the member that was not used for the longest round.
func (r *ring[M]) nextLocked() M {
	for {
		if r.hand >= len(r.all) {
			r.hand = 0
		}
		v := r.all[r.hand]
		if v.usedFlag().Swap(false) {
			r.hand++
			continue
		}
		last := len(r.all) - 1
		r.all[r.hand] = r.all[last]
		var none M
		r.all[last] = none
		r.all = r.all[:last]
		return v
	}
}

// drop takes m out, if it is in.
func (r *ring[M]) drop(m M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, v := range r.all {
		if v == m {
			last := len(r.all) - 1
			r.all[i] = r.all[last]
			var none M
			r.all[last] = none
			r.all = r.all[:last]
			return
		}
	}
}

func (r *ring[M]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// mapped is one mapped file of a queue.
type mapped struct {
	q     *Queue
	index int64 // file number
	m     mappedfile.Mapping
	used  atomic.Bool
	refs  int  // guarded by q.mu
	dead  bool // guarded by q.mu; out of q.maps, unmapped at refs 0
}

func (m *mapped) usedFlag() *atomic.Bool { return &m.used }
func (q *Queue) usedFlag() *atomic.Bool  { return &q.wused }

// errMissing says that a file of a queue does not exist.
var errMissing = errors.New("file missing")

// acquire returns the map of file index, counted; the caller releases it.
func (q *Queue) acquire(index int64) (*mapped, error) {
	if m := q.acquireOpen(index); m != nil {
		return m, nil
	}
	m, err := q.mapFile(index)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	for _, other := range q.maps {
		if other.index == index { // another reader was faster
			other.refs++
			q.mu.Unlock()
			return other, m.m.Unmap()
		}
	}
	m.refs = 1
	m.used.Store(true)
	q.maps = append(q.maps, m)
	q.mu.Unlock()
	for _, v := range q.t.maps.add(m) {
		if err := v.q.unmap(v); err != nil {
			return nil, errors.Join(err, q.releaseMap(m))
		}
	}
	return m, nil
}

func (q *Queue) acquireOpen(index int64) *mapped {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.maps {
		if m.index == index {
			m.refs++
			m.used.Store(true)
			return m
		}
	}
	return nil
}

// mapFile opens and maps a file; the descriptor is closed at once.
func (q *Queue) mapFile(index int64) (*mapped, error) {
	name := q.fileName(index)
	f, err := q.t.fs.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errMissing
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size == 0 {
		return nil, errors.Join(errMissing, f.Close())
	}
	if err == nil && size != q.t.fileSize() {
		err = &mappedfile.CorruptError{File: name, Offset: -1,
			Reason: fmt.Sprintf("has %d bytes instead of the %d of mappedFileSizeConsumeQueue", size, q.t.fileSize())}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m, err := f.Map(size)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.Advise(mappedfile.AdviseRandom, 0, size)
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, m.Unmap())
	}
	return &mapped{q: q, index: index, m: m}, nil
}

// releaseMap gives back what acquire returned.
func (q *Queue) releaseMap(m *mapped) error {
	q.mu.Lock()
	m.refs--
	last := m.dead && m.refs == 0
	q.mu.Unlock()
	if last {
		return m.m.Unmap()
	}
	return nil
}

// unmap ends a map that the ring has given up; readers that hold it end first.
func (q *Queue) unmap(m *mapped) error {
	q.mu.Lock()
	if m.dead {
		q.mu.Unlock()
		return nil
	}
	m.dead = true
	for i, other := range q.maps {
		if other == m {
			q.maps = append(q.maps[:i], q.maps[i+1:]...)
			break
		}
	}
	idle := m.refs == 0
	q.mu.Unlock()
	if idle {
		return m.m.Unmap()
	}
	return nil
}

// unmapRange ends the maps of the files with numbers in [from, to).
func (q *Queue) unmapRange(from, to int64) error {
	q.mu.Lock()
	var gone []*mapped
	for _, m := range q.maps {
		if m.index >= from && m.index < to {
			gone = append(gone, m)
		}
	}
	q.mu.Unlock()
	var errs []error
	for _, m := range gone {
		q.t.maps.drop(m)
		errs = append(errs, q.unmap(m))
	}
	return errors.Join(errs...)
}

// writer returns the file with number index, open for writing and of full length. The caller holds q.w.
func (q *Queue) writer(index int64) (mappedfile.File, error) {
	q.wused.Store(true)
	if q.wfile != nil && q.windex == index {
		return q.wfile, nil
	}
	if err := q.closeWriter(); err != nil {
		return nil, err
	}
	f, err := q.openWrite(index)
	if err != nil {
		return nil, err
	}
	q.wfile, q.windex = f, index
	for _, v := range q.t.files.add(q) {
		if v == q {
			continue
		}
		if !v.w.TryLock() { // in use: it stays open beyond the limit until its own next change of file
			continue
		}
		err := v.closeFile()
		v.w.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (q *Queue) openWrite(index int64) (mappedfile.File, error) {
	name := q.fileName(index)
	f, err := q.t.fs.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if !q.haveDir {
			if err := q.makeDir(); err != nil {
				return nil, err
			}
		}
		q.newFiles = true
		f, err = q.t.fs.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, err
	}
	q.haveDir = true
	size, err := f.Size()
	switch {
	case err != nil:
	case size == 0:
		err = f.Truncate(q.t.fileSize())
	case size != q.t.fileSize():
		err = &mappedfile.CorruptError{File: name, Offset: -1,
			Reason: fmt.Sprintf("has %d bytes instead of the %d of mappedFileSizeConsumeQueue", size, q.t.fileSize())}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// dirMaker makes one folder without making it durable; the next flush does.
type dirMaker interface {
	Mkdir(name string, perm fs.FileMode) error
}

// makeDir makes the folder of the queue. A new folder need not be durable before a flush, and thousands of queues may come
// at once.
func (q *Queue) makeDir() error {
	m, ok := q.t.fs.(dirMaker)
	if !ok {
		return q.t.fs.MkdirAll(q.dir, 0o755)
	}
	err := m.Mkdir(q.dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = m.Mkdir(filepath.Dir(q.dir), 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			err = m.Mkdir(q.dir, 0o755)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// closeWriter closes the file that is open for writing. The caller holds q.w.
func (q *Queue) closeWriter() error {
	if q.wfile == nil {
		return nil
	}
	q.t.files.drop(q)
	return q.closeFile()
}

func (q *Queue) closeFile() error {
	if q.wfile == nil {
		return nil
	}
	f := q.wfile
	q.wfile = nil
	return f.Close()
}

func (q *Queue) fileName(index int64) string {
	return filepath.Join(q.dir, FileName(index*q.t.fileSize()))
}

// FileName is the name of the file that starts at byte position at of its queue.
func FileName(at int64) string { return fmt.Sprintf("%020d", at) }

// fileOf is the number of the file that holds offset at.
func (q *Queue) fileOf(at message.QueueOffset) int64 { return int64(at) / q.t.perFile }

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package mappedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// Config describes a Sequence.
type Config struct {
	Paths       []string               // writable folders, at least one; created with the first segment
	ReadOnly    []string               // folders whose segments are read and dropped, never written
	SegmentSize int64                  // bytes, > 0
	Sparse      bool                   // new segments may have holes
	NoSync      bool                   // new segments are not synced: for files that can be rebuilt
	Advice      Advice                 // for every map
	Full        func(path string) bool // folders to avoid for new segments; nil: none
}

// Gap is a hole between two neighbouring segments.
type Gap struct{ From, To int64 }

// Sequence is the ordered segments of one log or queue, named by the offset of their first byte, in one folder or spread
// over several. One goroutine at a time changes it (Prepare may run beside); any number of others Find.
type Sequence struct {
	fs  FS
	cfg Config

	list atomic.Pointer[[]*Segment] // ascending by base; replaced, never changed in place

	mu       sync.Mutex    // never held over I/O
	ready    *Segment      // prepared, not yet in the list
	making   chan struct{} // closed when the attempt under way ends; nil when there is none
	closed   bool
	inFlight sync.WaitGroup
}

// OpenSequence lists the folders and checks what is there: the names are numbers of 20 digits, multiples of the segment
// size; every file has the full length. An empty file behind all others is what a crash between create and allocate leaves:
// it is removed. Anything else is a *CorruptError that names the file, and nothing is changed. Holes are allowed, see Gaps.
func OpenSequence(fsys FS, cfg Config) (*Sequence, error) {
	if len(cfg.Paths) == 0 || cfg.SegmentSize <= 0 {
		return nil, fmt.Errorf("open sequence: %d folders, segment size %d", len(cfg.Paths), cfg.SegmentSize)
	}
	cfg.Paths = slices.Clone(cfg.Paths)
	slices.Sort(cfg.Paths)
	q := &Sequence{fs: fsys, cfg: cfg}
	list, err := q.load()
	if err != nil {
		return nil, err
	}
	q.list.Store(&list)
	return q, nil
}

func (q *Sequence) load() ([]*Segment, error) {
	var list []*Segment
	lengths := map[*Segment]int64{}
	seen := map[string]bool{}
	for i, folder := range slices.Concat(q.cfg.Paths, q.cfg.ReadOnly) {
		if folder = filepath.Clean(folder); seen[folder] {
			continue
		}
		seen[folder] = true
		entries, err := q.fs.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			path := filepath.Join(folder, e.Name())
			base, ok := ParseName(e.Name())
			if !ok {
				return nil, &CorruptError{path, -1, "not a segment: its name is no 20-digit offset; move it away"}
			}
			if base%q.cfg.SegmentSize != 0 {
				return nil, &CorruptError{path, -1, fmt.Sprintf("its name is no multiple of the segment size %d", q.cfg.SegmentSize)}
			}
			info, err := e.Info()
			if err != nil {
				return nil, err
			}
			s := NewSegment(q.fs, path, base, q.cfg.SegmentSize, q.cfg.Advice)
			s.readOnly = i >= len(q.cfg.Paths)
			lengths[s] = info.Size()
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Segment) int {
		switch {
		case a.base < b.base:
			return -1
		case a.base > b.base:
			return 1
		}
		return 0
	})
	return q.check(list, lengths)
}

func (q *Sequence) check(list []*Segment, lengths map[*Segment]int64) ([]*Segment, error) {
	for i, s := range list {
		if i > 0 && list[i-1].base == s.base {
			return nil, &CorruptError{s.path, -1, "the same segment exists as " + list[i-1].path}
		}
		n := lengths[s]
		if n == q.cfg.SegmentSize || (n == 0 && i == len(list)-1) {
			continue
		}
		return nil, &CorruptError{s.path, -1, fmt.Sprintf("length %d, expected %d", n, q.cfg.SegmentSize)}
	}
	if n := len(list); n > 0 && lengths[list[n-1]] == 0 {
		last := list[n-1]
		if err := last.Remove(); err != nil {
			return nil, err
		}
		if err := q.fs.SyncDir(filepath.Dir(last.path)); err != nil {
			return nil, err
		}
		list = list[:n-1]
	}
	return list, nil
}

// Name is the file name of an offset.
func Name(base int64) string { return fmt.Sprintf("%020d", base) }

// ParseName is the offset in a file name of 20 digits.
func ParseName(name string) (int64, bool) {
	if len(name) != 20 {
		return 0, false
	}
	var v int64
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c < '0' || c > '9' || v > (1<<63-1-9)/10 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// SegmentSize is the length of each segment in bytes.
func (q *Sequence) SegmentSize() int64 { return q.cfg.SegmentSize }

// Segments is the present list, ascending. It must not be changed; its members may go any time unless acquired.
func (q *Sequence) Segments() []*Segment { return *q.list.Load() }

// First is the segment with the lowest offset, nil when there is none. The caller gets no count.
func (q *Sequence) First() *Segment {
	if l := q.Segments(); len(l) > 0 {
		return l[0]
	}
	return nil
}

// Last is the segment with the highest offset, nil when there is none. The caller gets no count.
func (q *Sequence) Last() *Segment {
	if l := q.Segments(); len(l) > 0 {
		return l[len(l)-1]
	}
	return nil
}

// Min is the lowest offset that exists, 0 when there is no segment.
func (q *Sequence) Min() int64 {
	if s := q.First(); s != nil {
		return s.base
	}
	return 0
}

// End is the offset behind the last segment, 0 when there is none.
func (q *Sequence) End() int64 {
	if s := q.Last(); s != nil {
		return s.End()
	}
	return 0
}

// Find returns the segment that holds off, with a count that the caller must give back, or nil.
func (q *Sequence) Find(off int64) *Segment {
	s := find(q.Segments(), off)
	if s == nil || !s.Acquire() {
		return nil
	}
	return s
}

func find(list []*Segment, off int64) *Segment {
	if len(list) == 0 || off < list[0].base {
		return nil
	}
	i := (off - list[0].base) / list[0].size
	if i < int64(len(list)) && list[i].base <= off && off < list[i].End() {
		return list[i]
	}
	i = int64(upper(list, off)) - 1 // a hole lies before it
	if i >= 0 && off < list[i].End() {
		return list[i]
	}
	return nil
}

// upper is the index of the first segment that starts above off.
func upper(list []*Segment, off int64) int {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := (lo + hi) / 2
		if list[mid].base > off {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// After returns the first segment that starts at or above off, with a count, or nil.
func (q *Sequence) After(off int64) *Segment {
	for {
		list := q.Segments()
		i := upper(list, off-1)
		if i >= len(list) {
			return nil
		}
		if list[i].Acquire() {
			return list[i]
		}
	}
}

// Gaps lists the holes between segments.
func (q *Sequence) Gaps() []Gap {
	var gaps []Gap
	list := q.Segments()
	for i := 1; i < len(list); i++ {
		if from, to := list[i-1].End(), list[i].base; from != to {
			gaps = append(gaps, Gap{from, to})
		}
	}
	return gaps
}

// Prepare creates the segment at base, so that a following Next needs no I/O; it waits when another call is doing so, and
// does nothing when the segment is in the list already.
// base must be a multiple of the segment size.
func (q *Sequence) Prepare(base int64) error {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return ErrClosed
		}
		if q.readyLocked(base) {
			q.mu.Unlock()
			return nil
		}
		if done := q.making; done != nil {
			q.mu.Unlock()
			<-done
			continue
		}
		stale := q.claimLocked()
		q.mu.Unlock()
		return q.make(base, stale)
	}
}

// PrepareAsync starts Prepare in a goroutine that Close waits for, unless one is under way. Its error shows up in the next
// Prepare, which tries again.
func (q *Sequence) PrepareAsync(base int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.making != nil || q.readyLocked(base) {
		return
	}
	stale := q.claimLocked()
	go func() {
		_ = q.make(base, stale) // the writer that needs the segment meets the same error itself
	}()
}

// readyLocked reports that the segment at base is prepared, or in the list already because the caller is late.
func (q *Sequence) readyLocked(base int64) bool {
	return (q.ready != nil && q.ready.base == base) || find(q.Segments(), base) != nil
}

// claimLocked makes the caller the one that creates; it must call make.
func (q *Sequence) claimLocked() (stale *Segment) {
	stale = q.ready
	q.ready = nil
	q.making = make(chan struct{})
	q.inFlight.Add(1)
	return stale
}

func (q *Sequence) make(base int64, stale *Segment) error {
	defer q.inFlight.Done()
	err := q.discard(stale)
	var s *Segment
	if err == nil {
		s, err = q.create(base)
	}
	q.mu.Lock()
	done := q.making
	q.ready, q.making = s, nil
	q.mu.Unlock()
	close(done)
	return err
}

// Next puts the prepared segment at base into the list, without I/O; false when it is not prepared.
func (q *Sequence) Next(base int64) (*Segment, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.ready
	if s == nil || s.base != base {
		return nil, false
	}
	list := q.Segments()
	if n := len(list); n > 0 && s.base < list[n-1].End() {
		return nil, false
	}
	q.ready = nil
	list = append(slices.Clone(list), s)
	q.list.Store(&list)
	return s, true
}

// Append creates the segment at base and puts it into the list.
func (q *Sequence) Append(base int64) (*Segment, error) {
	if err := q.Prepare(base); err != nil {
		return nil, err
	}
	s, ok := q.Next(base)
	if !ok {
		return nil, fmt.Errorf("append segment %s: it does not follow %d", Name(base), q.End())
	}
	return s, nil
}

func (q *Sequence) folder(base int64) string {
	candidates := q.cfg.Paths
	if q.cfg.Full != nil {
		candidates = nil
		for _, p := range q.cfg.Paths {
			if !q.cfg.Full(p) {
				candidates = append(candidates, p)
			}
		}
		if len(candidates) == 0 {
			candidates = q.cfg.Paths
		}
	}
	return candidates[(base/q.cfg.SegmentSize)%int64(len(candidates))]
}

// create makes the file, and makes it durable before any byte in it can count as flushed: length first, then the entry.
func (q *Sequence) create(base int64) (*Segment, error) {
	if base < 0 || base%q.cfg.SegmentSize != 0 {
		return nil, fmt.Errorf("create segment: %d is no multiple of %d", base, q.cfg.SegmentSize)
	}
	folder := q.folder(base)
	if err := q.fs.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, Name(base))
	f, err := q.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if q.cfg.Sparse {
		err = f.Truncate(q.cfg.SegmentSize)
	} else {
		err = f.Allocate(q.cfg.SegmentSize)
	}
	if err == nil && !q.cfg.NoSync {
		if err = f.Datasync(); err == nil {
			err = q.fs.SyncDir(folder)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create segment %s: %w", path, errors.Join(err, f.Close(), q.fs.Remove(path)))
	}
	s := NewSegment(q.fs, path, base, q.cfg.SegmentSize, q.cfg.Advice)
	s.file.Store(&openFile{f})
	return s, nil
}

func (q *Sequence) discard(s *Segment) error {
	if s == nil {
		return nil
	}
	return s.Remove()
}

// DropFront removes the segments that end at or below off, oldest first, except the last one, at most limit of them
// (limit <= 0: all). Readers keep what they hold. It returns how many went.
func (q *Sequence) DropFront(off int64, limit int) (int, error) {
	n := 0
	var err error
	folders := map[string]bool{}
	for {
		list := q.Segments()
		if len(list) < 2 || list[0].End() > off || (limit > 0 && n == limit) {
			break
		}
		s := list[0]
		q.setList(func(l []*Segment) []*Segment { return l[1:] })
		if err = s.Remove(); err != nil {
			q.setList(func(l []*Segment) []*Segment { return append([]*Segment{s}, l...) })
			break
		}
		folders[filepath.Dir(s.path)] = true
		n++
	}
	return n, errors.Join(err, q.syncFolders(folders))
}

// DropBack removes the segments that start at or above off and a prepared one, newest first and durably one by one, so
// that a crash leaves no hole.
func (q *Sequence) DropBack(off int64) error {
	if err := q.DropPrepared(); err != nil {
		return err
	}
	for {
		s := q.Last()
		if s == nil || s.base < off {
			return nil
		}
		q.setList(func(l []*Segment) []*Segment { return l[:len(l)-1] })
		if err := s.Remove(); err != nil {
			q.setList(func(l []*Segment) []*Segment { return append(l, s) })
			return err
		}
		if q.cfg.NoSync {
			continue
		}
		if err := q.fs.SyncDir(filepath.Dir(s.path)); err != nil {
			return err
		}
	}
}

// DropPrepared removes a segment that was prepared and not used.
func (q *Sequence) DropPrepared() error {
	for {
		q.mu.Lock()
		s, done := q.ready, q.making
		if done == nil {
			q.ready = nil
			q.mu.Unlock()
			return q.discard(s)
		}
		q.mu.Unlock()
		<-done
	}
}

// Renew replaces the segment that holds off by a fresh one over the same file. Views of the old one stay valid; its Gone
// tells when the last has ended. The old one is returned, nil when no segment holds off.
func (q *Sequence) Renew(off int64) *Segment {
	old := find(q.Segments(), off)
	if old == nil {
		return nil
	}
	fresh := NewSegment(q.fs, old.path, old.base, old.size, old.advice)
	fresh.readOnly = old.readOnly
	q.setList(func(l []*Segment) []*Segment {
		l[slices.Index(l, old)] = fresh
		return l
	})
	old.Close()
	return old
}

// setList gives change a copy of the list and publishes what it returns.
func (q *Sequence) setList(change func([]*Segment) []*Segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := change(slices.Clone(q.Segments()))
	q.list.Store(&list)
}

func (q *Sequence) syncFolders(folders map[string]bool) error {
	if q.cfg.NoSync {
		return nil
	}
	var errs []error
	for f := range folders {
		errs = append(errs, q.fs.SyncDir(f))
	}
	return errors.Join(errs...)
}

// Sync makes every segment durable that overlaps [from, to).
func (q *Sequence) Sync(from, to int64) error {
	for off := from; off < to; {
		s := q.Find(off)
		if s == nil {
			if s = q.After(off); s == nil {
				return nil
			}
		}
		err := error(nil)
		if s.base < to {
			err = s.Sync()
		}
		off = s.End()
		s.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// Close waits for a preparation under way, removes an unused prepared segment and gives every segment back. Readers keep
// what they hold. Twice is fine.
func (q *Sequence) Close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.inFlight.Wait()
	err := q.DropPrepared()
	for _, s := range q.Segments() {
		s.Close()
	}
	return err
}

// Destroy closes the sequence and removes all its files. The folders stay.
func (q *Sequence) Destroy() error {
	err := q.Close()
	list := q.Segments()
	folders := map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		err = errors.Join(err, list[i].Remove())
		folders[filepath.Dir(list[i].path)] = true
	}
	return errors.Join(err, q.syncFolders(folders))
}

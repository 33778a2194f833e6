package mappedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Sim is a file system in memory that knows what is durable: content that was synced, and entries of folders that were
// synced. Crash gives the file system as a power cut would leave it, Kill as a killed process would. It injects errors. It
// is the double of OS for tests; folders are durable when made.
type Sim struct {
	mu     sync.Mutex
	rng    *rand.Rand
	dirs   map[string]bool
	files  map[string]*inode // as seen now
	stable map[string]*inode // the durable entries
	undone []entryOp         // changes of entries that are not durable, in order
	locks  map[string]bool
	faults []*Fault
	budget int64 // bytes that may be allocated, < 0: any
	torn   bool
	cold   bool
	now    int64
}

// inode is a file's content. Several entries may share it.
type inode struct {
	data   []byte
	stable []byte   // as of the last sync
	dirty  []uint64 // a bit per sector written since
	mapped int
	mtime  int64
}

const sector = 512 // what a disk writes as one

// entryOp is one change of one or two entries; node nil: a removal.
type entryOp struct {
	name string
	node *inode
	from string // of a rename
}

// NewSim returns an empty file system. The seed drives what a torn crash keeps.
func NewSim(seed uint64) *Sim {
	return &Sim{
		rng:  rand.New(rand.NewPCG(seed, 0x5EED)),
		dirs: map[string]bool{"/": true, ".": true}, files: map[string]*inode{}, stable: map[string]*inode{},
		locks: map[string]bool{}, budget: -1,
	}
}

// SetTorn makes Crash keep a random part of what was not synced, sector by sector, and a random prefix of the changes of
// entries, instead of nothing.
func (s *Sim) SetTorn(torn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.torn = torn
}

// SetSpace limits what files may hold together, in bytes; < 0: no limit.
func (s *Sim) SetSpace(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget = bytes
}

// SetCold makes every map report that its pages are not in memory.
func (s *Sim) SetCold(cold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cold = cold
}

// Crash returns the file system after a power cut at this moment. The old one goes on by itself and should be left alone.
func (s *Sim) Crash() *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := NewSim(s.rng.Uint64())
	c.dirs, c.torn, c.budget, c.now = cloneMap(s.dirs), s.torn, s.budget, s.now
	entries := cloneMap(s.stable)
	if s.torn && len(s.undone) > 0 {
		for _, op := range s.undone[:s.rng.IntN(len(s.undone)+1)] {
			op.apply(entries)
		}
	}
	made := map[*inode]*inode{}
	for _, name := range sortedKeys(entries) {
		old := entries[name]
		if made[old] == nil {
			made[old] = s.survivor(old)
		}
		c.files[name], c.stable[name] = made[old], made[old]
	}
	return c
}

func (s *Sim) survivor(old *inode) *inode {
	n := &inode{data: slices.Clone(old.stable), mtime: old.mtime}
	if s.torn {
		if len(old.data) != len(n.data) && s.rng.IntN(2) == 0 {
			n.resize(int64(len(old.data)))
		}
		for i := range sectors(len(old.data)) {
			if old.isDirty(i) && s.rng.IntN(2) == 0 {
				if from := i * sector; from < len(n.data) {
					copy(n.data[from:min(from+sector, len(n.data))], old.data[from:])
				}
			}
		}
	}
	n.stable = slices.Clone(n.data)
	n.dirty = make([]uint64, (sectors(len(n.data))+63)/64)
	return n
}

// Kill returns the file system as it is after the process died: everything written is there, locks are gone. What is
// durable stays as it was.
func (s *Sim) Kill() *Sim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := NewSim(s.rng.Uint64())
	c.dirs, c.torn, c.budget, c.now = cloneMap(s.dirs), s.torn, s.budget, s.now
	made := map[*inode]*inode{}
	dup := func(old *inode) *inode {
		if old == nil {
			return nil
		}
		if made[old] == nil {
			made[old] = &inode{data: slices.Clone(old.data), stable: slices.Clone(old.stable), dirty: slices.Clone(old.dirty), mtime: old.mtime}
		}
		return made[old]
	}
	for name, n := range s.files {
		c.files[name] = dup(n)
	}
	for name, n := range s.stable {
		c.stable[name] = dup(n)
	}
	for _, op := range s.undone {
		c.undone = append(c.undone, entryOp{op.name, dup(op.node), op.from})
	}
	return c
}

func (op entryOp) apply(entries map[string]*inode) {
	if op.from != "" {
		delete(entries, op.from)
	}
	if op.node == nil {
		delete(entries, op.name)
	} else {
		entries[op.name] = op.node
	}
}

func (s *Sim) changeLocked(op entryOp) {
	op.apply(s.files)
	s.undone = append(s.undone, op)
}

func clean(name string) string { return path.Clean(filepath.ToSlash(name)) }

func notFound(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// OpenFile opens or creates a file; its folder must exist.
func (s *Sim) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpOpen, name); err != nil {
		return nil, err
	}
	n := s.files[name]
	switch {
	case s.dirs[name]:
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case n == nil && (flag&os.O_CREATE == 0 || !s.dirs[path.Dir(name)]):
		return nil, notFound("open", name)
	case n == nil:
		n = &inode{mtime: s.tickLocked()}
		s.changeLocked(entryOp{name: name, node: n})
	case flag&os.O_TRUNC != 0:
		if err := s.resizeLocked(name, n, 0); err != nil {
			return nil, err
		}
	}
	return &simFile{s: s, n: n, name: name, readOnly: flag&(os.O_WRONLY|os.O_RDWR) == 0}, nil
}

// Remove unlinks a file or an empty folder.
func (s *Sim) Remove(name string) error {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpRemove, name); err != nil {
		return err
	}
	if s.dirs[name] {
		for n := range s.files {
			if strings.HasPrefix(n, name+"/") {
				return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
			}
		}
		delete(s.dirs, name)
		return nil
	}
	if s.files[name] == nil {
		return notFound("remove", name)
	}
	s.changeLocked(entryOp{name: name})
	return nil
}

// Rename replaces newName.
func (s *Sim) Rename(oldName, newName string) error {
	oldName, newName = clean(oldName), clean(newName)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpRename, oldName); err != nil {
		return err
	}
	n := s.files[oldName]
	if n == nil || !s.dirs[path.Dir(newName)] {
		return notFound("rename", oldName)
	}
	s.changeLocked(entryOp{name: newName, node: n, from: oldName})
	return nil
}

// Link gives a file a second name.
func (s *Sim) Link(oldName, newName string) error {
	oldName, newName = clean(oldName), clean(newName)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.files[oldName]
	switch {
	case n == nil:
		return notFound("link", oldName)
	case s.files[newName] != nil:
		return &fs.PathError{Op: "link", Path: newName, Err: fs.ErrExist}
	}
	s.changeLocked(entryOp{name: newName, node: n})
	return nil
}

// MkdirAll creates a folder and its parents, durably.
func (s *Sim) MkdirAll(name string, _ fs.FileMode) error {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpMkdir, name); err != nil {
		return err
	}
	for ; !s.dirs[name]; name = path.Dir(name) {
		if s.files[name] != nil {
			return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
		}
		s.dirs[name] = true
	}
	return nil
}

// ReadDir lists a folder.
func (s *Sim) ReadDir(name string) ([]fs.DirEntry, error) {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirs[name] {
		return nil, notFound("readdir", name)
	}
	var list []fs.DirEntry
	for d := range s.dirs {
		if d != name && path.Dir(d) == name {
			list = append(list, simInfo{name: path.Base(d), dir: true})
		}
	}
	for f, n := range s.files {
		if path.Dir(f) == name {
			list = append(list, simInfo{name: path.Base(f), size: int64(len(n.data)), mtime: n.mtime})
		}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// Stat describes a file or folder.
func (s *Sim) Stat(name string) (fs.FileInfo, error) {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs[name] {
		return simInfo{name: path.Base(name), dir: true}, nil
	}
	n := s.files[name]
	if n == nil {
		return nil, notFound("stat", name)
	}
	return simInfo{name: path.Base(name), size: int64(len(n.data)), mtime: n.mtime}, nil
}

// ReadFile returns a copy of the content.
func (s *Sim) ReadFile(name string) ([]byte, error) {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpRead, name); err != nil {
		return nil, err
	}
	n := s.files[name]
	if n == nil {
		return nil, notFound("open", name)
	}
	return slices.Clone(n.data), nil
}

// WriteFile creates or truncates a file, writes and syncs it.
func (s *Sim) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := s.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir makes the entries of one folder durable.
func (s *Sim) SyncDir(name string) error {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpSyncDir, name); err != nil {
		return &SyncError{File: name, Err: err}
	}
	if !s.dirs[name] {
		return notFound("open", name)
	}
	s.undone = slices.DeleteFunc(s.undone, func(op entryOp) bool {
		if path.Dir(op.name) != name {
			return false
		}
		op.apply(s.stable)
		return true
	})
	return nil
}

// SyncFS makes everything durable.
func (s *Sim) SyncFS(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.faultLocked(OpSync, clean(name)); err != nil {
		return &SyncError{File: name, Err: err}
	}
	for _, op := range s.undone {
		op.apply(s.stable)
	}
	s.undone = nil
	for _, n := range s.files {
		n.sync()
	}
	return nil
}

// Usage is the budget of SetSpace and what is left of it.
func (s *Sim) Usage(string) (total, avail int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.usedLocked()
	if s.budget < 0 {
		return used + 1<<40, 1 << 40, nil
	}
	return s.budget, max(s.budget-used, 0), nil
}

func (s *Sim) usedLocked() int64 {
	var sum int64
	seen := map[*inode]bool{}
	for _, n := range s.files {
		if !seen[n] {
			seen[n] = true
			sum += int64(len(n.data))
		}
	}
	return sum
}

// Lock locks a file against other calls of Lock.
func (s *Sim) Lock(name string) (io.Closer, error) {
	name = clean(name)
	s.mu.Lock()
	held := s.locks[name]
	if !held {
		s.locks[name] = true
	}
	s.mu.Unlock()
	if held {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	l := &simLock{s: s, name: name}
	if err := s.WriteFile(name, []byte("lock"), 0o644); err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, errors.Join(err, l.Close()))
	}
	return l, nil
}

type simLock struct {
	s    *Sim
	name string
	once sync.Once
}

func (l *simLock) Close() error {
	l.once.Do(func() {
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		delete(l.s.locks, l.name)
	})
	return nil
}

// Damage overwrites bytes of a file durably, as a fault of the disk would. It is for tests.
func (s *Sim) Damage(name string, off int64, p []byte) error {
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.files[name]
	if n == nil || off < 0 || off+int64(len(p)) > int64(len(n.data)) {
		return notFound("damage", name)
	}
	copy(n.data[off:], p)
	if off+int64(len(p)) <= int64(len(n.stable)) {
		copy(n.stable[off:], p)
	}
	return nil
}

func (s *Sim) tickLocked() int64 {
	s.now++
	return s.now
}

func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// simInfo is both entry and info.
type simInfo struct {
	name  string
	size  int64
	mtime int64
	dir   bool
}

func (i simInfo) Name() string               { return i.name }
func (i simInfo) Size() int64                { return i.size }
func (i simInfo) IsDir() bool                { return i.dir }
func (i simInfo) Sys() any                   { return nil }
func (i simInfo) ModTime() time.Time         { return time.Unix(i.mtime, 0) }
func (i simInfo) Info() (fs.FileInfo, error) { return i, nil }
func (i simInfo) Type() fs.FileMode          { return i.Mode().Type() }
func (i simInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

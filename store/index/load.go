package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// LoadOptions say what is known of the files.
type LoadOptions struct {
	Clean bool   // the last run, of this or a Java broker, ended in order: all files are right
	State *State // of a recovery mark that matches the log; nil when there is none. Not used after a clean end
	// SafeTime is the indexMsgTimestamp of the checkpoint file: without a mark, files that end later are not trusted.
	SafeTime int64
}

// Report is what Load found.
type Report struct {
	Files   int
	Removed []string // files that were deleted because their content is not known to be right
	// Rebuild is the log offset at or below which puts must begin again: the start of the last message that the files know.
	// math.MaxInt64 after a clean end, when nothing is missing.
	Rebuild message.LogOffset
	// SafeTime is the most that indexMsgTimestamp of the checkpoint file may be before the next Flush. When it is lower than
	// what the file says, the file must be written before anything is put: files built again would pass for flushed ones.
	SafeTime int64
}

// Load finds the files on disk. Without a clean end, files above what a mark or the checkpoint vouches for are deleted, to
// be built again from the log; the newest file that stays is shortened to the mark's count, and Repair must follow.
func (x *Index) Load(opt LoadOptions) (Report, error) {
	x.p.Lock()
	defer x.p.Unlock()
	x.w.Lock()
	defer x.w.Unlock()
	rep := Report{Rebuild: math.MaxInt64}
	files, err := x.list()
	if err != nil {
		return rep, err
	}
	keep := len(files)
	partial := false // the last kept file is cut to the state's count
	for i := range files {
		trusted, cut, err := x.judge(&files[i], opt)
		if err != nil {
			return rep, err
		}
		if !trusted {
			keep = i
			break
		}
		partial = partial || cut
	}
	for _, f := range files[keep:] {
		if err := x.remove(f.name); err != nil {
			return rep, err
		}
		rep.Removed = append(rep.Removed, f.name)
	}
	if len(rep.Removed) > 0 {
		if err := x.fs.SyncDir(x.dir); err != nil {
			return rep, err
		}
	}
	x.adopt(files[:keep], opt.Clean, partial)
	rep.Files, rep.SafeTime = keep, opt.SafeTime
	if !opt.Clean || keep < len(files) {
		rep.SafeTime = min(rep.SafeTime, x.disk.EndTime)
	}
	x.flushedTime = rep.SafeTime
	s := opt.State
	switch {
	case opt.Clean && keep == len(files):
		return rep, nil
	case !opt.Clean && s != nil && (partial || s.File == "" && keep == 0):
		x.last, x.done.Last = s.Last, s.Last
		rep.Rebuild = max(s.Last, 0)
	default: // the next file, now gone, may have held other keys of the last message: it is put again
		rep.Rebuild = max(x.last, 0)
		x.last, x.done.Last = x.last-1, x.last-1
	}
	return rep, nil
}

// adopt makes files the content of the index. The caller holds w.
func (x *Index) adopt(files []file, clean, partial bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.files, x.last, x.disk, x.done = nil, -1, Header{Count: 1}, State{EndLog: -1, Last: -1}
	for i := range files {
		x.files = append(x.files, &files[i])
		if !clean { // a killed broker may have left them in the page cache only
			x.unsynced = append(x.unsynced, files[i].name)
		}
	}
	if n := len(files); n > 0 {
		h := files[n-1].h
		x.disk = h
		if h.Count > 1 || h.EndLog > 0 {
			x.last = h.EndLog
		}
		x.done = State{File: files[n-1].name, Count: h.Count, EndLog: h.EndLog, EndTime: h.EndTime, Last: x.last}
	}
	x.pending.base = x.disk.Count
	x.repaired = !partial
}

// judge says whether a file is kept; cut, that its header was set back to the state of the mark.
func (x *Index) judge(f *file, opt LoadOptions) (trusted, cut bool, err error) {
	sound, err := x.endsRight(f.name, f.h)
	if err != nil {
		return false, false, err
	}
	s := opt.State
	switch {
	case opt.Clean:
		return sound, false, nil
	case s == nil:
		return sound && f.h.Count > 1 && f.h.EndTime <= opt.SafeTime, false, nil
	case f.name < s.File:
		return sound, false, nil
	case f.name > s.File:
		return false, false, nil
	}
	if s.Count < 1 || s.Count > f.h.Count || s.Count > x.layout.Entries {
		return false, false, nil
	}
	h := f.h
	h.Count, h.EndLog, h.EndTime = s.Count, s.EndLog, s.EndTime
	if sound, err = x.endsRight(f.name, h); err != nil || !sound {
		return false, false, err
	}
	f.h = h
	return true, true, nil
}

// endsRight reports whether the last entry that a header counts is the one that the header says.
func (x *Index) endsRight(name string, h Header) (bool, error) {
	if h.Count > x.layout.Entries || h.EndLog < 0 && h.Count > 1 {
		return false, nil
	}
	if h.Count <= 1 {
		return true, nil
	}
	e, err := x.readEntry(name, h.Count-1)
	return err == nil && e.Log == h.EndLog, err
}

func (x *Index) readEntry(name string, n int32) (Entry, error) {
	var buf [EntrySize]byte
	err := x.readAt(name, buf[:], x.layout.entryPos(n))
	return DecodeEntry(buf[:]), err
}

func (x *Index) readAt(name string, p []byte, pos int64) error {
	f, err := x.fs.OpenFile(filepath.Join(x.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(p, pos)
	return errors.Join(err, f.Close())
}

// list returns the files in order with their headers and removes those of length 0, which a crash leaves.
func (x *Index) list() ([]file, error) {
	entries, err := x.fs.ReadDir(x.dir)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		if _, err := ParseName(e.Name()); err != nil || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Size() == 0 {
			if err := x.remove(e.Name()); err != nil {
				return nil, err
			}
			continue
		}
		if info.Size() != x.layout.FileSize() {
			return nil, &mappedfile.CorruptError{File: filepath.Join(x.dir, e.Name()), Offset: -1, Reason: fmt.Sprintf(
				"has %d bytes instead of the %d of maxHashSlotNum %d and maxIndexNum %d", info.Size(), x.layout.FileSize(),
				x.layout.Slots, x.layout.Entries)}
		}
		var buf [HeaderSize]byte
		if err := x.readAt(e.Name(), buf[:], 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		files = append(files, file{name: e.Name(), h: DecodeHeader(buf[:])})
	}
	return files, nil
}

// TruncateAbove removes the entries of messages at or above the log offset at, durably. FlushedTime goes down with them;
// as after Load the checkpoint file must follow before the next Put.
func (x *Index) TruncateAbove(at message.LogOffset) error {
	x.p.Lock()
	defer x.p.Unlock()
	x.w.Lock()
	defer x.w.Unlock()
	if x.closed {
		return ErrClosed
	}
	if x.last < at {
		return nil
	}
	if err := x.drain(); err != nil {
		return err
	}
	removed := false
	for f := x.newest(); f != nil && f.h.Count > 1 && f.h.EndLog >= at; f = x.newest() {
		count, err := x.countBelow(f, at)
		if err != nil {
			return err
		}
		if count > 1 {
			if err := x.shorten(f, count); err != nil {
				return err
			}
			break
		}
		if err := errors.Join(x.closeCurrent(), x.remove(f.name)); err != nil {
			return err
		}
		removed = true
		x.mu.Lock()
		x.files = x.files[:len(x.files)-1]
		x.mu.Unlock()
		x.setNewest()
	}
	x.mu.Lock()
	x.last = -1
	if f := x.newest(); f != nil && (f.h.Count > 1 || f.h.EndLog > 0) {
		x.last = f.h.EndLog
	}
	x.done.Last = x.last
	x.flushedTime = min(x.flushedTime, x.disk.EndTime)
	x.mu.Unlock()
	if removed {
		return x.fs.SyncDir(x.dir)
	}
	return nil
}

// setNewest makes the counts those of the newest file on disk. The caller holds w and nothing is in memory.
func (x *Index) setNewest() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.disk, x.done = Header{Count: 1}, State{EndLog: -1, Last: -1}
	if f := x.newest(); f != nil {
		x.disk = f.h
		x.done = State{File: f.name, Count: f.h.Count, EndLog: f.h.EndLog, EndTime: f.h.EndTime, Last: x.last}
	}
	x.pending.base = x.disk.Count
	x.repaired = true
}

// countBelow is the count that leaves only messages below at in a file.
func (x *Index) countBelow(f *file, at message.LogOffset) (int32, error) {
	var failed error
	n := sort.Search(int(f.h.Count-1), func(i int) bool {
		e, err := x.readEntry(f.name, int32(i)+1)
		failed = errors.Join(failed, err)
		return e.Log >= at
	})
	return int32(n) + 1, failed
}

// shorten cuts the newest file to count and repairs its heads. The caller holds w and nothing is in memory.
func (x *Index) shorten(f *file, count int32) error {
	e, err := x.readEntry(f.name, count-1)
	if err != nil {
		return err
	}
	x.mu.Lock()
	f.h.Count, f.h.EndLog = count, e.Log
	f.h.EndTime = min(f.h.EndTime, f.h.BeginTime+int64(e.Seconds)*1000+999)
	x.mu.Unlock()
	x.setNewest()
	return errors.Join(x.repair(), x.syncFile(f.name))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

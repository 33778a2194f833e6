package index

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Query asks for the messages under one key hash.
type Query struct {
	Hash  int32 // see Hash
	Max   int   // results; the newest are kept
	Begin int64 // store time in ms, both ends included; entries know it to a second, so up to one more may come
	End   int64
}

// Query returns the log offsets of messages under a hash, ascending, each once. match is called with candidates from the
// newest on, without a lock, and says whether one is wanted (its key and time are right); nil takes all. It waits for a
// repair of the newest file that has not ended.
func (x *Index) Query(q Query, match func(message.LogOffset) bool) ([]message.LogOffset, error) {
	if err := x.Repair(); err != nil {
		return nil, err
	}
	w := walk{x: x, q: q, match: match}
	if q.Max <= 0 {
		return nil, nil
	}
	files, base := w.snapshot()
	for _, at := range w.memory {
		w.offer(at)
	}
	for i := len(files) - 1; i >= 0 && len(w.out) < q.Max; i-- {
		f := &files[i]
		if f.h.Count <= 1 || f.h.BeginTime > q.End || f.h.EndTime < q.Begin {
			continue
		}
		bound := f.h.Count
		if i == len(files)-1 {
			bound = base
		}
		if err := w.file(f, bound); err != nil {
			return nil, err
		}
	}
	slices.Sort(w.out)
	return w.out, nil
}

// walk is one query under way.
type walk struct {
	x      *Index
	q      Query
	match  func(message.LogOffset) bool
	memory []message.LogOffset // found among pending entries, newest first
	seen   map[message.LogOffset]bool
	out    []message.LogOffset
}

// snapshot copies the list of files and walks the entries in memory; base is the first of their numbers.
func (w *walk) snapshot() (files []file, base int32) {
	x := w.x
	x.mu.Lock()
	defer x.mu.Unlock()
	files = make([]file, len(x.files))
	for i, f := range x.files {
		files[i] = *f
	}
	if len(files) == 0 {
		return nil, 1
	}
	begin := files[len(files)-1].h.BeginTime
	w.batch(x.pending, begin)
	base = x.pending.base
	if x.writing != nil {
		w.batch(x.writing, begin)
		base = x.writing.base
	}
	return files, base
}

// batch walks the chain of the hash in one batch.
func (w *walk) batch(b *batch, begin int64) {
	for n := b.heads.get(nonNegative(w.q.Hash) % w.x.layout.Slots); n >= b.base; {
		e := b.entries[n-b.base]
		if e.Hash == w.q.Hash && w.inTime(begin, e) {
			w.memory = append(w.memory, e.Log)
		}
		n = e.Prev
	}
}

func (w *walk) inTime(begin int64, e Entry) bool {
	t := begin + int64(e.Seconds)*1000
	return t+999 >= w.q.Begin && t <= w.q.End
}

// offer takes a candidate, once.
func (w *walk) offer(at message.LogOffset) {
	if len(w.out) >= w.q.Max || w.seen[at] {
		return
	}
	if w.seen == nil {
		w.seen = make(map[message.LogOffset]bool)
	}
	w.seen[at] = true
	if w.match == nil || w.match(at) {
		w.out = append(w.out, at)
	}
}

// file walks the chain of the hash in one file over the entries below bound. Entries from bound on are known from memory:
// they are only followed, because a drain may be writing them now.
func (w *walk) file(f *file, bound int32) error {
	file, err := w.x.fs.OpenFile(filepath.Join(w.x.dir, f.name), os.O_RDONLY, 0)
	if err != nil {
		return ignoreMissing(err) // deleted since the snapshot
	}
	return errors.Join(w.chain(file, f, bound), file.Close())
}

func (w *walk) chain(file mappedfile.File, f *file, bound int32) error {
	l := w.x.layout
	var buf [EntrySize]byte
	if _, err := file.ReadAt(buf[:SlotSize], l.slotPos(nonNegative(w.q.Hash)%l.Slots)); err != nil {
		return err
	}
	n := int32(binary.BigEndian.Uint32(buf[:]))
	for n > 0 && n < l.Entries && len(w.out) < w.q.Max {
		if _, err := file.ReadAt(buf[:], l.entryPos(n)); err != nil {
			return err
		}
		e := DecodeEntry(buf[:])
		if e.Seconds < 0 {
			return nil
		}
		if n < bound {
			if e.Hash == w.q.Hash && w.inTime(f.h.BeginTime, e) {
				w.offer(e.Log)
			}
			if f.h.BeginTime+int64(e.Seconds)*1000+999 < w.q.Begin { // older ones follow
				return nil
			}
		}
		if e.Prev >= n { // a chain only goes down
			return nil
		}
		n = e.Prev
	}
	return nil
}

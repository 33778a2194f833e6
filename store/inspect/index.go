package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// searchable is the largest file in which an unknown number of slots is looked for.
const searchable = 64 << 20

// indexFiles walks the entries of all index files in order, beside the log.
type indexFiles struct {
	files []*indexFile
	cur   int // file of the next entry

	missing   int64 // messages in the range of the index whose keys are not in it
	missingAt message.LogOffset
	behind    int64 // messages above it
	behindAt  message.LogOffset
	hashes    []int32
	found     []int32
}

type indexFile struct {
	path   string
	size   int64
	h      index.Header
	layout index.Layout
	known  bool // layout is

	f        mappedfile.File
	w        window
	next     int32   // number of the next entry
	heads    []int32 // newest entry seen of each slot
	used     int32
	lastLog  message.LogOffset
	bad      int64
	orphaned int64
}

func (in *inspector) listIndex() error {
	dir := filepath.Join(in.root, "index")
	list, err := in.readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if _, err := index.ParseName(e.Name()); err != nil || e.IsDir() {
			in.find(Note, path, -1, "not a file of the index")
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() == 0 {
			in.find(Note, path, -1, "empty file, left by a crash; a start removes it")
			continue
		}
		x, err := in.openIndex(path, info.Size())
		if err != nil {
			return err
		}
		in.index.files = append(in.index.files, x)
	}
	return nil
}

// openIndex reads the header and finds out the layout.
func (in *inspector) openIndex(path string, size int64) (*indexFile, error) {
	x := &indexFile{path: path, size: size, next: 1}
	f, err := in.open(path)
	if err != nil {
		return nil, err
	}
	b := make([]byte, index.HeaderSize)
	_, err = f.ReadAt(b, 0)
	if ignoreEOF(err) == nil {
		x.h = index.DecodeHeader(b)
		x.layout, x.known, err = in.layout(f, size, x.h)
	}
	if err = errors.Join(ignoreEOF(err), f.Close()); err != nil {
		return nil, err
	}
	if !x.known {
		in.find(Note, path, -1, "length %d does not fit maxHashSlotNum and maxIndexNum; say them with --slots and --entries", size)
	} else if x.h.Count > x.layout.Entries {
		in.find(Damage, path, 36, "count is %d, above %d", x.h.Count, x.layout.Entries)
		x.known = false
	}
	return x, nil
}

// layout takes the configured or default numbers when they fit the length, else it looks for the first entry.
func (in *inspector) layout(f mappedfile.File, size int64, h index.Header) (index.Layout, bool, error) {
	l := index.Layout{Slots: in.opt.Slots, Entries: in.opt.Entries}
	if l.Slots <= 0 {
		l.Slots = 5000000
	}
	if l.Entries <= 0 {
		l.Entries = 20000000
	}
	if l.FileSize() == size {
		return l, true, nil
	}
	if size > searchable || h.Count < 2 || size < index.HeaderSize {
		return l, false, nil
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); ignoreEOF(err) != nil {
		return l, false, err
	}
	for slots := int64(1); index.HeaderSize+slots*index.SlotSize+int64(h.Count)*index.EntrySize <= size; slots++ {
		rest := size - index.HeaderSize - slots*index.SlotSize
		if rest%index.EntrySize != 0 {
			continue
		}
		l = index.Layout{Slots: int32(slots), Entries: int32(rest / index.EntrySize)}
		first, last := index.DecodeEntry(b[l.EntryPos(1):]), index.DecodeEntry(b[l.EntryPos(h.Count-1):])
		if first.Log != h.BeginLog || last.Log != h.EndLog || first.Hash < 0 || last.Hash < 0 || first.Prev != 0 {
			continue
		}
		if head := headAt(b, l, last.Hash); head == h.Count-1 && headAt(b, l, first.Hash) > 0 {
			return l, true, nil
		}
	}
	return l, false, nil
}

func headAt(b []byte, l index.Layout, hash int32) int32 {
	return int32(binary.BigEndian.Uint32(b[index.HeaderSize+int64(hash%l.Slots)*index.SlotSize:]))
}

// peek returns the next entry of all files that is in the log; ok is false at the end.
func (in *inspector) peek() (x *indexFile, e index.Entry, ok bool, err error) {
	ix := &in.index
	for ix.cur < len(ix.files) {
		x = ix.files[ix.cur]
		if !x.known || x.next >= x.h.Count {
			if err := in.endOfIndex(x); err != nil {
				return nil, e, false, err
			}
			ix.cur++
			continue
		}
		if x.f == nil {
			if x.f, err = in.open(x.path); err != nil {
				return nil, e, false, err
			}
			x.w = window{f: x.f, size: x.size}
			x.heads = make([]int32, x.layout.Slots)
		}
		b, err := x.w.bytes(x.layout.EntryPos(x.next), index.EntrySize)
		if err != nil || len(b) < index.EntrySize {
			return nil, e, false, errors.Join(fmt.Errorf("%s: entry %d cannot be read", x.path, x.next), err)
		}
		e = index.DecodeEntry(b)
		if e.Log < in.log.Min { // its message was deleted with its file
			in.step(x, e)
			continue
		}
		return x, e, true, nil
	}
	return nil, e, false, nil
}

// step checks an entry against the ones before it and goes on.
func (in *inspector) step(x *indexFile, e index.Entry) {
	n := x.next
	x.next++
	pos := x.layout.EntryPos(n)
	if e.Hash < 0 {
		in.indexDamage(x, pos, "entry %d: hash %d is negative", n, e.Hash)
		return
	}
	slot := e.Hash % x.layout.Slots
	if e.Prev != x.heads[slot] {
		in.indexDamage(x, pos, "entry %d: the one before it in its chain is said to be %d, but is %d", n, e.Prev, x.heads[slot])
	}
	if e.Log < x.lastLog {
		in.indexDamage(x, pos, "entry %d: log offset %d goes back", n, e.Log)
	}
	if x.heads[slot] == 0 {
		x.used++
	}
	x.heads[slot], x.lastLog = n, e.Log
}

func (in *inspector) indexDamage(x *indexFile, pos int64, format string, args ...any) {
	if x.bad++; x.bad <= 5 {
		in.find(Damage, x.path, pos, format, args...)
	}
}

// indexHas holds the index against a record.
func (in *inspector) indexHas(rec *message.Record) error {
	ix := &in.index
	ix.hashes = ix.hashes[:0]
	if rec.SysFlag&message.TransactionMask != message.TransactionRollback {
		unique, _ := message.Property(rec.Properties, "UNIQ_KEY")
		keys, _ := message.Property(rec.Properties, "KEYS")
		ix.hashes = index.AppendHashes(ix.hashes, rec.Topic, unique, keys)
	}
	ix.found = ix.found[:0]
	for {
		x, e, ok, err := in.peek()
		if err != nil {
			return err
		}
		if !ok || e.Log > rec.LogOffset {
			return in.indexed(rec, ok)
		}
		pos := x.layout.EntryPos(x.next)
		switch {
		case e.Log < rec.LogOffset:
			if x.orphaned++; x.orphaned <= 3 {
				in.find(in.uncertain(), x.path, pos, "entry %d: no message at log offset %d", x.next, e.Log)
			}
		case !slices.Contains(ix.hashes, e.Hash):
			in.indexDamage(x, pos, "entry %d: hash %d is of no key of the message at %d", x.next, e.Hash, e.Log)
		default:
			ix.found = append(ix.found, e.Hash)
		}
		in.step(x, e)
	}
}

// indexed counts a record whose keys were not all found; more tells that entries of later messages follow.
func (in *inspector) indexed(rec *message.Record, more bool) error {
	ix := &in.index
	for _, h := range ix.hashes {
		if slices.Contains(ix.found, h) {
			continue
		}
		if more {
			if ix.missing == 0 {
				ix.missingAt = rec.LogOffset
			}
			ix.missing++
		} else {
			if ix.behind == 0 {
				ix.behindAt = rec.LogOffset
			}
			ix.behind++
		}
		break
	}
	return nil
}

// endOfIndex checks header and slots of a file against its entries.
func (in *inspector) endOfIndex(x *indexFile) error {
	if x.f == nil {
		return nil
	}
	f := x.f
	x.f = nil
	if x.lastLog != x.h.EndLog {
		in.find(in.uncertain(), x.path, 24, "header says that the last message stands at %d, the last entry %d", x.h.EndLog, x.lastLog)
	}
	if x.used != x.h.Slots {
		in.find(Note, x.path, 32, "header says %d slots are used, the entries use %d", x.h.Slots, x.used)
	}
	w := window{f: f, size: x.size}
	newer, wrong := 0, 0
	for slot := range x.heads {
		pos := index.HeaderSize + int64(slot)*index.SlotSize
		b, err := w.bytes(pos, index.SlotSize)
		if err != nil || len(b) < index.SlotSize {
			return errors.Join(fmt.Errorf("%s: slot %d cannot be read", x.path, slot), err, f.Close())
		}
		switch head := int32(binary.BigEndian.Uint32(b)); {
		case head == x.heads[slot]:
		case head >= x.h.Count:
			newer++
		default:
			if wrong++; wrong <= 3 {
				in.indexDamage(x, pos, "slot %d points to entry %d instead of %d", slot, head, x.heads[slot])
			}
		}
	}
	if newer > 0 {
		in.find(in.uncertain(), x.path, -1, "%d slots point to entries above the count", newer)
	}
	x.heads = nil
	return f.Close()
}

// finishIndex reads what is left and reports.
func (in *inspector) finishIndex() error {
	above := int64(0)
	for {
		x, e, ok, err := in.peek()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		above++
		in.step(x, e)
	}
	dir := filepath.Join(in.root, "index")
	ix := &in.index
	if above > 0 {
		in.find(in.uncertain(), dir, -1, "%d entries point above the last message of the log", above)
	}
	if ix.missing > 0 {
		in.find(Note, dir, -1, "%d messages, the first at %d, are not in the index although later ones are", ix.missing, ix.missingAt)
	}
	if ix.behind > 0 && !in.rep.Live {
		in.find(Note, dir, -1, "the last %d messages, from %d on, are not in the index", ix.behind, ix.behindAt)
	}
	for _, x := range ix.files {
		in.file(x.path, KindIndex, x.size, x.fields())
	}
	return nil
}

func (x *indexFile) fields() Fields {
	return Fields{{"keys", x.h.Count - 1}, {"slots", x.layout.Slots}, {"slotsUsed", x.h.Slots}, {"entries", x.layout.Entries},
		{"beginTime", x.h.BeginTime}, {"endTime", x.h.EndTime}, {"beginLog", x.h.BeginLog}, {"endLog", x.h.EndLog}}
}

// singleIndex inspects one file by itself.
func (in *inspector) singleIndex(path string, size int64) error {
	if size < index.HeaderSize {
		in.file(path, KindIndex, size, nil)
		in.find(Damage, path, -1, "%d bytes are too few for an index file", size)
		return nil
	}
	x, err := in.openIndex(path, size)
	if err != nil {
		return err
	}
	in.index.files = []*indexFile{x}
	rows := 0
	for {
		x, e, ok, err := in.peek()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		n := x.next
		in.row(path, &rows, func() Fields {
			return Fields{{"entry", n}, {"hash", e.Hash}, {"log", e.Log}, {"time", x.h.BeginTime + int64(e.Seconds)*1000}, {"previous", e.Prev}}
		})
		in.step(x, e)
	}
	in.file(path, KindIndex, size, x.fields())
	return nil
}

package index

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"

	"github.com/epochmq/epochmq/message"
)

// Heads are read and written in pieces of a page, or of many pages when most pages change anyway.
const (
	pageSize   = 4096
	manyPages  = 16 * pageSize
	writeChunk = 1 << 20 / EntrySize * EntrySize
)

// drain writes what waits in memory: entries, then heads, then the header, so that a head in the page cache always has
// its entry. Entries that come meanwhile wait for the next one. The caller holds w.
func (x *Index) drain() error {
	b, name, h := x.takePending()
	if b == nil {
		return nil
	}
	if !x.repaired {
		if err := x.repair(); err != nil {
			return err
		}
	}
	if err := x.openCurrent(); err != nil {
		return err
	}
	x.markUnsynced(name)
	slots := b.heads.sorted()
	fresh, err := x.link(b, slots)
	if err != nil {
		return err
	}
	if err := x.writeEntries(b); err != nil {
		return err
	}
	err = x.eachPage(slots, func(slot int32, p []byte) bool {
		binary.BigEndian.PutUint32(p, uint32(b.heads.get(slot)))
		return true
	})
	if err != nil {
		return err
	}
	h.header.Slots = x.disk.Slots + fresh
	if _, err := x.cur.WriteAt(h.header.Append(nil), 0); err != nil {
		return err
	}
	x.disk = h.header
	x.mu.Lock()
	x.writing = nil
	x.newest().h.Slots = x.disk.Slots
	x.done = State{File: name, Count: x.disk.Count, EndLog: x.disk.EndLog, EndTime: x.disk.EndTime, Last: h.last}
	x.mu.Unlock()
	b.entries = b.entries[:0]
	b.heads.clear()
	x.spare = b
	return nil
}

// taken is what belongs to the entries of a batch at the moment it was taken.
type taken struct {
	header Header
	last   message.LogOffset
}

// takePending makes the entries in memory the batch being written; nil when there is none.
func (x *Index) takePending() (*batch, string, taken) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.pending
	if len(b.entries) == 0 {
		if x.repaired {
			x.done.Last = x.last
		}
		return nil, "", taken{}
	}
	f := x.newest()
	x.spare.base = f.h.Count
	x.pending, x.writing = x.spare, b
	return b, f.name, taken{header: f.h, last: x.last}
}

// link lets the oldest entry of each slot in a batch point to the head on disk and returns how many slots were empty.
func (x *Index) link(b *batch, slots []int32) (fresh int32, err error) {
	err = x.eachPage(slots, func(slot int32, p []byte) bool {
		head := int32(binary.BigEndian.Uint32(p))
		if head <= 0 || head >= b.base {
			fresh++
			return false
		}
		n := b.heads.get(slot)
		for b.entries[n-b.base].Prev >= b.base {
			n = b.entries[n-b.base].Prev
		}
		x.linkBuf = append(x.linkBuf, older{n - b.base, head})
		return false
	})
	for links := range slices.Chunk(x.linkBuf, linkAtOnce) {
		x.mu.Lock() // queries read the batch
		for _, l := range links {
			b.entries[l.entry].Prev = l.prev
		}
		x.mu.Unlock()
	}
	x.linkBuf = x.linkBuf[:0]
	return fresh, err
}

// older is the entry on disk that an entry of the batch, the oldest of its slot, follows.
type older struct{ entry, prev int32 }

// linkAtOnce is how many entries get their older one under one lock.
const linkAtOnce = 1024

// writeEntries writes the entries of a batch behind each other.
func (x *Index) writeEntries(b *batch) error {
	pos := x.layout.entryPos(b.base)
	x.writeBuf = x.writeBuf[:0]
	for i := range b.entries {
		x.writeBuf = b.entries[i].Append(x.writeBuf)
		if len(x.writeBuf) < writeChunk && i < len(b.entries)-1 {
			continue
		}
		if _, err := x.cur.WriteAt(x.writeBuf, pos); err != nil {
			return err
		}
		pos += int64(len(x.writeBuf))
		x.writeBuf = x.writeBuf[:0]
	}
	return nil
}

// eachPage reads each piece of the file that holds one of slots, which are sorted, and calls fn with the bytes of each
// slot. What fn changed, and said so by returning true, is written back in one write per piece.
func (x *Index) eachPage(slots []int32, fn func(slot int32, b []byte) bool) error {
	if x.pageBuf == nil {
		x.pageBuf = make([]byte, manyPages)
	}
	piece := int64(pageSize)
	if int64(len(slots))*2 > int64(x.layout.Slots)*SlotSize/pageSize {
		piece = manyPages
	}
	for len(slots) > 0 {
		start := x.layout.slotPos(slots[0])
		limit := start/piece*piece + piece // no slot straddles pages: the header and a slot divide evenly
		n := 1
		for n < len(slots) && x.layout.slotPos(slots[n]) < limit {
			n++
		}
		p := x.pageBuf[:x.layout.slotPos(slots[n-1])+SlotSize-start]
		if _, err := x.cur.ReadAt(p, start); err != nil {
			return err
		}
		changed := false
		for _, slot := range slots[:n] {
			at := x.layout.slotPos(slot) - start
			changed = fn(slot, p[at:at+SlotSize]) || changed
		}
		if changed {
			if _, err := x.cur.WriteAt(p, start); err != nil {
				return err
			}
		}
		slots = slots[n:]
	}
	return nil
}

// openCurrent opens the newest file for writing. The caller holds w.
func (x *Index) openCurrent() error {
	if x.cur != nil {
		return nil
	}
	f, err := x.fs.OpenFile(filepath.Join(x.dir, x.newest().name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	x.cur = f
	return nil
}

package index

import (
	"encoding/binary"
	"slices"
)

// Repair restores the hash chains of the newest file after an unclean end: heads that point to entries above the count
// are set back to the newest entry below it. It reads the slots, and as many entries as it must, once. Call it in the
// background after Load; puts and Drain go on meanwhile in memory, queries wait. It does nothing when there is nothing to
// repair.
func (x *Index) Repair() error {
	x.w.Lock()
	defer x.w.Unlock()
	if x.closed {
		return ErrClosed
	}
	if x.repaired {
		return nil
	}
	return x.repair()
}

// repair is Repair with w held. Entries in memory are above the count and not touched.
func (x *Index) repair() error {
	if err := x.openCurrent(); err != nil {
		return err
	}
	bad, used, err := x.badSlots()
	if err != nil {
		return err
	}
	heads, err := x.findHeads(bad)
	if err != nil {
		return err
	}
	err = x.eachPage(bad, func(slot int32, b []byte) bool {
		binary.BigEndian.PutUint32(b, uint32(heads[slot]))
		return true
	})
	if err != nil {
		return err
	}
	x.disk.Slots = used + int32(len(heads))
	if _, err := x.cur.WriteAt(x.disk.Append(nil), 0); err != nil {
		return err
	}
	cur := x.newest()
	x.mu.Lock()
	cur.h.Slots = x.disk.Slots
	x.mu.Unlock()
	x.markUnsynced(cur.name)
	x.repaired = true
	return nil
}

// badSlots lists the slots whose head is not an entry below base, and counts those with a right one.
func (x *Index) badSlots() (bad []int32, used int32, err error) {
	buf := make([]byte, 1<<20)
	for slot := int32(0); slot < x.layout.Slots; {
		p := buf[:min(int64(len(buf)), int64(x.layout.Slots-slot)*SlotSize)]
		if _, err := x.cur.ReadAt(p, x.layout.slotPos(slot)); err != nil {
			return nil, 0, err
		}
		for ; len(p) > 0; p = p[SlotSize:] {
			switch head := int32(binary.BigEndian.Uint32(p)); {
			case head < 0 || head >= x.disk.Count:
				bad = append(bad, slot)
			case head > 0:
				used++
			}
			slot++
		}
	}
	return bad, used, nil
}

// findHeads finds the newest entry below base for each of slots, which are sorted; a slot without one is not in the result.
func (x *Index) findHeads(slots []int32) (map[int32]int32, error) {
	heads := make(map[int32]int32, len(slots))
	const chunk = 1 << 20 / EntrySize
	var buf []byte
	for high := x.disk.Count; high > 1 && len(heads) < len(slots); {
		low := max(1, high-chunk)
		if buf == nil {
			buf = make([]byte, chunk*EntrySize)
		}
		p := buf[:int64(high-low)*EntrySize]
		if _, err := x.cur.ReadAt(p, x.layout.entryPos(low)); err != nil {
			return nil, err
		}
		for n := high - 1; n >= low; n-- {
			e := DecodeEntry(p[int64(n-low)*EntrySize:])
			slot := nonNegative(e.Hash) % x.layout.Slots
			if _, wanted := slices.BinarySearch(slots, slot); !wanted {
				continue
			}
			if _, known := heads[slot]; !known {
				heads[slot] = n
			}
		}
		high = low
	}
	return heads, nil
}

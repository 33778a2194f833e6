package index

import (
	"math/bits"
	"slices"
)

// heads are the newest entries of the slots of a batch: an open hash table without deletion, because a map of that size
// costs more than all else that happens to an entry. The zero value is empty.
type heads struct {
	cells []head // a power of two, at most half of them used
	slots []int32
	spare []int32 // of sorted
}

type head struct{ slot, number int32 } // number is at least 1; 0: the cell is free

const firstCells = 64

// cell is where slot is, or would be.
func (t *heads) cell(slot int32) *head {
	mask := uint32(len(t.cells) - 1)
	for i := (uint32(slot) * 0x9E3779B1) >> (32 - uint(bits.Len32(mask))); ; i++ {
		if c := &t.cells[i&mask]; c.number == 0 || c.slot == slot {
			return c
		}
	}
}

// get returns the number of the newest entry of a slot, 0 when there is none.
func (t *heads) get(slot int32) int32 {
	if len(t.cells) == 0 {
		return 0
	}
	return t.cell(slot).number
}

// swap makes number the newest entry of a slot and returns the one before, 0 when there was none.
func (t *heads) swap(slot, number int32) int32 {
	if 2*len(t.slots) >= len(t.cells) {
		t.grow()
	}
	c := t.cell(slot)
	before := c.number
	if before == 0 {
		t.slots = append(t.slots, slot)
	}
	*c = head{slot, number}
	return before
}

func (t *heads) grow() {
	old := t.cells
	t.cells = make([]head, max(firstCells, 2*len(old)))
	for _, c := range old {
		if c.number != 0 {
			*t.cell(c.slot) = c
		}
	}
}

// clear empties the table and keeps its memory.
func (t *heads) clear() {
	clear(t.cells)
	t.slots = t.slots[:0]
}

// sorted returns the slots in order, valid until the next call or clear. It takes three passes of eleven bits, each of
// which keeps the order of the one before; slots are not negative.
func (t *heads) sorted() []int32 {
	const digit = 11
	from, to := t.slots, t.spare[:0]
	to = slices.Grow(to, len(from))[:len(from)]
	for shift := 0; shift < 31; shift += digit {
		var at [1 << digit]int32
		for _, s := range from {
			at[s>>shift&(1<<digit-1)]++
		}
		next := int32(0)
		for i, n := range at {
			at[i] = next
			next += n
		}
		for _, s := range from {
			d := s >> shift & (1<<digit - 1)
			to[at[d]] = s
			at[d]++
		}
		from, to = to, from
	}
	t.slots, t.spare = from, to
	return from
}

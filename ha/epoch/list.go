// Package epoch is the history of a replicated log: which master wrote which part of it.
//
// The main types are List, an ordered list of entries (epoch, start offset), File, which keeps one on disk, and Verdict, what a
// slave has to do before it may copy from a master (Compare). Replication and role changes use it. It never looks into the log
// and never cuts it.
//
// Format: docs/formats/epoch-file.md.
package epoch

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/epochmq/epochmq/message"
)

// MaxEntries is how many entries travel in a handshake, and how many a file keeps if the rest may go.
const MaxEntries = 1000

// Unbounded is the end of the last entry.
const Unbounded = message.LogOffset(math.MaxInt64)

// None is the epoch of an empty list.
const None int32 = -1

// ErrStale is an epoch that is not newer than what is known.
var ErrStale = errors.New("epoch is not newer than the last one")

// ErrOrder is an entry that would start before its predecessor.
var ErrOrder = errors.New("epoch starts below its predecessor")

// Entry says that the bytes from Start up to the next entry's Start were written under Epoch.
type Entry struct {
	Epoch int32
	Start message.LogOffset
}

// List is a history, oldest first. Methods never change it; they return a new one where needed.
//
// Invariant: epochs and starts are >= 0 and strictly increasing.
type List []Entry

// Validate reports the first entry that breaks the invariant.
func (l List) Validate() error {
	for i, e := range l {
		if e.Epoch < 0 || e.Start < 0 {
			return fmt.Errorf("epoch entry %d-%d: negative", e.Epoch, e.Start)
		}
		if i > 0 && (e.Epoch <= l[i-1].Epoch || e.Start <= l[i-1].Start) {
			return fmt.Errorf("epoch entry %d-%d does not follow %d-%d", e.Epoch, e.Start, l[i-1].Epoch, l[i-1].Start)
		}
	}
	return nil
}

// Last is the newest entry.
func (l List) Last() (Entry, bool) {
	if len(l) == 0 {
		return Entry{}, false
	}
	return l[len(l)-1], true
}

// LastEpoch is the newest epoch, None if there is none.
func (l List) LastEpoch() int32 {
	if len(l) == 0 {
		return None
	}
	return l[len(l)-1].Epoch
}

// end is the end of entry i.
func (l List) end(i int) message.LogOffset {
	if i+1 < len(l) {
		return l[i+1].Start
	}
	return Unbounded
}

// Find is the entry that holds an offset, and that entry's end.
func (l List) Find(off message.LogOffset) (e Entry, end message.LogOffset, ok bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].Start <= off {
			return l[i], l.end(i), true
		}
	}
	return Entry{}, 0, false
}

// Append adds an entry that is newer than the last one. An entry that starts where the last one starts replaces it: nothing
// was written under that epoch, and the history would otherwise lose the new one. ErrStale, ErrOrder.
func (l List) Append(e Entry) (List, error) {
	if e.Epoch < 0 || e.Start < 0 {
		return l, fmt.Errorf("append epoch %d-%d: negative", e.Epoch, e.Start)
	}
	last, ok := l.Last()
	switch {
	case !ok:
	case e.Epoch <= last.Epoch:
		return l, fmt.Errorf("append epoch %d: %w, which is %d", e.Epoch, ErrStale, last.Epoch)
	case e.Start < last.Start:
		return l, fmt.Errorf("append epoch %d-%d: %w, %d-%d", e.Epoch, e.Start, ErrOrder, last.Epoch, last.Start)
	case e.Start == last.Start:
		l = l[:len(l)-1]
	}
	return append(slices.Clone(l), e), nil
}

// Begin is the history of a master of an epoch whose log holds [min, end): entries without bytes go, and the epoch starts at
// end. An entry of that very epoch is kept as it is, since slaves know its start. A log without any history belongs to the
// epoch as a whole. ErrStale when a newer epoch is known.
func (l List) Begin(epoch int32, min, end message.LogOffset) (List, error) {
	if last, ok := l.Last(); ok && last.Epoch >= epoch {
		if last.Epoch > epoch {
			return l, fmt.Errorf("begin epoch %d: %w, which is %d", epoch, ErrStale, last.Epoch)
		}
		if last.Start > end {
			return l, fmt.Errorf("begin epoch %d: it started at %d and the log now ends at %d: bytes of it were lost", epoch, last.Start, end)
		}
		return l, nil
	}
	known := len(l) > 0
	l = l.CutOffset(end)
	start := end
	if !known {
		start = min
	}
	return l.Append(Entry{epoch, start})
}

// CutEpoch is the list without the entries at or above an epoch.
func (l List) CutEpoch(epoch int32) List {
	i := len(l)
	for i > 0 && l[i-1].Epoch >= epoch {
		i--
	}
	return l[:i:i]
}

// CutOffset is the list without the entries that start at or above an offset.
func (l List) CutOffset(off message.LogOffset) List {
	i := len(l)
	for i > 0 && l[i-1].Start >= off {
		i--
	}
	return l[:i:i]
}

// DropBefore is the list without the entries that end at or below an offset, the first one of the log.
func (l List) DropBefore(off message.LogOffset) List {
	i := 0
	for i < len(l) && l.end(i) <= off {
		i++
	}
	return l[i:]
}

// Limit drops the oldest entries while there are more than MaxEntries, but none that reaches above confirmed.
func (l List) Limit(confirmed message.LogOffset) List {
	i := 0
	for len(l)-i > MaxEntries && l.end(i) <= confirmed {
		i++
	}
	return l[i:]
}

// Newest is the part of the list that a handshake can carry.
func (l List) Newest() List { return l[max(0, len(l)-MaxEntries):] }

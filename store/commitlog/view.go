package commitlog

import (
	"fmt"
	"io"
	"os"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// hotBytes behind Written are taken to be in the page cache without asking.
const hotBytes = 32 << 20

// View is a counted window on the log inside one segment. It never reaches above Written, and its bytes do not change while
// it is held. It is a small value: copies share the count, so exactly one Release per View or Retain. The zero View is empty.
type View struct {
	seg   *mappedfile.Segment
	bytes []byte
	at    message.LogOffset
	hot   bool
}

// View returns up to limit bytes from offset from. It is shorter at the end of a segment and at Written.
func (l *Log) View(from message.LogOffset, limit int) (View, error) {
	off := int64(from)
	seg := l.seq.Find(off)
	if seg == nil {
		return View{}, fmt.Errorf("%w: no segment holds %d", ErrOutOfRange, from)
	}
	top := l.written.Load() // after the count was taken: a Truncate lowers the mark first, then waits for counts
	if off >= top {
		seg.Release()
		return View{}, fmt.Errorf("%w: %d is not below %d", ErrOutOfRange, from, top)
	}
	all, err := seg.Bytes()
	if err != nil {
		seg.Release()
		return View{}, fmt.Errorf("view commit log at %d: %w", from, err)
	}
	pos := off - seg.Base()
	n := max(min(int64(limit), top-off, seg.Size()-pos), 0)
	return View{seg, all[pos : pos+n : pos+n], from, top-off <= hotBytes}, nil
}

// Offset is the log offset of the first byte.
func (v View) Offset() message.LogOffset { return v.at }

// Len is the number of bytes.
func (v View) Len() int { return len(v.bytes) }

// Bytes is the mapped memory, valid until Release. Reading it may wait for the disk, see Resident.
func (v View) Bytes() []byte { return v.bytes }

// File is the range in the file, for sendfile with an explicit offset; the file is nil in a simulation or when it cannot
// be opened. The descriptor is valid until Release and must not be closed.
func (v View) File() (f *os.File, off int64, n int) {
	if v.seg == nil {
		return nil, 0, 0
	}
	f, err := v.seg.Fd()
	if err != nil {
		f = nil // the caller falls back to Bytes
	}
	return f, int64(v.at) - v.seg.Base(), len(v.bytes)
}

// ReadAt reads from the file at off bytes into the view, not through the map: for data that may be cold.
func (v View) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(v.bytes)) {
		return 0, io.EOF
	}
	rest := int64(len(v.bytes)) - off
	short := int64(len(p)) > rest
	if short {
		p = p[:rest]
	}
	n, err := v.seg.ReadAt(p, int64(v.at)-v.seg.Base()+off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// Resident reports whether Bytes can be read without waiting for the disk.
func (v View) Resident() bool {
	return v.hot || v.seg == nil || v.seg.Resident(int64(v.at)-v.seg.Base(), int64(len(v.bytes)))
}

// WillNeed starts reading the range from disk.
func (v View) WillNeed() {
	if v.seg != nil {
		v.seg.Advise(mappedfile.AdviseWillNeed, int64(v.at)-v.seg.Base(), int64(len(v.bytes)))
	}
}

// Join returns one view of v and w if w continues v in the same segment; the counts of both then belong to it. Otherwise it
// returns v and false, and w stays as it is.
func (v View) Join(w View) (View, bool) {
	if v.seg == nil || v.seg != w.seg || v.at+message.LogOffset(len(v.bytes)) != w.at || cap(w.bytes) != len(w.bytes) {
		return v, false
	}
	all, err := v.seg.Bytes()
	if err != nil {
		return v, false
	}
	w.seg.Release()
	pos := int64(v.at) - v.seg.Base()
	n := int64(len(v.bytes) + len(w.bytes))
	return View{v.seg, all[pos : pos+n : pos+n], v.at, v.hot && w.hot}, true
}

// Retain adds a count, for a second Release. The view must be held.
func (v View) Retain() {
	if v.seg != nil {
		v.seg.Acquire() // cannot fail: the caller holds a count
	}
}

// Release gives the count back; Bytes and File must not be used afterwards.
func (v View) Release() {
	if v.seg != nil {
		v.seg.Release()
	}
}

// Record returns a view of the whole record at off. Only its size is checked.
func (l *Log) Record(off message.LogOffset) (View, error) {
	head, err := l.View(off, message.BlankSize)
	if err != nil {
		return View{}, err
	}
	size, magic, ok := message.ParseHeader(head.Bytes())
	head.Release()
	if !ok || (magic != message.MagicV1 && magic != message.MagicV2) || size <= message.BlankSize {
		return View{}, fmt.Errorf("%w: %d", ErrBoundary, off)
	}
	v, err := l.View(off, int(size))
	if err == nil && v.Len() != int(size) {
		v.Release()
		return View{}, fmt.Errorf("%w: %d", ErrBoundary, off)
	}
	return v, err
}

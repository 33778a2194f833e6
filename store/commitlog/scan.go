package commitlog

import (
	"fmt"
	"runtime/debug"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// minRecord is the length of a record with empty body, topic and properties.
const minRecord = 91

// cursor reads records in order with pread into one buffer: a page fault in a map would stop a processor of the Go scheduler,
// and an I/O error there would be a signal. Only a record larger than the buffer is read through the map.
type cursor struct {
	seq   *mappedfile.Sequence
	limit int64 // nothing at or above is read
	seg   *mappedfile.Segment
	buf   []byte
	at    int64 // log offset of buf[0]
	n     int   // valid bytes in buf
}

// verdict says what stands at a position.
type verdict uint8

const (
	isRecord  verdict = iota
	isBlank           // go on at the segment's end
	isNothing         // size and magic are zero
	isCut             // a record that reaches above limit
	isDamaged
)

// checker says what is wrong with a record at a position of its file, beyond what parsing finds; empty: nothing.
type checker func(raw []byte, inFile int64, rec *message.Record) string

// seek makes the segment that holds pos the current one; false when there is none.
func (c *cursor) seek(pos int64) bool {
	if c.seg != nil && pos >= c.seg.Base() && pos < c.seg.End() {
		return true
	}
	c.close()
	c.seg = c.seq.Find(pos)
	return c.seg != nil
}

func (c *cursor) close() {
	if c.seg != nil {
		c.seg.Release()
		c.seg = nil
	}
	c.n = 0
}

// bytes returns [pos, pos+n) of the current segment, valid until the next call.
func (c *cursor) bytes(pos int64, n int) ([]byte, error) {
	if i := pos - c.at; c.n > 0 && i >= 0 && i+int64(n) <= int64(c.n) {
		return c.buf[i : i+int64(n)], nil
	}
	if n > scanBuffer {
		all, err := c.seg.Bytes()
		if err != nil {
			return nil, err
		}
		i := pos - c.seg.Base()
		return all[i : i+int64(n)], nil
	}
	if c.buf == nil {
		c.buf = make([]byte, min(scanBuffer, c.seg.Size()))
	}
	want := min(int64(len(c.buf)), min(c.limit, c.seg.End())-pos)
	got, err := c.seg.ReadAt(c.buf[:want], pos-c.seg.Base())
	c.at, c.n = pos, got
	if got < n {
		c.n = 0
		return nil, fmt.Errorf("read %s at %d: %w", c.seg.Path(), pos-c.seg.Base(), err)
	}
	return c.buf[:n], nil
}

// read judges what stands at pos, which seek has accepted, and parses a record into rec. reason is set for isDamaged. err is
// an I/O error, which says nothing about the record.
func (c *cursor) read(pos int64, rec *message.Record, check checker) (v verdict, reason string, err error) {
	left := c.seg.End() - pos
	avail := min(c.seg.End(), c.limit) - pos
	if avail < message.BlankSize {
		if avail < left {
			return isCut, "", nil
		}
		return isDamaged, "no room for a record", nil
	}
	head, err := c.bytes(pos, message.BlankSize)
	if err != nil {
		return isDamaged, "", err
	}
	size, magic, _ := message.ParseHeader(head)
	switch {
	case magic == message.MagicBlank:
		if int64(size) != left {
			return isDamaged, fmt.Sprintf("blank record of %d bytes where %d are left", size, left), nil
		}
		return isBlank, "", nil
	case size == 0 && magic == 0:
		return isNothing, "", nil
	case magic != message.MagicV1 && magic != message.MagicV2:
		return isDamaged, fmt.Sprintf("magic %08x", magic), nil
	case size < minRecord || int64(size) > left-message.BlankSize:
		return isDamaged, fmt.Sprintf("record size %d", size), nil
	case int64(size) > avail:
		return isCut, "", nil
	}
	raw, err := c.bytes(pos, int(size))
	if err != nil {
		return isDamaged, "", err
	}
	if reason, err = judge(raw, pos, pos-c.seg.Base(), rec, check); reason != "" || err != nil {
		return isDamaged, reason, err
	}
	return isRecord, "", nil
}

// judge parses raw. A fault while reading it through the map is an I/O error.
func judge(raw []byte, pos, inFile int64, rec *message.Record, check checker) (reason string, err error) {
	if len(raw) > scanBuffer {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if r := recover(); r != nil {
				fault, ok := r.(interface{ Addr() uintptr })
				if !ok {
					panic(r)
				}
				err = fmt.Errorf("read commit log at %d: fault at %x", pos, fault.Addr())
			}
		}()
	}
	if err := message.Parse(raw, rec); err != nil {
		return err.Error(), nil
	}
	if int64(rec.LogOffset) != pos {
		return fmt.Sprintf("record says it stands at %d", rec.LogOffset), nil
	}
	if int(rec.Size) != len(raw) {
		return fmt.Sprintf("record size %d", rec.Size), nil
	}
	if check != nil {
		return check(raw, inFile, rec), nil
	}
	return "", nil
}

func (c *cursor) corrupt(pos int64, reason string) error {
	return &mappedfile.CorruptError{File: c.seg.Path(), Offset: pos - c.seg.Base(), Reason: reason}
}

// Scan calls fn for every record in [from, to), in order, without checking bodies; rec and its slices are valid during the
// call only. from must be a record boundary, to must not be above Written; a record that reaches above to is left out.
// Holes between segments are jumped over. It returns where to go on: behind the last record for which fn returned nil.
// Damage is a *mappedfile.CorruptError.
func (l *Log) Scan(from, to message.LogOffset, fn func(rec *message.Record) error) (message.LogOffset, error) {
	limit := min(int64(to), l.written.Load())
	c := cursor{seq: l.seq, limit: limit}
	defer c.close()
	var rec message.Record
	pos := max(int64(from), l.seq.Min())
	for pos < limit {
		if !c.seek(pos) {
			next := l.seq.After(pos)
			if next == nil {
				return message.LogOffset(pos), fmt.Errorf("scan commit log: %w: no segment holds %d", ErrOutOfRange, pos)
			}
			pos = next.Base()
			next.Release()
			continue
		}
		v, reason, err := c.read(pos, &rec, nil)
		if err != nil {
			return message.LogOffset(pos), err
		}
		switch v {
		case isRecord:
			if err := fn(&rec); err != nil {
				return message.LogOffset(pos), err
			}
			pos += int64(rec.Size)
		case isBlank:
			pos = c.seg.End()
		case isCut:
			return message.LogOffset(pos), nil
		case isNothing:
			return message.LogOffset(pos), c.corrupt(pos, "no record")
		default:
			return message.LogOffset(pos), c.corrupt(pos, reason)
		}
	}
	return message.LogOffset(pos), nil
}

package commitlog

import (
	"bytes"
	"errors"

	"github.com/epochmq/epochmq/message"
)

// A power cut may lose any sector of what was not flushed, and a lost sector reads as zero. The record's CRC covers the body
// only: a lost sector of the head makes the lengths disagree, but one of the topic or the properties would go unnoticed.
// Recover therefore takes a record for torn when its topic holds a zero byte, when its properties end with one, or when a
// whole sector of them is zero. Batch.Add sees to it that no record of ours looks like that.
const sectorSize = 512

// ErrIllegal is a message that cannot be stored.
var ErrIllegal = errors.New("illegal message")

var zeroSector [sectorSize]byte

// isTorn judges a parsed record at position off in its file.
func isTorn(rec *message.Record, off int64) bool {
	if bytes.IndexByte(rec.Topic, 0) >= 0 {
		return true
	}
	props := rec.Properties
	if bytes.IndexByte(props, 0) < 0 {
		return false
	}
	if props[len(props)-1] == 0 {
		return true
	}
	off += int64(rec.Size) - int64(len(props))
	for i := int((sectorSize - off%sectorSize) % sectorSize); i+sectorSize <= len(props); i += sectorSize {
		if bytes.Equal(props[i:i+sectorSize], zeroSector[:]) {
			return true
		}
	}
	return false
}

// guard makes sure that m will not look torn. It returns m, or a copy whose properties got a closing separator; scratch is
// memory for that and is returned.
func guard(m *message.Message, scratch []byte) (*message.Message, []byte, error) {
	if bytes.IndexByte(m.Topic, 0) >= 0 {
		return nil, scratch, errors.Join(ErrIllegal, errors.New("the topic holds a zero byte"))
	}
	if bytes.IndexByte(m.Properties, 0) < 0 {
		return m, scratch, nil
	}
	if bytes.Contains(m.Properties, zeroSector[:]) {
		return nil, scratch, errors.Join(ErrIllegal, errors.New("the properties hold 512 zero bytes in a row"))
	}
	if m.Properties[len(m.Properties)-1] != 0 {
		return m, scratch, nil
	}
	scratch = append(append(scratch[:0], m.Properties...), 0x02)
	closed := *m
	closed.Properties = scratch
	return &closed, scratch, nil
}

package consumequeue

import (
	"encoding/binary"

	"github.com/epochmq/epochmq/message"
)

// UnitSize is the length of one unit on disk, in bytes.
const UnitSize = 20

// blankSize is the size field of a unit that only fills the file below the first offset of a queue.
const blankSize = 0x7FFFFFFF

// maxExtAddress is the largest tags field that is an address in an ext file instead of a tags code.
const maxExtAddress = -2147483649

// Unit is one entry of a queue: where its message stands in the log.
type Unit struct {
	Log  message.LogOffset
	Size int32 // bytes of the record
	Tags int64 // hash of the tags, or the delivery time in the delay topic
}

// Blank reports whether the unit only fills the file below the first offset of the queue and has no message.
func (u Unit) Blank() bool { return u.Size == blankSize && u.Log == 0 }

// Valid reports whether the unit was ever written: it has a message or is blank.
func (u Unit) Valid() bool { return u.Log >= 0 && u.Size > 0 }

// Ext reports whether Tags is an address in an ext file of a Java broker, so that only the record tells the tags.
func (u Unit) Ext() bool { return u.Tags <= maxExtAddress }

// End is the log offset after the message; 0 for a blank unit.
func (u Unit) End() message.LogOffset {
	if u.Blank() {
		return 0
	}
	return u.Log + message.LogOffset(u.Size)
}

// Decode reads the unit at the start of b, which must hold UnitSize bytes.
func Decode(b []byte) Unit {
	_ = b[UnitSize-1]
	return Unit{
		Log:  message.LogOffset(binary.BigEndian.Uint64(b)),
		Size: int32(binary.BigEndian.Uint32(b[8:])),
		Tags: int64(binary.BigEndian.Uint64(b[12:])),
	}
}

// Append adds the stored form of u to dst.
func (u Unit) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.Log))
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.Size))
	return binary.BigEndian.AppendUint64(dst, uint64(u.Tags))
}

// Entry is a unit together with its place in the queue, as the dispatcher hands it in.
type Entry struct {
	Offset message.QueueOffset
	Unit
}

// Summary is what a recovery mark keeps of a queue, so that a start need not open its files. It describes units that
// were handed to the operating system, never those that were only in memory.
type Summary struct {
	Topic  string
	ID     int32
	Min    message.QueueOffset // lowest offset that may be read
	Max    message.QueueOffset // next offset to be written
	MinLog message.LogOffset   // log offset of the unit at Min
	End    message.LogOffset   // log offset after the message of the last unit, 0 when there is none
	First  int64               // number of the first file, counted from the file of offset 0
}

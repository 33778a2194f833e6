package commitlog

import (
	"fmt"
	"time"

	"github.com/epochmq/epochmq/message"
)

// Batch is one message, or several that lie side by side in the log, encoded and ready to be appended. It is reused: Reset,
// Add, Append, then read what was assigned. One goroutine uses it. Get it from Log.NewBatch.
type Batch struct {
	buf     []byte
	entries []Entry
	props   []byte // scratch for the CRC property
	closed  []byte // scratch for properties that need an end
	crc     bool
}

// Placed says where a batch went.
type Placed struct {
	Start, End message.LogOffset
	StoreTime  int64 // ms since the epoch, the same for the whole batch

	Waited time.Duration // for the append lock, a stage or a segment
}

// NewBatch returns an empty batch for this log.
func (l *Log) NewBatch() *Batch { return &Batch{crc: l.cfg.AppendCRC} }

// Reset empties the batch and keeps its memory, unless that has grown large.
func (b *Batch) Reset() {
	if cap(b.buf) > 1<<20 {
		b.buf = nil
	}
	b.buf, b.entries = b.buf[:0], b.entries[:0]
}

// Add encodes m behind what is there; nothing of m is kept. q is the queue that gives the offset. An error, ErrIllegal
// or one of message.AppendRecord, leaves the batch as it was.
func (b *Batch) Add(m *message.Message, q *Queue) error {
	m, scratch, err := guard(m, b.closed)
	b.closed = scratch
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	start := len(b.buf)
	if b.crc {
		err = b.appendWithCRC(m)
	} else {
		b.buf, err = message.AppendRecord(b.buf, m)
	}
	if err != nil {
		b.buf = b.buf[:start]
		return fmt.Errorf("encode message: %w", err)
	}
	b.entries = append(b.entries, Entry{Queue: q, Size: int32(len(b.buf) - start), SysFlag: m.SysFlag})
	b.entries[len(b.entries)-1].properties(m.Properties)
	return nil
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.entries) }

// Bytes is the size of the records.
func (b *Batch) Bytes() int { return len(b.buf) }

// Entry tells what is known of message i; offsets and store time after Append. It is valid until Reset.
func (b *Batch) Entry(i int) *Entry { return &b.entries[i] }

// place gives every record its late fields. Called under the append lock; it may be repeated as long as commit was not.
func (b *Batch) place(at, storeTime int64) {
	pos := 0
	for i := range b.entries {
		e := &b.entries[i]
		e.LogOffset = message.LogOffset(at + int64(pos))
		e.StoreTime = storeTime
		e.QueueOffset = 0
		if takesOffset(e.SysFlag) {
			e.QueueOffset = message.QueueOffset(e.Queue.next.Load())
			e.Queue.next.Store(int64(e.QueueOffset) + 1)
		}
		rec := b.buf[pos : pos+int(e.Size)]
		message.Patch(rec, e.QueueOffset, e.LogOffset, storeTime)
		if b.crc {
			putPropCRC(rec)
		}
		pos += int(e.Size)
	}
}

// takesOffset: prepared and rolled back messages stay invisible, they have offset 0 and do not advance the queue.
func takesOffset(sysFlag int32) bool {
	t := sysFlag & message.TransactionMask
	return t == 0 || t == message.TransactionCommit
}

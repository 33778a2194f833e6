package ha

import (
	"encoding/binary"
	"fmt"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/message"
)

// Sizes of docs/formats/ha-frames.md.
const (
	reportSize      = 8
	classicHeadSize = 12
	handshakeSize   = 16
	replyHeadSize   = 20
	replyEntrySize  = 12
	ackSize         = 12
	autoHeadSize    = 36
	maxFrame        = 4<<20 - 1 // RocketMQ's slave cannot assemble more
)

// States of a connection, as they travel.
const (
	stateHandshake = 1
	stateTransfer  = 2
)

// frame is the head of what a master sends. The last three fields are AutoSwitch only.
type frame struct {
	At         message.LogOffset // of the first byte of the body; of a heartbeat: the next to be sent
	Size       int               // of the body, 0: heartbeat
	Epoch      int32             // of the bytes
	EpochStart message.LogOffset
	Confirmed  message.LogOffset
}

func (f *frame) putClassic(b []byte) []byte {
	binary.BigEndian.PutUint64(b, uint64(f.At))
	binary.BigEndian.PutUint32(b[8:], uint32(f.Size))
	return b[:classicHeadSize]
}

func (f *frame) putAuto(b []byte) []byte {
	binary.BigEndian.PutUint32(b, stateTransfer)
	binary.BigEndian.PutUint32(b[4:], uint32(f.Size))
	binary.BigEndian.PutUint64(b[8:], uint64(f.At))
	binary.BigEndian.PutUint32(b[16:], uint32(f.Epoch))
	binary.BigEndian.PutUint64(b[20:], uint64(f.EpochStart))
	binary.BigEndian.PutUint64(b[28:], uint64(f.Confirmed))
	return b[:autoHeadSize]
}

// handshake is the first frame of an AutoSwitch slave.
type handshake struct {
	ID       int64 // controller id
	LastFile bool  // a blank slave wants only the last file
	Learner  bool  // never in sync
}

func (h handshake) put(b []byte) []byte {
	binary.BigEndian.PutUint32(b, stateHandshake)
	binary.BigEndian.PutUint16(b[4:], flag(h.LastFile))
	binary.BigEndian.PutUint16(b[6:], flag(h.Learner))
	binary.BigEndian.PutUint64(b[8:], uint64(h.ID))
	return b[:handshakeSize]
}

func flag(b bool) uint16 {
	if b {
		return 1
	}
	return 0
}

func putReport(b []byte, off message.LogOffset) []byte {
	binary.BigEndian.PutUint64(b, uint64(off))
	return b[:reportSize]
}

func putAck(b []byte, off message.LogOffset) []byte {
	binary.BigEndian.PutUint32(b, stateTransfer)
	binary.BigEndian.PutUint64(b[4:], uint64(off))
	return b[:ackSize]
}

// appendReply is a master's answer to a handshake.
func appendReply(b []byte, m epoch.Master) []byte {
	b = binary.BigEndian.AppendUint32(b, stateHandshake)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Epochs)*replyEntrySize))
	b = binary.BigEndian.AppendUint64(b, uint64(m.End))
	b = binary.BigEndian.AppendUint32(b, uint32(m.Epoch))
	for _, e := range m.Epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
	}
	return b
}

// fromMaster receives what a decoder finds in a master's stream. An error ends the stream.
type fromMaster interface {
	reply(m epoch.Master) error
	frame(f *frame) error
	body(at message.LogOffset, p []byte) error // a part of the last frame's body, valid during the call
}

// masterDecoder takes a master's stream apart as it comes. Bodies are handed on in the pieces in which they arrive, so
// nothing is allocated for a size that a peer has announced.
type masterDecoder struct {
	auto    bool
	replied bool // the handshake reply was seen
	head    [autoHeadSize]byte
	have    int // bytes of head
	left    int // of the body, or of the reply's entries
	at      message.LogOffset
	f       frame
	m       epoch.Master
	entries bool // the reply's entries are being read
}

func (d *masterDecoder) headSize() int {
	switch {
	case !d.auto:
		return classicHeadSize
	case d.entries:
		return replyEntrySize
	case !d.replied:
		return replyHeadSize
	}
	return autoHeadSize
}

func (d *masterDecoder) decode(p []byte, to fromMaster) error {
	for len(p) > 0 {
		if d.left > 0 && !d.entries {
			n := min(d.left, len(p))
			if err := to.body(d.at, p[:n]); err != nil {
				return err
			}
			d.at += message.LogOffset(n)
			d.left -= n
			p = p[n:]
			continue
		}
		n := copy(d.head[d.have:d.headSize()], p)
		d.have += n
		p = p[n:]
		if d.have < d.headSize() {
			return nil
		}
		d.have = 0
		if err := d.takeHead(to); err != nil {
			return err
		}
	}
	return nil
}

func (d *masterDecoder) takeHead(to fromMaster) error {
	switch {
	case d.entries:
		e := epoch.Entry{Epoch: d.i32(0), Start: message.LogOffset(d.i64(4))}
		d.m.Epochs = append(d.m.Epochs, e)
		if d.left -= replyEntrySize; d.left > 0 {
			return nil
		}
		d.entries = false
		return d.endReply(to)
	case d.auto && !d.replied:
		size := int(d.i32(4))
		if d.i32(0) != stateHandshake || size < 0 || size%replyEntrySize != 0 || size > epoch.MaxEntries*replyEntrySize {
			return fmt.Errorf("%w: handshake reply with state %d and %d bytes of epochs", ErrProtocol, d.i32(0), size)
		}
		d.replied, d.m = true, epoch.Master{End: message.LogOffset(d.i64(8)), Epoch: d.i32(16)}
		if size == 0 {
			return d.endReply(to)
		}
		d.entries, d.left = true, size
		return nil
	case d.auto:
		if d.i32(0) != stateTransfer {
			return fmt.Errorf("%w: state %d while transferring", ErrProtocol, d.i32(0))
		}
		d.f = frame{message.LogOffset(d.i64(8)), int(d.i32(4)), d.i32(16), message.LogOffset(d.i64(20)), message.LogOffset(d.i64(28))}
	default:
		d.f = frame{At: message.LogOffset(d.i64(0)), Size: int(d.i32(8))}
	}
	if d.f.Size < 0 || d.f.Size > maxFrame || d.f.Size > 0 && d.f.At < 0 {
		return fmt.Errorf("%w: frame of %d bytes at %d", ErrProtocol, d.f.Size, d.f.At)
	}
	d.at, d.left = d.f.At, d.f.Size
	return to.frame(&d.f)
}

func (d *masterDecoder) endReply(to fromMaster) error {
	if err := d.m.Epochs.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if d.m.End < 0 {
		d.m.End = 0 // RocketMQ's empty master
	}
	return to.reply(d.m)
}

func (d *masterDecoder) i32(at int) int32 { return int32(binary.BigEndian.Uint32(d.head[at:])) }
func (d *masterDecoder) i64(at int) int64 { return int64(binary.BigEndian.Uint64(d.head[at:])) }

// slaveDecoder takes a slave's stream apart. Of several acks in one read only the first of the connection and the last
// matter.
type slaveDecoder struct {
	auto bool
	head [handshakeSize]byte
	have int

	hands  int // handshakes seen
	hand   handshake
	acks   int               // acks seen
	first  message.LogOffset // what the slave asks for
	last   message.LogOffset
	inTurn bool // an ack was seen: no handshake may follow
}

// decode consumes p and updates the fields.
func (d *slaveDecoder) decode(p []byte) error {
	for len(p) > 0 {
		size := reportSize
		if d.auto {
			size = ackSize
			if d.have >= 4 && binary.BigEndian.Uint32(d.head[:]) == stateHandshake {
				size = handshakeSize
			} else if d.have < 4 {
				size = 4 // the state says how long the frame is
			}
		}
		n := copy(d.head[d.have:size], p)
		d.have += n
		p = p[n:]
		if d.have < size || d.auto && size == 4 {
			if state := binary.BigEndian.Uint32(d.head[:]); d.auto && d.have == 4 && state != stateHandshake && state != stateTransfer {
				return fmt.Errorf("%w: state %d", ErrProtocol, state)
			}
			continue
		}
		d.have = 0
		if err := d.take(size); err != nil {
			return err
		}
	}
	return nil
}

func (d *slaveDecoder) take(size int) error {
	if size == handshakeSize {
		h := handshake{int64(binary.BigEndian.Uint64(d.head[8:])), binary.BigEndian.Uint16(d.head[4:]) == 1, binary.BigEndian.Uint16(d.head[6:]) == 1}
		if d.inTurn || h.ID <= 0 || d.hands > 0 && h != d.hand {
			return fmt.Errorf("%w: handshake of %d", ErrProtocol, h.ID)
		}
		d.hands++
		d.hand = h
		return nil
	}
	at := 0
	if d.auto {
		if at = 4; binary.BigEndian.Uint32(d.head[:]) != stateTransfer || d.hands == 0 {
			return fmt.Errorf("%w: ack before the handshake", ErrProtocol)
		}
	}
	off := message.LogOffset(binary.BigEndian.Uint64(d.head[at:]))
	if off < 0 {
		return fmt.Errorf("%w: ack of %d", ErrProtocol, off)
	}
	if d.acks == 0 {
		d.first = off
	}
	d.acks++
	d.last, d.inTurn = off, true
	return nil
}

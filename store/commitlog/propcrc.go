package commitlog

import (
	"bytes"

	"github.com/epochmq/epochmq/message"
)

// The appended CRC property covers the record up to itself: name, 0x01, ten decimal digits with the least significant
// first, 0x02.
const (
	propCRCName = "__CRC32#"
	propCRCSize = len(propCRCName) + 1 + 10 + 1
)

// appendWithCRC encodes m with room for the property at the record's end.
func (b *Batch) appendWithCRC(m *message.Message) error {
	b.props = message.DropProperty(b.props[:0], m.Properties, propCRCName)
	if n := len(b.props); n > 0 && b.props[n-1] != 0x02 {
		b.props = append(b.props, 0x02)
	}
	var room [propCRCSize]byte
	b.props = append(b.props, room[:]...)
	with := *m
	with.Properties = b.props
	var err error
	b.buf, err = message.AppendRecord(b.buf, &with)
	return err
}

// putPropCRC fills the room at the end of a record whose other fields are final.
func putPropCRC(rec []byte) {
	at := len(rec) - propCRCSize
	crc := message.CRC(rec[:at])
	tail := rec[at:]
	n := copy(tail, propCRCName)
	tail[n] = 0x01
	for i := 0; i < 10; i++ {
		tail[n+1+i] = byte('0' + crc%10)
		crc /= 10
	}
	tail[propCRCSize-1] = 0x02
}

// propCRCValid checks the property at the end of a whole record; a record without it is not valid.
func propCRCValid(rec []byte) bool {
	at := len(rec) - propCRCSize
	if at < 0 {
		return false
	}
	tail := rec[at:]
	n := len(propCRCName)
	if !bytes.Equal(tail[:n], []byte(propCRCName)) || tail[n] != 0x01 || tail[propCRCSize-1] != 0x02 {
		return false
	}
	var sum, unit uint64 = 0, 1
	for _, c := range tail[n+1 : n+11] {
		if c < '0' || c > '9' {
			return false
		}
		sum += uint64(c-'0') * unit
		unit *= 10
	}
	return sum == uint64(message.CRC(rec[:at]))
}

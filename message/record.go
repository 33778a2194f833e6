package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unicode/utf8"
)

// ErrBlank says that the bytes are the filler at the end of a segment; Record.Size holds its length.
var ErrBlank = errors.New("blank record at the end of a segment")

// CorruptError says why bytes are not a record.
type CorruptError struct{ Reason string }

func (e *CorruptError) Error() string { return "corrupt record: " + e.Reason }

var (
	errShort       = &CorruptError{"fewer bytes than a record needs"}
	errMagic       = &CorruptError{"unknown magic number"}
	errSize        = &CorruptError{"size field outside the bytes at hand"}
	errBody        = &CorruptError{"body length outside the record"}
	errTopic       = &CorruptError{"topic length outside the record"}
	errProperties  = &CorruptError{"properties length outside the record"}
	errTotal       = &CorruptError{"fields do not add up to the size"}
	errLongTopic   = errors.New("encode record: topic longer than 255 bytes")
	errNoTopic     = errors.New("encode record: no topic")
	errLongProps   = errors.New("encode record: properties longer than 32767 bytes")
	errInvalidHost = errors.New("encode record: born or store host is not set")
)

// fixedV4 is the length of a V1 record with two IPv4 hosts and nothing variable.
const fixedV4 = 91

// ParseHeader reads size and magic of the record that starts at b. ok is false when b is shorter than eight bytes.
func ParseHeader(b []byte) (size int32, magic uint32, ok bool) {
	if len(b) < 8 {
		return 0, 0, false
	}
	return int32(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:]), true
}

// Parse decodes the record at the start of b, which may be longer, into r. The slices of r are views of b. It checks every length and
// allocates nothing. Errors: *CorruptError, or ErrBlank for the filler of a segment. It does not look at the body's checksum: BodyValid.
func Parse(b []byte, r *Record) error {
	size, magic, ok := ParseHeader(b)
	if !ok {
		return errShort
	}
	r.Size, r.Magic = size, magic
	switch magic {
	case MagicBlank:
		if size < BlankSize {
			return errSize
		}
		return ErrBlank
	case MagicV1, MagicV2:
	default:
		return errMagic
	}
	if size < fixedV4 || int(size) > len(b) {
		return errSize
	}
	b = b[:size:size]
	r.BodyCRC = binary.BigEndian.Uint32(b[8:])
	r.QueueID = int32(binary.BigEndian.Uint32(b[12:]))
	r.Flag = int32(binary.BigEndian.Uint32(b[16:]))
	r.QueueOffset = QueueOffset(binary.BigEndian.Uint64(b[20:]))
	r.LogOffset = LogOffset(binary.BigEndian.Uint64(b[28:]))
	r.SysFlag = int32(binary.BigEndian.Uint32(b[36:]))
	r.BornTime = int64(binary.BigEndian.Uint64(b[40:]))
	at := 48
	if at, ok = parseHost(b, at, r.SysFlag&FlagBornHostV6 != 0, &r.BornHost); !ok || len(b)-at < 8 {
		return errShort
	}
	r.StoreTime = int64(binary.BigEndian.Uint64(b[at:]))
	if at, ok = parseHost(b, at+8, r.SysFlag&FlagStoreHostV6 != 0, &r.StoreHost); !ok || len(b)-at < 16 {
		return errShort
	}
	r.ReconsumeTimes = int32(binary.BigEndian.Uint32(b[at:]))
	r.PreparedOffset = LogOffset(binary.BigEndian.Uint64(b[at+4:]))
	n := int(int32(binary.BigEndian.Uint32(b[at+12:])))
	at += 16
	if n < 0 || n > len(b)-at {
		return errBody
	}
	r.Body = b[at : at+n : at+n]
	return parseTail(b, at+n, r)
}

func parseHost(b []byte, at int, v6 bool, host *netip.AddrPort) (next int, ok bool) {
	if v6 {
		if len(b)-at < 20 {
			return at, false
		}
		*host = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[at:at+16])), uint16(binary.BigEndian.Uint32(b[at+16:])))
		return at + 20, true
	}
	if len(b)-at < 8 {
		return at, false
	}
	*host = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[at:at+4])), uint16(binary.BigEndian.Uint32(b[at+4:])))
	return at + 8, true
}

// parseTail reads topic and properties, which end the record.
func parseTail(b []byte, at int, r *Record) error {
	var n int
	if r.Magic == MagicV1 {
		if len(b)-at < 1 {
			return errTopic
		}
		n = int(int8(b[at]))
		at++
	} else {
		if len(b)-at < 2 {
			return errTopic
		}
		n = int(int16(binary.BigEndian.Uint16(b[at:])))
		at += 2
	}
	if n < 0 || n > len(b)-at {
		return errTopic
	}
	r.Topic = b[at : at+n : at+n]
	at += n
	if len(b)-at < 2 {
		return errProperties
	}
	n = int(int16(binary.BigEndian.Uint16(b[at:])))
	at += 2
	if n < 0 || n > len(b)-at {
		return errProperties
	}
	r.Properties = b[at : at+n : at+n]
	if at+n != len(b) {
		return errTotal
	}
	return nil
}

// BodyValid compares the body with its checksum. An empty body is always valid, as in RocketMQ.
func (r *Record) BodyValid() bool { return len(r.Body) == 0 || CRC(r.Body) == r.BodyCRC }

// usesV2 tells whether the topic needs the two-byte length: more than 127 characters, as RocketMQ counts them, or more than 127 bytes.
func usesV2(topic []byte) bool {
	return len(topic) > MaxTopicLen || utf8.RuneCount(topic) > MaxTopicLen
}

func hostLen(a netip.Addr) int {
	if a.Is4() || a.Is4In6() {
		return 8
	}
	return 20
}

// Size returns the number of bytes that AppendRecord appends.
func Size(m *Message) int {
	n := fixedV4 - 16 + hostLen(m.BornHost.Addr()) + hostLen(m.StoreHost.Addr()) + len(m.Body) + len(m.Topic) + len(m.Properties)
	if usesV2(m.Topic) {
		n++
	}
	return n
}

// AppendRecord appends the stored form of m. Queue offset, log offset and store time are left 0 for Patch. The host bits of the system
// flag follow the hosts. Errors: topic missing or above 255 bytes, properties above 32767 bytes, a host that is not set.
func AppendRecord(dst []byte, m *Message) ([]byte, error) {
	switch {
	case len(m.Topic) == 0:
		return dst, errNoTopic
	case len(m.Topic) > MaxTopicLenStore:
		return dst, errLongTopic
	case len(m.Properties) > MaxPropertiesLen:
		return dst, errLongProps
	case !m.BornHost.Addr().IsValid() || !m.StoreHost.Addr().IsValid():
		return dst, errInvalidHost
	}
	size := Size(m)
	if size > 1<<31-1 {
		return dst, fmt.Errorf("encode record: %d bytes are more than a record can hold", size)
	}
	v2 := usesV2(m.Topic)
	magic := MagicV1
	if v2 {
		magic = MagicV2
	}
	flag := m.SysFlag &^ (FlagBornHostV6 | FlagStoreHostV6)
	if hostLen(m.BornHost.Addr()) == 20 {
		flag |= FlagBornHostV6
	}
	if hostLen(m.StoreHost.Addr()) == 20 {
		flag |= FlagStoreHostV6
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint32(dst, magic)
	dst = be.AppendUint32(dst, CRC(m.Body))
	dst = be.AppendUint32(dst, uint32(m.QueueID))
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint64(dst, uint64(m.BornTime))
	dst = appendHost(dst, m.BornHost)
	dst = be.AppendUint64(dst, 0)
	dst = appendHost(dst, m.StoreHost)
	dst = be.AppendUint32(dst, uint32(m.ReconsumeTimes))
	dst = be.AppendUint64(dst, uint64(m.PreparedOffset))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	if v2 {
		dst = be.AppendUint16(dst, uint16(len(m.Topic)))
	} else {
		dst = append(dst, byte(len(m.Topic)))
	}
	dst = append(dst, m.Topic...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...), nil
}

func appendHost(dst []byte, h netip.AddrPort) []byte {
	a := h.Addr()
	if a.Is4() || a.Is4In6() {
		ip := a.As4()
		dst = append(dst, ip[:]...)
	} else {
		ip := a.As16()
		dst = append(dst, ip[:]...)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(h.Port()))
}

// Patch writes the fields that only the commit log knows. rec must be a whole record made by AppendRecord.
func Patch(rec []byte, q QueueOffset, l LogOffset, storeTime int64) {
	binary.BigEndian.PutUint64(rec[PosQueueOffset:], uint64(q))
	binary.BigEndian.PutUint64(rec[PosLogOffset:], uint64(l))
	binary.BigEndian.PutUint64(rec[storeTimePos(rec):], uint64(storeTime))
}

// SetStoreTime writes the store time of a whole record.
func SetStoreTime(rec []byte, ms int64) {
	binary.BigEndian.PutUint64(rec[storeTimePos(rec):], uint64(ms))
}

// storeTimePos returns where the store time is: behind the born host. rec must hold the system flag.
func storeTimePos(rec []byte) int {
	if int32(binary.BigEndian.Uint32(rec[PosSysFlag:]))&FlagBornHostV6 != 0 {
		return 68
	}
	return 56
}

// StoreTimeAt reads the store time of a record without decoding the rest; -1 when rec is too short.
func StoreTimeAt(rec []byte) int64 {
	if len(rec) < PosSysFlag+4 {
		return -1
	}
	p := storeTimePos(rec)
	if len(rec) < p+8 {
		return -1
	}
	return int64(binary.BigEndian.Uint64(rec[p:]))
}

package index

import (
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/epochmq/epochmq/message"
)

// Sizes of the parts of a file, in bytes.
const (
	HeaderSize = 40
	SlotSize   = 4
	EntrySize  = 20
)

// Header is the head of a file.
type Header struct {
	BeginTime int64 // store time of the first message, ms; that of the last one of the file before while there is none
	EndTime   int64 // store time of the last message
	BeginLog  message.LogOffset
	EndLog    message.LogOffset // start of the last message
	Slots     int32             // slots in use
	Count     int32             // number of the next entry; the first is 1
}

// DecodeHeader reads the header at the start of b, which must hold HeaderSize bytes. A count below 1 reads as 1.
func DecodeHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		BeginTime: int64(binary.BigEndian.Uint64(b)),
		EndTime:   int64(binary.BigEndian.Uint64(b[8:])),
		BeginLog:  message.LogOffset(binary.BigEndian.Uint64(b[16:])),
		EndLog:    message.LogOffset(binary.BigEndian.Uint64(b[24:])),
		Slots:     int32(binary.BigEndian.Uint32(b[32:])),
		Count:     max(1, int32(binary.BigEndian.Uint32(b[36:]))),
	}
}

// Append adds the stored form of h to dst.
func (h Header) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BeginTime))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.EndTime))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.BeginLog))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.EndLog))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.Slots))
	return binary.BigEndian.AppendUint32(dst, uint32(h.Count))
}

// Entry is one key of one message.
type Entry struct {
	Hash    int32
	Log     message.LogOffset
	Seconds int32 // store time, in seconds after the begin time that the file had when the entry was put
	Prev    int32 // number of the entry before it in the same slot, 0 when there is none
}

// DecodeEntry reads the entry at the start of b, which must hold EntrySize bytes.
func DecodeEntry(b []byte) Entry {
	_ = b[EntrySize-1]
	return Entry{
		Hash:    int32(binary.BigEndian.Uint32(b)),
		Log:     message.LogOffset(binary.BigEndian.Uint64(b[4:])),
		Seconds: int32(binary.BigEndian.Uint32(b[12:])),
		Prev:    int32(binary.BigEndian.Uint32(b[16:])),
	}
}

// Append adds the stored form of e to dst.
func (e Entry) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Hash))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Log))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Seconds))
	return binary.BigEndian.AppendUint32(dst, uint32(e.Prev))
}

// Layout is the shape of all files of a folder.
type Layout struct {
	Slots   int32 // maxHashSlotNum
	Entries int32 // maxIndexNum; entry 0 is never used
}

// FileSize is the length of a file in bytes.
func (l Layout) FileSize() int64 { return l.entryPos(l.Entries) }

func (l Layout) slotPos(slot int32) int64 { return HeaderSize + int64(slot)*SlotSize }
func (l Layout) entryPos(n int32) int64 {
	return HeaderSize + int64(l.Slots)*SlotSize + int64(n)*EntrySize
}

// EntryPos is the position of entry n in a file.
func (l Layout) EntryPos(n int32) int64 { return l.entryPos(n) }

// Hash is the hash under which a key of a topic is stored: that of topic#key in RocketMQ's form, never negative.
func Hash(topic, key []byte) int32 {
	h := hashMore(0, topic)
	h = hashMore(31*h+'#', key)
	return nonNegative(h)
}

func nonNegative(h int32) int32 {
	if h < 0 {
		h = -h
	}
	return max(h, 0) // the smallest int32 stays negative
}

// hashMore goes on with Java's String.hashCode over the UTF-16 units of b.
func hashMore(h int32, b []byte) int32 {
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			h = 31*h + int32(b[i])
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xD800 + r>>10
			h = 31*h + 0xDC00 + r&0x3FF
			continue
		}
		h = 31*h + r
	}
	return h
}

// AppendHashes adds the hashes of a message's keys to dst: of its unique key, when it has one, then of each part of keys,
// which are separated by blanks.
func AppendHashes(dst []int32, topic, unique, keys []byte) []int32 {
	if len(unique) == 0 && len(keys) == 0 {
		return dst
	}
	base := 31*hashMore(0, topic) + '#'
	if len(unique) > 0 {
		dst = append(dst, nonNegative(hashMore(base, unique)))
	}
	for start, i := 0, 0; i <= len(keys); i++ {
		if i < len(keys) && keys[i] != ' ' {
			continue
		}
		if i > start {
			dst = append(dst, nonNegative(hashMore(base, keys[start:i])))
		}
		start = i + 1
	}
	return dst
}

const nameLayout = "20060102150405.000"

// FileName is the name of a file made at t: 17 digits of local time.
func FileName(t time.Time) string {
	s := t.Local().Format(nameLayout)
	return s[:14] + s[15:]
}

// ParseName reads a file name.
func ParseName(name string) (time.Time, error) {
	if len(name) != 17 {
		return time.Time{}, fmt.Errorf("index file name %q: not 17 digits", name)
	}
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return time.Time{}, fmt.Errorf("index file name %q: not 17 digits", name)
		}
	}
	return time.ParseInLocation(nameLayout, name[:14]+"."+name[14:], time.Local)
}

// seconds is the time field of an entry stored at t in a file that begins at begin.
func seconds(begin, t int64) int32 {
	if begin <= 0 {
		return 0
	}
	return int32(min(max((t-begin)/1000, 0), 1<<31-1))
}

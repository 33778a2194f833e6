package protocol

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Header is a received header. Its texts are views of the frame it was decoded from, valid as long as the frame is. A
// Header is reused by the next Decode; it is not safe for concurrent use.
type Header struct {
	Code     Code
	Opaque   int32
	Flag     int32
	Version  int32
	Language byte
	Form     Form
	Remark   []byte // nil when there is none

	buf      []byte // the header's bytes, unescaped in place
	remarkAt span
	fields   []field
}

// span is a range of Header.buf: offsets instead of slices, so that a copy of buf is a copy of the header.
type span struct{ start, end uint32 }

type field struct{ name, value span }

const keepFields = 64 // capacity of fields that a reused Header keeps

func (h *Header) reset() {
	if cap(h.fields) > keepFields {
		h.fields = nil
	}
	*h = Header{fields: h.fields[:0]}
}

func (h *Header) view(s span) []byte { return h.buf[s.start:s.end:s.end] }

// Response says that the frame is an answer.
func (h *Header) Response() bool { return h.Flag&FlagResponse != 0 }

// OnewayFlag says that the frame is a request that is never answered.
func (h *Header) OnewayFlag() bool { return h.Flag&FlagOneway != 0 }

// Len is the number of ext fields.
func (h *Header) Len() int { return len(h.fields) }

// Field is the ext field at i, in the order of the frame.
func (h *Header) Field(i int) (name, value []byte) {
	f := &h.fields[i]
	return h.view(f.name), h.view(f.value)
}

// Get finds an ext field. Of duplicates the last counts.
func (h *Header) Get(name string) (value []byte, ok bool) {
	for i := len(h.fields) - 1; i >= 0; i-- {
		f := &h.fields[i]
		if int(f.name.end-f.name.start) == len(name) && string(h.buf[f.name.start:f.name.end]) == name {
			return h.view(f.value), true
		}
	}
	return nil, false
}

// String is the text of an ext field, empty when it is missing.
func (h *Header) String(name string) string {
	v, _ := h.Get(name)
	return string(v)
}

// Int64 is an ext field as a decimal number. ok says that it is there; err is an *Error with code 1 that names the field.
func (h *Header) Int64(name string) (v int64, ok bool, err error) {
	b, ok := h.Get(name)
	if !ok {
		return 0, false, nil
	}
	v, good := ParseInt(b)
	if !good {
		return 0, true, badField(name, b)
	}
	return v, true, nil
}

// Int32 is Int64 for numbers of 32 bits.
func (h *Header) Int32(name string) (v int32, ok bool, err error) {
	n, ok, err := h.Int64(name)
	if err == nil && n != int64(int32(n)) {
		b, _ := h.Get(name)
		return 0, true, badField(name, b)
	}
	return int32(n), ok, err
}

// Bool is true when the ext field is "true" in any case. Every other text is false, so err is always nil.
func (h *Header) Bool(name string) (v, ok bool, err error) {
	b, ok := h.Get(name)
	return ParseBool(b), ok, nil
}

// Each calls fn for every ext field in the order of the frame until it returns false.
func (h *Header) Each(fn func(name, value []byte) bool) {
	for i := range h.fields {
		if name, value := h.Field(i); !fn(name, value) {
			return
		}
	}
}

// CloneInto makes dst an independent copy whose texts are views of buf, which is grown as needed; it returns buf with the
// header's bytes appended.
func (h *Header) CloneInto(dst *Header, buf []byte) []byte {
	start := len(buf)
	buf = append(buf, h.buf...)
	fields := append(dst.fields[:0], h.fields...)
	*dst = *h
	dst.buf, dst.fields = buf[start:len(buf):len(buf)], fields
	if h.Remark != nil {
		dst.Remark = dst.view(dst.remarkAt)
	}
	return buf
}

// HeaderSize is the number of bytes of the header.
func (h *Header) HeaderSize() int { return len(h.buf) }

func badField(name string, value []byte) *Error {
	if len(value) > 64 {
		value = value[:64]
	}
	return &Error{Code: SystemError, Remark: fmt.Sprintf("the custom field <%s> is no number in range: %q", name, value)}
}

// Missing is the error of a request without a required field, in the reference's words.
func Missing(name string) *Error {
	return &Error{Code: SystemError, Remark: "the custom field <" + name + "> is null"}
}

// ParseInt reads decimal text, as Java's Long.parseLong does for ASCII digits: an optional sign, digits, nothing else.
func ParseInt(b []byte) (v int64, ok bool) {
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	if len(b) < 19 {
		for _, c := range b {
			if c -= '0'; c > 9 {
				return 0, false
			}
			v = v*10 + int64(c)
		}
		if neg {
			v = -v
		}
		return v, true
	}
	s := string(b)
	if s[0] == '+' || s[0] == '-' {
		return 0, false
	}
	if neg {
		s = "-" + s
	}
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil
}

// ParseBool is true for "true" in any case.
func ParseBool(b []byte) bool {
	return len(b) == 4 && b[0]|0x20 == 't' && b[1]|0x20 == 'r' && b[2]|0x20 == 'u' && b[3]|0x20 == 'e'
}

// scanBinary reads the compact form of h.buf.
func (h *Header) scanBinary() error {
	b := h.buf
	h.Form = Binary
	if len(b) < 21 {
		return errBinary
	}
	h.Code = int32(int16(binary.BigEndian.Uint16(b)))
	h.Language = b[2]
	h.Version = int32(int16(binary.BigEndian.Uint16(b[3:])))
	h.Opaque = int32(binary.BigEndian.Uint32(b[5:]))
	h.Flag = int32(binary.BigEndian.Uint32(b[9:]))
	n := binary.BigEndian.Uint32(b[13:])
	if uint64(n)+21 > uint64(len(b)) {
		return errBinary
	}
	at := 17 + n
	if n > 0 {
		h.remarkAt = span{17, at}
		h.Remark = h.view(h.remarkAt)
	}
	n = binary.BigEndian.Uint32(b[at:])
	at += 4
	if uint64(n) > uint64(len(b))-uint64(at) {
		return errBinary
	}
	end := at + n
	for at < end {
		if end-at < 2 {
			return errBinary
		}
		k := uint32(binary.BigEndian.Uint16(b[at:]))
		at += 2
		if k > 0x7FFF || k+4 > end-at {
			return errBinary
		}
		name := span{at, at + k}
		at += k
		v := binary.BigEndian.Uint32(b[at:])
		at += 4
		if v > end-at {
			return errBinary
		}
		if len(h.fields) == MaxFields {
			return errFields
		}
		h.fields = append(h.fields, field{name, span{at, at + v}})
		at += v
	}
	return nil
}

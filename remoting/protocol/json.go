package protocol

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The JSON form is scanned in one pass: keys of the outer object go to the header's own fields, the members of extFields
// to spans. Texts are unescaped where they stand, which never needs more room than the escaped text.

const maxDepth = 64 // of objects and arrays inside a value

// scanJSON reads the JSON form of h.buf.
func (h *Header) scanJSON() error {
	b := h.buf
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return errJSON
	}
	i, more := skipSpace(b, i+1), true
	if i < len(b) && b[i] == '}' {
		i, more = i+1, false
	}
	for more {
		key, next, ok := scanKey(b, i)
		if !ok {
			return errJSON
		}
		var err error
		if i, err = h.member(b[key.start:key.end], next); err != nil {
			return err
		}
		if i, more, ok = scanComma(b, i); !ok {
			return errJSON
		}
	}
	if skipSpace(b, i) != len(b) {
		return errJSON
	}
	return nil
}

// member reads the value at i of a key of the outer object.
func (h *Header) member(key []byte, i int) (next int, err error) {
	b := h.buf
	if i >= len(b) {
		return 0, errJSON
	}
	switch string(key) {
	case "code":
		return scanInt(b, i, &h.Code)
	case "flag":
		return scanInt(b, i, &h.Flag)
	case "opaque":
		return scanInt(b, i, &h.Opaque)
	case "version":
		return scanInt(b, i, &h.Version)
	case "language":
		return h.scanLanguage(i)
	case "remark":
		v, next, null, err := scanValue(b, i)
		if err == nil && !null {
			h.remarkAt = v
			h.Remark = h.view(v)
		}
		return next, err
	case "extFields":
		return h.scanExt(i)
	}
	_, next, _, err = scanValue(b, i) // serializeTypeCurrentRPC and keys that we do not know
	return next, err
}

func (h *Header) scanExt(i int) (next int, err error) {
	b := h.buf
	if b[i] != '{' {
		_, next, null, err := scanValue(b, i)
		if err == nil && !null {
			err = errJSON
		}
		return next, err
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for more := true; more; {
		name, at, ok := scanKey(b, i)
		if !ok {
			return 0, errJSON
		}
		value, next, null, err := scanValue(b, at)
		if err != nil {
			return 0, err
		}
		if !null {
			if len(h.fields) == MaxFields {
				return 0, errFields
			}
			h.fields = append(h.fields, field{name, value})
		}
		if i, more, ok = scanComma(b, next); !ok {
			return 0, errJSON
		}
	}
	return i, nil
}

// scanLanguage takes a name or an id.
func (h *Header) scanLanguage(i int) (next int, err error) {
	quoted := h.buf[i] == '"'
	v, next, null, err := scanValue(h.buf, i)
	if err != nil || null {
		return next, err
	}
	text := h.view(v)
	if quoted {
		h.Language = ParseLanguage(text)
	} else if n, ok := ParseInt(text); ok && n >= 0 && n < int64(len(languages)) {
		h.Language = byte(n)
	} else {
		h.Language = LangOther
	}
	return next, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// scanKey reads a quoted key at i, the colon, and the space around it.
func scanKey(b []byte, i int) (key span, next int, ok bool) {
	if i >= len(b) || b[i] != '"' {
		return key, 0, false
	}
	if i+4 < len(b) && b[i+2] == '"' && b[i+3] == ':' && b[i+4] > ' ' && b[i+1] != '"' && b[i+1] != '\\' {
		return span{uint32(i + 1), uint32(i + 2)}, i + 4, true // one letter, as in sends
	}
	if key, i, ok = scanString(b, i+1); !ok {
		return key, 0, false
	}
	if i < len(b) && b[i] == ':' && i+1 < len(b) && b[i+1] > ' ' {
		return key, i + 1, true
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return key, 0, false
	}
	i = skipSpace(b, i+1)
	return key, i, i < len(b)
}

// scanComma reads what follows a member: a comma and the space before the next key, or the end of the object.
func scanComma(b []byte, i int) (next int, more, ok bool) {
	if i+1 < len(b) && b[i] == ',' && b[i+1] > ' ' {
		return i + 1, true, true
	}
	if i = skipSpace(b, i); i >= len(b) {
		return 0, false, false
	}
	switch b[i] {
	case ',':
		return skipSpace(b, i+1), true, true
	case '}':
		return i + 1, false, true
	}
	return 0, false, false
}

// scanString reads a text whose first byte is at i, behind the opening quote. It looks at eight bytes at once.
func scanString(b []byte, i int) (s span, next int, ok bool) {
	at := i
	for ; at+8 <= len(b); at += 8 {
		v := binary.LittleEndian.Uint64(b[at:])
		if m := zeroBytes(v^quotes) | zeroBytes(v^slashes); m != 0 {
			at += bits.TrailingZeros64(m) >> 3
			if b[at] == '"' {
				return span{uint32(i), uint32(at)}, at + 1, true
			}
			return unescape(b, i, at)
		}
	}
	for ; at < len(b); at++ {
		if c := b[at]; c == '"' {
			return span{uint32(i), uint32(at)}, at + 1, true
		} else if c == '\\' {
			return unescape(b, i, at)
		}
	}
	return s, 0, false
}

const (
	ones    = 0x0101010101010101
	quotes  = ones * '"'
	slashes = ones * '\\'

	lowEscape = '\\' | 'u'<<8 | '0'<<16 | '0'<<24 // the first four bytes of \u00XX, as a little-endian number
)

// zeroBytes has the high bit of each byte of v that is zero; bits above the first one may be wrong.
func zeroBytes(v uint64) uint64 { return (v - ones) &^ v & (ones << 7) }

// unescape goes on with a text that starts at start and has its first backslash at i.
func unescape(b []byte, start, i int) (s span, next int, ok bool) {
	w := i
	for i < len(b) {
		if i+8 <= len(b) {
			v := binary.LittleEndian.Uint64(b[i:])
			if uint32(v) == lowEscape && byte(v>>32) == '0' && hexDigits[byte(v>>40)] < 16 { // as between properties
				b[w] = hexDigits[byte(v>>40)]
				w, i = w+1, i+6
				continue
			}
			if n := bits.TrailingZeros64(zeroBytes(v^quotes)|zeroBytes(v^slashes)) >> 3; n == 8 || n > 0 && i-w >= 8 {
				binary.LittleEndian.PutUint64(b[w:], v) // what is written beyond n bytes was read before
				w, i = w+n, i+n
				continue
			}
		}
		c := b[i]
		if c == '"' {
			return span{uint32(start), uint32(w)}, i + 1, true
		}
		if c != '\\' {
			b[w] = c
			w, i = w+1, i+1
			continue
		}
		if i+1 >= len(b) {
			break
		}
		c = b[i+1]
		if c == 'u' {
			r, n := hexRune(b, i)
			if n == 0 {
				break
			}
			if i += n; r < utf8.RuneSelf {
				b[w] = byte(r)
				w++
			} else {
				w += utf8.EncodeRune(b[w:i], r)
			}
			continue
		}
		if c == 'x' {
			hi, lo := hexAt(b, i+2), hexAt(b, i+3)
			if hi|lo > 15 {
				break
			}
			i += 4
			w += utf8.EncodeRune(b[w:i], rune(hi<<4|lo))
			continue
		}
		if c = escapes[c]; c == 0 && b[i+1] != '0' {
			break
		}
		b[w] = c
		w, i = w+1, i+2
	}
	return s, 0, false
}

// escapes maps the letter behind a backslash to its byte.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', '\'': '\'', 'b': 8, 'f': 12, 'F': 12, 'n': 10, 'r': 13, 't': 9,
	'v': 11, '0': 0, '1': 1, '2': 2, '3': 3, '4': 4, '5': 5, '6': 6, '7': 7}

// hexRune reads \uXXXX at i, with the second half of a surrogate pair. n is the number of bytes read, 0 for an error.
func hexRune(b []byte, i int) (r rune, n int) {
	r, ok := hex4(b, i+2)
	if !ok {
		return 0, 0
	}
	if r < 0xD800 || r > 0xDFFF {
		return r, 6
	}
	if r < 0xDC00 && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
		if low, ok := hex4(b, i+8); ok && low >= 0xDC00 && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 12
		}
	}
	return utf8.RuneError, 6
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	p, q, r, s := hexDigits[b[i]], hexDigits[b[i+1]], hexDigits[b[i+2]], hexDigits[b[i+3]]
	return rune(p)<<12 | rune(q)<<8 | rune(r)<<4 | rune(s), p|q|r|s < 16
}

func hexAt(b []byte, i int) byte {
	if i >= len(b) {
		return 0xFF
	}
	return hexDigits[b[i]]
}

var hexDigits = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xFF
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = byte(10+i), byte(10+i)
	}
	return t
}()

// scanValue reads any value at i as text: that of a string, the digits of a number, true and false, the compact JSON of an
// object or array. null is reported apart.
func scanValue(b []byte, i int) (s span, next int, null bool, err error) {
	switch c := b[i]; c {
	case '"':
		s, next, ok := scanString(b, i+1)
		if !ok {
			return s, 0, false, errJSON
		}
		return s, next, false, nil
	case '{', '[':
		return compact(b, i)
	}
	next = i
	for next < len(b) && isWord(b[next]) {
		next++
	}
	switch word := b[i:next]; {
	case string(word) == "null":
		return s, next, true, nil
	case string(word) == "true", string(word) == "false", isNumber(word):
		return span{uint32(i), uint32(next)}, next, false, nil
	}
	return s, 0, false, errJSON
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}

func isNumber(b []byte) bool {
	digits := false
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			digits = true
		case c == '-' && i == 0:
		case (c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') && digits:
		default:
			return false
		}
	}
	return digits
}

// compact removes the space of the object or array at i, in place. It checks brackets and strings, no more: nobody reads
// the text as JSON here.
func compact(b []byte, i int) (s span, next int, null bool, err error) {
	start, w, depth := i, i, 0
	var open uint64 // a bit per level: 1 for an object
	for i < len(b) {
		c := b[i]
		switch c {
		case ' ', '\n', '\r', '\t':
			i++
			continue
		case '"':
			end := i + 1
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(b) {
				return s, 0, false, errJSON
			}
			w += copy(b[w:], b[i:end+1])
			i = end + 1
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return s, 0, false, errDeep
			}
			open <<= 1
			if c == '{' {
				open |= 1
			}
		case '}', ']':
			if (open&1 == 1) != (c == '}') {
				return s, 0, false, errJSON
			}
			open >>= 1
			depth--
		}
		b[w] = c
		w, i = w+1, i+1
		if depth == 0 {
			return span{uint32(start), uint32(w)}, i, false, nil
		}
	}
	return s, 0, false, errJSON
}

// scanInt reads a number of 32 bits, quoted or not; a fraction is cut off and null leaves dst as it is.
func scanInt(b []byte, i int, dst *int32) (next int, err error) {
	var v, at = int64(0), i
	neg := b[at] == '-'
	if neg {
		at++
	}
	first := at
	for at < len(b) && b[at]-'0' <= 9 && at-first < 11 {
		v = v*10 + int64(b[at]-'0')
		at++
	}
	if at == first || at < len(b) && isWord(b[at]) {
		return scanOddInt(b, i, dst)
	}
	if neg {
		v = -v
	}
	if v != int64(int32(v)) {
		return 0, errNumber
	}
	*dst = int32(v)
	return at, nil
}

func scanOddInt(b []byte, i int, dst *int32) (next int, err error) {
	s, next, null, err := scanValue(b, i)
	if err != nil || null {
		return next, err
	}
	text := b[s.start:s.end]
	for j, c := range text {
		if c == '.' {
			text = text[:j]
			break
		}
	}
	v, ok := ParseInt(text)
	if !ok || v != int64(int32(v)) {
		return 0, errNumber
	}
	*dst = int32(v)
	return next, nil
}

package protocol

import "strconv"

func appendInt(dst []byte, v int64) []byte {
	if v >= 0 && v < 10 {
		return append(dst, byte('0'+v))
	}
	return strconv.AppendInt(dst, v, 10)
}

const upperHex = "0123456789ABCDEF"

// plain says of each byte that it needs no escape. 0xC2 and 0xE2 may begin a character that does.
var plain = func() (t [256]bool) {
	for i := range t {
		t[i] = i >= 0x20 && i != '"' && i != '\\' && i != 0x7F && i != 0xC2 && i != 0xE2
	}
	return t
}()

// appendQuoted appends s as a JSON string, with the escapes that the reference's writer uses: short ones, \u00XX for other
// control characters, 0x7F to 0x9F, and U+2028, U+2029.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	i, start := plainLen(s), 0
	dst = append(dst, '"')
	if i == len(s) {
		return append(append(dst, s...), '"')
	}
	for ; i < len(s); i++ {
		c := s[i]
		if plain[c] {
			continue
		}
		var r uint16
		width := 1
		switch c {
		case '"', '\\':
			dst = append(append(dst, s[start:i]...), '\\', c)
			start = i + 1
			continue
		case 0xC2:
			if i+1 >= len(s) || s[i+1] >= 0xA0 || s[i+1] < 0x80 {
				continue
			}
			r, width = uint16(s[i+1]), 2
		case 0xE2:
			if i+2 >= len(s) || s[i+1] != 0x80 || s[i+2] != 0xA8 && s[i+2] != 0xA9 {
				continue
			}
			r, width = 0x2000|uint16(s[i+2]&0x3F), 3
		default:
			r = uint16(c)
		}
		dst = append(dst, s[start:i]...)
		if short := shortEscape(r); short != 0 {
			dst = append(dst, '\\', short)
		} else {
			dst = append(dst, '\\', 'u', upperHex[r>>12], upperHex[r>>8&15], upperHex[r>>4&15], upperHex[r&15])
		}
		i += width - 1
		start = i + 1
	}
	return append(append(dst, s[start:]...), '"')
}

// plainLen is the length of the beginning of s that certainly needs no escape. It looks at eight bytes at once.
func plainLen[T string | []byte](s T) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		p := s[i : i+8]
		v := uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 | uint64(p[4])<<32 | uint64(p[5])<<40 | uint64(p[6])<<48 | uint64(p[7])<<56
		low := (v - ones*0x20) &^ v // high bit: below 0x20
		if (low|v|(v+ones))&(ones<<7)|zeroBytes(v^quotes)|zeroBytes(v^slashes) != 0 {
			return i
		}
	}
	for ; i < len(s) && plain[s[i]]; i++ {
	}
	return i
}

func shortEscape(r uint16) byte {
	switch r {
	case 8:
		return 'b'
	case 9:
		return 't'
	case 10:
		return 'n'
	case 12:
		return 'f'
	case 13:
		return 'r'
	}
	return 0
}

package message

import (
	"hash/crc32"
	"unicode/utf16"
	"unicode/utf8"
)

// CRC is the checksum of a body: CRC-32 (IEEE) without its top bit.
func CRC(b []byte) uint32 { return crc32.ChecksumIEEE(b) & 0x7FFFFFFF }

// Hash is Java's String.hashCode of UTF-8 text: over UTF-16 units, in wrapping 32-bit arithmetic. Invalid bytes count as U+FFFD.
func Hash(s []byte) int32 { return HashMore(0, s) }

// HashMore continues a hash, so that a key made of several parts need not be built.
func HashMore(h int32, s []byte) int32 {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		h = hashRune(h, r)
		i += n
	}
	return h
}

// HashString is Hash of a string.
func HashString(s string) int32 {
	var h int32
	for _, r := range s {
		h = hashRune(h, r)
	}
	return h
}

func hashRune(h int32, r rune) int32 {
	if r > 0xFFFF {
		hi, lo := utf16.EncodeRune(r)
		return 31*(31*h+hi) + lo
	}
	return 31*h + r
}

// TagsCode is what the consume queue holds for a message's TAGS: the hash of the whole text, sign-extended; 0 without tags.
func TagsCode(tags []byte) int64 { return int64(Hash(tags)) }

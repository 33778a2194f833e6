package main

// header holds the fields of a request that the floor uses, as views of the frame.
type header struct {
	code, opaque int64
	topic, props []byte
	queueID      int64
	queueOffset  int64
	maxMsgs      int64
	uniq         []byte
}

// decode reads a JSON header in one pass. Strings are unescaped in place as far as properties need it.
func (h *header) decode(b []byte) bool {
	*h = header{}
	var key []byte
	depth := 0
	for i := 0; i < len(b); {
		switch c := b[i]; c {
		case '{':
			depth++
			i++
		case '}':
			depth--
			i++
		case '"':
			s, next := text(b, i+1)
			if next < 0 {
				return false
			}
			i = next
			if i < len(b) && b[i] == ':' {
				key = s
				i++
			} else {
				h.set(depth, key, s)
			}
		case ',', ' ', ':':
			i++
		default:
			start := i
			for i < len(b) && b[i] != ',' && b[i] != '}' {
				i++
			}
			if i == start {
				return false
			}
			h.set(depth, key, b[start:i])
		}
	}
	return depth == 0
}

// text returns the string that starts at i and the position behind its closing quote.
func text(b []byte, i int) ([]byte, int) {
	start := i
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	out := i
	for i < len(b) && b[i] != '"' {
		if b[i] != '\\' {
			b[out] = b[i]
			i++
			out++
			continue
		}
		if i+1 >= len(b) {
			return nil, -1
		}
		if b[i+1] != 'u' {
			b[out] = b[i+1]
			i += 2
		} else {
			if i+6 > len(b) {
				return nil, -1
			}
			b[out] = nibble(b[i+4])<<4 | nibble(b[i+5])
			i += 6
		}
		out++
	}
	if i >= len(b) {
		return nil, -1
	}
	return b[start:out], i + 1
}

func nibble(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func (h *header) set(depth int, key, v []byte) {
	if depth == 1 {
		switch string(key) {
		case "code":
			h.code = number(v)
		case "opaque":
			h.opaque = number(v)
		}
		return
	}
	switch string(key) {
	case "b", "topic":
		h.topic = v
	case "e", "queueId":
		h.queueID = number(v)
	case "i":
		h.props = v
	case "queueOffset":
		h.queueOffset = number(v)
	case "maxMsgNums":
		h.maxMsgs = number(v)
	}
}

func number(b []byte) int64 {
	var n int64
	for _, c := range b {
		if c >= '0' && c <= '9' {
			n = n*10 + int64(c-'0')
		}
	}
	return n
}

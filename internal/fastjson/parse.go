// Package fastjson reads and writes the dialect of JSON that RocketMQ speaks: maps keyed by bare numbers or by objects, single quotes,
// names without quotes, comments, numbers given as text and text given as numbers. Unmarshal is as tolerant as RocketMQ's own reader;
// Marshal, MarshalPretty and MarshalBrowser write its three layouts, byte for byte.
//
// The wire protocol, the name server and the broker's configuration files use it. It never touches a file or a socket, and never panics or
// allocates by an announced size: input of any shape ends in a value or in a *SyntaxError.
package fastjson

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const maxDepth = 128

// SyntaxError says where the text stops being JSON.
type SyntaxError struct {
	Offset int // in bytes
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("json at byte %d: %s", e.Offset, e.Reason) }

// Kind tells what a Node is.
type Kind uint8

// The kinds of a Node.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// Node is a parsed value. Text holds a string's text, a number's digits, or "true"; Members are in the order of the input.
type Node struct {
	Kind    Kind
	Text    string
	Items   []*Node
	Members []Member
}

// Member is one entry of an object. Its key is a string, a number, or an object.
type Member struct {
	Key   *Node
	Value *Node
}

// Parse reads one value; only blanks and comments may follow it.
func Parse(data []byte) (*Node, error) {
	p := parser{b: data}
	n, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.blanks(); p.i < len(p.b) {
		return nil, p.fail("text after the value")
	}
	return n, nil
}

type parser struct {
	b     []byte
	i     int
	nodes int // of the tree that is being built
	most  int // of nodes of one tree; 0: any number
	held  int // bytes of elements of lists and maps
	kept  int // nodes that the decoded value holds
}

func (p *parser) fail(reason string) error { return &SyntaxError{p.i, reason} }

// blanks passes over blanks and comments.
func (p *parser) blanks() {
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\b':
			p.i++
		case c == '/' && p.i+1 < len(p.b) && p.b[p.i+1] == '/':
			for p.i < len(p.b) && p.b[p.i] != '\n' {
				p.i++
			}
		case c == '/' && p.i+1 < len(p.b) && p.b[p.i+1] == '*':
			end := p.i + 2
			for end+1 < len(p.b) && (p.b[end] != '*' || p.b[end+1] != '/') {
				end++
			}
			p.i = min(end+2, len(p.b))
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, p.fail("nested too deeply")
	}
	p.blanks()
	if p.i >= len(p.b) {
		return nil, p.fail("unexpected end")
	}
	if p.nodes++; p.most > 0 && p.nodes > p.most {
		return nil, p.fail("too many values")
	}
	switch c := p.b[p.i]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"' || c == '\'':
		s, err := p.text(c)
		return &Node{Kind: String, Text: s}, err
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		return p.number()
	default:
		return p.word()
	}
}

func (p *parser) object(depth int) (*Node, error) {
	n := &Node{Kind: Object}
	err := p.members(depth, func(key *Node) error {
		value, err := p.value(depth + 1)
		if err == nil {
			n.Members = append(n.Members, Member{key, value})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// members reads an object; value reads what belongs to a key.
func (p *parser) members(depth int, value func(key *Node) error) error {
	p.i++
	for {
		p.blanks()
		if p.i >= len(p.b) {
			return p.fail("object is not closed")
		}
		switch p.b[p.i] {
		case '}':
			p.i++
			return nil
		case ',':
			p.i++
			continue
		}
		key, err := p.key(depth)
		if err != nil {
			return err
		}
		if p.blanks(); p.i >= len(p.b) || p.b[p.i] != ':' {
			return p.fail("a colon belongs here")
		}
		p.i++
		if err := value(key); err != nil {
			return err
		}
		if p.blanks(); p.i < len(p.b) && p.b[p.i] != ',' && p.b[p.i] != '}' {
			return p.fail("a comma or a closing brace belongs here")
		}
	}
}

// key reads a member's key: quoted, bare, a number or an object.
func (p *parser) key(depth int) (*Node, error) {
	switch c := p.b[p.i]; {
	case c == '{' || c == '[' || c == '"' || c == '\'' || c == '-' || c >= '0' && c <= '9':
		return p.value(depth + 1)
	}
	start := p.i
	for p.i < len(p.b) && isWordByte(p.b[p.i]) {
		p.i++
	}
	if p.i == start {
		return nil, p.fail("a name belongs here")
	}
	return &Node{Kind: String, Text: string(p.b[start:p.i])}, nil
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '@' || c >= utf8.RuneSelf
}

func (p *parser) array(depth int) (*Node, error) {
	n := &Node{Kind: Array}
	err := p.items(func() error {
		item, err := p.value(depth + 1)
		if err == nil {
			n.Items = append(n.Items, item)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// items reads an array; item reads one of its values.
func (p *parser) items(item func() error) error {
	p.i++
	for first := true; ; first = false {
		p.blanks()
		if p.i >= len(p.b) {
			return p.fail("array is not closed")
		}
		if p.b[p.i] == ']' {
			p.i++
			return nil
		}
		if !first {
			if p.b[p.i] != ',' {
				return p.fail("a comma or a closing bracket belongs here")
			}
			for p.i < len(p.b) && p.b[p.i] == ',' {
				p.i++
				p.blanks()
			}
			if p.i < len(p.b) && p.b[p.i] == ']' {
				p.i++
				return nil
			}
		}
		if err := item(); err != nil {
			return err
		}
	}
}

func (p *parser) number() (*Node, error) {
	start := p.i
	for p.i < len(p.b) {
		c := p.b[p.i]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			p.i++
			continue
		}
		break
	}
	text := string(p.b[start:p.i])
	if p.i < len(p.b) { // a Java suffix: long, short, byte, float, double
		switch p.b[p.i] {
		case 'L', 'S', 'B', 'F', 'D':
			p.i++
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil && !isRange(err) {
		p.i = start
		return nil, p.fail("not a number")
	}
	return &Node{Kind: Number, Text: text}, nil
}

func isRange(err error) bool {
	e, ok := err.(*strconv.NumError)
	return ok && e.Err == strconv.ErrRange
}

func (p *parser) word() (*Node, error) {
	start := p.i
	for p.i < len(p.b) && isWordByte(p.b[p.i]) {
		p.i++
	}
	switch string(p.b[start:p.i]) {
	case "null", "undefined", "NaN":
		return &Node{Kind: Null}, nil
	case "true":
		return &Node{Kind: Bool, Text: "true"}, nil
	case "false":
		return &Node{Kind: Bool, Text: "false"}, nil
	}
	p.i = start
	return nil, p.fail("unexpected character")
}

// text reads a quoted string whose quote is at the current position.
func (p *parser) text(quote byte) (string, error) {
	p.i++
	start := p.i
	for p.i < len(p.b) && p.b[p.i] != quote && p.b[p.i] != '\\' {
		p.i++
	}
	if p.i < len(p.b) && p.b[p.i] == quote {
		p.i++
		return string(p.b[start : p.i-1]), nil
	}
	out := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		switch {
		case c == quote:
			p.i++
			return string(out), nil
		case c != '\\':
			out = append(out, c)
			p.i++
		default:
			var err error
			if out, err = p.escape(out); err != nil {
				return "", err
			}
		}
	}
	return "", p.fail("string is not closed")
}

func (p *parser) escape(out []byte) ([]byte, error) {
	if p.i+1 >= len(p.b) {
		return out, p.fail("escape is cut off")
	}
	c := p.b[p.i+1]
	p.i += 2
	switch c {
	case 'n':
		return append(out, '\n'), nil
	case 't':
		return append(out, '\t'), nil
	case 'r':
		return append(out, '\r'), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f', 'F':
		return append(out, '\f'), nil
	case 'v':
		return append(out, '\v'), nil
	case '0', '1', '2', '3', '4', '5', '6', '7':
		return append(out, c-'0'), nil
	case 'x':
		v, err := p.hex(2)
		return utf8.AppendRune(out, v), err
	case 'u':
		v, err := p.hex(4)
		if err != nil {
			return out, err
		}
		if utf16.IsSurrogate(v) && p.i+5 < len(p.b) && p.b[p.i] == '\\' && p.b[p.i+1] == 'u' {
			mark := p.i
			p.i += 2
			low, err := p.hex(4)
			if err != nil {
				return out, err
			}
			if r := utf16.DecodeRune(v, low); r != utf8.RuneError {
				return utf8.AppendRune(out, r), nil
			}
			p.i = mark
		}
		return utf8.AppendRune(out, v), nil
	case '"', '\'', '\\', '/':
		return append(out, c), nil
	}
	return out, p.fail("unknown escape")
}

func (p *parser) hex(n int) (rune, error) {
	if p.i+n > len(p.b) {
		return 0, p.fail("escape is cut off")
	}
	v, err := strconv.ParseUint(string(p.b[p.i:p.i+n]), 16, 32)
	if err != nil {
		return 0, p.fail("escape is not hexadecimal")
	}
	p.i += n
	return rune(v), nil
}

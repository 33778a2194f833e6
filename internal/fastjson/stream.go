package fastjson

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"golang.org/x/sync/semaphore"
)

// A text is decoded as it is read: a peer that sends sixteen megabytes of "{}," must not make us hold a tree fifty times as
// large. Trees are built only for values that read themselves, and those are bounded.

const (
	mostNodes   = 3 << 19  // of one tree: the offsets of 65,536 queues fit
	mostKept    = 1 << 18  // nodes that stay in the decoded value
	room        = 1 << 20  // bytes that elements of lists and maps may take in any case
	roomPerByte = 6        // and for each byte of text
	bigText     = 64 << 10 // smaller texts do not wait
	bigTexts    = 8 << 20  // bytes of larger ones that are decoded at the same time
)

var inDecoding = semaphore.NewWeighted(bigTexts)

// enter waits until a text of n bytes may be decoded.
func enter(n int) (leave func()) {
	if n < bigText {
		return func() {}
	}
	w := int64(min(n, bigTexts))
	_ = inDecoding.Acquire(context.Background(), w) // fails only when the context ends
	return func() { inDecoding.Release(w) }
}

var (
	unmarshalerType     = reflect.TypeFor[Unmarshaler]()
	jsonUnmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	nodeType            = reflect.TypeFor[Node]()
)

// readsItself says that values of the type decode themselves from a tree.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t == nodeType || p.Implements(unmarshalerType) || p.Implements(jsonUnmarshalerType) || p.Implements(textUnmarshalerType)
}

// into reads the next value and assigns it to v, with the rules of assign.
func (p *parser) into(v reflect.Value, path string, depth int) error {
	if depth > maxDepth {
		return p.fail("nested too deeply")
	}
	p.blanks()
	if p.i >= len(p.b) {
		return p.fail("unexpected end")
	}
	c, t := p.b[p.i], v.Type()
	if !readsItself(t) {
		switch t.Kind() {
		case reflect.Pointer:
			if p.null() {
				return nil
			}
			if v.IsNil() {
				v.Set(reflect.New(t.Elem()))
			}
			return p.into(v.Elem(), path, depth)
		case reflect.Struct:
			if c == '{' {
				return p.intoStruct(v, path, depth)
			}
			return p.other(path, "an object")
		case reflect.Map:
			if c == '{' {
				return p.intoMap(v, path, depth)
			}
			return p.other(path, "an object")
		case reflect.Slice:
			if c == '[' {
				return p.intoSlice(v, path, depth)
			}
			if t.Elem().Kind() != reflect.Uint8 {
				return p.other(path, "an array")
			}
		}
	}
	p.nodes = 0
	n, err := p.value(depth)
	if err != nil {
		return err
	}
	if t == nodeType || t.Kind() == reflect.Interface {
		if p.kept += p.nodes; p.kept > mostKept {
			return p.fail("too many values")
		}
	}
	return assign(n, v, path)
}

// null passes over a null.
func (p *parser) null() bool {
	if c := p.b[p.i]; c != 'n' && c != 'u' && c != 'N' {
		return false
	}
	start := p.i
	if n, err := p.word(); err == nil && n.Kind == Null {
		return true
	}
	p.i = start
	return false
}

// other is for a value that is not of the kind that v needs: null leaves v alone.
func (p *parser) other(path, want string) error {
	if p.null() {
		return nil
	}
	text := p.b[p.i:]
	if err := p.skip(0); err != nil {
		return err
	}
	text = text[:len(text)-len(p.b)+p.i]
	dots := ""
	if len(text) > 40 {
		text, dots = text[:40], "..."
	}
	return fmt.Errorf("%s: %q is not %s", at(path), string(text)+dots, want)
}

func (p *parser) intoStruct(v reflect.Value, path string, depth int) error {
	fields := fieldsOf(v.Type())
	return p.members(depth, func(key *Node) error {
		p.nodes = 0
		name := key.flat()
		f, ok := fields.byName[name]
		if !ok {
			if f, ok = fields.byFold[fold(name)]; !ok {
				return p.skip(depth + 1)
			}
		}
		return p.into(v.FieldByIndex(f.index), join(path, f.name), depth+1)
	})
}

func (p *parser) intoMap(v reflect.Value, path string, depth int) error {
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	return p.members(depth, func(k *Node) error {
		p.nodes = 0
		sub := join(path, k.flat())
		if err := p.hold(t.Key().Size() + t.Elem().Size()); err != nil {
			return err
		}
		key := reflect.New(t.Key()).Elem()
		if err := assign(k, key, sub); err != nil {
			return err
		}
		value := reflect.New(t.Elem()).Elem()
		if err := p.into(value, sub, depth+1); err != nil {
			return err
		}
		v.SetMapIndex(key, value)
		return nil
	})
}

// hold refuses a text whose elements take far more room than their text, such as millions of empty objects.
func (p *parser) hold(size uintptr) error {
	if p.held += int(size); p.held > roomPerByte*len(p.b)+room {
		return p.fail("too many values")
	}
	return nil
}

// intoSlice replaces what v held.
func (p *parser) intoSlice(v reflect.Value, path string, depth int) error {
	list := reflect.MakeSlice(v.Type(), 0, 0)
	zero := reflect.Zero(v.Type().Elem())
	err := p.items(func() error {
		if err := p.hold(zero.Type().Size()); err != nil {
			return err
		}
		n := list.Len()
		list = reflect.Append(list, zero)
		return p.into(list.Index(n), join(path, strconv.Itoa(n)), depth+1)
	})
	v.Set(list)
	return err
}

// skip passes over a value without keeping it.
func (p *parser) skip(depth int) error {
	if depth > maxDepth {
		return p.fail("nested too deeply")
	}
	if p.blanks(); p.i >= len(p.b) {
		return p.fail("unexpected end")
	}
	switch p.b[p.i] {
	case '{':
		return p.members(depth, func(*Node) error { p.nodes = 0; return p.skip(depth + 1) })
	case '[':
		return p.items(func() error { return p.skip(depth + 1) })
	}
	if p.plain() {
		return nil
	}
	p.nodes = 0
	_, err := p.value(depth)
	return err
}

// plain passes over a text without escapes or a number of digits, which need no tree.
func (p *parser) plain() bool {
	i, c := p.i, p.b[p.i]
	if c == '"' || c == '\'' {
		for i++; i < len(p.b) && p.b[i] != c && p.b[i] != '\\'; i++ {
		}
		if i == len(p.b) || p.b[i] != c {
			return false
		}
		p.i = i + 1
		return true
	}
	for i < len(p.b) && p.b[i] >= '0' && p.b[i] <= '9' {
		i++
	}
	if i == p.i || i == len(p.b) || p.b[i] != ',' && p.b[i] != ']' && p.b[i] != '}' {
		return false
	}
	p.i = i
	return true
}

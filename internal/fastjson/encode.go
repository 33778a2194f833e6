package fastjson

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshaler is implemented by types that turn themselves into a value to be written: a Node, or anything Marshal takes.
type Marshaler interface{ MarshalFastJSON() any }

// Pairs is a map whose order is kept and whose keys may be objects or numbers.
type Pairs []Pair

// Pair is one entry of Pairs. Integer keys and struct keys are written bare, string keys quoted.
type Pair struct {
	Key   any
	Value any
}

// RawKeyMap is Pairs under the name of its main use: maps keyed by a message queue.
type RawKeyMap = Pairs

// Marshal writes v on one line: fields and map keys sorted by name, nil left out, number keys without quotes, floats with a fraction.
// The struct tags of encoding/json apply; the option "set" writes a list on one line in MarshalPretty, as RocketMQ does with sets.
func Marshal(v any) ([]byte, error) { return encode(v, 0) }

// MarshalPretty writes v in the layout of RocketMQ's configuration files: tabs, one entry a line, but maps with number keys on one line.
func MarshalPretty(v any) ([]byte, error) { return encode(v, pretty) }

// MarshalBrowser writes v in standard JSON with every key quoted and everything outside ASCII escaped.
func MarshalBrowser(v any) ([]byte, error) { return encode(v, browser) }

const (
	pretty = 1 << iota
	browser
)

func encode(v any, mode int) ([]byte, error) {
	w := writer{mode: mode}
	if err := w.value(reflect.ValueOf(v), false); err != nil {
		return nil, err
	}
	return w.b, nil
}

// Compact writes a parsed value on one line.
func (n *Node) Compact() []byte {
	w := writer{}
	w.node(n)
	return w.b
}

// Strict writes a parsed value as standard JSON.
func (n *Node) Strict() []byte {
	w := writer{mode: browser}
	w.node(n)
	return w.b
}

type writer struct {
	b      []byte
	mode   int
	indent int
}

func (w *writer) line() {
	if w.mode&pretty == 0 {
		return
	}
	w.b = append(w.b, '\n')
	for i := 0; i < w.indent; i++ {
		w.b = append(w.b, '\t')
	}
}

func (w *writer) value(v reflect.Value, set bool) error {
	if !v.IsValid() {
		w.b = append(w.b, "null"...)
		return nil
	}
	if done, err := w.special(v, set); done {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			w.b = append(w.b, "null"...)
			return nil
		}
		return w.value(v.Elem(), set)
	case reflect.Struct:
		return w.bean(v)
	case reflect.Map:
		return w.mapping(v)
	case reflect.Slice, reflect.Array:
		return w.list(v, set)
	case reflect.String:
		w.text(v.String())
	case reflect.Bool:
		w.b = strconv.AppendBool(w.b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.b = strconv.AppendInt(w.b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.b = strconv.AppendUint(w.b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		w.float(v.Float())
	default:
		return fmt.Errorf("fastjson: cannot write %s", v.Type())
	}
	return nil
}

// special writes types that know their own form.
func (w *writer) special(v reflect.Value, set bool) (done bool, err error) {
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return false, nil
	}
	if !v.CanInterface() {
		return false, nil
	}
	switch x := v.Interface().(type) {
	case *Node:
		w.node(x)
	case Node:
		w.node(&x)
	case Pairs:
		return true, w.pairs(x)
	case Marshaler:
		return true, w.value(reflect.ValueOf(x.MarshalFastJSON()), set)
	case json.RawMessage:
		n, err := Parse(x)
		if err != nil {
			return true, err
		}
		w.node(n)
	case json.Marshaler:
		raw, err := x.MarshalJSON()
		if err != nil {
			return true, err
		}
		n, err := Parse(raw)
		if err != nil {
			return true, err
		}
		w.node(n)
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return true, err
		}
		w.text(string(text))
	default:
		return false, nil
	}
	return true, nil
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return v.IsNil()
	}
	return false
}

func (w *writer) bean(v reflect.Value) error {
	w.b = append(w.b, '{')
	w.indent++
	first := true
	for _, f := range fieldsOf(v.Type()).sorted {
		fv := v.FieldByIndex(f.index)
		if isNil(fv) || f.omitEmpty && fv.IsZero() {
			continue
		}
		if !first {
			w.b = append(w.b, ',')
		}
		first = false
		w.line()
		w.text(f.name)
		w.b = append(w.b, ':')
		if err := w.value(fv, f.set); err != nil {
			return err
		}
	}
	w.indent--
	w.line()
	w.b = append(w.b, '}')
	return nil
}

func (w *writer) mapping(v reflect.Value) error {
	keys := v.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keyLess(keys[i], keys[j]) })
	p := make(Pairs, 0, len(keys))
	for _, k := range keys {
		value := v.MapIndex(k)
		if isNil(value) {
			continue
		}
		p = append(p, Pair{k.Interface(), value.Interface()})
	}
	return w.pairs(p)
}

func keyLess(a, b reflect.Value) bool {
	switch {
	case a.CanInt():
		return a.Int() < b.Int()
	case a.Kind() == reflect.String:
		return a.String() < b.String()
	}
	return fmt.Sprint(a.Interface()) < fmt.Sprint(b.Interface())
}

func (w *writer) pairs(p Pairs) error {
	w.b = append(w.b, '{')
	w.indent++
	for i, e := range p {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if err := w.key(e.Key); err != nil {
			return err
		}
		w.b = append(w.b, ':')
		if err := w.value(reflect.ValueOf(e.Value), false); err != nil {
			return err
		}
	}
	w.indent--
	if len(p) > 0 {
		w.line()
	}
	w.b = append(w.b, '}')
	return nil
}

// key writes a map key. Only keys that are text start a line of their own.
func (w *writer) key(k any) error {
	v := reflect.ValueOf(k)
	if n, ok := k.(*Node); ok {
		w.nodeKey(n)
		return nil
	}
	if t, ok := k.(encoding.TextMarshaler); ok {
		text, err := t.MarshalText()
		if err != nil {
			return err
		}
		v = reflect.ValueOf(string(text))
	}
	if v.Kind() == reflect.String {
		w.line()
		w.text(v.String())
		return nil
	}
	if w.mode&browser != 0 {
		sub := writer{}
		if err := sub.value(v, false); err != nil {
			return err
		}
		w.text(string(sub.b))
		return nil
	}
	sub := writer{}
	if err := sub.value(v, false); err != nil {
		return err
	}
	w.b = append(w.b, sub.b...)
	return nil
}

func (w *writer) list(v reflect.Value, set bool) error {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		w.text(base64.StdEncoding.EncodeToString(v.Bytes()))
		return nil
	}
	if v.Len() == 0 {
		w.b = append(w.b, "[]"...)
		return nil
	}
	w.b = append(w.b, '[')
	w.indent++
	for i := 0; i < v.Len(); i++ {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if !set {
			w.line()
		}
		if err := w.value(v.Index(i), false); err != nil {
			return err
		}
	}
	w.indent--
	if !set {
		w.line()
	}
	w.b = append(w.b, ']')
	return nil
}

func (w *writer) node(n *Node) {
	switch n.Kind {
	case Null:
		w.b = append(w.b, "null"...)
	case Bool, Number:
		w.b = append(w.b, n.Text...)
	case String:
		w.text(n.Text)
	case Array:
		w.b = append(w.b, '[')
		w.indent++
		for i, item := range n.Items {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.line()
			w.node(item)
		}
		w.indent--
		if len(n.Items) > 0 {
			w.line()
		}
		w.b = append(w.b, ']')
	case Object:
		w.b = append(w.b, '{')
		w.indent++
		for i, m := range n.Members {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.nodeKey(m.Key)
			w.b = append(w.b, ':')
			w.node(m.Value)
		}
		w.indent--
		if len(n.Members) > 0 {
			w.line()
		}
		w.b = append(w.b, '}')
	}
}

func (w *writer) nodeKey(k *Node) {
	switch {
	case k.Kind == String:
		w.line()
		w.text(k.Text)
	case w.mode&browser != 0:
		w.text(k.flat())
	default:
		w.b = append(w.b, k.Compact()...)
	}
}

// float writes as Java's Double.toString does.
func (w *writer) float(f float64) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		w.b = append(w.b, "null"...)
		return
	case f == 0 || math.Abs(f) >= 1e-3 && math.Abs(f) < 1e7:
		start := len(w.b)
		w.b = strconv.AppendFloat(w.b, f, 'f', -1, 64)
		if !bytes.ContainsRune(w.b[start:], '.') {
			w.b = append(w.b, ".0"...)
		}
		return
	}
	text := strconv.FormatFloat(f, 'E', -1, 64)
	mantissa, exp, _ := strings.Cut(text, "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exp)
	w.b = append(w.b, mantissa...)
	w.b = append(w.b, 'E')
	w.b = strconv.AppendInt(w.b, int64(n), 10)
}

const hexUpper = "0123456789ABCDEF"

func (w *writer) unit(u uint16) {
	w.b = append(w.b, '\\', 'u', hexUpper[u>>12], hexUpper[u>>8&15], hexUpper[u>>4&15], hexUpper[u&15])
}

func (w *writer) text(s string) {
	w.b = append(w.b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			i += n
			w.wide(r)
			continue
		}
		i++
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		case '\r':
			w.b = append(w.b, '\\', 'r')
		case '\t':
			w.b = append(w.b, '\\', 't')
		case '\b':
			w.b = append(w.b, '\\', 'b')
		case '\f':
			w.b = append(w.b, '\\', 'f')
		case '/':
			if w.mode&browser != 0 {
				w.b = append(w.b, '\\')
			}
			w.b = append(w.b, '/')
		default:
			if c < 0x20 || c == 0x7F {
				w.unit(uint16(c))
				continue
			}
			w.b = append(w.b, c)
		}
	}
	w.b = append(w.b, '"')
}

func (w *writer) wide(r rune) {
	switch {
	case w.mode&browser != 0 && r > 0xFFFF:
		hi, lo := utf16.EncodeRune(r)
		w.unit(uint16(hi))
		w.unit(uint16(lo))
	case w.mode&browser != 0 || r < 0xA0 || r == 0x2028 || r == 0x2029:
		w.unit(uint16(r))
	default:
		w.b = utf8.AppendRune(w.b, r)
	}
}

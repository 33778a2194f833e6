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
	"sync"
)

// Unmarshaler is implemented by types that read themselves from a parsed value.
type Unmarshaler interface{ UnmarshalFastJSON(n *Node) error }

// Unmarshal decodes a text into v, a pointer. Struct fields are found by their json tag, else by name, ignoring case and underscores;
// unknown fields and null are passed over; numbers and text convert into each other; floats are cut to integers; the last of duplicate
// keys wins. An object as key of a map[string]... becomes its compact text. A text without a value (empty, blank) leaves v alone; after an
// error v holds what came before it. Errors: *SyntaxError, or one that names the field.
//
// Only what v keeps takes memory, whatever the text holds besides; large texts wait for each other.
func Unmarshal(data []byte, v any) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return fmt.Errorf("fastjson: decode into %T, which is not a pointer", v)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	leave := enter(len(data))
	defer leave()
	p := parser{b: data, most: mostNodes}
	if err := p.into(rv.Elem(), "", 0); err != nil {
		return err
	}
	if p.blanks(); p.i < len(p.b) {
		return p.fail("text after the value")
	}
	return nil
}

// Decode assigns a parsed value to v, a pointer.
func (n *Node) Decode(v any) error {
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Pointer || rv.IsNil() {
		return fmt.Errorf("fastjson: decode into %T, which is not a pointer", v)
	}
	return assign(n, rv.Elem(), "")
}

func assign(n *Node, v reflect.Value, path string) error {
	if n.Kind == Null {
		return nil
	}
	if v.Type() == nodeType {
		v.Set(reflect.ValueOf(*n))
		return nil
	}
	if v.CanAddr() {
		switch u := v.Addr().Interface().(type) {
		case Unmarshaler:
			return u.UnmarshalFastJSON(n)
		case json.Unmarshaler:
			if err := u.UnmarshalJSON(n.Strict()); err != nil {
				return fmt.Errorf("%s: %w", at(path), err)
			}
			return nil
		case encoding.TextUnmarshaler:
			if n.Kind == String || n.Kind == Number || n.Kind == Bool {
				if err := u.UnmarshalText([]byte(n.Text)); err != nil {
					return fmt.Errorf("%s: %w", at(path), err)
				}
				return nil
			}
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return assign(n, v.Elem(), path)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(n.generic()))
			return nil
		}
	case reflect.Struct:
		return assignStruct(n, v, path)
	case reflect.Map:
		return assignMap(n, v, path)
	case reflect.Slice, reflect.Array:
		return assignList(n, v, path)
	case reflect.String:
		v.SetString(n.flat())
		return nil
	case reflect.Bool:
		b, ok := n.bool()
		if !ok {
			return mismatch(n, "true or false", path)
		}
		v.SetBool(b)
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, ok := n.int()
		if !ok || v.OverflowInt(i) {
			return mismatch(n, "an integer in range", path)
		}
		v.SetInt(i)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, ok := n.int()
		if !ok || i < 0 || v.OverflowUint(uint64(i)) {
			return mismatch(n, "a positive integer in range", path)
		}
		v.SetUint(uint64(i))
		return nil
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(strings.TrimSpace(n.Text), 64)
		if err != nil && !isRange(err) {
			return mismatch(n, "a number", path)
		}
		v.SetFloat(f)
		return nil
	}
	return fmt.Errorf("%s: cannot decode into %s", at(path), v.Type())
}

func at(path string) string {
	if path == "" {
		return "json"
	}
	return "json field " + path
}

func mismatch(n *Node, want, path string) error {
	text := n.flat()
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return fmt.Errorf("%s: %q is not %s", at(path), text, want)
}

func (n *Node) bool() (bool, bool) {
	switch {
	case n.Kind == Bool || n.Kind == String:
		switch strings.ToLower(strings.TrimSpace(n.Text)) {
		case "true", "1", "y":
			return true, true
		case "false", "0", "n", "":
			return false, true
		}
	case n.Kind == Number:
		return n.Text == "1", true
	}
	return false, false
}

func (n *Node) int() (int64, bool) {
	switch n.Kind {
	case Bool:
		if n.Text == "true" {
			return 1, true
		}
		return 0, true
	case Number, String:
		text := strings.TrimSpace(n.Text)
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, true
		}
		f, err := strconv.ParseFloat(text, 64)
		if err == nil && !math.IsNaN(f) && math.Abs(f) < math.MaxInt64 {
			return int64(f), true
		}
	}
	return 0, false
}

// flat is a value as text: a string's own text, otherwise its compact form.
func (n *Node) flat() string {
	switch n.Kind {
	case String, Number, Bool:
		return n.Text
	}
	return string(n.Compact())
}

func (n *Node) generic() any {
	switch n.Kind {
	case Bool:
		return n.Text == "true"
	case Number:
		if i, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(n.Text, 64)
		return f
	case String:
		return n.Text
	case Array:
		list := make([]any, 0, len(n.Items))
		for _, item := range n.Items {
			list = append(list, item.generic())
		}
		return list
	case Object:
		m := make(map[string]any, len(n.Members))
		for _, mem := range n.Members {
			m[mem.Key.flat()] = mem.Value.generic()
		}
		return m
	}
	return nil
}

func assignStruct(n *Node, v reflect.Value, path string) error {
	if n.Kind != Object {
		return mismatch(n, "an object", path)
	}
	fields := fieldsOf(v.Type())
	for _, m := range n.Members {
		name := m.Key.flat()
		f, ok := fields.byName[name]
		if !ok {
			if f, ok = fields.byFold[fold(name)]; !ok {
				continue
			}
		}
		if err := assign(m.Value, v.FieldByIndex(f.index), join(path, f.name)); err != nil {
			return err
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func assignMap(n *Node, v reflect.Value, path string) error {
	if n.Kind != Object {
		return mismatch(n, "an object", path)
	}
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	for _, m := range n.Members {
		name := m.Key.flat()
		key := reflect.New(t.Key()).Elem()
		if err := assign(m.Key, key, join(path, name)); err != nil {
			return err
		}
		value := reflect.New(t.Elem()).Elem()
		if err := assign(m.Value, value, join(path, name)); err != nil {
			return err
		}
		v.SetMapIndex(key, value)
	}
	return nil
}

func assignList(n *Node, v reflect.Value, path string) error {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 && n.Kind == String {
		b, err := base64.StdEncoding.DecodeString(n.Text)
		if err != nil {
			return mismatch(n, "base64", path)
		}
		v.SetBytes(b)
		return nil
	}
	if n.Kind != Array {
		return mismatch(n, "an array", path)
	}
	if v.Kind() == reflect.Array {
		for i := 0; i < v.Len() && i < len(n.Items); i++ {
			if err := assign(n.Items[i], v.Index(i), join(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	}
	list := reflect.MakeSlice(v.Type(), 0, min(len(n.Items), 1024))
	for i, item := range n.Items {
		e := reflect.New(v.Type().Elem()).Elem()
		if err := assign(item, e, join(path, strconv.Itoa(i))); err != nil {
			return err
		}
		list = reflect.Append(list, e)
	}
	v.Set(list)
	return nil
}

// field is one encoded field of a struct.
type field struct {
	name      string
	index     []int
	omitEmpty bool
	set       bool // written on one line, as Java's sets are
}

type structFields struct {
	sorted []field // by name
	byName map[string]field
	byFold map[string]field
}

var fieldCache sync.Map // reflect.Type -> *structFields

func fieldsOf(t reflect.Type) *structFields {
	if f, ok := fieldCache.Load(t); ok {
		return f.(*structFields)
	}
	f := &structFields{byName: map[string]field{}, byFold: map[string]field{}}
	collect(t, nil, f)
	sort.Slice(f.sorted, func(i, j int) bool { return f.sorted[i].name < f.sorted[j].name })
	actual, _ := fieldCache.LoadOrStore(t, f)
	return actual.(*structFields)
}

func collect(t reflect.Type, index []int, out *structFields) {
	for i := 0; i < t.NumField(); i++ {
		sf := t.Field(i)
		tag, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if tag == "-" {
			continue
		}
		idx := append(append([]int(nil), index...), i)
		if sf.Anonymous && tag == "" && sf.Type.Kind() == reflect.Struct {
			collect(sf.Type, idx, out)
			continue
		}
		if !sf.IsExported() {
			continue
		}
		f := field{name: tag, index: idx, omitEmpty: strings.Contains(opts, "omitempty"), set: strings.Contains(opts, "set")}
		if f.name == "" {
			f.name = sf.Name
		}
		out.sorted = append(out.sorted, f)
		out.byName[f.name] = f
		out.byFold[fold(f.name)] = f
	}
}

// fold is how names are matched when their case differs.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

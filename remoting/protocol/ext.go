package protocol

import "strconv"

// Ext are the ext fields of a frame to be written, in the order of their adding. The zero value is empty; Reset keeps the
// memory, so that a reused Ext allocates nothing. It is not safe for concurrent use.
type Ext struct {
	fields  []extField
	buf     []byte
	present bool
}

type extField struct {
	name       string
	start, end int
}

// Reset removes all fields.
func (e *Ext) Reset() { e.fields, e.buf, e.present = e.fields[:0], e.buf[:0], false }

// Len is the number of fields.
func (e *Ext) Len() int { return len(e.fields) }

// Size is the number of bytes of the values.
func (e *Ext) Size() int { return len(e.buf) }

// Present writes an empty extFields object when there are no fields, as some answers of the reference have.
func (e *Ext) Present() { e.present = true }

// Add adds a field; the text is copied.
func (e *Ext) Add(name, value string) {
	start := len(e.buf)
	e.buf = append(e.buf, value...)
	e.fields = append(e.fields, extField{name, start, len(e.buf)})
}

// AddBytes adds a field; the bytes are copied.
func (e *Ext) AddBytes(name string, value []byte) {
	start := len(e.buf)
	e.buf = append(e.buf, value...)
	e.fields = append(e.fields, extField{name, start, len(e.buf)})
}

// AddInt adds a field with the decimal text of value.
func (e *Ext) AddInt(name string, value int64) {
	start := len(e.buf)
	e.buf = strconv.AppendInt(e.buf, value, 10)
	e.fields = append(e.fields, extField{name, start, len(e.buf)})
}

// AddBool adds a field with true or false.
func (e *Ext) AddBool(name string, value bool) {
	start := len(e.buf)
	e.buf = strconv.AppendBool(e.buf, value)
	e.fields = append(e.fields, extField{name, start, len(e.buf)})
}

// Each calls fn for every field; value is valid until the next change.
func (e *Ext) Each(fn func(name string, value []byte)) {
	for i := range e.fields {
		fn(e.fields[i].name, e.value(i))
	}
}

func (e *Ext) value(i int) []byte { f := &e.fields[i]; return e.buf[f.start:f.end] }

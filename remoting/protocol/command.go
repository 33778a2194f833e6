package protocol

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Command is a request or an answer in its general form, for clients and rare requests. A server's hot path uses Header
// and AppendFrame instead.
type Command struct {
	Code     Code
	Opaque   int32
	Flag     int32
	Version  int32
	Language byte
	Form     Form
	Remark   string
	Ext      map[string]string
	Fields   *Ext // written instead of Ext when not nil; a decoded Command has Ext
	Body     []byte
}

// NewRequest makes a JSON request that announces our version.
func NewRequest(code Code, ext map[string]string, body []byte) *Command {
	return &Command{Code: code, Version: Version, Language: LangJava, Ext: ext, Body: body}
}

// Success says that the answer's code is 0.
func (c *Command) Success() bool { return c.Code == Success }

// Err is nil for code 0, else an *Error with the answer's code and remark.
func (c *Command) Err() error {
	if c.Code == Success {
		return nil
	}
	return &Error{Code: c.Code, Remark: c.Remark}
}

// Set adds an ext field.
func (c *Command) Set(name, value string) {
	if c.Ext == nil {
		c.Ext = make(map[string]string)
	}
	c.Ext[name] = value
}

// Append appends the whole frame with its length word. Ext is written in the order of its names.
func (c *Command) Append(dst []byte) []byte {
	return append(c.AppendHead(dst), c.Body...)
}

// AppendHead is Append without the body.
func (c *Command) AppendHead(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	form := FrameForm(c.Form, c.Code)
	var names []string
	if c.Fields == nil && len(c.Ext) > 0 {
		names = slices.Sorted(maps.Keys(c.Ext))
	}
	if form == Binary {
		dst = appendBinaryHead(dst, c.Code, c.Language, c.Version, c.Opaque, c.Flag, c.Remark)
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		for _, name := range names {
			dst = appendBinaryField(dst, name, c.Ext[name])
		}
		if c.Fields != nil {
			for i := range c.Fields.fields {
				dst = appendBinaryField(dst, c.Fields.fields[i].name, c.Fields.value(i))
			}
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		return finishFrame(dst, start, form, len(c.Body))
	}
	dst = append(dst, `{"code":`...)
	dst = appendInt(dst, int64(c.Code))
	if len(names) > 0 || c.Fields != nil && (c.Fields.present || c.Fields.Len() > 0) {
		dst = append(dst, `,"extFields":{`...)
		for i, name := range names {
			dst = appendJSONField(dst, i == 0, name, c.Ext[name])
		}
		if c.Fields != nil {
			for i := range c.Fields.fields {
				dst = appendJSONField(dst, i == 0, c.Fields.fields[i].name, c.Fields.value(i))
			}
		}
		dst = append(dst, '}')
	}
	dst = appendJSONTail(dst, c.Flag, c.Language, c.Opaque, c.Remark, c.Remark != "", c.Version)
	return finishFrame(dst, start, form, len(c.Body))
}

// DecodeCommand reads a frame without its length word. The body is a view of frame, which is changed in place; everything
// else is copied. The error is a *FormatError.
func DecodeCommand(frame []byte) (*Command, error) {
	var h Header
	body, err := Decode(frame, &h)
	if err != nil {
		return nil, err
	}
	return h.Command(body), nil
}

// Command is a copy of the header as a Command with this body.
func (h *Header) Command(body []byte) *Command {
	c := &Command{Code: h.Code, Opaque: h.Opaque, Flag: h.Flag, Version: h.Version, Language: h.Language, Form: h.Form,
		Remark: string(h.Remark), Body: body}
	if len(h.fields) > 0 {
		c.Ext = make(map[string]string, len(h.fields))
		for i := range h.fields {
			name, value := h.Field(i)
			c.Ext[string(name)] = string(value)
		}
	}
	return c
}

// Package protocol is RocketMQ's remoting protocol: frames, their two header forms, codes and bodies.
//
// Header is a received frame's header, decoded in place without allocation; AppendFrame writes one with the fields of an
// Ext; Command is the general form with a map, for clients and rare requests. Servers and clients of package remoting
// call it; it does no I/O and keeps no state. docs/formats/frame.md has the layout.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Form is the encoding of a header.
type Form uint8

const (
	JSON   Form = 0 // text, every peer reads it
	Binary Form = 1 // RocketMQ's compact form; its codes have 16 bits
)

// Flag bits.
const (
	FlagResponse int32 = 1 // an answer, not a request
	FlagOneway   int32 = 2 // never answered
)

// MaxFrame is the default limit of a frame in bytes, with its length word.
const MaxFrame = 16 << 20

// MaxFields is the most ext fields that a header may have.
const MaxFields = 4096

// LengthSize is the size of the length word before a frame.
const LengthSize = 4

const markSize = 4 // type and header length

// FormatError says why a frame is not one. The connection that sent it cannot be read further.
type FormatError struct{ Reason string }

func (e *FormatError) Error() string { return "malformed frame: " + e.Reason }

var (
	errShort     = &FormatError{"shorter than its header says"}
	errFields    = &FormatError{"too many ext fields"}
	errBinary    = &FormatError{"binary header has a length out of range"}
	errJSON      = &FormatError{"header is no JSON object of the expected kind"}
	errDeep      = &FormatError{"JSON header is nested too deeply"}
	errNumber    = &FormatError{"JSON header has a number out of range"}
	errOversized = errors.New("header longer than 16 MiB")
)

// Decode reads a frame without its length word into h and returns the body. Header and body are views of frame, which
// Decode changes in place and which belongs to h until the next Decode. It allocates nothing once h has seen as many
// fields. The error is a *FormatError.
func Decode(frame []byte, h *Header) (body []byte, err error) {
	h.reset()
	if len(frame) < markSize {
		return nil, errShort
	}
	mark := binary.BigEndian.Uint32(frame)
	n := int(mark & 0xFFFFFF)
	rest := frame[markSize:]
	if n > len(rest) {
		return nil, errShort
	}
	h.buf = rest[:n:n]
	switch Form(mark >> 24) {
	case JSON:
		err = h.scanJSON()
	case Binary:
		err = h.scanBinary()
	default:
		err = &FormatError{fmt.Sprintf("serialization type %d", mark>>24)}
	}
	if err != nil {
		return nil, err
	}
	return rest[n:], nil
}

// FrameForm is the form that a frame with this code is written in: binary headers hold codes of 16 bits only.
func FrameForm(form Form, code Code) Form {
	if form == Binary && code >= math.MinInt16 && code <= math.MaxInt16 {
		return Binary
	}
	return JSON
}

// AppendFrame appends a frame's length word and header; the caller puts bodyLen bytes behind it. ext may be nil. The
// header is JSON when the code does not fit the binary form. Language is JAVA and version 479, which every peer knows.
func AppendFrame(dst []byte, form Form, code Code, flag, opaque int32, remark string, ext *Ext, bodyLen int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	form = FrameForm(form, code)
	if form == Binary {
		dst = appendBinaryHead(dst, code, LangJava, Version, opaque, flag, remark)
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		if ext != nil {
			for i := range ext.fields {
				dst = appendBinaryField(dst, ext.fields[i].name, ext.value(i))
			}
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		return finishFrame(dst, start, form, bodyLen)
	}
	dst = append(dst, `{"code":`...)
	dst = appendInt(dst, int64(code))
	if ext != nil && (ext.present || len(ext.fields) > 0) {
		dst = append(dst, `,"extFields":{`...)
		for i := range ext.fields {
			dst = appendJSONField(dst, i == 0, ext.fields[i].name, ext.value(i))
		}
		dst = append(dst, '}')
	}
	dst = appendJSONTail(dst, flag, LangJava, opaque, remark, remark != "", Version)
	return finishFrame(dst, start, form, bodyLen)
}

// finishFrame fills the two words in front of the header that ends dst.
func finishFrame(dst []byte, start int, form Form, bodyLen int) []byte {
	head := len(dst) - start - LengthSize - markSize
	if head > 0xFFFFFF {
		panic(errOversized) // callers bound what they put into ext
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(markSize+head+bodyLen))
	binary.BigEndian.PutUint32(dst[start+LengthSize:], uint32(form)<<24|uint32(head))
	return dst
}

func appendBinaryHead(dst []byte, code Code, lang byte, version, opaque, flag int32, remark string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = append(dst, lang)
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(remark)))
	return append(dst, remark...)
}

func appendBinaryField[V string | []byte](dst []byte, name string, value V) []byte {
	if len(name) > math.MaxInt16 {
		return dst // no field of ours; cannot be told in this form
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func appendJSONField[V string | []byte](dst []byte, first bool, name string, value V) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = appendQuoted(dst, name)
	dst = append(dst, ':')
	return appendQuoted(dst, value)
}

// appendJSONTail appends what follows extFields, in the alphabetical order of the reference.
func appendJSONTail(dst []byte, flag int32, lang byte, opaque int32, remark string, hasRemark bool, version int32) []byte {
	if flag == FlagResponse && lang == LangJava { // every answer of a server
		dst = append(dst, `,"flag":1,"language":"JAVA","opaque":`...)
	} else {
		dst = append(dst, `,"flag":`...)
		dst = appendInt(dst, int64(flag))
		dst = append(dst, `,"language":"`...)
		dst = append(dst, LanguageName(lang)...)
		dst = append(dst, `","opaque":`...)
	}
	dst = appendInt(dst, int64(opaque))
	if hasRemark {
		dst = append(dst, `,"remark":`...)
		dst = appendQuoted(dst, remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = appendInt(dst, int64(version))
	return append(dst, '}')
}

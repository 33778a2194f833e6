package message

import (
	"encoding/binary"
	"fmt"
)

// BatchItem is one message of a client batch. Its slices are views of the batch body.
type BatchItem struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// EachBatchItem decodes the body of a batch send and calls fn for every item, until an error. The item is reused between calls.
// Format: docs/formats/record.md, client batch.
func EachBatchItem(body []byte, fn func(it *BatchItem) error) error {
	var it BatchItem
	for n := 0; len(body) > 0; n++ {
		if len(body) < 22 {
			return fmt.Errorf("batch item %d: %d bytes left, an item needs 22", n, len(body))
		}
		size := int(int32(binary.BigEndian.Uint32(body)))
		if size < 22 || size > len(body) {
			return fmt.Errorf("batch item %d: size %d with %d bytes left", n, size, len(body))
		}
		item := body[:size]
		it.Flag = int32(binary.BigEndian.Uint32(item[12:]))
		length := int(int32(binary.BigEndian.Uint32(item[16:])))
		if length < 0 || length > size-22 {
			return fmt.Errorf("batch item %d: body of %d bytes in an item of %d", n, length, size)
		}
		it.Body = item[20 : 20+length : 20+length]
		at := 20 + length
		props := int(int16(binary.BigEndian.Uint16(item[at:])))
		if props < 0 || at+2+props != size {
			return fmt.Errorf("batch item %d: properties of %d bytes in an item of %d", n, props, size)
		}
		it.Properties = item[at+2 : size : size]
		if err := fn(&it); err != nil {
			return err
		}
		body = body[size:]
	}
	return nil
}

// AppendBatchItem appends one item of a client batch. props must not be longer than MaxPropertiesLen.
func AppendBatchItem(dst []byte, flag int32, body, props []byte) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(22+len(body)+len(props)))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // magic and checksum are the broker's
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	dst = be.AppendUint16(dst, uint16(len(props)))
	return append(dst, props...)
}

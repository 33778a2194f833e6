// Package codec compresses and expands message bodies with RocketMQ's three codecs: zlib, LZ4 frames and Zstandard.
//
// Its functions are Compress and Decompress; clients and tools call them. A broker never does: it stores bodies as they came. Writers and
// readers are pooled; the output of Decompress is bounded by its caller, whatever the input announces.
package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/epochmq/epochmq/message"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// ErrTooLarge says that a body expands to more than its caller allows.
var ErrTooLarge = errors.New("decompressed body is larger than allowed")

// UnknownError says that the system flag names no codec known here.
type UnknownError struct{ SysFlag int32 }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown compression 0x%X in system flag 0x%X", e.SysFlag&message.CodecMask, e.SysFlag)
}

// appender is an io.Writer onto a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// Compress appends the compressed src to dst. codec is one of message.CodecLZ4, CodecZstd, CodecZlib, or 0 for zlib; level runs from 1
// (fast) to 9 (small), as RocketMQ's clients count it. src is not kept.
func Compress(dst, src []byte, codec int32, level int) ([]byte, error) {
	level = min(max(level, 1), 9)
	switch codec & message.CodecMask {
	case 0, message.CodecZlib:
		return compressZlib(dst, src, level)
	case message.CodecLZ4:
		return compressLZ4(dst, src, level)
	case message.CodecZstd:
		return compressZstd(dst, src, level)
	}
	return dst, &UnknownError{codec}
}

// Decompress returns the plain body of src, whose codec stands in sysFlag, in a new slice. Errors: ErrTooLarge above maxSize, UnknownError,
// or what is wrong with the bytes. An unset compression bit makes it a copy.
func Decompress(src []byte, sysFlag int32, maxSize int) ([]byte, error) {
	if sysFlag&message.FlagCompressed == 0 {
		if len(src) > maxSize {
			return nil, ErrTooLarge
		}
		return bytes.Clone(src), nil
	}
	if len(src) == 0 {
		return nil, fmt.Errorf("expand body: %w", io.ErrUnexpectedEOF)
	}
	switch sysFlag & message.CodecMask {
	case 0, message.CodecZlib:
		return decompressZlib(src, maxSize)
	case message.CodecLZ4:
		return decompressLZ4(src, maxSize)
	case message.CodecZstd:
		return decompressZstd(src, maxSize)
	}
	return nil, &UnknownError{sysFlag}
}

var zlibWriters [10]sync.Pool // by level

func compressZlib(dst, src []byte, level int) ([]byte, error) {
	out := &appender{dst}
	w, _ := zlibWriters[level].Get().(*zlib.Writer)
	if w == nil {
		var err error
		if w, err = zlib.NewWriterLevel(out, level); err != nil {
			return dst, fmt.Errorf("compress body with zlib: %w", err)
		}
	} else {
		w.Reset(out)
	}
	if err := writeAll(w, src); err != nil {
		return dst, fmt.Errorf("compress body with zlib: %w", err)
	}
	zlibWriters[level].Put(w)
	return out.b, nil
}

func writeAll(w io.WriteCloser, src []byte) error {
	if _, err := w.Write(src); err != nil {
		return err
	}
	return w.Close()
}

var lz4Writers = sync.Pool{New: func() any { return lz4.NewWriter(nil) }}

// lz4Levels maps 1..9 to the library's levels; 1 is its fast mode.
var lz4Levels = [10]lz4.CompressionLevel{lz4.Fast, lz4.Fast, lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6,
	lz4.Level7, lz4.Level8}

func compressLZ4(dst, src []byte, level int) ([]byte, error) {
	out := &appender{dst}
	w := lz4Writers.Get().(*lz4.Writer)
	w.Reset(out)
	err := w.Apply(lz4.CompressionLevelOption(lz4Levels[level]), lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1),
		lz4.ChecksumOption(false))
	if err == nil {
		err = writeAll(w, src)
	}
	if err != nil {
		return dst, fmt.Errorf("compress body with lz4: %w", err)
	}
	w.Reset(nil)
	lz4Writers.Put(w)
	return out.b, nil
}

var zstdWriters [5]sync.Pool // by zstd.EncoderLevel

func compressZstd(dst, src []byte, level int) ([]byte, error) {
	el := zstd.EncoderLevelFromZstd(level)
	e, _ := zstdWriters[el].Get().(*zstd.Encoder)
	if e == nil {
		var err error
		if e, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(el), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err != nil {
			return dst, fmt.Errorf("compress body with zstd: %w", err)
		}
	}
	out := e.EncodeAll(src, dst)
	zstdWriters[el].Put(e)
	return out, nil
}

var zlibReaders sync.Pool

func decompressZlib(src []byte, maxSize int) ([]byte, error) {
	in := bytes.NewReader(src)
	r, _ := zlibReaders.Get().(io.ReadCloser)
	var err error
	if r == nil {
		r, err = zlib.NewReader(in)
	} else {
		err = r.(zlib.Resetter).Reset(in, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("expand body with zlib: %w", err)
	}
	out, err := readBounded(r, len(src), maxSize)
	if err != nil {
		return nil, fmt.Errorf("expand body with zlib: %w", err)
	}
	if err := r.Close(); err != nil {
		return nil, fmt.Errorf("expand body with zlib: %w", err)
	}
	zlibReaders.Put(r)
	return out, nil
}

var lz4Readers = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

func decompressLZ4(src []byte, maxSize int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4.Reader)
	r.Reset(bytes.NewReader(src))
	out, err := readBounded(r, len(src), maxSize)
	if err != nil {
		return nil, fmt.Errorf("expand body with lz4: %w", err)
	}
	r.Reset(nil)
	lz4Readers.Put(r)
	return out, nil
}

// readBounded reads to the end. It starts small and grows with what really comes, so that no announced size costs memory.
func readBounded(r io.Reader, compressed, maxSize int) ([]byte, error) {
	out := make([]byte, 0, min(max(4*compressed, 512), maxSize)+1)
	for {
		if len(out) > maxSize {
			return nil, ErrTooLarge
		}
		if len(out) == cap(out) {
			out = append(out, 0)[:len(out)]
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			if len(out) > maxSize {
				return nil, ErrTooLarge
			}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

var zstdReaders sync.Pool

func decompressZstd(src []byte, maxSize int) ([]byte, error) {
	d, _ := zstdReaders.Get().(*zstd.Decoder)
	if d == nil {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, fmt.Errorf("expand body with zstd: %w", err)
		}
	}
	if err := d.Reset(bytes.NewReader(src)); err != nil {
		return nil, fmt.Errorf("expand body with zstd: %w", err)
	}
	out, err := readBounded(d, len(src), maxSize)
	if err != nil {
		return nil, fmt.Errorf("expand body with zstd: %w", err)
	}
	if err := d.Reset(nil); err != nil {
		return nil, fmt.Errorf("expand body with zstd: %w", err)
	}
	zstdReaders.Put(d)
	return out, nil
}

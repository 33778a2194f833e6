package main

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	sendV2    = 310
	sendBatch = 320
	pull      = 11
	bufSize   = 256 << 10
	maxFrame  = 16 << 20
)

// serve is one connection: read, handle every whole frame, answer with one write.
func serve(c *net.TCPConn, log *memLog, f *flusher) {
	defer c.Close()
	in := make([]byte, bufSize)
	have := 0
	var out []byte
	for {
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		used := 0
		stored := false
		out = out[:0]
		for have-used >= 4 {
			size := int(binary.BigEndian.Uint32(in[used:])) + 4
			if size < 8 || size > maxFrame {
				return
			}
			if size > len(in) {
				grown := make([]byte, size+bufSize)
				copy(grown, in[:have])
				in = grown
			}
			if have-used < size {
				break
			}
			var ok bool
			if out, ok = handle(in[used+4:used+size], out, log, f, &stored); !ok {
				return
			}
			used += size
		}
		have = copy(in, in[used:have])
		switch {
		case len(out) == 0:
		case f != nil && stored:
			f.answer(c, out)
			out = *outs.Get().(*[]byte)
		default:
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

// outs are buffers of answers that wait for a flush.
var outs = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func handle(frame, out []byte, log *memLog, f *flusher, stored *bool) ([]byte, bool) {
	n := int(binary.BigEndian.Uint32(frame) & 0xFFFFFF)
	if n > len(frame)-4 {
		return out, false
	}
	var h header
	if !h.decode(frame[4 : 4+n]) {
		return out, false
	}
	body := frame[4+n:]
	switch h.code {
	case sendV2:
		*stored = true
		q, at := log.put(&h, body, h.props, f)
		return answerSend(out, &h, q, at, 1), true
	case sendBatch:
		*stored = true
		var first, at int64
		count := 0
		for len(body) >= 24 {
			size := int(binary.BigEndian.Uint32(body))
			bl := int(binary.BigEndian.Uint32(body[16:]))
			if size < 22+bl || size > len(body) || bl < 0 {
				return out, false
			}
			q, a := log.put(&h, body[20:20+bl], body[22+bl:size], f)
			if count == 0 {
				first, at = q, a
			}
			count++
			body = body[size:]
		}
		return answerSend(out, &h, first, at, count), true
	case pull:
		recs, next := log.find(h.queueOffset, int(h.maxMsgs))
		return answerPull(out, &h, recs, next), true
	}
	return out, false
}

func begin(out []byte) ([]byte, int) { return append(out, 0, 0, 0, 0, 0, 0, 0, 0), len(out) }

func end(out []byte, start int, opaque int64, body []byte) []byte {
	out = append(out, `},"flag":1,"language":"JAVA","opaque":`...)
	out = strconv.AppendInt(out, opaque, 10)
	out = append(out, `,"serializeTypeCurrentRPC":"JSON","version":479}`...)
	head := len(out) - start - 8
	out = append(out, body...)
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-4))
	binary.BigEndian.PutUint32(out[start+4:], uint32(head))
	return out
}

func answerSend(out []byte, h *header, q, at int64, count int) []byte {
	out, start := begin(out)
	out = append(out, `{"code":0,"extFields":{"queueId":"`...)
	out = strconv.AppendInt(out, h.queueID, 10)
	out = append(out, `","msgId":"`...)
	for i := range count {
		if i > 0 {
			out = append(out, ',')
		}
		var id [16]byte
		binary.BigEndian.PutUint64(id[8:], uint64(at)+uint64(i))
		out = hex.AppendEncode(out, id[:])
	}
	out = append(out, `","TRACE_ON":"true","MSG_REGION":"DefaultRegion","queueOffset":"`...)
	out = strconv.AppendInt(out, q, 10)
	out = append(out, '"')
	return end(out, start, h.opaque, nil)
}

func answerPull(out []byte, h *header, recs []byte, next int64) []byte {
	out, start := begin(out)
	code := `{"code":0`
	if len(recs) == 0 {
		code = `{"code":19`
	}
	out = append(out, code...)
	out = append(out, `,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"`...)
	out = strconv.AppendInt(out, next, 10)
	out = append(out, `","maxOffset":"0","minOffset":"0"`...)
	return end(out, start, h.opaque, recs)
}

// flusher writes what is staged, flushes it, and then sends the answers that waited for it.
type flusher struct {
	f       *os.File
	mu      sync.Mutex
	staged  []byte
	spare   []byte
	waiting []waiting
	wake    chan struct{}
}

type waiting struct {
	c   *net.TCPConn
	out []byte
}

const fileSize = 1 << 30 // the file is written round and round

func newFlusher(name string) (*flusher, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := reserve(f, fileSize); err != nil {
		return nil, err
	}
	return &flusher{f: f, wake: make(chan struct{}, 1)}, nil
}

func (f *flusher) stage(p []byte) {
	f.mu.Lock()
	f.staged = append(f.staged, p...)
	f.mu.Unlock()
}

func (f *flusher) answer(c *net.TCPConn, out []byte) {
	f.mu.Lock()
	f.waiting = append(f.waiting, waiting{c, out})
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flusher) run() {
	var off int64
	var answers []waiting
	var held []byte // answers of one connection that follow each other go out together
	for range f.wake {
		f.mu.Lock()
		p := f.staged
		f.staged, f.spare = f.spare[:0], nil
		answers, f.waiting = f.waiting, answers[:0]
		f.mu.Unlock()
		if off+int64(len(p)) > fileSize {
			off = 0
		}
		if _, err := f.f.WriteAt(p, off); err != nil {
			panic(err)
		}
		off += int64(len(p))
		if err := flush(f.f); err != nil {
			panic(err)
		}
		f.mu.Lock()
		f.spare = p
		f.mu.Unlock()
		for i, w := range answers {
			held = append(held, w.out...)
			outs.Put(&w.out)
			if i+1 == len(answers) || answers[i+1].c != w.c {
				_, _ = w.c.Write(held) // a peer that has gone is noticed by its reader
				held = held[:0]
			}
		}
	}
}

package remoting

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

const (
	inSmallest  = 16 << 10
	inMostKept  = 1 << 20    // larger buffers are left to the collector
	inMostHint  = 256 << 10  // a connection does not start with more
	inUncounted = inSmallest // larger buffers that wait for bytes count for Limits.TotalBytes
	inPatience  = 64         // little reads after which a connection starts with less
)

// inBuffer is what was read and not yet handled: b[r:w]. It grows with the bytes that arrive, never with a length that a
// frame announces. A plain TCP connection that waits for bytes holds no memory.
type inBuffer struct {
	c       *Conn
	b       []byte
	hold    *inBuf // of b
	r, w    int
	hint    int // size to start with
	peak    int // most bytes in b
	little  int // reads in a row that used little of it
	counted int64
	moved   bool                  // into a smaller buffer: its use says nothing of the size to start with
	beyond  bool                  // holds the endpoint's token
	step    func(fd uintptr) bool // made once
	n       int                   // what step read
	err     error
}

type inBuf struct{ b []byte }

var inPools [7]sync.Pool // by size, from inSmallest to inMostKept

func inPool(size int) *sync.Pool {
	for i := range inPools {
		if size == inSmallest<<i {
			return &inPools[i]
		}
	}
	return nil
}

func (in *inBuffer) init(c *Conn) {
	in.free()
	*in = inBuffer{c: c, hint: inSmallest}
	in.step = in.readStep
}

// data is what is buffered.
func (in *inBuffer) data() []byte { return in.b[in.r:in.w] }

func (in *inBuffer) take(size int) {
	if p := inPool(size); p != nil {
		if v, _ := p.Get().(*inBuf); v != nil {
			in.b, in.hold = v.b, v
			return
		}
	}
	in.hold = &inBuf{make([]byte, size)}
	in.b = in.hold.b
}

// give gives the buffer back, which is empty.
func (in *inBuffer) give() {
	if in.b == nil {
		return
	}
	switch {
	case in.moved:
	case in.peak == len(in.b):
		in.hint, in.little = min(2*len(in.b), inMostHint), 0
	case in.peak >= in.hint/8:
		in.little = 0
	default:
		if in.little++; in.little == inPatience {
			in.hint, in.little = max(in.hint/2, inSmallest), 0
		}
	}
	recycle(in.hold)
	in.uncount()
	in.b, in.hold, in.r, in.w, in.peak, in.moved = nil, nil, 0, 0, 0, false
}

// idle is called while the beginning of a frame waits for its rest, and must not block. A buffer that is mostly empty gives
// way to a smaller one, so that a peer cannot make us hold much more than it sent, and what is large is counted.
func (in *inBuffer) idle() {
	if size := inSmallest; len(in.b) > inSmallest && in.r == 0 && in.w <= len(in.b)/4 {
		for size < 2*in.w {
			size *= 2
		}
		old := in.hold
		in.uncountBytes()
		in.take(size)
		copy(in.b, old.b[:in.w])
		recycle(old)
		in.moved = true
	}
	in.waits()
}

// waits notes that the beginning of a frame waits for its rest.
func (in *inBuffer) waits() {
	if c := in.c; c.partial.Load() == 0 {
		c.partial.Store(max(c.ep.clock(), 1))
	}
	if n := int64(len(in.b)); n > inUncounted && in.counted == 0 {
		in.counted = n
		in.c.ep.frames.Add(n)
	}
}

func recycle(b *inBuf) {
	if p := inPool(len(b.b)); p != nil {
		p.Put(b)
	}
}

func (in *inBuffer) uncount() {
	in.uncountBytes()
	if in.beyond {
		in.beyond = false
		<-in.c.ep.beyond
	}
}

func (in *inBuffer) uncountBytes() {
	if in.counted > 0 {
		in.c.ep.frames.Add(-in.counted)
		in.counted = 0
	}
}

// free drops everything.
func (in *inBuffer) free() {
	if in.b != nil {
		in.r, in.w = 0, 0
		in.give()
	}
}

// ready says that a complete frame is buffered. The error is a *TooLargeError or *protocol.FormatError.
func (in *inBuffer) ready() (bool, error) {
	have := in.w - in.r
	if have < protocol.LengthSize {
		return false, nil
	}
	n := int32(binary.BigEndian.Uint32(in.b[in.r:]))
	if n < 4 {
		return false, &protocol.FormatError{Reason: "length word out of range"}
	}
	if total := int64(n) + protocol.LengthSize; total > int64(in.c.ep.limits.MaxFrame) {
		return false, &TooLargeError{total, int64(in.c.ep.limits.MaxFrame)}
	}
	return have >= int(n)+protocol.LengthSize, nil
}

// next is the next complete frame without its length word, nil when there is none.
func (in *inBuffer) next() ([]byte, error) {
	ok, err := in.ready()
	if !ok {
		return nil, err
	}
	start := in.r + protocol.LengthSize
	end := start + int(binary.BigEndian.Uint32(in.b[in.r:]))
	in.r = end
	return in.b[start:end:end], nil
}

// fill reads once. Frames that next gave are no longer valid.
func (in *inBuffer) fill() error {
	if err := in.makeRoom(); err != nil {
		return err
	}
	if in.c.raw != nil {
		in.n, in.err = 0, nil
		if err := in.c.raw.Read(in.step); err != nil {
			return in.readError(err)
		}
	} else {
		if in.w > 0 {
			in.waits()
		}
		in.n, in.err = in.c.stream.Read(in.b[in.w:])
		if in.n > 0 {
			in.err = nil
		}
	}
	if in.err != nil {
		return in.readError(in.err)
	}
	if in.n == 0 {
		return errPeerClosed
	}
	in.w += in.n
	in.peak = max(in.peak, in.w)
	in.c.received = time.Now()
	in.c.active.Store(int64(in.c.received.Sub(in.c.ep.started)))
	return nil
}

func (in *inBuffer) readError(err error) error {
	if errors.Is(err, io.EOF) {
		return errPeerClosed
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return errLocalClose // whoever closed it has left the reason before
	}
	return err
}

func (in *inBuffer) makeRoom() error {
	if in.r == in.w {
		in.r, in.w = 0, 0
		if in.beyond || in.c.raw == nil && len(in.b) > inMostHint {
			in.give()
		}
		if in.b == nil && in.c.raw == nil {
			in.take(in.hint)
		}
		return nil
	}
	if in.r > 0 {
		in.w = copy(in.b, in.b[in.r:in.w])
		in.r = 0
	}
	if in.w < len(in.b) {
		return nil
	}
	size := 2 * len(in.b)
	if len(in.b) >= inMostKept {
		size *= 2 // these are not used again: fewer of them leave less to the collector
	}
	if need := int(binary.BigEndian.Uint32(in.b)) + protocol.LengthSize; need > inMostKept {
		size = min(size, need) // ready has checked it; more would be of no use
	}
	if err := in.count(int64(size)); err != nil {
		return err
	}
	old := in.hold
	in.take(size)
	copy(in.b, old.b[:in.w])
	recycle(old)
	return nil
}

// count accounts for a buffer of this size. When all connections hold too much it waits, but one connection at a time may
// go on, so that they do not wait for each other for ever. A quarter of the bytes is left to what waits already.
func (in *inBuffer) count(size int64) error {
	if size <= inUncounted {
		return nil
	}
	ep := in.c.ep
	add, most := size-in.counted, ep.limits.TotalBytes/4*3
	if !in.beyond && ep.held()+add > most {
		deadline := time.NewTimer(ep.limits.WriteTimeout)
		defer deadline.Stop()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !in.beyond && ep.held()+add > most {
			select {
			case ep.beyond <- struct{}{}:
				in.beyond = true
			case <-tick.C:
			case <-in.c.ctx.Done():
				return errLocalClose
			case <-deadline.C:
				ep.stats.overloads.Add(1)
				return &BusyError{"bytes of frames and of requests in work", ep.held() + add, most}
			}
		}
	}
	ep.frames.Add(add)
	in.counted = size
	return nil
}

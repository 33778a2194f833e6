package pull

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/commitlog"
)

// answer is one read of the store and, when it found messages, the body that goes out: the store's views themselves,
// held until the connection has written them. Answers are pooled; the last released part gives it back.
type answer struct {
	query  store.Query
	result store.Result

	resetTo message.QueueOffset // of a pending reset of the group's offset
	reset   bool

	views []part
	parts []remoting.Part
	left  atomic.Int32
}

// part is one view of the log on its way to a socket.
type part struct {
	view  commitlog.View
	owner *answer
}

var answers = sync.Pool{New: func() any { return new(answer) }}

// free gives back an answer whose result was not handed to a response.
func (a *answer) free() {
	a.result.Release()
	answers.Put(a)
}

// send moves the views of the result into resp. From here the parts own them, and the answer; without views it is free.
func (a *answer) send(resp *remoting.Response) {
	if len(a.result.Views) == 0 {
		a.free()
		return
	}
	a.views, a.parts = a.views[:0], a.parts[:0]
	for _, v := range a.result.Views {
		a.views = append(a.views, part{view: v, owner: a})
	}
	for i := range a.views {
		a.parts = append(a.parts, &a.views[i])
	}
	a.result.Views = a.result.Views[:0]
	a.left.Store(int32(len(a.parts)))
	resp.Body.Parts = a.parts
}

// load reads the views through the descriptor into memory of the response's own: for data that may be on disk, which
// must not be touched through the map where a page fault would stop a processor.
func (a *answer) load(resp *remoting.Response) error {
	buf := make([]byte, a.result.Bytes)
	n := 0
	for _, v := range a.result.Views {
		m, err := v.ReadAt(buf[n:n+v.Len()], 0)
		if err != nil && m < v.Len() {
			return fmt.Errorf("read log at %d: %w", v.Offset(), err)
		}
		n += v.Len()
	}
	resp.Body.Bytes = buf
	return nil
}

// Bytes is the view of the mapped log.
func (p *part) Bytes() []byte { return p.view.Bytes() }

// File is where the bytes stand on disk.
func (p *part) File() (f *os.File, off, n int64, ok bool) {
	f, off, size := p.view.File()
	return f, off, int64(size), f != nil
}

// Release lets the log drop the segment, and with the last part the answer is free again.
func (p *part) Release() {
	p.view.Release()
	a := p.owner
	if a.left.Add(-1) == 0 {
		answers.Put(a)
	}
}

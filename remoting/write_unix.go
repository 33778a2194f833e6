//go:build unix

package remoting

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// rawWrites says that sockets can be written without waiting.
const rawWrites = true

// rawWriter writes a connection's sending with system calls on its descriptor. It belongs to the writer.
type rawWriter struct {
	c     *Conn
	step  func(fd uintptr) bool // made once
	wait  bool                  // step waits for the socket
	again bool                  // the socket takes no more
	done  int64                 // written by this call of step
	err   error
	list  [][]byte
	vec   vector
}

func (w *rawWriter) init(c *Conn) {
	w.c = c
	w.step = w.writeStep
}

// try writes without waiting. again says that something is left.
func (w *rawWriter) try() (again bool, err error) {
	w.wait = false
	for !w.c.sending.empty() {
		if err := w.call(); err != nil {
			return false, err
		}
		if w.again {
			return true, nil
		}
	}
	return false, nil
}

// finish writes everything; the peer must take some within each write timeout.
func (w *rawWriter) finish() error {
	if w.c.raw == nil {
		return w.c.streamFinish()
	}
	w.wait = true
	defer func() { _ = w.c.socket.SetWriteDeadline(time.Time{}) }() // fails on closed sockets only
	for !w.c.sending.empty() {
		if err := w.c.socket.SetWriteDeadline(time.Now().Add(w.c.ep.limits.WriteTimeout)); err != nil {
			return err
		}
		if err := w.call(); err != nil {
			return err
		}
	}
	return nil
}

func (w *rawWriter) call() error {
	w.done, w.err, w.again = 0, nil, false
	err := w.c.raw.Write(w.step)
	if w.done > 0 {
		w.c.wrote(w.done)
	}
	if err == nil {
		err = w.err
	}
	return err
}

// writeStep makes one system call; false waits until the socket takes bytes again.
func (w *rawWriter) writeStep(fd uintptr) bool {
	for {
		n, err := w.write(int(fd))
		switch {
		case err == nil:
			w.done = int64(max(n, 0))
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if w.wait {
				return false
			}
			w.again = true
		default:
			w.err = err
		}
		return true
	}
}

func (w *rawWriter) write(fd int) (n int, err error) {
	q := &w.c.sending
	if len(q.extras) == 0 { // small answers only
		return unix.Write(fd, q.buf.b[q.at:])
	}
	if w.list == nil {
		w.list = make([][]byte, 0, maxSlices)
	}
	var e *extra
	w.list, e = q.gather(w.list[:0])
	switch {
	case e != nil:
		n, err = sendFile(fd, e.f, e.off+q.some, e.n-q.some)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
	case len(w.list) == 1:
		n, err = unix.Write(fd, w.list[0])
	default:
		n, err = w.vec.write(fd, w.list)
	}
	clear(w.list)
	return n, err
}

// readStep reads once; false waits for bytes. While it waits with nothing buffered there is no buffer.
func (in *inBuffer) readStep(fd uintptr) bool {
	if in.b == nil {
		in.take(in.hint)
	}
	for {
		n, err := unix.Read(int(fd), in.b[in.w:])
		switch {
		case err == nil:
			in.n = n
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if in.w == 0 {
				in.give()
			} else {
				in.idle()
			}
			return false
		default:
			in.err = err
		}
		return true
	}
}

//go:build unix && !linux

package remoting

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// vector writes the first of several slices; the caller comes back for the others.
type vector struct{}

func (vector) write(fd int, list [][]byte) (int, error) { return unix.Write(fd, list[0]) }

// sendFile copies a piece of f through memory.
func sendFile(fd int, f *os.File, off, n int64) (int, error) {
	b := make([]byte, min(n, streamChunk))
	m, err := f.ReadAt(b, off)
	if m == 0 {
		if errors.Is(err, io.EOF) {
			err = nil // the caller sees that nothing came
		}
		return 0, err
	}
	return unix.Write(fd, b[:m])
}

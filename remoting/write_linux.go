package remoting

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vector writes several slices with one system call.
type vector struct{ iov []unix.Iovec }

func (v *vector) write(fd int, list [][]byte) (int, error) {
	v.iov = v.iov[:0]
	for _, b := range list {
		var o unix.Iovec
		o.Base = unsafe.SliceData(b)
		o.SetLen(len(b))
		v.iov = append(v.iov, o)
	}
	n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v.iov[0])), uintptr(len(v.iov)))
	clear(v.iov)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// sendFile sends up to n bytes of f from off without moving the file's own offset.
func sendFile(fd int, f *os.File, off, n int64) (int, error) {
	return unix.Sendfile(fd, int(f.Fd()), &off, int(min(n, 1<<30)))
}

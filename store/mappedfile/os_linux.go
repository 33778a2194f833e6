package mappedfile

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lockCommand sets an open file description lock: it conflicts with the POSIX lock of a Java broker and, other than that
// one, also with a second lock inside this process, and is not dropped when some other descriptor of the file is closed.
const lockCommand = unix.F_OFD_SETLK

var errNotSupported = errors.New("not supported by this file system")

func notSupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errNotSupported
	}
	return err
}

func dataSync(fd int) error { return unix.Fdatasync(fd) }

func syncFS(f *os.File) error { return control(f, unix.Syncfs) }

func allocate(fd int, size int64) error {
	return notSupported(unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size))
}

func zeroRange(fd int, off, n int64) error {
	return notSupported(unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n))
}

func nextData(fd int, off, size int64) (int64, int64, error) {
	start, err := unix.Seek(fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, err
	}
	end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, err
	}
	return start, end, nil
}

// resident asks mincore for p, which starts on a page.
func resident(p, vec []byte) bool {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return false
	}
	pages := (len(p) + int(pageSize) - 1) / int(pageSize)
	for _, b := range vec[:pages] {
		if b&1 == 0 {
			return false
		}
	}
	return true
}

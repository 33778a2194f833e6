package inspect

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// locked reports whether some process holds the lock of a store; it only asks. Closing a descriptor of the file would drop
// a POSIX lock of this process, so a broker must not call it on its own folder; our brokers hold another kind of lock.
func locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false
	}
	return lock.Type != unix.F_UNLCK
}

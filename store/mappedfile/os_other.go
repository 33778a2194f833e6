//go:build !linux

package mappedfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const lockCommand = unix.F_SETLK

var errNotSupported = errors.New("not supported by this file system")

func dataSync(fd int) error                            { return unix.Fsync(fd) }
func syncFS(*os.File) error                            { unix.Sync(); return nil }
func allocate(int, int64) error                        { return errNotSupported }
func zeroRange(int, int64, int64) error                { return errNotSupported }
func nextData(int, int64, int64) (int64, int64, error) { return 0, 0, errNotSupported }
func resident([]byte, []byte) bool                     { return true }

package store

import "golang.org/x/sys/unix"

// physicalRAM returns the bytes of memory of this machine.
func physicalRAM() int64 {
	var i unix.Sysinfo_t
	if err := unix.Sysinfo(&i); err != nil {
		return fallbackRAM
	}
	return int64(uint64(i.Totalram) * uint64(i.Unit))
}

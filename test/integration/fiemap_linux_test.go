package integration

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dirtyBytes counts the bytes below used that are in the page cache only. The segments are allocated before they are written, so what the
// disk has not got is still marked as unwritten in the file's extents.
func dirtyBytes(path string, used int64) (int64, error) {
	const (
		fiemap    = 0xC020660B // FS_IOC_FIEMAP
		unwritten = 0x00000800 // FIEMAP_EXTENT_UNWRITTEN
		delayed   = 0x00000004 // FIEMAP_EXTENT_DELALLOC
		last      = 0x00000001
	)
	type extent struct {
		logical, physical, length uint64
		_                         [2]uint64
		flags                     uint32
		_                         [3]uint32
	}
	var req struct {
		start, length         uint64
		flags, mapped, count_ uint32
		_                     uint32
		extents               [64]extent
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := int64(0)
	for at := int64(0); at < used; {
		req.start, req.length, req.flags, req.mapped, req.count_ = uint64(at), uint64(used-at), 0, 0, uint32(len(req.extents))
		if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemap, uintptr(unsafe.Pointer(&req))); no != 0 {
			return 0, no
		}
		if req.mapped == 0 {
			break
		}
		for _, e := range req.extents[:req.mapped] {
			from, to := max(int64(e.logical), at), min(int64(e.logical+e.length), used)
			if e.flags&(unwritten|delayed) != 0 && to > from {
				n += to - from
			}
			at = max(at, int64(e.logical+e.length))
			if e.flags&last != 0 {
				return n, nil
			}
		}
	}
	return n, nil
}

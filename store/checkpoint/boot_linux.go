package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BootID names the running kernel and the mounts that hold the given paths, "" when it cannot be told: what was written to the page cache
// under the same name is still there. A file system that went down and was mounted again, on the same kernel, has lost what was not flushed.
func BootID(paths ...string) string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(b))
	for _, p := range paths {
		var st unix.Statx_t
		err := unix.ENOENT
		for ; err == unix.ENOENT; p = filepath.Dir(p) { // a folder that does not exist yet will be on its parent's mount
			err = statMount(p, &st)
			if p == filepath.Dir(p) {
				break
			}
		}
		if err != 0 || st.Mask&(unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE) == 0 {
			return ""
		}
		id += "/" + strconv.FormatUint(st.Mnt_id, 10)
	}
	return id
}

func statMount(path string, st *unix.Statx_t) unix.Errno {
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE, st)
	if err == nil {
		return 0
	}
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return unix.EIO
}

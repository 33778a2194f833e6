package integration

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"testing"
)

// atKill is what the files say right after a kill, before anything else touches the folder.
type atKill struct {
	end          int64 // of the commit log
	undispatched int64 // bytes of the log above the newest entry of a queue file
	unflushed    int64 // bytes of the log that the kernel has not written to the disk; -1: the file system does not tell
}

func (k atKill) String() string {
	unflushed := "unknown"
	if k.unflushed >= 0 {
		unflushed = strconv.FormatInt(k.unflushed, 10)
	}
	return fmt.Sprintf("log end %d, undispatched %d bytes, unflushed %s bytes", k.end, k.undispatched, unflushed)
}

// lookAtKill reads the folder of a killed broker. It decodes on its own, so that it does not believe the product's recovery.
func lookAtKill(t *testing.T, root, topic string) atKill {
	t.Helper()
	k := atKill{unflushed: 0}
	files, err := filepath.Glob(filepath.Join(root, "commitlog", "*"))
	must(t, err)
	sort.Strings(files)
	for _, path := range files {
		base, err := strconv.ParseInt(filepath.Base(path), 10, 64)
		must(t, err)
		used := usedOfSegment(t, path)
		if used > 0 {
			k.end = base + used
		}
		n, err := dirtyBytes(path, used)
		if err != nil {
			k.unflushed = -1
		}
		if k.unflushed >= 0 {
			k.unflushed += n
		}
	}
	dispatched := int64(0)
	dirs, err := filepath.Glob(filepath.Join(root, "consumequeue", topic, "*"))
	must(t, err)
	for _, dir := range dirs {
		dispatched = max(dispatched, endOfQueue(t, dir))
	}
	k.undispatched = max(k.end-dispatched, 0)
	return k
}

// usedOfSegment walks the records of a segment and returns where they end. It stops at the first word that is no size.
func usedOfSegment(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	st, err := f.Stat()
	must(t, err)
	const blank = 0xCBD43194
	var head [8]byte
	at := int64(0)
	for at+8 <= st.Size() {
		if _, err := f.ReadAt(head[:], at); err != nil {
			break
		}
		size := int64(binary.BigEndian.Uint32(head[:]))
		if size < 8 || at+size > st.Size() || binary.BigEndian.Uint32(head[4:]) == blank {
			break
		}
		at += size
	}
	return at
}

// endOfQueue returns the log offset at which the message of the last entry of a queue ends.
func endOfQueue(t *testing.T, dir string) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	sort.Strings(files)
	for i := len(files) - 1; i >= 0; i-- {
		b, err := os.ReadFile(files[i])
		must(t, err)
		for at := len(b)/20*20 - 20; at >= 0; at -= 20 {
			if size := int64(binary.BigEndian.Uint32(b[at+8:])); size > 0 {
				return int64(binary.BigEndian.Uint64(b[at:])) + size
			}
		}
	}
	return 0
}

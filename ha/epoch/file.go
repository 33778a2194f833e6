package epoch

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/message"
)

// Marshal is the content of the file.
func (l List) Marshal() []byte {
	var lines []byte
	for _, e := range l {
		lines = strconv.AppendInt(lines, int64(e.Epoch), 10)
		lines = append(lines, '-')
		lines = strconv.AppendInt(lines, int64(e.Start), 10)
		lines = append(lines, '\n')
	}
	b := strconv.AppendInt(nil, int64(len(l)), 10)
	b = append(b, '\n')
	b = strconv.AppendUint(b, uint64(checksum(lines)), 10)
	return append(append(b, '\n'), lines...)
}

func checksum(lines []byte) uint32 { return crc32.ChecksumIEEE(lines) & 0x7FFFFFFF }

// Parse reads the content of a file. Lines may end as on Windows. A checksum of 0 is not checked.
func Parse(b []byte) (List, error) {
	count, rest, ok := cutNumber(b)
	sum, lines, ok2 := cutNumber(rest)
	if !ok || !ok2 || count < 0 {
		return nil, fmt.Errorf("epoch file: no head of two numbers")
	}
	if sum != 0 && sum != int64(checksum(lines)) {
		return nil, fmt.Errorf("epoch file: checksum is %d, should be %d", checksum(lines), sum)
	}
	var l List
	for len(lines) > 0 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			continue
		}
		a, b, ok := bytes.Cut(line, []byte("-"))
		epoch, err := strconv.ParseInt(string(a), 10, 32)
		start, err2 := strconv.ParseInt(string(b), 10, 64)
		if !ok || err != nil || err2 != nil {
			return nil, fmt.Errorf("epoch file: line %q", line)
		}
		l = append(l, Entry{int32(epoch), message.LogOffset(start)})
	}
	if int64(len(l)) != count {
		return nil, fmt.Errorf("epoch file: %d entries, should be %d", len(l), count)
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return l, nil
}

func cutNumber(b []byte) (n int64, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	n, err := strconv.ParseInt(string(bytes.TrimSuffix(line, []byte("\r"))), 10, 64)
	return n, rest, ok && err == nil
}

// File is a list that is on disk before it is in force. Methods are safe for concurrent use; List never waits for the disk.
// The first failed write is final: what the disk holds is not known any more.
type File struct {
	fsys statefile.FS
	path string
	list atomic.Pointer[List]

	writing sync.Mutex // the writer's token, held over the write
	err     error      // guarded by writing
}

// Open reads the file, or its backup when the file is missing or damaged. Entries that start at or above end, the end of
// the log, are removed: their bytes were lost in a crash or never came. When neither file can be read and at least one
// exists, an empty log (min == end) starts anew; for any other log that is an error, since a replica without its history
// must not be compared with others.
func Open(fsys statefile.FS, path string, min, end message.LogOffset) (*File, error) {
	f := &File{fsys: fsys, path: path}
	var l List
	_, err := statefile.Load(fsys, path, func(b []byte) (err error) {
		l, err = Parse(b)
		return err
	})
	if err != nil {
		if min != end {
			return nil, fmt.Errorf("open epoch file: %w", err)
		}
		l = nil
	}
	f.list.Store(&l)
	if err := f.CutOffset(end); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return f, nil
}

// List is the list in force.
func (f *File) List() List { return *f.list.Load() }

// change writes and publishes what fn makes of the list.
func (f *File) change(fn func(List) (List, error)) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.err != nil {
		return f.err
	}
	old := f.List()
	l, err := fn(old)
	if err != nil || same(old, l) {
		return err
	}
	if err := statefile.Write(f.fsys, f.path, l.Marshal()); err != nil {
		f.err = fmt.Errorf("write epoch file: %w", err)
		return f.err
	}
	f.list.Store(&l)
	return nil
}

func same(a, b List) bool {
	return len(a) == len(b) && (len(a) == 0 || a[0] == b[0] && a[len(a)-1] == b[len(b)-1])
}

// Append makes an entry durable, see List.Append. A slave calls it before it writes the first byte of an epoch.
func (f *File) Append(e Entry) error {
	return f.change(func(l List) (List, error) { return l.Append(e) })
}

// Begin makes the entry of a master's epoch durable, see List.Begin, and drops the oldest entries where there are too many.
func (f *File) Begin(epoch int32, min, end, confirmed message.LogOffset) error {
	return f.change(func(l List) (List, error) {
		l, err := l.Begin(epoch, min, end)
		return l.Limit(confirmed), err
	})
}

// CutOffset removes the entries that start at or above an offset: after the log was cut there.
func (f *File) CutOffset(off message.LogOffset) error {
	return f.change(func(l List) (List, error) { return l.CutOffset(off), nil })
}

// DropBefore removes the entries that end at or below min, the log's first offset.
func (f *File) DropBefore(min message.LogOffset) error {
	return f.change(func(l List) (List, error) { return l.DropBefore(min), nil })
}

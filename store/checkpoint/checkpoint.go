// Package checkpoint keeps the small files that tell a start how the last run ended: RocketMQ's checkpoint and abort
// files, and recovery marks of our own.
//
// The main types are File, the checkpoint of a Java broker, and Mark, which says up to which log offset queues and index
// were built. The store's facade writes them, in its order: never a mark before what it vouches for. The package never
// reads the log; the facade compares a mark with it, and a mark that does not match is ignored.
//
// Formats: docs/formats/checkpoint.md, docs/formats/marks.md.
package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// FileSize is the length of the checkpoint file, in bytes; only the first 40 are used.
const FileSize = 4096

const usedSize = 40

// margin is what a Java broker subtracts from the times to cover writes under way, in ms.
const margin = 3000

// Values is the content of the checkpoint file. Times are store times of messages in ms, 0 when unknown.
type Values struct {
	PhysicTime    int64             // the log is durable up to here
	LogicsTime    int64             // the consume queues are durable up to here
	IndexTime     int64             // the index is durable up to here
	MasterFlushed message.LogOffset // absent in files of 4.9
	Confirm       message.LogOffset // absent in files of 4.9
}

// MinTime is the store time from which an abnormal recovery of a Java broker reads the log.
func (v Values) MinTime() int64 { return max(min(v.PhysicTime, v.LogicsTime)-margin, 0) }

// MinTimeIndex is MinTime when the index must be complete as well.
func (v Values) MinTimeIndex() int64 { return max(min(v.MinTime(), v.IndexTime), 0) }

// Decode reads the content of a checkpoint file. Bytes that are missing read as zero.
func Decode(b []byte) Values {
	var full [usedSize]byte
	copy(full[:], b)
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(full[i*8:])) }
	return Values{PhysicTime: at(0), LogicsTime: at(1), IndexTime: at(2),
		MasterFlushed: message.LogOffset(at(3)), Confirm: message.LogOffset(at(4))}
}

// Append adds the five used longs of v to dst.
func (v Values) Append(dst []byte) []byte {
	for _, n := range []int64{v.PhysicTime, v.LogicsTime, v.IndexTime, int64(v.MasterFlushed), int64(v.Confirm)} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return dst
}

// Read returns the content of a checkpoint file without changing it; found is false when there is none.
func Read(fsys mappedfile.FS, path string) (v Values, found bool, err error) {
	b, err := fsys.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Values{}, false, nil
	}
	if err != nil {
		return Values{}, false, err
	}
	return Decode(b), true, nil
}

// File is the open checkpoint file. All methods are safe for concurrent use.
type File struct {
	path string

	mu     sync.Mutex // guards the rest; held over file operations, which no hot path waits for
	f      mappedfile.File
	v      Values
	onDisk Values
}

// Open opens the checkpoint file and creates it when it is missing.
func Open(fsys mappedfile.FS, path string) (*File, error) {
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	c := &File{path: path, f: f}
	size, err := f.Size()
	if err == nil && size < FileSize {
		err = f.Truncate(FileSize)
	}
	buf := make([]byte, usedSize)
	if err == nil {
		_, err = f.ReadAt(buf, 0)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("open checkpoint %s: %w", path, err), f.Close())
	}
	c.v = Decode(buf)
	c.onDisk = c.v
	return c, nil
}

// Values returns the current content.
func (c *File) Values() Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.v
}

// Set replaces the content in memory; Flush writes it. Every time must already be true on disk.
func (c *File) Set(v Values) {
	c.mu.Lock()
	c.v = v
	c.mu.Unlock()
}

// Flush writes the content, when it changed, and makes it durable. An error is final.
func (c *File) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.v == c.onDisk || c.f == nil {
		return nil
	}
	if _, err := c.f.WriteAt(c.v.Append(nil), 0); err != nil {
		return fmt.Errorf("write checkpoint %s: %w", c.path, err)
	}
	if err := c.f.Datasync(); err != nil {
		return err
	}
	c.onDisk = c.v
	return nil
}

// Close closes the file without writing. Twice is fine.
func (c *File) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f == nil {
		return nil
	}
	f := c.f
	c.f = nil
	return f.Close()
}

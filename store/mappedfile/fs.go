// Package mappedfile holds fixed-length files that are written with pwrite and read through read-only maps, and the
// file system they live in.
//
// The main types are Segment (one counted file), Sequence (the ordered files of one log or queue) and FS (the operating
// system, or Sim, a double that keeps only what was flushed when it crashes). The commit log, the consume queues, the
// index and the small state files use it. It never looks at the meaning of bytes and never retries a failed write or sync.
package mappedfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// FS is what the store needs of a file system. Implementations are safe for concurrent use.
type FS interface {
	// OpenFile opens a file; flag and perm are those of package os.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Remove unlinks a file or an empty folder. It is durable after SyncDir of the folder that held it.
	Remove(name string) error
	// Rename replaces newName. It is durable after SyncDir.
	Rename(oldName, newName string) error
	// Link gives a file a second name; newName must not exist.
	Link(oldName, newName string) error
	// MkdirAll creates a folder and its parents; they are durable when it returns.
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	ReadFile(name string) ([]byte, error)
	// WriteFile creates or truncates a file, writes data and syncs it; the folder entry is not synced.
	WriteFile(name string, data []byte, perm fs.FileMode) error
	// SyncDir makes the entries of a folder durable.
	SyncDir(name string) error
	// SyncFS writes out every dirty file of the file system that holds name.
	SyncFS(name string) error
	// Usage tells the size of the file system that holds path and what an ordinary user may still write, in bytes.
	Usage(path string) (total, avail int64, err error)
	// Lock takes an exclusive record lock of byte 0 of the file (created when missing, content "lock"), as a Java broker
	// does. It returns ErrLocked when another process, or another Lock of this one, holds it. Close gives it back.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Datasync makes content and length durable. After an error nothing may be assumed of what was written before.
	Datasync() error
	// Truncate sets the length; new bytes read as zero and may be holes.
	Truncate(size int64) error
	// Allocate reserves blocks for [0, size) and sets the length to size in one step: a crash leaves the old length or size.
	Allocate(size int64) error
	Size() (int64, error)
	// Map maps [0, size) read-only.
	Map(size int64) (Mapping, error)
	// Zero makes [off, off+n) read as zero and keeps its blocks reserved.
	Zero(off, n int64) error
	// NextData returns the first range at or after off that may hold other bytes than zero; start == size when there is none.
	NextData(off, size int64) (start, end int64, err error)
	// Fd is the operating system's file for sendfile, nil in a simulation. The caller must not close it.
	Fd() *os.File
}

// Mapping is a read-only map of a file.
type Mapping interface {
	// Bytes is the mapped memory, valid until Unmap.
	Bytes() []byte
	// Advise tells how [off, off+n) will be read. Errors are of no consequence and not reported.
	Advise(a Advice, off, n int64)
	// Resident reports whether [off, off+n) is in memory, so that reading it does not block.
	Resident(off, n int64) bool
	// Unmap ends the map; twice is an error.
	Unmap() error
}

// Advice is how a map will be read.
type Advice uint8

// Advices of madvise.
const (
	AdviseNormal     Advice = iota
	AdviseRandom            // no read-ahead
	AdviseSequential        // more read-ahead
	AdviseWillNeed          // start reading now
	AdviseDontNeed          // drop the pages from this map
)

// Errors that callers branch on.
var (
	ErrLocked = errors.New("locked by another process")
	ErrClosed = errors.New("file closed")
)

// CorruptError is damage found on disk.
type CorruptError struct {
	File   string
	Offset int64 // position in the file; -1 when the file as a whole is wrong
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s at %d: %s", e.File, e.Offset, e.Reason)
}

// SyncError is a failed flush. It is final: the kernel may have dropped the pages.
type SyncError struct {
	File string
	Err  error
}

func (e *SyncError) Error() string { return fmt.Sprintf("sync %s: %v", e.File, e.Err) }

// Unwrap returns the cause.
func (e *SyncError) Unwrap() error { return e.Err }

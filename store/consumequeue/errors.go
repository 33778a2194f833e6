package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// ErrDropped is the answer of a queue whose topic was deleted.
var ErrDropped = errors.New("queue deleted")

// ErrClosed is the answer of a closed table.
var ErrClosed = errors.New("consume queues closed")

// MisalignedError refuses a unit that does not follow the last one of its queue. Nothing was written from that unit on.
// The owner rebuilds the queue from the log (Reset, then dispatch again), or calls Skip when the log has the same hole.
type MisalignedError struct {
	Topic string
	ID    int32
	Want  message.QueueOffset // the next offset of the queue
	Got   message.QueueOffset
	Log   message.LogOffset // of the refused unit
}

func (e *MisalignedError) Error() string {
	return fmt.Sprintf("queue %s/%d: unit for offset %d at log %d does not follow offset %d", e.Topic, e.ID, e.Got, e.Log, e.Want)
}

// GapError says that units which should exist are missing on disk.
type GapError struct {
	Topic  string
	ID     int32
	Offset message.QueueOffset
	Next   message.QueueOffset // first offset of the next file
}

func (e *GapError) Error() string {
	return fmt.Sprintf("queue %s/%d: units from offset %d are missing", e.Topic, e.ID, e.Offset)
}

// NameError refuses a topic or queue id that cannot be a folder.
type NameError struct {
	Topic string
	ID    int32
}

func (e *NameError) Error() string {
	return fmt.Sprintf("queue %q/%d: not a usable name", e.Topic, e.ID)
}

// UnsupportedError refuses a folder in a format that this store does not read, and says what to do.
type UnsupportedError struct {
	Path string
	What string
	Do   string
}

func (e *UnsupportedError) Error() string { return e.Path + ": " + e.What + "; " + e.Do }

// CheckFolder returns an *UnsupportedError when dir holds the RocksDB consume queues of a Java broker
// (storeType=defaultRocksDB), and nil when it is absent, empty or in the file format.
func CheckFolder(fsys mappedfile.FS, dir string) error {
	_, err := fsys.Stat(filepath.Join(dir, "CURRENT"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return &UnsupportedError{
		Path: dir,
		What: "holds the RocksDB consume queues of storeType=defaultRocksDB, which this broker does not read",
		Do: "start the Java broker once with combineCQLoadingCQTypes=default;defaultRocksDB, or move this folder away: " +
			"the queues are then built anew from the commit log",
	}
}

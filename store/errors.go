package store

import (
	"errors"
	"fmt"

	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

// Errors that callers branch on.
var (
	ErrClosed            = errors.New("store is closed")
	ErrFenced            = errors.New("store is fenced: it acknowledges nothing more") // wraps the cause, see FencedError
	ErrIllegal           = errors.New("message is illegal")
	ErrPropertiesTooLong = errors.New("message properties are too long")
	ErrTooLarge          = errors.New("message is too large")
	ErrDiskFull          = errors.New("disk is full") // the text of a *DiskFullError has the ratios
	ErrNotReadable       = errors.New("store is not readable")
	ErrNotWritable       = errors.New("store is not writable")
	ErrNotMaster         = errors.New("store follows another one") // wraps the cause given to CloseWrites
	ErrNoQueue           = errors.New("no such queue")
	ErrNoRecord          = errors.New("no record at this offset")
)

// FencedError is the answer to every write after the first failed write or flush. It matches ErrFenced and its cause.
type FencedError struct{ Cause error }

func (e *FencedError) Error() string   { return ErrFenced.Error() + ": " + e.Cause.Error() }
func (e *FencedError) Unwrap() []error { return []error{ErrFenced, e.Cause} }

// DiskFullError refuses a write because a path of the store is over its level. It matches ErrDiskFull.
type DiskFullError struct {
	Log, Queue float64 // used fraction of the commit log's and the queues' file systems, -1 unknown
	Limit      float64
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("disk is full: commit log %.2f, consume queue %.2f used, limit %.2f", e.Log, e.Queue, e.Limit)
}

func (e *DiskFullError) Unwrap() error { return ErrDiskFull }

// UnsupportedError refuses a folder or a setting that this store does not serve, and says what to do.
type UnsupportedError struct {
	What string // what was found
	Path string // where, empty for a setting
	Hint string // what to do
}

func (e *UnsupportedError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s is not supported: %s", e.What, e.Hint)
	}
	return fmt.Sprintf("%s: %s is not supported: %s", e.Path, e.What, e.Hint)
}

const (
	rocksHint = "run the Java broker once with combineCQLoadingCQTypes=default;defaultRocksDB, or move the consumequeue folder away and set storeType=default: queues are rebuilt from the commit log"
	// configuration in RocksDB needs an export, not a rebuild
	rocksConfigHint = "export it with the Java tool rocksDBConfigToJson into config/*.json, then move the RocksDB folder away"
	dledgerHint     = "the log of DLedger has another form; replicate into an empty folder from a broker without DLedger, or let the Java broker drain it"
)

// illegal maps refusals of names to ErrIllegal and leaves other errors as they are.
func illegal(err error) error {
	var name *consumequeue.NameError
	if errors.As(err, &name) {
		return fmt.Errorf("%w: %w", ErrIllegal, err)
	}
	if errors.Is(err, consumequeue.ErrClosed) || errors.Is(err, commitlog.ErrClosed) {
		return ErrClosed
	}
	return err
}

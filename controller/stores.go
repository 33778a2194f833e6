package controller

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// keptSnapshots is how many snapshots stay on disk.
const keptSnapshots = 3

// Stores are where Raft keeps its log, votes and snapshots. Stores on disk belong to the Controller that opened them;
// those in memory outlive it, as a disk would.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	root      string // folder; empty for stores in memory
	close     func() error
}

// NewMemoryStores are stores for tests of whole groups in one process. They keep one snapshot.
func NewMemoryStores() *Stores {
	mem := raft.NewInmemStore()
	return &Stores{Log: monotonicMemory{mem}, Stable: mem, Snapshots: raft.NewInmemSnapshotStore()}
}

// Close closes files. Twice is fine.
func (s *Stores) Close() error {
	if s.close == nil {
		return nil
	}
	fn := s.close
	s.close = nil
	return fn()
}

// monotonic tells Raft to drop its whole log after an installed snapshot, instead of keeping old entries that may
// contradict it (hashicorp/raft issue 697).
type monotonic struct{ *raftboltdb.BoltStore }

// IsMonotonic implements raft.MonotonicLogStore.
func (monotonic) IsMonotonic() bool { return true }

type monotonicMemory struct{ *raft.InmemStore }

// IsMonotonic implements raft.MonotonicLogStore.
func (monotonicMemory) IsMonotonic() bool { return true }

// paths of the files of one controller.
type paths struct{ root string }

func (p paths) db() string         { return filepath.Join(p.root, "raft.db") }
func (p paths) snapshots() string  { return filepath.Join(p.root, "snapshots") }
func (p paths) quarantine() string { return filepath.Join(p.root, "quarantine") }

// ErrInUse says that another process has the folder.
var ErrInUse = errors.New("the controller's folder is in use by another process")

// openStores opens the files of a controller and creates what is missing.
func openStores(root string, log hclog.Logger) (*Stores, error) {
	p := paths{root}
	if err := os.MkdirAll(p.snapshots(), 0o755); err != nil {
		return nil, fmt.Errorf("create controller folder: %w", err)
	}
	db, err := raftboltdb.New(raftboltdb.Options{Path: p.db(), MsgpackUseNewTimeFormat: true,
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open %s: %w", p.db(), ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.db(), err)
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(root, keptSnapshots, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open snapshots in %s: %w", root, err), db.Close())
	}
	return &Stores{Log: monotonic{db}, Stable: db, Snapshots: files, root: root, close: db.Close}, nil
}

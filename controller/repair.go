package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/epochmq/epochmq/controller/machine"
)

// DamageError says that Raft's files cannot be used as they are, and that this controller would do harm if it went on.
type DamageError struct{ Dir, What string }

func (e *DamageError) Error() string { return fmt.Sprintf("controller folder %s: %s", e.Dir, e.What) }

// repair makes the stores fit for Raft, which takes the newest snapshot that opens and then reads the log from there on,
// without asking whether the log begins early enough: a damaged snapshot is put aside, and what no longer fits together is
// an error. A log that ends before the snapshot, or disagrees with it, is dropped, as Raft does when it gets a snapshot.
func (s *Stores) repair(log *slog.Logger) error {
	if err := s.removeUnfinished(); err != nil {
		return err
	}
	best, bad, err := s.newest(log)
	if err != nil {
		return err
	}
	if err := s.check(best, bad, log); err != nil {
		return err // with everything as it was: a second start must not find it in order
	}
	for _, m := range bad {
		if err := s.quarantine(m.ID); err != nil {
			return err
		}
	}
	return nil
}

// check compares snapshots, log and votes.
func (s *Stores) check(best *raft.SnapshotMeta, bad []*raft.SnapshotMeta, log *slog.Logger) error {
	damaged := uint64(0) // last entry in a damaged snapshot
	for _, m := range bad {
		damaged = max(damaged, m.Index)
	}
	first, err := s.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("first index of the log in %s: %w", s.root, err)
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("last index of the log in %s: %w", s.root, err)
	}
	empty := last == 0
	if term, err := s.Stable.GetUint64([]byte("CurrentTerm")); (err != nil || term == 0) && (best != nil || damaged > 0 || !empty) {
		return &DamageError{s.root, "there are snapshots but no votes: raft.db was lost"}
	}
	for i := first; !empty && i <= last; i++ {
		if err := s.Log.GetLog(i, new(raft.Log)); err != nil {
			return &DamageError{s.root, fmt.Sprintf("entry %d of the log cannot be read: %v", i, err)}
		}
	}
	from := uint64(0)
	if best != nil {
		from = best.Index
	}
	switch {
	case damaged > last:
		return &DamageError{s.root, fmt.Sprintf("a damaged snapshot reached to entry %d; the newest readable one ends at %d (0: none), and the log at %d", damaged, from, last)}
	case empty:
		return nil
	case first > from+1:
		return &DamageError{s.root, fmt.Sprintf("the newest readable snapshot ends at entry %d (0: there is none), and the log begins at entry %d", from, first)}
	case best == nil:
		return nil
	}
	drop := last < best.Index
	if first <= best.Index && !drop {
		var at raft.Log
		if err := s.Log.GetLog(best.Index, &at); err != nil {
			return fmt.Errorf("entry %d of the log in %s: %w", best.Index, s.root, err)
		}
		drop = at.Term != best.Term
	}
	if drop {
		log.Warn("the log is older than the snapshot and is dropped", "folder", s.root, "first", first, "last", last, "snapshot", best.Index)
		if err := s.Log.DeleteRange(first, last); err != nil {
			return fmt.Errorf("drop the log in %s: %w", s.root, err)
		}
	}
	return nil
}

// newest is the newest snapshot that can be read, nil for none, and the damaged ones above it.
func (s *Stores) newest(log *slog.Logger) (best *raft.SnapshotMeta, bad []*raft.SnapshotMeta, err error) {
	list, err := s.Snapshots.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots in %s: %w", s.root, err)
	}
	for _, m := range list {
		err := s.verify(m.ID)
		if err == nil {
			return m, bad, nil
		}
		var format *machine.FormatError
		if errors.As(err, &format) && format.Newer {
			return nil, nil, fmt.Errorf("snapshot %s in %s: %w", m.ID, s.root, err)
		}
		bad = append(bad, m)
		log.Error("a snapshot is damaged", "folder", s.root, "snapshot", m.ID, "error", err)
	}
	return nil, bad, nil
}

// verify reads a snapshot as a restart would.
func (s *Stores) verify(id string) error {
	_, r, err := s.Snapshots.Open(id)
	if err != nil {
		return err
	}
	_, _, err = readSnapshot(r)
	return errors.Join(err, r.Close())
}

// quarantine moves a snapshot out of Raft's sight.
func (s *Stores) quarantine(id string) error {
	if s.root == "" {
		return &DamageError{"in memory", "snapshot " + id + " is damaged"}
	}
	p := paths{s.root}
	err := os.MkdirAll(p.quarantine(), 0o755)
	if err == nil {
		to := filepath.Join(p.quarantine(), id)
		if err = os.RemoveAll(to); err == nil {
			err = os.Rename(filepath.Join(p.snapshots(), id), to)
		}
	}
	if err != nil {
		return fmt.Errorf("put snapshot %s aside: %w", id, err)
	}
	return nil
}

// removeUnfinished removes snapshots that were being written when the process died.
func (s *Stores) removeUnfinished() error {
	if s.root == "" {
		return nil
	}
	dir := paths{s.root}.snapshots()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove an unfinished snapshot: %w", err)
			}
		}
	}
	return nil
}

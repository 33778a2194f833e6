package controller

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/epochmq/epochmq/controller/machine"
)

// maxSnapshot is the size of the largest snapshot that is read, in bytes.
const maxSnapshot = 1 << 30

// snapshotEvery is how many commands may follow a snapshot before another one is taken.
const snapshotEvery = 4096

// fsm feeds the machine from Raft's log. A command that it cannot read stops it for good: from then on it changes nothing,
// takes no snapshot, and the controller ends with the error.
type fsm struct {
	many   chan struct{}   // told when a snapshot is due
	failed func(err error) // called once, on Raft's goroutine; must not block

	mu    sync.RWMutex
	state *machine.State // guarded by mu
	index uint64         // guarded by mu, of the last command
	term  uint64         // guarded by mu
	since int            // guarded by mu, commands since the last snapshot
	err   error          // guarded by mu
}

func newFSM(failed func(error)) *fsm {
	return &fsm{state: machine.New(), many: make(chan struct{}, 1), failed: failed}
}

// Apply is Raft's call for a committed command. It returns a machine.Result, or an error once the machine stands still.
func (f *fsm) Apply(l *raft.Log) any {
	c, err := machine.Decode(l.Data)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if err != nil {
		f.err = fmt.Errorf("command at index %d of Raft's log: %w", l.Index, err)
		f.failed(f.err)
		return f.err
	}
	f.index, f.term = l.Index, l.Term
	if f.since++; f.since >= snapshotEvery {
		select {
		case f.many <- struct{}{}:
		default:
		}
	}
	return f.state.Apply(c)
}

// Snapshot is Raft's call for a copy of the state.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.since = 0
	return &frozen{f.state.Clone(), machine.Meta{Index: f.index, Term: f.term, Created: time.Now().UnixMilli()}}, nil
}

// Restore is Raft's call to replace the state. After an error the old one stays.
func (f *fsm) Restore(r io.ReadCloser) error {
	state, meta, err := readSnapshot(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.index, f.term, f.since = state, meta.Index, meta.Term, 0
	return nil
}

func readSnapshot(r io.Reader) (*machine.State, machine.Meta, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	if err != nil {
		return nil, machine.Meta{}, fmt.Errorf("read snapshot: %w", err)
	}
	if len(b) > maxSnapshot {
		return nil, machine.Meta{}, fmt.Errorf("read snapshot: more than %d bytes", maxSnapshot)
	}
	return machine.Restore(b)
}

// set is a broker set as it is now, nil when unknown. It is never changed.
func (f *fsm) set(name string) *machine.Set {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.Set(name)
}

// view is a copy of the state and the index of the last command in it.
func (f *fsm) view() (*machine.State, uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.Clone(), f.index
}

func (f *fsm) applied() uint64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.index
}

func (f *fsm) nextID(name string) int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.NextID(name)
}

// frozen is the state at the moment of a snapshot.
type frozen struct {
	state *machine.State
	meta  machine.Meta
}

// Persist writes the state, on a goroutine of Raft beside the log's.
func (s *frozen) Persist(sink raft.SnapshotSink) error {
	b, err := s.state.Snapshot(s.meta)
	if err != nil {
		return err
	}
	if _, err := sink.Write(b); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Release ends the use of the copy.
func (s *frozen) Release() {}

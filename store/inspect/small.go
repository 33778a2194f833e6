package inspect

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/consumequeue"
)

type checkpointFile struct{ v checkpoint.Values }

// smallFiles reads checkpoint, abort, lock and our own note of who runs.
func (in *inspector) smallFiles() error {
	has := func(name string) bool {
		_, err := in.fs.Stat(filepath.Join(in.root, name))
		return err == nil
	}
	in.unclean = has("abort")
	if in.unclean {
		if err := in.pidFile(filepath.Join(in.root, "abort"), KindAbort); err != nil {
			return err
		}
		if !in.rep.Live {
			in.find(Note, filepath.Join(in.root, "abort"), -1, "the last run did not end in order")
		}
	} else if in.rep.Live {
		in.find(Note, filepath.Join(in.root, "lock"), -1, "a broker holds the lock and has no abort file: it starts or ends just now")
	}
	if has("lock") {
		in.file(filepath.Join(in.root, "lock"), KindLock, 0, Fields{{"held", in.rep.Live}})
	}
	if run := filepath.Join(checkpoint.Dir, "run"); has(run) {
		if err := in.pidFile(filepath.Join(in.root, run), KindRun); err != nil {
			return err
		}
	}
	if !has("checkpoint") {
		in.find(Note, filepath.Join(in.root, "checkpoint"), -1, "missing; a start makes it anew")
		return nil
	}
	return in.checkpoint(filepath.Join(in.root, "checkpoint"))
}

func (in *inspector) checkpoint(path string) error {
	b, err := in.fs.ReadFile(path)
	if err != nil {
		return err
	}
	v := checkpoint.Decode(b)
	in.ck = &checkpointFile{v: v}
	in.file(path, KindCheckpoint, int64(len(b)), Fields{{"physicMsgTimestamp", v.PhysicTime}, {"logicsMsgTimestamp", v.LogicsTime},
		{"indexMsgTimestamp", v.IndexTime}, {"masterFlushedOffset", v.MasterFlushed}, {"confirmPhyOffset", v.Confirm}, {"recoverFromTime", v.MinTime()}})
	if len(b) != checkpoint.FileSize {
		in.find(Damage, path, -1, "has %d bytes instead of %d", len(b), checkpoint.FileSize)
	}
	if v.PhysicTime < 0 || v.LogicsTime < 0 || v.IndexTime < 0 || v.MasterFlushed < 0 || v.Confirm < 0 {
		in.find(Damage, path, 0, "a value is negative")
	}
	return nil
}

// pidFile reads a file that holds a process id.
func (in *inspector) pidFile(path string, kind Kind) error {
	b, err := in.fs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, started, _ := strings.Cut(strings.TrimSpace(clip(b)), "\n") // ours has the time of the start on a second line
	in.file(path, kind, int64(len(b)), Fields{{"process", pid}, {"started", started}})
	if pid != "" && !isDigits(pid, 0) || started != "" && !isDigits(started, 0) {
		in.find(Note, path, 0, "content is no process id")
	}
	return nil
}

// refused notes what makes a start refuse the folder.
func (in *inspector) refused() error {
	err := consumequeue.CheckFolder(in.fs, filepath.Join(in.root, "consumequeue"))
	var no *consumequeue.UnsupportedError
	if errors.As(err, &no) {
		in.find(Note, no.Path, -1, "%s; %s", no.What, no.Do)
		return nil
	}
	return err
}

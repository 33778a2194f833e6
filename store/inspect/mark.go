package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/epochmq/epochmq/store/checkpoint"
)

// markFile is a recovery mark that can be read.
type markFile struct {
	path   string
	m      *checkpoint.Mark
	fits   bool // the log has its last record
	usable bool // as far as the kernel's boot id goes
}

// finishMarks reads the recovery marks and compares them with the log.
func (in *inspector) finishMarks() error {
	for _, kind := range []checkpoint.Kind{checkpoint.Running, checkpoint.Durable} {
		path := filepath.Join(in.root, checkpoint.Dir, kind.FileName())
		if _, err := in.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := in.mark(path); err != nil {
			return err
		}
	}
	for _, mf := range in.marks {
		rec, err := in.logBytes(int64(mf.m.Last.Log), int64(mf.m.Last.Size))
		if err != nil {
			return err
		}
		mf.fits = mf.m.Matches(rec)
		mf.usable = mf.m.Usable(in.opt.BootID)
		if !mf.fits && !in.rep.Live {
			in.find(Note, mf.path, -1, "does not fit the log, a start ignores it")
		}
		if mf.fits && !in.rep.Live {
			in.markQueues(mf)
		}
	}
	return nil
}

func (in *inspector) mark(path string) error {
	b, err := in.fs.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := checkpoint.DecodeMark(b)
	if err != nil {
		in.file(path, KindMark, int64(len(b)), nil)
		sev := Damage
		if in.rep.Live || filepath.Base(path) == checkpoint.Running.FileName() {
			sev = Note // replaced without sync: a loss of power may tear it
		}
		in.find(sev, path, 0, "%v; a start ignores it", err)
		return nil
	}
	in.marks = append(in.marks, &markFile{path: path, m: m})
	in.file(path, KindMark, int64(len(b)), Fields{{"kind", m.Kind.String()}, {"bootId", m.BootID}, {"written", m.Time}, {"logEnd", m.LogEnd},
		{"lastRecord", m.Last.Log}, {"lastSize", m.Last.Size}, {"lastCrc", fmt.Sprintf("%08x", m.Last.CRC)}, {"queues", len(m.Queues)},
		{"indexed", m.Indexed}, {"indexFile", m.Index.File}, {"indexCount", m.Index.Count}, {"indexEnd", m.Index.EndLog}, {"indexLast", m.Index.Last}})
	rows := 0
	for _, q := range m.Queues {
		in.row(path, &rows, func() Fields {
			return Fields{{"queue", fmt.Sprintf("%s/%d", q.Topic, q.ID)}, {"min", q.Min}, {"max", q.Max}, {"minLog", q.MinLog}, {"end", q.End}, {"firstFile", q.First}}
		})
	}
	return nil
}

// markQueues compares the queues of a mark with the files: a queue may have more than the mark says, never less.
func (in *inspector) markQueues(mf *markFile) {
	for _, s := range mf.m.Queues {
		q := in.byName[queueKey{s.Topic, s.ID}]
		switch {
		case q == nil || q.dir == "":
			if s.Max > s.Min {
				in.find(Note, mf.path, -1, "queue %s/%d is in the mark and not on disk", s.Topic, s.ID)
			}
		case q.max < int64(s.Max):
			in.find(Damage, q.dir, -1, "ends at offset %d, the %s mark says %d", q.max, mf.m.Kind, s.Max)
		}
	}
}

// logBytes reads bytes of the log within one segment; nil when they are not there.
func (in *inspector) logBytes(at, n int64) ([]byte, error) {
	for _, seg := range in.log.segments {
		if at < seg.base || at+n > seg.base+seg.size || n <= 0 || n > maxRecord {
			continue
		}
		f, err := in.open(seg.path)
		if err != nil {
			return nil, err
		}
		b, err := (&window{f: f, size: seg.size}).bytes(at-seg.base, n)
		return b, errors.Join(err, f.Close())
	}
	return nil, nil
}

// Package inspect reads the files of a store, checks them against each other and says what a start would do. It never
// creates, changes or locks anything, so that it may look at a running or a damaged folder.
//
// The main type is Report, made by Path; `epochmq inspect` prints it. One file of the package decodes one kind of file.
// The package decodes on its own where the format is simple, and uses the decoders of commit log, queues, index and
// marks where they exist; it never opens a store.
package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Options steer an inspection. The zero value is usable.
type Options struct {
	Kind    Kind     // of a single file; empty: told from its name and folder
	LogDirs []string // folders of the commit log, when they are not <root>/commitlog
	Slots   int32    // maxHashSlotNum; 0: RocketMQ's default, or found out from the file
	Entries int32    // maxIndexNum
	Dump    int      // rows shown of each file
	Limit   int      // findings kept; 0: 100
	BootID  string   // of the running kernel, to judge running marks
	// Progress is told how many bytes of the log were read, and how many there are; nil: nobody.
	Progress func(done, total int64)
}

// Kind is a kind of file.
type Kind string

// Kinds that Options.Kind takes.
const (
	KindStore      Kind = "store"
	KindLog        Kind = "commitlog"
	KindQueue      Kind = "consumequeue"
	KindIndex      Kind = "index"
	KindCheckpoint Kind = "checkpoint"
	KindAbort      Kind = "abort"
	KindLock       Kind = "lock"
	KindConfig     Kind = "config"
	KindMark       Kind = "mark"
	KindJournal    Kind = "journal"
	KindRun        Kind = "run"
	KindOther      Kind = "other"
)

// Kinds are the kinds of single files, for help texts.
var Kinds = []Kind{KindLog, KindQueue, KindIndex, KindCheckpoint, KindAbort, KindLock, KindConfig, KindMark, KindJournal, KindRun}

// Severity says what a finding means.
type Severity string

const (
	Note   Severity = "note"   // worth knowing; the store is sound
	Damage Severity = "damage" // bytes are not what they must be
)

// Finding is something that was noticed.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Offset   int64    `json:"offset"` // byte in the file, -1: the file as a whole
	Text     string   `json:"text"`
}

// Field is a name and a value of a decoded file.
type Field struct {
	Name  string
	Value any
}

// Fields marshal as one object in their order.
type Fields []Field

// MarshalJSON writes an object.
func (f Fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(x.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(x.Value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// File is one inspected file, or the files of one queue.
type File struct {
	Path   string `json:"path"` // relative to the inspected folder
	Kind   Kind   `json:"kind"`
	Size   int64  `json:"size"`
	Fields Fields `json:"fields,omitempty"`
}

// Row is one decoded item of a file: a record, a unit, an entry.
type Row struct {
	File   string `json:"file"`
	Fields Fields `json:"fields"`
}

// Report is what an inspection found.
type Report struct {
	Path     string    `json:"path"`
	Kind     Kind      `json:"kind"`
	Live     bool      `json:"live"`  // a broker holds the lock
	Sound    bool      `json:"sound"` // no damage
	Files    []File    `json:"files"`
	Log      *Log      `json:"log,omitempty"`
	Recovery []string  `json:"recovery,omitempty"` // what a start would do, step by step
	Findings []Finding `json:"findings"`
	Omitted  int       `json:"omitted,omitempty"` // findings above the limit
	Rows     []Row     `json:"rows,omitempty"`
}

// inspector is one inspection under way.
type inspector struct {
	fs   mappedfile.FS
	opt  Options
	root string
	rep  *Report

	unclean bool // abort is present
	log     Log
	queues  []*queue
	byName  map[queueKey]*queue
	index   indexFiles
	marks   []*markFile
	ck      *checkpointFile
}

// ErrNotStore refuses a folder without any file of a store.
var ErrNotStore = errors.New("not a store: neither commitlog, consumequeue, index, checkpoint nor config is in it")

// Path inspects a file or a store folder. Damage is in the report; an error means that the inspection could not be done.
func Path(fsys mappedfile.FS, path string, opt Options) (*Report, error) {
	if opt.Limit <= 0 {
		opt.Limit = 100
	}
	st, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	in := &inspector{fs: readOnly{fsys}, opt: opt, root: path, rep: &Report{Path: path, Kind: KindStore, Findings: []Finding{}, Files: []File{}},
		byName: make(map[queueKey]*queue)}
	if st.IsDir() {
		err = in.folder()
	} else {
		err = in.single(path, st.Size())
	}
	if err != nil {
		return nil, err
	}
	in.rep.Sound = true
	for _, f := range in.rep.Findings {
		if f.Severity == Damage {
			in.rep.Sound = false
		}
	}
	return in.rep, nil
}

// folder inspects a whole store: queues and index first, then the log, which on a running store only grows meanwhile.
func (in *inspector) folder() error {
	if !in.isStore() {
		return fmt.Errorf("%s: %w", in.root, ErrNotStore)
	}
	in.rep.Live = locked(filepath.Join(in.root, "lock"))
	steps := []func() error{in.smallFiles, in.refused, in.listLog, in.listQueues, in.listIndex, in.scanLog, in.finishQueues, in.finishIndex,
		in.finishMarks, in.config, in.journals, in.recovery}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspector) isStore() bool {
	for _, name := range []string{"commitlog", "consumequeue", "index", "checkpoint", "config"} {
		if _, err := in.fs.Stat(filepath.Join(in.root, name)); err == nil {
			return true
		}
	}
	return len(in.opt.LogDirs) > 0
}

// single inspects one file by itself.
func (in *inspector) single(path string, size int64) error {
	kind := in.opt.Kind
	if kind == "" {
		kind = kindOf(path)
	}
	in.rep.Kind = kind
	in.root = filepath.Dir(path)
	switch kind {
	case KindLog:
		return in.singleLog(path, size)
	case KindQueue:
		return in.singleQueue(path, size)
	case KindIndex:
		return in.singleIndex(path, size)
	case KindCheckpoint:
		return in.checkpoint(path)
	case KindAbort, KindRun:
		return in.pidFile(path, kind)
	case KindLock:
		in.rep.Live = locked(path)
		in.file(path, KindLock, size, Fields{{"held", in.rep.Live}})
		return nil
	case KindConfig:
		return in.json(path)
	case KindMark:
		return in.mark(path)
	case KindJournal:
		return in.journal(path)
	}
	return fmt.Errorf("%s: kind of file not known, say it with --kind", path)
}

// kindOf tells the kind of a file from its name and folder.
func kindOf(path string) Kind {
	name, dir := filepath.Base(path), filepath.Base(filepath.Dir(path))
	switch {
	case name == "checkpoint":
		return KindCheckpoint
	case name == "abort":
		return KindAbort
	case name == "lock":
		return KindLock
	case name == "run" && dir == "epochmq":
		return KindRun
	case strings.HasPrefix(name, "recovery."):
		return KindMark
	case strings.HasSuffix(name, ".journal"):
		return KindJournal
	case strings.HasSuffix(name, ".json"), strings.HasSuffix(name, ".json.bak"):
		return KindConfig
	case isDigits(name, 17):
		return KindIndex
	case isDigits(name, 20) && isDigits(dir, 0):
		return KindQueue
	case isDigits(name, 20):
		return KindLog
	}
	return KindOther
}

// isDigits reports whether s has n digits and nothing else; n 0: any number of at least one.
func isDigits(s string, n int) bool {
	if s == "" || n > 0 && len(s) != n {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func (in *inspector) find(sev Severity, path string, off int64, format string, args ...any) {
	if len(in.rep.Findings) >= in.opt.Limit {
		// damage must not hide behind notes
		i := len(in.rep.Findings) - 1
		in.rep.Omitted++
		if sev == Note || in.rep.Findings[i].Severity == Damage {
			return
		}
		in.rep.Findings = in.rep.Findings[:i]
	}
	in.rep.Findings = append(in.rep.Findings, Finding{Severity: sev, File: in.rel(path), Offset: off, Text: fmt.Sprintf(format, args...)})
}

// uncertain is Damage after a clean end, and a Note while a broker runs or when recovery is due anyway.
func (in *inspector) uncertain() Severity {
	if in.rep.Live || in.unclean {
		return Note
	}
	return Damage
}

func (in *inspector) file(path string, kind Kind, size int64, fields Fields) {
	in.rep.Files = append(in.rep.Files, File{Path: in.rel(path), Kind: kind, Size: size, Fields: fields})
}

func (in *inspector) row(path string, n *int, fields func() Fields) {
	if *n >= in.opt.Dump {
		return
	}
	*n++
	in.rep.Rows = append(in.rep.Rows, Row{File: in.rel(path), Fields: fields()})
}

func (in *inspector) rel(path string) string {
	if r, err := filepath.Rel(in.root, path); err == nil && !strings.HasPrefix(r, "..") {
		return r
	}
	return path
}

func (in *inspector) open(path string) (mappedfile.File, error) {
	return in.fs.OpenFile(path, os.O_RDONLY, 0)
}

// readDir lists a folder; none when it is missing.
func (in *inspector) readDir(path string) ([]fs.DirEntry, error) {
	list, err := in.fs.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// readOnly lets nothing but reading through to a file system.
type readOnly struct{ mappedfile.FS }

var errReadOnly = errors.New("inspection does not write")

func (r readOnly) OpenFile(name string, flag int, perm fs.FileMode) (mappedfile.File, error) {
	if flag != os.O_RDONLY {
		return nil, errReadOnly
	}
	return r.FS.OpenFile(name, flag, perm)
}
func (readOnly) Remove(string) error                         { return errReadOnly }
func (readOnly) Rename(string, string) error                 { return errReadOnly }
func (readOnly) Link(string, string) error                   { return errReadOnly }
func (readOnly) MkdirAll(string, fs.FileMode) error          { return errReadOnly }
func (readOnly) WriteFile(string, []byte, fs.FileMode) error { return errReadOnly }
func (readOnly) Lock(string) (io.Closer, error)              { return nil, errReadOnly }

// nonZero is the position of the first byte of [from, to) that is not zero, to when there is none.
func nonZero(f mappedfile.File, from, to int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for from < to {
		start, end, err := f.NextData(from, to)
		if err != nil {
			return to, err
		}
		from = max(start, from)
		for from < min(end, to) {
			p := buf[:min(int64(len(buf)), min(end, to)-from)]
			n, err := f.ReadAt(p, from)
			if i := bytes.IndexFunc(p[:n], func(r rune) bool { return r != 0 }); i >= 0 {
				return from + int64(i), nil
			}
			if err != nil || n == 0 {
				return to, ignoreEOF(err)
			}
			from += int64(n)
		}
	}
	return to, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func clip(s []byte) string {
	const most = 120
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

func place(topic []byte, id int32, at message.QueueOffset) string {
	return fmt.Sprintf("%s/%d@%d", topic, id, at)
}

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const (
	// tailFiles and tailBytes bound how much of the log's end a missing checkpoint lets recovery cut away: damage farther
	// back is no torn write, it is named and passed over.
	tailFiles = 3
	tailBytes = 2 << 30

	progressEvery = 5 * time.Second
)

// RecoveryReport tells what Open found and did.
type RecoveryReport struct {
	Clean          bool              // the last run ended in order
	Mark           string            // kind of the recovery mark that matched: running, durable, or empty
	From, End      message.LogOffset // the log was dispatched again from From; it ends at End
	Full           bool              // all of the log was read
	Records        int64             // records dispatched again
	Dropped        int64             // bytes above End that were not zero and are now
	Damage         error             // why the log ends where it ends, nil when it ends in clean room
	Gaps           []mappedfile.Gap  // files of the log that are missing
	Confirmed      message.LogOffset // what is in the queues: End, unless the owner confirms
	Unclean        bool              // acknowledged messages may be gone: flushed without waiting, and the machine went down since
	Queues, Opened int               // queues; those whose files had to be read
	Took           time.Duration
}

// recovery is Open's search for the state that the last run left.
type recovery struct {
	s       *Store
	clean   bool // no abort file
	ours    bool // the last run was of this store, so the queues are as its mark says
	ck      checkpoint.Values
	mark    *checkpoint.Mark  // matches the log; nil: none
	markRec message.Record    // the record that ends at the mark
	durable message.LogOffset // the log below was flushed, says a mark that matches
	log     commitlog.Report
	limit   message.LogOffset    // nothing above is put into the queues
	seen    checkpoint.RecordRef // the last record at or below limit that was seen; Size 0: none
	seenAt  int64                // its store time
	cut     bool                 // limit is where a cut that a crash interrupted was to end
	stop    message.LogOffset    // where dispatching goes on
	refill  refiller
	signed  bool // the folder is noted to be ours while the recovery goes on
	holes   bool // a queue lacks entries below where the pass began
	next    time.Time
}

func (s *Store) recover() error {
	r := recovery{s: s}
	r.refill = refiller{s: s, tick: r.progress}
	started := time.Now()
	r.next = started.Add(progressEvery)
	if err := r.look(); err != nil {
		return err
	}
	s.changed = true
	if err := s.writeAbort(); err != nil {
		return err
	}
	if err := r.work(); err != nil {
		return err
	}
	if !r.signed {
		if err := s.writeRun(); err != nil {
			return err
		}
	}
	if err := s.forgetFailure(); err != nil {
		return err
	}
	if !s.report.Unclean { // otherwise the note stays until AcceptUnclean
		if err := s.writeBoot(); err != nil {
			return err
		}
	}
	s.changed = false
	s.report.Took = time.Since(started)
	s.o.Log.Info("store is recovered", "clean", s.report.Clean, "mark", s.report.Mark, "from", s.report.From, "end", s.report.End,
		"records", s.report.Records, "full", s.report.Full, "dropped", s.report.Dropped, "queues", s.report.Queues, "took", s.report.Took)
	if s.report.Dropped > 0 {
		s.o.Log.Warn("bytes above the end of the commit log were cut away", "end", s.report.End, "bytes", s.report.Dropped, "reason", s.report.Damage)
	}
	return nil
}

func (s *Store) abortPath() string { return filepath.Join(s.root, "abort") }
func (s *Store) runPath() string   { return filepath.Join(s.root, checkpoint.Dir, "run") }

// writeAbort creates the abort file: the process id, as a Java broker writes it, and on a second line the time, because in
// containers all brokers are process 1.
func (s *Store) writeAbort() error {
	text := fmt.Sprintf("%d\n%d", os.Getpid(), s.boot)
	if err := s.fs.WriteFile(s.abortPath(), []byte(text), 0o644); err != nil {
		return fmt.Errorf("create abort file: %w", err)
	}
	return s.fs.SyncDir(s.root)
}

// writeRun notes whose abort file it is: a Java broker that runs in between writes its own.
func (s *Store) writeRun() error {
	if err := s.fs.MkdirAll(filepath.Join(s.root, checkpoint.Dir), 0o755); err != nil {
		return err
	}
	abort, err := s.fs.ReadFile(s.abortPath())
	if err != nil {
		return err
	}
	return s.fs.WriteFile(s.runPath(), abort, 0o644)
}

func (s *Store) failedPath() string { return filepath.Join(s.root, checkpoint.Dir, "failed") }

// hasFailed says whether a run noted a failed write or flush. After one the kernel may hold pages that can be read, count
// as clean, and never reached the disk: what is above the newest durable mark is then written again, from what can be read.
func (s *Store) hasFailed() (bool, error) {
	_, err := s.fs.Stat(s.failedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// noteFailure leaves the note for the next start. It matters only while this kernel runs, so it need not be on disk.
func (s *Store) noteFailure() {
	err := s.fs.MkdirAll(filepath.Join(s.root, checkpoint.Dir), 0o755)
	if err == nil {
		var f mappedfile.File
		if f, err = s.fs.OpenFile(s.failedPath(), os.O_RDWR|os.O_CREATE, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		s.o.Log.Error("failure cannot be noted; after a restart without a reboot a power cut may lose acknowledged messages", "error", err)
	}
}

// forgetFailure ends the note: the log is on disk again. The marks of before it vouch for pages of that time, so they go
// first.
func (s *Store) forgetFailure() error {
	if !s.failed {
		return nil
	}
	if err := s.forgetMarks(); err != nil {
		return err
	}
	return s.fs.Remove(s.failedPath())
}

func (s *Store) removeAbort() error {
	if err := s.fs.Remove(s.runPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return checkpoint.RemoveAbort(s.fs, s.abortPath())
}

// look reads what the last run left and changes nothing.
func (r *recovery) look() error {
	s := r.s
	aborted, err := checkpoint.AbortExists(s.fs, s.abortPath())
	if err != nil {
		return err
	}
	r.clean = !aborted
	if r.ck, _, err = checkpoint.Read(s.fs, filepath.Join(s.root, "checkpoint")); err != nil {
		return err
	}
	if s.o.BootID == "" {
		writable, readOnly := s.config().LogPaths()
		s.o.BootID = checkpoint.BootID(append(append([]string{s.root}, writable...), readOnly...)...)
	}
	marks, damage, err := checkpoint.LoadMarks(s.fs, s.root, s.o.BootID)
	if err != nil {
		return err
	}
	for _, d := range damage {
		s.o.Log.Warn("recovery mark is damaged and ignored", "error", d)
	}
	r.limit = math.MaxInt64
	if at, found, err := s.openCut(); err != nil {
		return err
	} else if found {
		r.limit, r.cut = at, true
	}
	for _, m := range marks {
		if s.failed && m.Kind != checkpoint.Durable || m.LogEnd > r.limit {
			continue
		}
		if rec, ok := r.matches(m); ok {
			if m.Kind == checkpoint.Durable {
				r.durable = m.LogEnd
			}
			if r.mark == nil { // the one that reaches highest comes first
				r.mark, r.markRec = m, rec
				s.report.Mark = m.Kind.String()
			}
			continue
		}
		s.o.Log.Warn("recovery mark does not fit the log and is ignored", "mark", m.Kind, "offset", m.LogEnd)
	}
	s.report.Clean = r.clean
	s.report.Gaps = s.log.Gaps()
	for _, g := range s.report.Gaps {
		s.o.Log.Error("files of the commit log are missing, their messages are gone", "from", g.From, "to", g.To)
	}
	if s.report.Unclean, err = s.uncleanBoot(); err != nil {
		return err
	}
	if confirmed, known := r.confirmed(); known {
		r.limit = min(r.limit, confirmed)
	}
	r.ours, err = r.isOurs()
	return err
}

// confirmed is what the last run is known to have confirmed. A store that never had an owner who confirms has all of it
// confirmed.
func (r *recovery) confirmed() (off message.LogOffset, known bool) {
	if !r.s.o.ManualConfirm || r.ck.Confirm == 0 {
		return 0, false
	}
	off = r.ck.Confirm
	if r.mark != nil {
		off = max(off, r.mark.LogEnd)
	}
	return off, true
}

// matches compares the record that ends at a mark with the log.
func (r *recovery) matches(m *checkpoint.Mark) (rec message.Record, ok bool) {
	if m.Last.Size == 0 {
		return rec, m.Matches(nil) && r.s.log.Min() == 0
	}
	raw, err := r.raw(m.Last.Log, int(m.Last.Size))
	if err != nil || !m.Matches(raw) || m.LogEnd != m.Last.Log+message.LogOffset(m.Last.Size) {
		return rec, false
	}
	return rec, message.Parse(raw, &rec) == nil && rec.LogOffset == m.Last.Log
}

// raw reads bytes of the log before it has an end.
func (r *recovery) raw(off message.LogOffset, n int) ([]byte, error) {
	for _, seg := range r.s.log.Segments() {
		if off < seg.Base || off+message.LogOffset(n) > seg.End || n < 0 {
			continue
		}
		f, err := r.s.fs.OpenFile(seg.Path, os.O_RDONLY, 0)
		if err != nil {
			return nil, err
		}
		p := make([]byte, n)
		_, err = f.ReadAt(p, int64(off-seg.Base))
		return p, errors.Join(err, f.Close())
	}
	return nil, commitlog.ErrOutOfRange
}

// isOurs says whether nobody else changed the folder since the mark: the abort file is the one that we wrote, or, after a
// clean end, nothing stands behind the mark.
func (r *recovery) isOurs() (bool, error) {
	if r.mark == nil {
		return false, nil
	}
	if r.clean {
		head, err := r.raw(r.mark.LogEnd, message.BlankSize)
		if errors.Is(err, commitlog.ErrOutOfRange) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		_, magic, _ := message.ParseHeader(head)
		return magic == 0, nil
	}
	run, err := r.s.fs.ReadFile(r.s.runPath())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	abort, err := r.s.fs.ReadFile(r.s.abortPath())
	return strings.TrimSpace(string(run)) != "" && string(run) == string(abort), err
}

// work brings log, queues and index to one state. Whatever it does may be repeated after a crash: entries are put again
// at their place, and before anything that a mark vouches for is changed the marks go.
func (r *recovery) work() error {
	s := r.s
	from, full, err := r.loadQueues()
	if err != nil {
		return err
	}
	if r.mark == nil {
		err = r.endOfLog(r.cutStart(), nil)
	} else if full || from < r.mark.LogEnd {
		err = r.endOfLog(r.mark.LogEnd, nil)
	} else {
		if r.ours {
			// Nothing that the mark vouches for is changed from here on without deleting it, so a broker that is killed again and
			// again while it starts need not read the whole log.
			if err := s.writeRun(); err != nil {
				return err
			}
			r.signed = true
		}
		r.refill.strict = true
		err = r.endOfLog(r.mark.LogEnd, r.record)
	}
	if err != nil {
		return err
	}
	if r.cut && r.log.End > r.limit {
		if err := r.goOnCutting(); err != nil {
			return err
		}
	}
	end := r.log.End
	if err := s.queues.TruncateAbove(min(end, r.limit)); err != nil {
		return err
	}
	if !full && from < r.log.Start {
		r.refill.strict = true
		if err := r.pass(from, end); err != nil {
			return err
		}
	}
	if full || r.holes {
		s.report.Full, from = true, s.log.Min()
		if err := checkpoint.RemoveMarks(s.fs, s.root); err != nil {
			return err
		}
		if s.failed { // nothing says which of their pages are on disk
			for _, q := range s.queues.All() {
				if err := q.Reset(); err != nil {
					return err
				}
			}
		}
		r.refill.strict, r.holes = false, false
		if err := r.pass(from, end); err != nil {
			return err
		}
	}
	if err := s.queues.CorrectMin(s.log.Min()); err != nil {
		return err
	}
	s.report.From, s.report.End = min(from, end), end
	s.report.Dropped, s.report.Damage = r.log.Dropped, r.log.Damage
	s.handles.clear() // next offsets are taken from the queues as they are now
	if r.startDispatch(); r.stop < end {
		if err := s.queues.TruncateAbove(r.stop); err != nil { // a record may reach above the limit
			return err
		}
	}
	if err := r.loadIndex(); err != nil {
		return err
	}
	if r.cut {
		if err := s.queues.Flush(); err != nil {
			return err
		}
		if err := s.lowerConfirmed(r.stop); err != nil {
			return err
		}
		return s.endCut()
	}
	return nil
}

// goOnCutting does again what a crash interrupted. The marks go first: they may vouch for what is cut.
func (r *recovery) goOnCutting() error {
	b, err := r.s.boundaryAt(r.limit)
	if err != nil {
		return fmt.Errorf("go on with the cut to %d: %w", r.limit, err)
	}
	if err := checkpoint.RemoveMarks(r.s.fs, r.s.root); err != nil {
		return err
	}
	r.s.o.Log.Warn("a cut of the log that was interrupted goes on", "from", r.log.End, "to", b.at)
	if err := r.s.log.Truncate(b.at); err != nil {
		return err
	}
	r.log.End = b.at
	return nil
}

// loadQueues opens the queues and says from where the log must be dispatched again.
func (r *recovery) loadQueues() (from message.LogOffset, full bool, err error) {
	s := r.s
	opt := consumequeue.LoadOptions{Clean: r.clean}
	lost := ""
	if r.ours {
		opt.Summaries = r.mark.Queues
		if lost, err = r.lostFile(); err != nil {
			return 0, false, err
		}
	}
	if lost != "" {
		s.o.Log.Error("file of a queue is missing, the whole log is read", "file", lost)
		opt.Summaries, full = nil, true
	}
	rep, err := s.queues.Load(opt)
	if err != nil {
		return 0, false, err
	}
	s.report.Queues, s.report.Opened = rep.Queues, rep.Scanned
	for _, b := range rep.Broken {
		s.o.Log.Error("queue is damaged, it is built again from the log", "topic", b.Topic, "queue", b.ID, "error", b.Err)
		if err := checkpoint.RemoveMarks(s.fs, s.root); err != nil {
			return 0, false, err
		}
		if err := s.queues.Find(b.Topic, b.ID).Reset(); err != nil {
			return 0, false, err
		}
		full = true
	}
	for _, m := range rep.Missing {
		s.o.Log.Error("queue is missing on disk, it is built again from the log", "topic", m.Topic, "queue", m.ID)
	}
	if r.mark == nil || !r.clean && !r.ours || full {
		return s.log.Min(), true, nil
	}
	from = min(r.mark.LogEnd, rep.Redispatch)
	if !r.ours { // a Java broker ended in order: its queues must reach at least as far as ours did
		for i := range r.mark.Queues {
			m := &r.mark.Queues[i]
			if q := s.queues.Find(m.Topic, m.ID); m.Max > m.Min && (q == nil || q.Max() < m.Max) {
				return s.log.Min(), true, nil
			}
		}
	}
	if from < r.mark.LogEnd && !r.boundary(from) {
		return s.log.Min(), true, nil
	}
	return from, false, nil
}

// lostFile names a file that a queue of the mark should have and has not. The newest one is looked at by the queues.
func (r *recovery) lostFile() (name string, err error) {
	size := r.s.config().queueFileSize()
	for i := range r.mark.Queues {
		q := &r.mark.Queues[i]
		last := (int64(q.Max) - 1) * unitSize / size
		if q.Max == 0 || last <= q.First {
			continue
		}
		dir := filepath.Join(r.s.root, "consumequeue", q.Topic, strconv.Itoa(int(q.ID)))
		entries, err := r.s.fs.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		have := make(map[string]bool, len(entries))
		for _, e := range entries {
			have[e.Name()] = true
		}
		low := max(q.First, int64(q.Min)*unitSize/size)
		for n := low; n < last; n++ {
			if name := consumequeue.FileName(n * size); !have[name] {
				return filepath.Join(dir, name), nil
			}
		}
	}
	return "", nil
}

// boundary says whether a record or a blank starts at off.
func (r *recovery) boundary(off message.LogOffset) bool {
	head, err := r.raw(off, message.BlankSize)
	if err != nil {
		return false
	}
	_, magic, _ := message.ParseHeader(head)
	return magic == message.MagicV1 || magic == message.MagicV2 || magic == message.MagicBlank
}

// cutStart chooses where the search for the end of the log begins when there is no mark: like a Java broker after an
// unclean end, at the newest file whose first record is older than the checkpoint; but never so far back that damage in
// old files could cut the whole log.
func (r *recovery) cutStart() message.LogOffset {
	segs := r.s.log.Segments()
	if r.s.failed { // all of it is written again
		return r.s.log.Min()
	}
	limit := r.ck.MinTime()
	start := message.LogOffset(0)
	if len(segs) > 0 {
		start = segs[0].Base
	}
	for i := len(segs) - 1; i >= 0; i-- {
		storeTime, ok := r.firstTime(segs[i].Base)
		if !ok {
			if s := r.s; s.o.ManualConfirm { // a replica must not have holes; what is behind comes again from another one
				start = segs[i].Base
			}
			continue
		}
		start = segs[i].Base
		far := len(segs)-i >= tailFiles && segs[len(segs)-1].End-start >= tailBytes
		if storeTime <= limit || far {
			break
		}
	}
	return start
}

// firstTime is the store time of the record at the start of a file.
func (r *recovery) firstTime(base message.LogOffset) (ms int64, ok bool) {
	head, err := r.raw(base, headBytes)
	if err != nil {
		return 0, false
	}
	_, magic, _ := message.ParseHeader(head)
	ms = message.StoreTimeAt(head)
	return ms, (magic == message.MagicV1 || magic == message.MagicV2) && ms != 0
}

// syncBelow makes the log below the start of the search durable: a killed process may have left it in the page cache only,
// and from now on it counts as flushed.
func (r *recovery) syncBelow(from message.LogOffset) error {
	if r.clean {
		return nil
	}
	for _, seg := range r.s.log.Segments() {
		if seg.End <= r.durable || seg.Base >= from {
			continue
		}
		f, err := r.s.fs.OpenFile(seg.Path, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Datasync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// endOfLog finds the end of the log from a record boundary on and cuts what is behind it.
func (r *recovery) endOfLog(from message.LogOffset, fn func(*message.Record) error) (err error) {
	if err := r.syncBelow(from); err != nil {
		return err
	}
	r.log, err = r.s.log.Recover(from, fn)
	if err == nil && r.log.LastRecord < 0 && r.mark != nil {
		r.s.log.RaiseStoreTime(r.markRec.StoreTime)
	}
	return err
}

// pass dispatches a part of the log again. In a strict pass a hole in a queue is noted, and nothing more is put.
func (r *recovery) pass(from, to message.LogOffset) error {
	for from < to && !r.holes {
		at, err := r.s.log.Scan(from, to, r.record)
		if err == nil {
			return nil
		}
		if !isCorrupt(err) {
			return err
		}
		from = r.s.nextFile(at)
		r.s.o.Log.Error("commit log is damaged, going on with its next file", "offset", at, "next", from, "error", err)
	}
	return nil
}

func (s *Store) nextFile(off message.LogOffset) message.LogOffset {
	size := message.LogOffset(s.log.SegmentSize())
	return (off/size + 1) * size
}

func (r *recovery) record(rec *message.Record) error {
	if r.holes {
		return nil
	}
	end := rec.LogOffset + message.LogOffset(rec.Size)
	if end > r.limit {
		r.limit = min(r.limit, rec.LogOffset) // what follows is above it as well
		return nil
	}
	if end > r.seen.Log+message.LogOffset(r.seen.Size) {
		r.seen, r.seenAt = checkpoint.RecordRef{Log: rec.LogOffset, Size: rec.Size}, rec.StoreTime
	}
	r.s.report.Records++
	err := r.refill.record(rec)
	var off *consumequeue.MisalignedError
	if r.refill.strict && errors.As(err, &off) {
		r.s.o.Log.Warn("queue lacks entries, the whole log is read", "error", err)
		r.holes = true
		return nil
	}
	return err
}

func (r *recovery) progress(rec *message.Record) {
	if r.s.report.Records%4096 != 0 {
		return
	}
	if now := time.Now(); now.After(r.next) {
		r.next = now.Add(progressEvery)
		r.s.o.Log.Info("recovering", "offset", rec.LogOffset, "records", r.s.report.Records)
	}
}

// startDispatch tells the dispatcher where it stands.
func (r *recovery) startDispatch() {
	d := r.s.d
	switch {
	case r.seen.Size > 0:
		d.last, d.lastTime = r.seen, r.seenAt
	case r.mark != nil:
		d.last, d.lastTime = r.mark.Last, r.markRec.StoreTime
	}
	r.stop = r.log.End
	if r.limit < r.stop { // a boundary, or inside of the record that follows the last one seen
		r.stop = max(r.s.log.Min(), d.last.Log+message.LogOffset(d.last.Size))
	}
	d.done.Reset(int64(r.stop))
	d.looked.Reset(int64(r.stop))
	if r.s.o.ManualConfirm {
		r.s.log.Confirmed().Reset(int64(r.stop))
	}
	r.s.report.Confirmed = r.stop
}

// loadIndex opens the index; what it lacks is built in the background.
func (r *recovery) loadIndex() error {
	s := r.s
	if s.idx == nil {
		return nil
	}
	opt := index.LoadOptions{Clean: r.clean, SafeTime: r.ck.IndexTime}
	if r.ours && r.mark.Indexed {
		opt.State = &r.mark.Index
	}
	rep, err := s.idx.Load(opt)
	if err != nil {
		return fmt.Errorf("load index: %w", err)
	}
	if err := s.idx.TruncateAbove(r.stop); err != nil {
		return fmt.Errorf("cut index: %w", err)
	}
	if t := s.idx.FlushedTime(); t < r.ck.IndexTime {
		if err := s.lowerIndexTime(t); err != nil {
			return err
		}
	}
	from := rep.Rebuild
	if from > r.stop { // after a clean end nothing is said to be missing
		from = max(s.idx.Last(), 0)
		if r.indexComplete() {
			from = r.stop
		}
	}
	s.indexer.pos = r.startOf(max(from, s.log.Min()))
	return nil
}

// lowerIndexTime takes back what the checkpoint file says of the index, before files are built again that would pass for
// flushed ones after a loss of power.
func (s *Store) lowerIndexTime(ms int64) error {
	f, err := checkpoint.Open(s.fs, filepath.Join(s.root, "checkpoint"))
	if err != nil {
		return err
	}
	c := f.Values()
	c.IndexTime = max(ms-1, 0)
	f.Set(c)
	return errors.Join(f.Flush(), f.Close())
}

// startOf returns a record boundary at or below off, or just behind it: an index that was cut says that it has everything
// below off+1. A file starts with a record, so its start is the answer when nothing else is.
func (r *recovery) startOf(off message.LogOffset) message.LogOffset {
	if off >= r.stop {
		return r.stop
	}
	for _, at := range []message.LogOffset{off, off + 1} {
		if v, err := r.s.View(at); err == nil {
			v.Release()
			return at
		}
	}
	size := message.LogOffset(r.s.log.SegmentSize())
	return max(off/size*size, r.s.log.Min())
}

// indexComplete says whether the index holds everything, after a clean end: its newest file is the one of the mark, which
// had been brought up to the end of the log.
func (r *recovery) indexComplete() bool {
	if !r.ours || !r.mark.Indexed || r.mark.Index.Last != r.mark.Last.Log || r.log.LastRecord >= 0 {
		return false
	}
	st := r.s.idx.State()
	return st.File == r.mark.Index.File && st.Count == r.mark.Index.Count
}

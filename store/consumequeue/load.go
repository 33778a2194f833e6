package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// loaders is how many queues are examined at once. With a cold page cache each of them waits for a read of its folder.
const loaders = 32

// LoadOptions say what is known of the files.
type LoadOptions struct {
	// Summaries come from a recovery mark that matches the log: nil when there is none, an empty slice when the mark knew
	// no queue. A queue whose last file is in place is then not opened.
	Summaries []Summary
	// Clean says that the last run, of this or a Java broker, ended in order: everything is on disk and nothing stale is.
	Clean bool
}

// Broken is a queue whose files are damaged or missing in the middle. It answers what it can; the owner may Reset it and
// dispatch the log again.
type Broken struct {
	Topic string
	ID    int32
	Err   error
}

// Report is what Load found.
type Report struct {
	Queues  int
	Scanned int // queues whose files were read because no summary fitted
	// Redispatch is a log offset from which units may be missing: dispatch must start there or below. After an unclean end
	// without summaries it is 0, since whole queues may be missing. math.MaxInt64 when no queue is known to lack anything
	// (with summaries: anything below the mark).
	Redispatch message.LogOffset
	MaxEnd     message.LogOffset // highest End of all queues
	Missing    []Summary         // in the summaries, but their units are gone from disk
	Broken     []Broken
}

// Load finds the queues on disk. It removes trailing files of length 0, which a crash leaves, and otherwise changes only
// queues whose folder is gone although the mark knows their offset.
func (t *Table) Load(opt LoadOptions) (Report, error) {
	if !opt.Clean {
		t.dmu.Lock()
		t.syncAll = true
		t.dmu.Unlock()
	}
	l := &loader{t: t, opt: opt, known: make(map[queueKey]*Summary, len(opt.Summaries))}
	l.rep.Redispatch = math.MaxInt64
	if opt.Summaries == nil && !opt.Clean {
		l.rep.Redispatch = 0
	}
	for i := range opt.Summaries {
		s := &opt.Summaries[i]
		l.known[queueKey{s.Topic, s.ID}] = s
	}
	if err := l.topics(); err != nil {
		return Report{}, err
	}
	for key, s := range l.known {
		if s.Max > s.Min { // readable units went with the folder
			l.rep.Missing = append(l.rep.Missing, *s)
			l.rep.Redispatch = min(l.rep.Redispatch, s.MinLog)
			continue
		}
		q, err := t.GetOrCreate(key.topic, key.id)
		if err != nil {
			return Report{}, err
		}
		q.w.Lock()
		err = q.begin(int64(s.Max))
		q.w.Unlock()
		if err != nil {
			return Report{}, err
		}
		l.rep.Queues++
	}
	return l.rep, nil
}

type queueKey struct {
	topic string
	id    int32
}

type loader struct {
	t   *Table
	opt LoadOptions

	mu    sync.Mutex // guards the rest
	known map[queueKey]*Summary
	found []queueKey
	rep   Report
}

// topics walks the folders, then loads the queues that it found.
func (l *loader) topics() error {
	topics, err := l.t.fs.ReadDir(l.t.dir)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(loaders)
	for _, e := range topics {
		if e.IsDir() && usable(e.Name(), 0) {
			g.Go(func() error { return l.topic(e.Name()) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	found := l.found
	size := len(found)/loaders + 1
	for len(found) > 0 {
		part := found[:min(size, len(found))]
		found = found[len(part):]
		g.Go(func() error {
			for _, k := range part {
				if err := l.queue(k.topic, k.id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// topic notes the queues of a topic.
func (l *loader) topic(topic string) error {
	ids, err := l.t.fs.ReadDir(filepath.Join(l.t.dir, topic))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range ids {
		id, err := strconv.ParseInt(e.Name(), 10, 32)
		if err == nil && id >= 0 && e.IsDir() && strconv.Itoa(int(id)) == e.Name() {
			l.found = append(l.found, queueKey{topic, int32(id)})
		}
	}
	return nil
}

func (l *loader) queue(topic string, id int32) error {
	q, err := l.t.GetOrCreate(topic, id)
	if err != nil {
		return err
	}
	q.w.Lock()
	defer q.w.Unlock()
	q.haveDir = true
	l.mu.Lock()
	s := l.known[queueKey{topic, id}]
	delete(l.known, queueKey{topic, id})
	l.mu.Unlock()
	if s != nil && q.adopt(s) {
		if !l.opt.Clean {
			q.markStale()
		}
		l.mu.Lock()
		l.rep.Queues++
		l.rep.MaxEnd = max(l.rep.MaxEnd, q.End())
		l.mu.Unlock()
		return nil
	}
	res, err := q.recover(l.opt.Clean)
	if err != nil {
		return err
	}
	if q.fresh && s != nil && s.Min == s.Max { // nothing readable is lost: go on at the same offset
		if err := q.begin(int64(s.Max)); err != nil {
			return err
		}
	}
	if !l.opt.Clean {
		q.markStale()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rep.Queues++
	l.rep.Scanned++
	l.rep.MaxEnd = max(l.rep.MaxEnd, q.End())
	if res != nil {
		l.rep.Broken = append(l.rep.Broken, Broken{Topic: topic, ID: id, Err: res})
	}
	switch {
	case s != nil && q.fresh: // every file is gone
		l.rep.Missing = append(l.rep.Missing, *s)
		l.rep.Redispatch = min(l.rep.Redispatch, s.MinLog)
	case s != nil && q.Max() < s.Max: // less than the mark promised
		l.rep.Redispatch = min(l.rep.Redispatch, q.End())
	}
	return nil
}

// adopt takes the bounds of a summary when the last file is in place. The caller holds q.w.
func (q *Queue) adopt(s *Summary) bool {
	if s.Min < 0 || s.Max < s.Min || s.First < 0 || s.First > q.fileOf(s.Max) || s.End < 0 {
		return false
	}
	if s.Max == 0 {
		return false
	}
	info, err := q.t.fs.Stat(q.fileName((int64(s.Max) - 1) / q.t.perFile))
	if err != nil || info.Size() != q.t.fileSize() {
		return false
	}
	q.set(int64(s.Min), int64(s.Max), int64(s.End), s.First)
	q.minLog.Store(int64(s.MinLog))
	if s.Min == s.Max {
		q.minLog.Store(math.MaxInt64)
	}
	return true
}

// set gives a loaded queue its bounds. The caller holds q.w.
func (q *Queue) set(low, high, end, first int64) {
	q.first, q.written, q.writtenEnd, q.syncFrom = first, high, end, high/q.t.perFile
	q.mu.Lock()
	q.tail, q.tailAt = nil, high
	q.mu.Unlock()
	q.end.Store(end)
	q.min.Store(low)
	q.max.Store(high)
	q.fresh = false
}

// recover finds the bounds from the files: it scans from the third-last file on, after a clean end from the last, and
// stops at the first unit that is not valid or does not ascend. damage is what the owner should repair; err ends the start.
// The caller holds q.w.
func (q *Queue) recover(clean bool) (damage, err error) {
	files, err := q.list()
	if err != nil {
		return nil, err
	}
	removed := false
	for len(files) > 0 && files[len(files)-1].size == 0 { // a crash between create and extend
		if err := q.removeFile(files[len(files)-1].index); err != nil {
			return nil, err
		}
		files, removed = files[:len(files)-1], true
	}
	if removed {
		if err := q.t.fs.SyncDir(q.dir); err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	for i, f := range files {
		if f.size != q.t.fileSize() && f.size != 0 {
			return nil, &mappedfile.CorruptError{File: q.fileName(f.index), Offset: -1,
				Reason: fmt.Sprintf("has %d bytes instead of the %d of mappedFileSizeConsumeQueue", f.size, q.t.fileSize())}
		}
		if i > 0 && f.index != files[i-1].index+1 || f.size == 0 {
			damage = &GapError{Topic: q.topic, ID: q.id,
				Offset: message.QueueOffset((files[max(i-1, 0)].index + 1) * q.t.perFile),
				Next:   message.QueueOffset(f.index * q.t.perFile)}
		}
	}
	start := max(0, len(files)-3)
	if clean {
		start, err = q.lastStarted(files)
		if err != nil {
			return nil, err
		}
	}
	first := files[0].index * q.t.perFile
	high := files[start].index * q.t.perFile
	// Let reads through while scanning: they are bounded by max.
	q.set(first, (files[len(files)-1].index+1)*q.t.perFile, 0, files[0].index)
	high, end, err := q.scan(high)
	if err != nil {
		return nil, err
	}
	if end == 0 && high > first { // the scan met nothing: the unit before it ends the queue
		u, ok, err := q.At(message.QueueOffset(high - 1))
		if err != nil {
			return nil, err
		}
		if ok {
			end = int64(u.End())
		}
	}
	q.set(first, high, end, files[0].index)
	return damage, q.skipBlanks(first, high)
}

// lastStarted is the position in files of the last one with a unit; 0 when there is none.
func (q *Queue) lastStarted(files []found) (int, error) {
	for i := len(files) - 1; i > 0; i-- {
		var one [1]Unit
		n, err := q.peek(files[i].index*q.t.perFile, one[:])
		if err != nil {
			return 0, err
		}
		if n == 1 {
			return i, nil
		}
	}
	return 0, nil
}

// peek decodes valid units from a file without regard to the bounds of the queue.
func (q *Queue) peek(at int64, dst []Unit) (int, error) {
	n, err := q.fromFile(at, dst)
	var gap *GapError
	if errors.As(err, &gap) || errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// scan walks valid, ascending units from at on and returns the offset after the last and the end of its message.
func (q *Queue) scan(at int64) (high, end int64, err error) {
	var buf [256]Unit
	for {
		n, err := q.peek(at, buf[:])
		if err != nil {
			return 0, 0, err
		}
		for _, u := range buf[:n] {
			if !u.Blank() {
				if int64(u.Log) < end || int64(u.End()) < 0 {
					return at, end, nil
				}
				end = int64(u.End())
			}
			at++
		}
		if n == 0 {
			return at, end, nil
		}
	}
}

// skipBlanks sets min to the first unit that has a message.
func (q *Queue) skipBlanks(first, high int64) error {
	var buf [256]Unit
	for first < high {
		n, err := q.peek(first, buf[:min(int64(len(buf)), high-first)])
		if err != nil {
			return err
		}
		blanks := 0
		for blanks < n && buf[blanks].Blank() {
			blanks++
		}
		first += int64(blanks)
		if n == 0 || blanks < n {
			break
		}
	}
	return q.setMin(first)
}

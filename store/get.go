package store

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

const (
	minPullBytes = 100
	maxPullBytes = 128 << 20
	// hotWindow bytes behind the log's end were just written and are taken to be in memory without asking the kernel.
	hotWindow = 256 << 20
)

// Get reads messages of one queue from an offset on into r, which is reused. What it finds wrong with the offset it says in
// r.Status and r.Next; an error means that the store is closed, not readable or damaged. See docs of Result for ownership.
func (s *Store) Get(q *Query, r *Result) error {
	start := time.Now()
	if s.closed.Load() {
		return ErrClosed
	}
	if !s.flags.load().Readable() {
		return ErrNotReadable
	}
	r.reset()
	cfg := s.config()
	cq := s.queues.Get(q.Topic, q.QueueID)
	if cq == nil {
		r.Status = NoMatchedLogicQueue
		r.Next = correct(cfg, q.Offset, 0)
	} else if r.Min, r.Max = cq.Min(), cq.Max(); r.outside(cfg, q) {
		// status and next are set
	} else {
		g := getter{s: s, q: q, r: r, cq: cq, cfg: cfg}
		if err := g.run(); err != nil {
			r.Release()
			return err
		}
	}
	s.count.get(int64(r.Count), time.Since(start))
	return nil
}

func (r *Result) reset() {
	r.Views = r.Views[:0]
	r.Status, r.Next, r.Min, r.Max, r.Count, r.Bytes, r.Last = NoMatchedMessage, 0, 0, 0, 0, 0, -1
	r.SuggestSlave, r.Cold = false, false
}

// outside judges the offset before anything is read.
func (r *Result) outside(cfg *Config, q *Query) bool {
	switch {
	case r.Max == 0:
		r.Status, r.Next = NoMessageInQueue, correct(cfg, q.Offset, 0)
	case q.Offset < r.Min:
		r.Status, r.Next = OffsetTooSmall, correct(cfg, q.Offset, r.Min)
	case q.Offset == r.Max:
		r.Status, r.Next = OffsetOverflowOne, correct(cfg, q.Offset, q.Offset)
	case q.Offset > r.Max:
		r.Status, r.Next = OffsetOverflowBadly, correct(cfg, q.Offset, r.Max)
	default:
		return false
	}
	return true
}

// correct is the offset to go on with: a slave may be behind, so it does not correct unless told to.
func correct(cfg *Config, asked, right message.QueueOffset) message.QueueOffset {
	if cfg.BrokerRole == RoleSlave && !cfg.OffsetCheckInSlave {
		return asked
	}
	return right
}

// getter is one Get under way.
type getter struct {
	s   *Store
	q   *Query
	r   *Result
	cq  *consumequeue.Queue
	cfg *Config

	logEnd   int64 // end of what may be seen, for distances
	memory   int64 // so many bytes behind logEnd count as being in memory
	maxMsgs  int
	maxBytes int
	skipTo   message.LogOffset // after a missing record: entries below point into the same missing file

	// the run of adjacent records that is being collected
	part     commitlog.View
	partLen  int
	partMsgs int
	partAt   message.QueueOffset
	inPart   bool
}

func (g *getter) run() error {
	g.logEnd = g.s.log.Confirmed().Load()
	g.memory = g.s.ram / 100 * int64(g.cfg.AccessMessageInMemoryMaxRatio)
	g.maxMsgs = max(g.q.MaxMsgs, 1)
	g.maxBytes = maxPullBytes
	if g.q.MaxBytes > 0 {
		g.maxBytes = min(max(g.q.MaxBytes, minPullBytes), maxPullBytes)
	}
	g.r.Next = g.q.Offset
	if err := g.collect(); err != nil {
		g.dropPart()
		return err
	}
	if err := g.endPart(); err != nil {
		return err
	}
	if g.r.Count > 0 {
		g.r.Status = Found
	}
	g.r.SuggestSlave = g.r.Last >= 0 && g.logEnd-int64(g.r.Last) > g.memory
	return nil
}

// collect walks the entries: at most travelCqFileNumWhenGetMessage files, only while nothing was found.
func (g *getter) collect() error {
	at := g.q.Offset
	scan := max(int(g.cfg.MaxFilterMessageSize)/unitSize, g.maxMsgs) // entries looked at
	for files := 0; files < g.cfg.TravelCqFileNumWhenGetMessage && g.found() == 0 && !g.r.Cold; files++ {
		fileEnd := g.cq.NextFile(at)
		for at < fileEnd {
			want := min(int(fileEnd-at), len(g.r.units))
			n, err := g.cq.Range(at, g.r.units[:want])
			if err != nil {
				return g.missingUnits(err)
			}
			if n == 0 {
				return nil
			}
			for i := range g.r.units[:n] {
				u := &g.r.units[i]
				if !u.Blank() {
					if scan--; scan < 0 {
						return nil
					}
				}
				more, err := g.unit(at, u)
				if err != nil || !more {
					return err
				}
				at++
			}
		}
	}
	return nil
}

// found counts the messages taken so far, those of the run under way included.
func (g *getter) found() int { return g.r.Count + g.partMsgs }

// missingUnits answers for entries that are not on disk: go on at the next file.
func (g *getter) missingUnits(err error) error {
	var gap *consumequeue.GapError
	if !errors.As(err, &gap) {
		return err
	}
	if g.found() == 0 {
		g.r.Status, g.r.Next = OffsetFoundNull, correct(g.cfg, g.q.Offset, gap.Next)
		g.s.damaged(-1, g.q, g.q.Offset)
	}
	return nil
}

// unit looks at one entry; more is false when the answer is complete without it.
func (g *getter) unit(at message.QueueOffset, u *consumequeue.Unit) (more bool, err error) {
	if u.Blank() {
		g.passed(at)
		return true, nil
	}
	if g.full(u) {
		return false, nil
	}
	g.r.Last = max(g.r.Last, u.Log)
	if u.Log < g.skipTo {
		g.passed(at)
		return true, nil
	}
	if g.q.Filter != nil && !u.Ext() && !g.q.Filter.MatchTags(u.Tags) {
		g.r.Next = at + 1
		return true, nil
	}
	if g.inPart && u.Log == g.part.Offset()+message.LogOffset(g.partLen) && !g.filtersRecords() {
		g.partLen += int(u.Size)
		g.partMsgs++
		g.r.Next = at + 1
		return true, nil
	}
	return g.record(at, u)
}

// record takes a record that does not continue the run.
func (g *getter) record(at message.QueueOffset, u *consumequeue.Unit) (more bool, err error) {
	if err := g.endPart(); err != nil || g.r.Cold || g.stopped(at) {
		return false, err
	}
	v, err := g.s.log.View(u.Log, int(u.Size))
	if err != nil && !errors.Is(err, commitlog.ErrOutOfRange) {
		return false, err
	}
	if err != nil || v.Len() != int(u.Size) {
		if err == nil {
			v.Release()
		}
		if u.Log >= g.s.log.Min() && !g.inGap(u.Log) { // the entry itself is wrong: it says nothing of the ones behind it
			g.s.damaged(u.Log, g.q, at)
		} else {
			seg := message.LogOffset(g.s.log.SegmentSize())
			g.skipTo = (u.Log/seg + 1) * seg
		}
		g.passed(at)
		return true, nil
	}
	if g.filtersRecords() {
		if g.isCold(v) {
			v.Release()
			g.r.Cold = g.r.Count == 0
			return false, nil
		}
		ok, err := g.matches(v)
		if err != nil || !ok {
			v.Release()
			g.r.Next = at + 1
			return err == nil, err
		}
	}
	g.inPart, g.part, g.partLen, g.partMsgs, g.partAt = true, v, int(u.Size), 1, at
	g.r.Next = at + 1
	return true, nil
}

// inGap tells whether an offset lies in a segment whose file is missing.
func (g *getter) inGap(off message.LogOffset) bool {
	for _, gap := range g.s.log.Gaps() {
		if int64(off) >= gap.From && int64(off) < gap.To {
			return true
		}
	}
	return false
}

// stopped is true when a cold run was put back, so that nothing behind it may be taken.
func (g *getter) stopped(at message.QueueOffset) bool { return g.r.Next < at }

// passed goes over an entry without a record.
func (g *getter) passed(at message.QueueOffset) {
	if g.found() == 0 {
		g.r.Status = MessageWasRemoving
	}
	g.r.Next = at + 1
}

func (g *getter) filtersRecords() bool { return g.q.Filter != nil && g.q.Filter.NeedsRecord() }

func (g *getter) matches(v commitlog.View) (bool, error) {
	raw := v.Bytes()
	if g.logEnd-int64(v.Offset()) > g.s.hot { // not through the map: a page fault would stop a processor
		if cap(g.r.raw) < v.Len() {
			g.r.raw = make([]byte, v.Len())
		}
		raw = g.r.raw[:v.Len()]
		if _, err := v.ReadAt(raw, 0); err != nil {
			return false, err
		}
	}
	if err := message.Parse(raw, &g.r.rec); err != nil {
		return false, err
	}
	return g.q.Filter.MatchRecord(&g.r.rec), nil
}

// full says whether u does not fit into the answer any more. The first message always fits.
func (g *getter) full(u *consumequeue.Unit) bool {
	count, bytes := g.found(), g.r.Bytes+g.partLen
	if count == 0 {
		return false
	}
	limit, most := g.cfg.MaxTransferBytesOnMessageInMemory, g.cfg.MaxTransferCountOnMessageInMemory
	if g.logEnd-int64(u.Log) > g.memory {
		limit, most = g.cfg.MaxTransferBytesOnMessageInDisk, g.cfg.MaxTransferCountOnMessageInDisk
	}
	bytes += int(u.Size)
	return count+1 > g.maxMsgs || bytes > g.maxBytes || bytes > int(limit) || count > int(most)-1
}

func (g *getter) isCold(v commitlog.View) bool {
	return g.q.HotOnly && g.logEnd-int64(v.Offset()) > g.s.hot && !v.Resident()
}

// endPart hands the run out as one view, or puts it back when it is cold and only hot data was asked for.
func (g *getter) endPart() error {
	if !g.inPart {
		return nil
	}
	v := g.part
	if v.Len() != g.partLen {
		whole, err := g.s.log.View(v.Offset(), g.partLen)
		if err == nil && whole.Len() != g.partLen {
			whole.Release()
			err = commitlog.ErrOutOfRange
		}
		if err != nil {
			g.dropPart()
			return err
		}
		v.Release()
		v, g.part = whole, whole
	}
	if g.isCold(v) {
		g.r.Next = g.partAt
		g.r.Cold = g.r.Count == 0
		g.dropPart()
		return nil
	}
	if err := g.soundPart(); err != nil || !g.inPart {
		return err
	}
	g.r.Views = append(g.r.Views, g.part)
	g.r.Count += g.partMsgs
	g.r.Bytes += g.partLen
	g.inPart, g.partLen, g.partMsgs, g.part = false, 0, 0, commitlog.View{}
	return nil
}

// soundPart looks at the head of every record of the run, because the log may have been damaged since it was recovered: no client shall get
// bytes that are not a record. The run is cut before the first damaged one; when that is the first, it is passed over with a warning.
func (g *getter) soundPart() error {
	n, end, last, err := g.soundRecords()
	if err != nil {
		g.dropPart()
		return err
	}
	if n == g.partMsgs && end == g.partLen {
		return nil
	}
	if n > 0 && !g.isEntry(g.partAt+message.QueueOffset(n-1), last, end) { // its size is what is wrong: there the next one was looked for
		n, end = n-1, last
	}
	if n > 0 {
		whole, err := g.s.log.View(g.part.Offset(), end)
		g.part.Release()
		g.inPart = err == nil
		if err != nil {
			return err
		}
		g.part, g.partLen, g.partMsgs = whole, end, n
		g.r.Next = g.partAt + message.QueueOffset(n)
		return nil
	}
	g.s.damaged(g.part.Offset(), g.q, g.partAt)
	at := g.partAt
	g.dropPart()
	g.passed(at)
	return nil
}

// recordHead is the part of a record that says which one it is: size, magic and the offsets.
const recordHead = message.PosLogOffset + 8

// soundRecords counts the records at the start of the run whose heads are right, and their bytes; last is where the last
// of them begins.
func (g *getter) soundRecords() (n, end, last int, err error) {
	cold := g.logEnd-int64(g.part.Offset()) > g.s.hot
	for n < g.partMsgs && end+recordHead <= g.partLen {
		head := g.r.head[:]
		if cold { // not through the map: a page fault would stop a processor
			if _, err := g.part.ReadAt(head, int64(end)); err != nil {
				return 0, 0, 0, err
			}
		} else {
			head = g.part.Bytes()[end : end+recordHead]
		}
		size, magic, _ := message.ParseHeader(head)
		at := message.LogOffset(binary.BigEndian.Uint64(head[message.PosLogOffset:]))
		if magic != message.MagicV1 && magic != message.MagicV2 || size < recordHead || int(size) > g.partLen-end || at != g.part.Offset()+message.LogOffset(end) {
			return n, end, last, nil
		}
		n, last, end = n+1, end, end+int(size)
	}
	return n, end, last, nil
}

// isEntry says whether the queue's entry at an offset is the record that takes the bytes [from, to) of the run.
func (g *getter) isEntry(at message.QueueOffset, from, to int) bool {
	var u [1]consumequeue.Unit
	n, err := g.cq.Range(at, u[:])
	return err == nil && n == 1 && u[0].Log == g.part.Offset()+message.LogOffset(from) && int(u[0].Size) == to-from
}

// damageQuiet is the pause between two warnings of damage met by readers.
const damageQuiet = time.Second

// damaged warns of a message that cannot be read although its queue has it, once a second at most, and sees to it that the next start
// trusts no recovery mark: it then compares every queue with the log and builds what is wrong again. log is -1 when the queue's entry is
// missing.
func (s *Store) damaged(log message.LogOffset, q *Query, offset message.QueueOffset) {
	now := time.Now().UnixMilli()
	last := s.damageWarned.Load()
	met := s.damageMet.Add(1)
	if now-last < damageQuiet.Milliseconds() || !s.damageWarned.CompareAndSwap(last, now) {
		return
	}
	s.o.Log.Error("the store is damaged: a message cannot be read and is passed over; a restart builds queues again from the log, inspect says what the log has lost",
		"topic", string(q.Topic), "queue", q.QueueID, "offset", int64(offset), "log", int64(log), "met", met)
}

func (g *getter) dropPart() {
	if g.inPart {
		g.part.Release()
		g.inPart, g.partLen, g.partMsgs, g.part = false, 0, 0, commitlog.View{}
	}
}

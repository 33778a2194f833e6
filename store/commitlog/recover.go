package commitlog

import (
	"fmt"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Report says what Recover found.
type Report struct {
	Start, End      message.LogOffset // what was scanned; End is the log's end now
	Records         int64
	LastRecord      message.LogOffset // start of the last valid record scanned, -1 if there was none
	LastStoreTime   int64
	Dropped         int64            // bytes above End that were not zero and are now
	DroppedSegments int              // files above End that held bytes
	Gaps            []mappedfile.Gap // missing files that the scan went over
	Damage          error            // why the scan ended, a *mappedfile.CorruptError; nil if it met clean room
}

// Recover scans from a record boundary, calls fn for each valid record (its slices are valid during the call), and makes the
// first position without one the end of the log. A record is valid if its lengths agree, it says that it stands where it
// stands, its CRC is right, and no sector of it is missing (torn.go). Everything above the end is made zero and everything below it durable before Recover
// returns, so that no byte of old comes alive when the log grows over it; a crash in between changes nothing of that,
// because the scan ends at the same place again. An error of reading, of fn, or an end below Config.DurableTo returns
// before anything was changed. Call it once, after Open.
//
// from below the first segment means the first segment. from at a position of which the caller is not sure that it is a
// boundary must not be given.
func (l *Log) Recover(from message.LogOffset, fn func(rec *message.Record) error) (Report, error) {
	if l.seq.Last() == nil {
		return Report{LastRecord: -1}, nil
	}
	start := max(int64(from), l.seq.Min())
	if start > l.seq.End() {
		return Report{}, fmt.Errorf("recover commit log: %w: %d is above the last segment", ErrOutOfRange, from)
	}
	r := Report{Start: message.LogOffset(start), LastRecord: -1}
	end, err := l.scanValid(start, &r, fn)
	if err != nil {
		return r, fmt.Errorf("recover commit log: %w", err)
	}
	r.End = message.LogOffset(end)
	if end < int64(l.cfg.DurableTo) {
		return r, fmt.Errorf("recover commit log: it ends at %d, but was durable up to %d: %w", end, l.cfg.DurableTo, damageOr(r.Damage))
	}
	r.Dropped, r.DroppedSegments, err = l.cut(end)
	if err == nil && l.cfg.Rewrite {
		err = l.rewrite(max(start, int64(l.cfg.DurableTo)), end)
	}
	if err == nil {
		err = l.seq.Sync(start, end)
	}
	if err != nil {
		return r, fmt.Errorf("recover commit log: %w", err)
	}
	if tail := l.segment(end); tail != nil {
		if tail.ReadOnly() {
			return r, fmt.Errorf("recover commit log: the last segment %s lies in a read-only folder", tail.Path())
		}
		_ = tail.Reserve() // another program leaves holes; if they cannot be filled, the write that meets one says so
	}
	l.RaiseStoreTime(r.LastStoreTime)
	l.setEnd(end, l.segment(end))
	return r, nil
}

func damageOr(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: bytes are missing", ErrOutOfRange)
}

// scanValid returns where the valid log ends.
func (l *Log) scanValid(pos int64, r *Report, fn func(*message.Record) error) (int64, error) {
	c := cursor{seq: l.seq, limit: 1<<63 - 1}
	defer c.close()
	var rec message.Record
	check := l.checkRecord()
	for {
		if !c.seek(pos) {
			next := l.seq.After(pos)
			if next == nil {
				return pos, nil
			}
			r.Gaps = append(r.Gaps, mappedfile.Gap{From: pos, To: next.Base()})
			pos = next.Base()
			next.Release()
			continue
		}
		v, reason, err := c.read(pos, &rec, check)
		if err != nil {
			return pos, err
		}
		switch v {
		case isRecord:
			if fn != nil {
				if err := fn(&rec); err != nil {
					return pos, err
				}
			}
			r.Records++
			r.LastRecord, r.LastStoreTime = message.LogOffset(pos), max(r.LastStoreTime, rec.StoreTime)
			pos += int64(rec.Size)
		case isBlank:
			pos = c.seg.End()
		case isNothing:
			return pos, nil
		default:
			r.Damage = c.corrupt(pos, reason)
			return pos, nil
		}
	}
}

// checkRecord is the check in force.
func (l *Log) checkRecord() checker {
	switch {
	case l.cfg.VerifyPropCRC:
		return func(raw []byte, _ int64, _ *message.Record) string {
			if !propCRCValid(raw) {
				return "wrong or missing " + propCRCName
			}
			return ""
		}
	case l.cfg.SkipCRC:
		return nil
	}
	return func(_ []byte, inFile int64, rec *message.Record) string {
		if !rec.BodyValid() {
			return "wrong body CRC"
		}
		if isTorn(rec, inFile) {
			return "a sector is missing"
		}
		return ""
	}
}

// segment is the one that holds end, nil when end starts a new one.
func (l *Log) segment(end int64) *mappedfile.Segment {
	s := l.seq.Find(end)
	if s != nil {
		s.Release() // the list keeps it
	}
	return s
}

// cut makes everything at and above end zero, durably: later segments go, newest first, then the rest of the one that holds
// end. Nobody reads there and nothing is staged.
func (l *Log) cut(end int64) (dropped int64, segments int, err error) {
	tail := l.segment(end)
	keep := end
	if tail != nil {
		keep = tail.End()
	}
	for _, s := range l.seq.Segments() {
		if s.Base() < keep {
			continue
		}
		n, err := s.LastData(0)
		if err != nil {
			return 0, 0, err
		}
		if n > 0 {
			dropped += n
			segments++
		}
	}
	if err := l.seq.DropBack(keep); err != nil {
		return 0, 0, err
	}
	if tail == nil {
		return dropped, segments, nil
	}
	pos := end - tail.Base()
	last, err := tail.LastData(pos)
	if err != nil {
		return 0, 0, err
	}
	if last > pos {
		if err := tail.Zero(pos, tail.Size()-pos); err != nil {
			return 0, 0, err
		}
	}
	return dropped + last - pos, segments, tail.Sync()
}

// rewrite writes [from, to) again as it is. After a failed flush the kernel may hold pages that are clean but never reached
// the disk: they can be read, and a later flush succeeds without them. If the log grew over that, a power cut would open a
// hole below records that were flushed and acknowledged.
func (l *Log) rewrite(from, to int64) error {
	buf := make([]byte, min(scanBuffer, l.cfg.SegmentSize))
	for from < to {
		s := l.seq.Find(from)
		if s == nil {
			if s = l.seq.After(from); s == nil {
				return nil
			}
			from = s.Base()
		}
		n := min(int64(len(buf)), s.End()-from, to-from)
		var err error
		if n > 0 && !s.ReadOnly() {
			if _, err = s.ReadAt(buf[:n], from-s.Base()); err == nil {
				err = s.WriteAt(buf[:n], from-s.Base())
			}
		}
		s.Release()
		if err != nil {
			return err
		}
		from += max(n, 0)
	}
	return nil
}

// setEnd makes end the log's end and everything below it written and flushed. seg holds end or is nil. Nothing is staged,
// nobody appends, nobody waits for a mark above end.
func (l *Log) setEnd(end int64, seg *mappedfile.Segment) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote, l.synced = end, end
	l.written.Reset(end)
	l.flushed.Reset(end)
	if !l.cfg.ManualConfirm || l.confirmed.Load() > end {
		l.confirmed.Reset(end)
	}
	l.seg, l.segEnd = seg, end
	if seg != nil {
		l.segEnd = seg.End()
	}
	l.ahead = 0
	l.end.Store(end)
	l.ring.clear()
	l.ready = !l.closed
}

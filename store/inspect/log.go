package inspect

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// maxRecord is the largest record that is believed; the largest that a broker takes by default has 4 MiB and a bit.
const maxRecord = 256 << 20

// Log is what the commit log holds.
type Log struct {
	Segments    int               `json:"segments"`
	SegmentSize int64             `json:"segmentSize"`
	Min         message.LogOffset `json:"min"`
	End         message.LogOffset `json:"end"` // after the last record; where a start would append
	Records     int64             `json:"records"`
	FirstTime   int64             `json:"firstTime"` // store time of the first record, ms
	LastTime    int64             `json:"lastTime"`

	segments   []segment
	above      int64  // bytes above End that are not zero, from the first to the last
	broken     bool   // there is damage with records behind it
	brokenAt   int64  // log offset of the first such place
	tailReason string // why the log ends, empty in clean room
}

type segment struct {
	path string
	base int64
	size int64
}

func (in *inspector) logDirs() []string {
	if len(in.opt.LogDirs) > 0 {
		return in.opt.LogDirs
	}
	return []string{filepath.Join(in.root, "commitlog")}
}

// listLog finds the segments and checks names and lengths.
func (in *inspector) listLog() error {
	for _, dir := range in.logDirs() {
		list, err := in.readDir(dir)
		if err != nil {
			return err
		}
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			base, err := strconv.ParseInt(e.Name(), 10, 64)
			if e.IsDir() || !isDigits(e.Name(), 20) || err != nil {
				in.find(Note, path, -1, "not a file of the commit log")
				continue
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			in.log.segments = append(in.log.segments, segment{path: path, base: base, size: info.Size()})
		}
	}
	segs := in.log.segments
	slices.SortFunc(segs, func(a, b segment) int { return int(max(min(a.base-b.base, 1), -1)) })
	for _, s := range segs {
		in.log.SegmentSize = max(in.log.SegmentSize, s.size)
	}
	for i, s := range segs {
		switch {
		case s.size == 0 && i == len(segs)-1:
			in.find(Note, s.path, -1, "empty file, left by a crash; a start removes it")
		case s.size != in.log.SegmentSize:
			in.find(Damage, s.path, -1, "has %d bytes instead of %d; a start refuses it", s.size, in.log.SegmentSize)
		case i > 0 && segs[i-1].base+in.log.SegmentSize != s.base:
			in.find(Damage, s.path, -1, "files for log offsets %d to %d are missing", segs[i-1].base+in.log.SegmentSize, s.base)
		}
	}
	if len(segs) > 0 {
		in.log.Min = message.LogOffset(segs[0].base)
	}
	in.log.Segments = len(segs)
	in.log.End = in.log.Min
	return nil
}

// scanLog reads all records, checks them, and holds queues and index against them.
func (in *inspector) scanLog() error {
	in.rep.Log = &in.log
	var total, done int64
	for _, s := range in.log.segments {
		total += s.size
	}
	rows := 0
	type stop struct {
		seg    segment
		scan   segmentScan
		beyond int64 // first byte behind the end that is not zero, size when there is none
	}
	var stops []stop
	for _, seg := range in.log.segments {
		if seg.size == 0 {
			continue
		}
		f, err := in.open(seg.path)
		if err != nil {
			return err
		}
		scan, err := scanSegment(f, seg, func(rec *message.Record) error {
			in.log.Records++
			if in.log.FirstTime == 0 {
				in.log.FirstTime = rec.StoreTime
			}
			in.log.LastTime = rec.StoreTime
			in.row(seg.path, &rows, func() Fields { return recordFields(rec) })
			in.queueHas(rec)
			return in.indexHas(rec)
		})
		beyond := seg.size
		if err == nil && !scan.full {
			beyond, err = nonZero(f, scan.end, seg.size)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		in.file(seg.path, KindLog, seg.size, Fields{{"from", seg.base}, {"to", seg.base + scan.end}, {"records", scan.records}, {"full", scan.full}})
		stops = append(stops, stop{seg, scan, beyond})
		done += seg.size
		if in.opt.Progress != nil {
			in.opt.Progress(done, total)
		}
		rows = 0
	}
	last := -1 // the last segment with anything in it
	for i, s := range stops {
		if s.scan.records > 0 || s.scan.full || s.beyond < s.seg.size {
			last = i
		}
	}
	for i, s := range stops[:last+1] {
		at := s.seg.base + s.scan.end
		in.log.End = message.LogOffset(at)
		if s.scan.full {
			in.log.End = message.LogOffset(s.seg.base + s.seg.size)
			continue
		}
		switch {
		case i < last:
			in.find(Damage, s.seg.path, s.scan.end, "no record at log offset %d (%s), but later files have records", at, s.scan.reason)
			if !in.log.broken {
				in.log.broken, in.log.brokenAt = true, at
			}
		case s.beyond == s.seg.size:
		case s.scan.reason == reasonZero:
			in.log.above = s.seg.size - s.beyond
			in.find(Note, s.seg.path, s.beyond, "bytes behind the end of the log are not zero")
		default:
			in.log.above, in.log.tailReason = s.seg.size-s.beyond, s.scan.reason
			sev := Damage
			if in.rep.Live {
				sev = Note // most likely being written
			}
			in.find(sev, s.seg.path, s.scan.end, "log ends at %d with a broken record: %s", at, s.scan.reason)
		}
	}
	return nil
}

func recordFields(rec *message.Record) Fields {
	unique, _ := message.Property(rec.Properties, "UNIQ_KEY")
	keys, _ := message.Property(rec.Properties, "KEYS")
	tags, _ := message.Property(rec.Properties, "TAGS")
	return Fields{{"log", rec.LogOffset}, {"size", rec.Size}, {"queue", place(rec.Topic, rec.QueueID, rec.QueueOffset)},
		{"stored", rec.StoreTime}, {"sysFlag", rec.SysFlag}, {"body", len(rec.Body)}, {"tags", clip(tags)}, {"keys", clip(keys)},
		{"unique", clip(unique)}, {"born", rec.BornHost.String()}}
}

const reasonZero = "zero"

// segmentScan is how far the records of a segment are right.
type segmentScan struct {
	end     int64 // position after the last record; the segment's size when it is full
	records int64
	full    bool   // ends with a blank record
	reason  string // why it ends, unless full
}

// scanSegment calls fn for each valid record. An error is of reading or of fn.
func scanSegment(f mappedfile.File, seg segment, fn func(*message.Record) error) (segmentScan, error) {
	w := window{f: f, size: seg.size}
	var s segmentScan
	var rec message.Record
	for {
		head, err := w.bytes(s.end, message.BlankSize)
		if err != nil {
			return s, err
		}
		size, magic, ok := message.ParseHeader(head)
		switch {
		case !ok:
			s.reason = "file ends"
			return s, nil
		case magic == message.MagicBlank && size >= message.BlankSize:
			s.end, s.full = seg.size, true
			return s, nil
		case size == 0 && magic == 0:
			s.reason = reasonZero
			return s, nil
		case size < message.BlankSize || int64(size) > seg.size-s.end || size > maxRecord:
			s.reason = fmt.Sprintf("size %d", size)
			return s, nil
		}
		b, err := w.bytes(s.end, int64(size))
		if err != nil {
			return s, err
		}
		rec = message.Record{}
		if err := message.Parse(b, &rec); err != nil {
			s.reason = err.Error()
			return s, nil
		}
		if int64(rec.LogOffset) != seg.base+s.end {
			s.reason = fmt.Sprintf("record says it stands at %d", rec.LogOffset)
			return s, nil
		}
		if !rec.BodyValid() {
			s.reason = fmt.Sprintf("checksum of the body is %08x instead of %08x", message.CRC(rec.Body), rec.BodyCRC)
			return s, nil
		}
		if err := fn(&rec); err != nil {
			return s, err
		}
		s.records++
		s.end += int64(size)
	}
}

// window reads a file in large pieces. What it returns is valid until the next call.
type window struct {
	f    mappedfile.File
	size int64
	buf  []byte
	at   int64
}

const windowSize = 1 << 20

// bytes returns [at, at+n), shorter at the end of the file.
func (w *window) bytes(at, n int64) ([]byte, error) {
	n = min(n, w.size-at)
	if n <= 0 {
		return nil, nil
	}
	if at < w.at || at+n > w.at+int64(len(w.buf)) {
		want := min(max(n, windowSize), w.size-at)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf = w.buf[:want]
		got, err := w.f.ReadAt(w.buf, at)
		w.buf, w.at = w.buf[:got], at
		if ignoreEOF(err) != nil {
			return nil, err
		}
		n = min(n, int64(got))
	}
	return w.buf[at-w.at : at-w.at+n], nil
}

// singleLog inspects one segment by itself.
func (in *inspector) singleLog(path string, size int64) error {
	base, err := strconv.ParseInt(filepath.Base(path), 10, 64)
	f, operr := in.open(path)
	if operr != nil {
		return operr
	}
	if err != nil { // a renamed copy: its first record knows
		var rec message.Record
		head, rerr := (&window{f: f, size: size}).bytes(0, windowSize)
		if perr := message.Parse(head, &rec); rerr != nil || perr != nil {
			return errors.Join(fmt.Errorf("%s: its name is no log offset and its first record cannot be read", path), f.Close())
		}
		base = int64(rec.LogOffset)
	}
	rows := 0
	seg := segment{path: path, base: base, size: size}
	var first, last int64
	scan, err := scanSegment(f, seg, func(rec *message.Record) error {
		if first == 0 {
			first = rec.StoreTime
		}
		last = rec.StoreTime
		in.row(path, &rows, func() Fields { return recordFields(rec) })
		return nil
	})
	beyond := size
	if err == nil && !scan.full {
		beyond, err = nonZero(f, scan.end, size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	in.file(path, KindLog, size, Fields{{"from", base}, {"to", base + scan.end}, {"records", scan.records}, {"full", scan.full},
		{"firstTime", first}, {"lastTime", last}})
	switch {
	case scan.full || beyond == size:
	case scan.reason == reasonZero:
		in.find(Note, path, beyond, "bytes behind the end of the log are not zero")
	default:
		in.find(Damage, path, scan.end, "broken record at log offset %d: %s", base+scan.end, scan.reason)
	}
	return nil
}

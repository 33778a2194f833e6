package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const (
	scheduleTopic = "SCHEDULE_TOPIC_XXXX"
	lmqPrefix     = "%LMQ%"
	unitWindow    = 256 // units read at once while the log is scanned
)

type queueKey struct {
	topic string
	id    int32
}

// queue is one consume queue as found on disk.
type queue struct {
	key     queueKey
	dir     string
	files   []segment // base: byte position in the queue
	perFile int64     // bytes

	first, max int64 // queue offsets of the first unit and after the last one
	minOffset  int64 // first unit whose message is in the log
	blanks     int64
	inLog      int64 // units whose message should be in the log
	end        message.LogOffset

	matched  int64 // messages of the log that have the right unit
	wrong    int64
	behind   int64 // messages of the log above max
	behindAt message.LogOffset

	win   []byte
	winAt int64 // queue offset
}

func (q *queue) String() string { return fmt.Sprintf("%s/%d", q.key.topic, q.key.id) }

// listQueues finds all queues and checks their units by themselves.
func (in *inspector) listQueues() error {
	root := filepath.Join(in.root, "consumequeue")
	topics, err := in.readDir(root)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if !t.IsDir() {
			continue
		}
		ids, err := in.readDir(filepath.Join(root, t.Name()))
		if err != nil {
			return err
		}
		for _, e := range ids {
			id, err := strconv.ParseInt(e.Name(), 10, 32)
			if err != nil || !e.IsDir() {
				in.find(Note, filepath.Join(root, t.Name(), e.Name()), -1, "not a queue")
				continue
			}
			q := &queue{key: queueKey{t.Name(), int32(id)}, dir: filepath.Join(root, t.Name(), e.Name())}
			if err := in.loadQueue(q); err != nil {
				return err
			}
			in.queues = append(in.queues, q)
			in.byName[q.key] = q
		}
	}
	for _, kind := range []string{"batchconsumequeue", "consumequeue_ext"} {
		if list, err := in.readDir(filepath.Join(in.root, kind)); err != nil {
			return err
		} else if len(list) > 0 {
			in.find(Note, filepath.Join(in.root, kind), -1, "not read by EpochMQ")
		}
	}
	return nil
}

func (in *inspector) loadQueue(q *queue) error {
	list, err := in.readDir(q.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(q.dir, e.Name())
		base, err := strconv.ParseInt(e.Name(), 10, 64)
		if e.IsDir() || !isDigits(e.Name(), 20) || err != nil {
			in.find(Note, path, -1, "not a file of a queue")
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		q.files = append(q.files, segment{path: path, base: base, size: info.Size()})
		q.perFile = max(q.perFile, info.Size())
	}
	for i, f := range q.files {
		switch {
		case f.size == 0 && i == len(q.files)-1:
			in.find(Note, f.path, -1, "empty file, left by a crash; a start removes it")
			q.files = q.files[:i]
		case f.size != q.perFile || f.size%consumequeue.UnitSize != 0 || f.base%q.perFile != 0:
			in.find(Damage, f.path, -1, "length %d or name does not fit the other files of the queue", f.size)
		case i > 0 && q.files[i-1].base+q.perFile != f.base:
			in.find(Damage, f.path, -1, "units %d to %d are missing", (q.files[i-1].base+q.perFile)/consumequeue.UnitSize, f.base/consumequeue.UnitSize)
		}
	}
	return in.scanQueue(q)
}

// scanQueue reads all units in order.
func (in *inspector) scanQueue(q *queue) error {
	q.minOffset = -1
	ended := false
	for i, file := range q.files {
		if i == 0 {
			q.first, q.max = file.base/consumequeue.UnitSize, file.base/consumequeue.UnitSize
		} else if !ended {
			q.max = file.base / consumequeue.UnitSize
		}
		f, err := in.open(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if ended {
			err = in.afterEnd(f, file, 0)
		} else {
			ended, err = in.scanUnits(q, f, file)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if q.minOffset < 0 {
		q.minOffset = q.max
	}
	return nil
}

// scanUnits reads the units of one file; ended tells that the queue ends in it.
func (in *inspector) scanUnits(q *queue, f mappedfile.File, file segment) (ended bool, err error) {
	w := window{f: f, size: file.size}
	rows := 0
	for pos := int64(0); pos+consumequeue.UnitSize <= file.size; pos += consumequeue.UnitSize {
		b, err := w.bytes(pos, consumequeue.UnitSize)
		if err != nil {
			return false, err
		}
		if len(b) < consumequeue.UnitSize {
			return true, nil
		}
		u := consumequeue.Decode(b)
		if !u.Valid() {
			if u != (consumequeue.Unit{}) {
				in.find(Damage, file.path, pos, "unit of offset %d is broken: log %d, size %d", q.max, u.Log, u.Size)
			}
			return true, in.afterEnd(f, file, pos+consumequeue.UnitSize)
		}
		in.row(file.path, &rows, func() Fields {
			return Fields{{"offset", q.max}, {"log", u.Log}, {"size", u.Size}, {"tags", u.Tags}, {"blank", u.Blank()}}
		})
		switch {
		case u.Blank():
			q.blanks++
		case u.Log < q.end:
			in.find(in.uncertain(), file.path, pos, "unit of offset %d points to %d, before the end %d of the message before it", q.max, u.Log, q.end)
			return true, in.afterEnd(f, file, pos+consumequeue.UnitSize)
		default:
			q.end = u.End()
			if u.Log >= in.log.Min {
				q.inLog++
				if q.minOffset < 0 {
					q.minOffset = q.max
				}
			}
		}
		q.max++
	}
	return false, nil
}

// afterEnd checks that nothing stands behind the end of a queue.
func (in *inspector) afterEnd(f mappedfile.File, file segment, pos int64) error {
	at, err := nonZero(f, pos, file.size)
	if err == nil && at < file.size {
		in.find(in.uncertain(), file.path, at, "bytes behind the end of the queue are not zero")
	}
	return err
}

// unit reads the unit of an offset below max; ok is false when its file is missing.
func (in *inspector) unit(q *queue, at int64) (u consumequeue.Unit, ok bool, err error) {
	if at < q.winAt || at >= q.winAt+int64(len(q.win))/consumequeue.UnitSize {
		if err := in.fill(q, at); err != nil {
			return u, false, err
		}
	}
	i := (at - q.winAt) * consumequeue.UnitSize
	if i < 0 || i+consumequeue.UnitSize > int64(len(q.win)) {
		return u, false, nil
	}
	return consumequeue.Decode(q.win[i:]), true, nil
}

func (in *inspector) fill(q *queue, at int64) error {
	q.winAt, q.win = at, q.win[:0]
	for _, file := range q.files {
		pos := at*consumequeue.UnitSize - file.base
		if pos < 0 || pos >= file.size {
			continue
		}
		f, err := in.open(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if q.win == nil {
			q.win = make([]byte, 0, unitWindow*consumequeue.UnitSize)
		}
		n, err := f.ReadAt(q.win[:min(int64(cap(q.win)), file.size-pos)], pos)
		q.win = q.win[:n]
		return errors.Join(ignoreEOF(err), f.Close())
	}
	return nil
}

// queueHas holds the queue of a record against it.
func (in *inspector) queueHas(rec *message.Record) {
	switch rec.SysFlag & message.TransactionMask {
	case message.TransactionPrepared, message.TransactionRollback:
		return
	}
	q := in.byName[queueKey{string(rec.Topic), rec.QueueID}]
	if q == nil {
		q = &queue{key: queueKey{strings.Clone(string(rec.Topic)), rec.QueueID}, minOffset: math.MaxInt64}
		in.byName[q.key] = q
	}
	at := int64(rec.QueueOffset)
	if at >= q.max {
		if q.behind == 0 {
			q.behindAt = rec.LogOffset
		}
		q.behind++
		return
	}
	u, ok, err := in.unit(q, at)
	if err != nil {
		in.find(Damage, q.dir, -1, "unit of offset %d cannot be read: %v", at, err)
		return
	}
	switch {
	case !ok || u.Log != rec.LogOffset || u.Size != rec.Size:
		q.wrong++
		if q.wrong <= 3 {
			in.find(in.uncertain(), q.dir, at*consumequeue.UnitSize, "offset %d: unit says log %d, size %d, the message stands at %d, size %d", at, u.Log, u.Size, rec.LogOffset, rec.Size)
		}
		return
	case !u.Ext() && string(rec.Topic) != scheduleTopic:
		tags, _ := message.Property(rec.Properties, "TAGS")
		if want := message.TagsCode(tags); u.Tags != want {
			in.find(Damage, q.dir, at*consumequeue.UnitSize, "offset %d: tags code %d instead of %d", at, u.Tags, want)
		}
	}
	q.matched++
}

// finishQueues compares what was found in the log with what the queues hold.
func (in *inspector) finishQueues() error {
	for key, q := range in.byName {
		if q.dir == "" {
			in.find(in.uncertain(), filepath.Join(in.root, "consumequeue", key.topic, strconv.Itoa(int(key.id))), -1,
				"queue is missing, the log has %d messages of it", q.behind)
		}
	}
	for _, q := range in.queues {
		above := int64(0)
		for at := q.max - 1; at >= q.first; at-- {
			u, ok, err := in.unit(q, at)
			if err != nil {
				return err
			}
			if !ok || u.Blank() || u.End() <= in.log.End {
				break
			}
			above++
		}
		if above > 0 {
			in.find(in.uncertain(), q.dir, -1, "%d units point above the end %d of the log", above, in.log.End)
		}
		if q.behind > 0 && !in.rep.Live {
			in.find(in.uncertain(), q.dir, -1, "%d messages of the log, from %d on, have no unit", q.behind, q.behindAt)
		}
		if lost := q.inLog - above - q.matched - q.wrong; lost > 0 && !strings.HasPrefix(q.key.topic, lmqPrefix) {
			in.find(in.uncertain(), q.dir, -1, "%d units point to no message of this queue", lost)
		}
		in.file(q.dir, KindQueue, int64(len(q.files))*q.perFile, Fields{{"queue", q.String()}, {"min", q.minOffset}, {"max", q.max},
			{"units", q.max - q.first - q.blanks}, {"end", q.end}, {"files", len(q.files)}})
	}
	return nil
}

// singleQueue inspects one file of a queue by itself.
func (in *inspector) singleQueue(path string, size int64) error {
	base, err := strconv.ParseInt(filepath.Base(path), 10, 64)
	if err != nil {
		base = 0
	}
	if size == 0 || size%consumequeue.UnitSize != 0 {
		in.find(Damage, path, -1, "length %d is no whole number of units", size)
	}
	q := &queue{dir: filepath.Dir(path), perFile: size, files: []segment{{path: path, base: base, size: size}}}
	if err := in.scanQueue(q); err != nil {
		return err
	}
	in.file(path, KindQueue, size, Fields{{"first", q.first}, {"max", q.max}, {"blanks", q.blanks}, {"end", q.end}})
	return nil
}

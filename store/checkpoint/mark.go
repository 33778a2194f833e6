package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Kind says what a mark survives.
type Kind uint8

const (
	// Running marks are written about once a second from what was handed to the operating system. They hold after the
	// death of the process, while the kernel that wrote them still runs.
	Running Kind = 1
	// Durable marks are written after queues and index were synced. They hold after a loss of power too.
	Durable Kind = 2
)

func (k Kind) String() string {
	switch k {
	case Running:
		return "running"
	case Durable:
		return "durable"
	}
	return fmt.Sprintf("kind %d", k)
}

// Dir is the folder of our own files below the store's root.
const Dir = "epochmq"

// FileName is the name of a mark of this kind in Dir.
func (k Kind) FileName() string { return "recovery." + k.String() }

// RecordRef names one record of the log by place and content.
type RecordRef struct {
	Log  message.LogOffset
	Size int32
	CRC  uint32 // RecordCRC of its bytes
}

// Mark says that all of the log below LogEnd is in the consume queues and the index, and how far those reach.
type Mark struct {
	Kind    Kind
	BootID  string // of the kernel that ran when it was written
	Time    int64  // when it was written, ms
	LogEnd  message.LogOffset
	Last    RecordRef // the last record below LogEnd; zero when the log was empty
	Queues  []consumequeue.Summary
	Index   index.State
	Indexed bool // false: messages were not indexed (messageIndexEnable=false) and Index means nothing
}

// RecordCRC is the checksum of a whole record, header included.
func RecordCRC(record []byte) uint32 { return crc32.Checksum(record, castagnoli) }

// Matches reports whether record, the bytes that the log now has at Last, are those of the mark. With an empty log at
// the time of the mark it is true when LogEnd is 0.
func (m *Mark) Matches(record []byte) bool {
	if m.Last.Size == 0 {
		return m.LogEnd == 0 && len(m.Queues) == 0
	}
	return int64(len(record)) == int64(m.Last.Size) && RecordCRC(record) == m.Last.CRC
}

// Usable reports whether the mark may be believed after a start on a kernel with this boot id; "" is unknown.
func (m *Mark) Usable(bootID string) bool {
	return m.Kind == Durable || m.Kind == Running && bootID != "" && m.BootID == bootID
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	markMagic   = "EMQMARK1"
	markHead    = 16 // magic, length and checksum of the rest
	maxMarkSize = 1 << 30
)

var errMark = errors.New("not a recovery mark or damaged")

// Append adds the stored form of the mark to dst. It sorts Queues by topic and id.
func (m *Mark) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, markMagic...)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, byte(m.Kind), b2i(m.Indexed))
	dst = appendText(dst, m.BootID)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Time))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.LogEnd))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Last.Log))
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Last.Size))
	dst = binary.BigEndian.AppendUint32(dst, m.Last.CRC)
	dst = appendText(dst, m.Index.File)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Index.Count))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Index.EndLog))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Index.EndTime))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Index.Last))
	dst = m.appendQueues(dst)
	body := dst[start+markHead:]
	binary.BigEndian.PutUint32(dst[start+8:], uint32(len(body)))
	binary.BigEndian.PutUint32(dst[start+12:], crc32.Checksum(body, castagnoli))
	return dst
}

func (m *Mark) appendQueues(dst []byte) []byte {
	slices.SortFunc(m.Queues, func(a, b consumequeue.Summary) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.ID) - int(b.ID)
	})
	topics := 0
	for i := range m.Queues {
		if i == 0 || m.Queues[i].Topic != m.Queues[i-1].Topic {
			topics++
		}
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(topics))
	for i := 0; i < len(m.Queues); {
		n := i + 1
		for n < len(m.Queues) && m.Queues[n].Topic == m.Queues[i].Topic {
			n++
		}
		dst = appendText(dst, m.Queues[i].Topic)
		dst = binary.BigEndian.AppendUint32(dst, uint32(n-i))
		for ; i < n; i++ {
			q := &m.Queues[i]
			dst = binary.AppendUvarint(dst, uint64(q.ID))
			dst = binary.AppendUvarint(dst, uint64(q.Min))
			dst = binary.AppendUvarint(dst, uint64(q.Max))
			dst = binary.AppendUvarint(dst, uint64(q.MinLog))
			dst = binary.AppendUvarint(dst, uint64(q.End))
			dst = binary.AppendUvarint(dst, uint64(q.First))
		}
	}
	return dst
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// DecodeMark reads the stored form of a mark. It allocates no more than b is long.
func DecodeMark(b []byte) (*Mark, error) {
	if len(b) < markHead || string(b[:8]) != markMagic {
		return nil, errMark
	}
	body := b[markHead:]
	if uint32(len(body)) != binary.BigEndian.Uint32(b[8:]) || crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[12:]) {
		return nil, errMark
	}
	r := reader{b: body}
	m := &Mark{Kind: Kind(r.byte()), Indexed: r.byte() != 0}
	m.BootID = r.text()
	m.Time = r.int64()
	m.LogEnd = message.LogOffset(r.int64())
	m.Last = RecordRef{Log: message.LogOffset(r.int64()), Size: int32(r.uint32()), CRC: r.uint32()}
	m.Index = index.State{File: r.text(), Count: int32(r.uint32()), EndLog: message.LogOffset(r.int64()), EndTime: r.int64(),
		Last: message.LogOffset(r.int64())}
	m.Queues = []consumequeue.Summary{}
	for topics := r.uint32(); topics > 0 && !r.bad; topics-- {
		topic := r.text()
		for n := r.uint32(); n > 0 && !r.bad; n-- {
			q := consumequeue.Summary{Topic: topic, ID: int32(r.uvarint(math.MaxInt32)),
				Min: message.QueueOffset(r.uvarint(math.MaxInt64)), Max: message.QueueOffset(r.uvarint(math.MaxInt64)),
				MinLog: message.LogOffset(r.uvarint(math.MaxInt64)), End: message.LogOffset(r.uvarint(math.MaxInt64)),
				First: int64(r.uvarint(math.MaxInt64))}
			if !r.bad {
				m.Queues = append(m.Queues, q)
			}
		}
	}
	if r.bad || len(r.b) > 0 || (m.Kind != Running && m.Kind != Durable) || m.LogEnd < 0 || m.Last.Log < 0 || m.Last.Size < 0 {
		return nil, errMark
	}
	return m, nil
}

// reader takes fields off b; bad is set when they are not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return make([]byte, 8)[:min(n, 8)]
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) int64() int64   { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) text() string {
	n := int(binary.BigEndian.Uint16(r.take(2)))
	if r.bad || len(r.b) < n {
		r.bad = true
		return ""
	}
	return string(r.take(n))
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// WriteMark replaces the mark of m.Kind below root, the store's root folder. A running mark is not synced: it vouches
// for nothing after the kernel ends. An error is a failed write.
func WriteMark(fsys mappedfile.FS, root string, m *Mark) error {
	dir := filepath.Join(root, Dir)
	path := filepath.Join(dir, m.Kind.FileName())
	tmp := path + ".tmp"
	err := writeWhole(fsys, tmp, m.Append(nil), m.Kind == Durable)
	if errors.Is(err, fs.ErrNotExist) {
		if err = fsys.MkdirAll(dir, 0o755); err == nil {
			err = writeWhole(fsys, tmp, m.Append(nil), m.Kind == Durable)
		}
	}
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err == nil && m.Kind == Durable {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s recovery mark: %w", m.Kind, err)
	}
	return nil
}

func writeWhole(fsys mappedfile.FS, path string, b []byte, sync bool) error {
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil && sync {
		err = f.Datasync()
	}
	return errors.Join(err, f.Close())
}

// ReadMark returns the mark of one kind below root; nil when there is none. A damaged one is an error, which a start may
// take like none.
func ReadMark(fsys mappedfile.FS, root string, kind Kind) (*Mark, error) {
	path := filepath.Join(root, Dir, kind.FileName())
	info, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxMarkSize {
		return nil, &mappedfile.CorruptError{File: path, Offset: -1, Reason: "recovery mark too large"}
	}
	b, err := fsys.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := DecodeMark(b)
	if err == nil && m.Kind != kind {
		err = errMark
	}
	if err != nil {
		return nil, &mappedfile.CorruptError{File: path, Offset: 0, Reason: err.Error()}
	}
	return m, nil
}

// LoadMarks returns the marks below root that may be believed on a kernel with this boot id, the one that reaches highest
// first. Damaged ones are left out and named in damage. Whoever uses a mark compares it with the log first (Matches).
func LoadMarks(fsys mappedfile.FS, root, bootID string) (marks []*Mark, damage []error, err error) {
	for _, kind := range []Kind{Running, Durable} {
		m, err := ReadMark(fsys, root, kind)
		var corrupt *mappedfile.CorruptError
		switch {
		case errors.As(err, &corrupt):
			damage = append(damage, err)
		case err != nil:
			return nil, nil, err
		case m != nil && m.Usable(bootID):
			marks = append(marks, m)
		}
	}
	slices.SortStableFunc(marks, func(a, b *Mark) int {
		switch {
		case a.LogEnd > b.LogEnd:
			return -1
		case a.LogEnd < b.LogEnd:
			return 1
		}
		return int(b.Kind) - int(a.Kind) // as high: the durable one
	})
	return marks, damage, nil
}

// RemoveMarks deletes both marks below root, durably: after a cut of the log nothing old may be believed.
func RemoveMarks(fsys mappedfile.FS, root string) error {
	dir := filepath.Join(root, Dir)
	removed := false
	for _, kind := range []Kind{Running, Durable} {
		err := fsys.Remove(filepath.Join(dir, kind.FileName()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = removed || err == nil
	}
	if removed {
		return fsys.SyncDir(dir)
	}
	return nil
}

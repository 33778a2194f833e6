package offset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// The journal is a series of files, offsets-<generation>.journal, each a header and records. Format:
// docs/formats/offset-journal.md.
const (
	journalMagic   = "EMQOFF\x00\x01"
	headerSize     = 8 + 8 + identitySize + 4 // magic, generation, base, crc
	identitySize   = 8 + 4
	recordHead     = 4 + 2              // crc, length of what follows
	maxName        = 255                // bytes of a topic or group in a record
	maxRecord      = 1 + 14 + 2*maxName // what the length may say at most
	journalPrefix  = "offsets-"
	journalSuffix  = ".journal"
	maxJournalFile = int64(1) << 30 // what replay is willing to read of one file
)

// Kinds of records.
const (
	kindCommit    = 1 // queue, offset, group, topic
	kindDropTopic = 2 // topic, of all groups
	kindDropGroup = 3 // group, all topics
	kindDropPair  = 4 // group, topic
	kindIntent    = 5 // identity of the JSON file that is about to be written
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identity tells one content of the JSON file from another. The zero identity is an absent file.
type identity struct {
	size int64
	crc  uint32
}

func identify(data []byte) identity {
	return identity{int64(len(data)), crc32.Checksum(data, castagnoli)}
}

func (id identity) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.size))
	return binary.BigEndian.AppendUint32(dst, id.crc)
}

func parseIdentity(b []byte) identity {
	return identity{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

// record is a decoded record; the names are views.
type record struct {
	kind         byte
	queue        int32
	offset       message.QueueOffset
	group, topic []byte
	id           identity
}

// appendRecord frames a record. Names are at most maxName bytes.
func appendRecord(dst []byte, r *record) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, r.kind)
	switch r.kind {
	case kindCommit:
		dst = binary.BigEndian.AppendUint32(dst, uint32(r.queue))
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.offset))
		dst = appendName(appendName(dst, r.group), r.topic)
	case kindDropTopic:
		dst = appendName(dst, r.topic)
	case kindDropGroup:
		dst = appendName(dst, r.group)
	case kindDropPair:
		dst = appendName(appendName(dst, r.group), r.topic)
	case kindIntent:
		dst = r.id.append(dst)
	}
	rec := dst[start:]
	binary.BigEndian.PutUint16(rec[4:], uint16(len(rec)-recordHead))
	binary.BigEndian.PutUint32(rec, crc32.Checksum(rec[4:], castagnoli))
	return dst
}

func appendName(dst, name []byte) []byte { return append(append(dst, byte(len(name))), name...) }

func cutName(b []byte) (name, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], true
}

// errTorn ends a journal file: what follows was not written completely.
var errTorn = errors.New("torn record")

// parseRecord decodes the record at the start of b and returns its size.
func parseRecord(b []byte, r *record) (int, error) {
	if len(b) < recordHead+1 {
		return 0, errTorn
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < 1 || n > maxRecord || len(b) < recordHead+n {
		return 0, errTorn
	}
	if crc32.Checksum(b[4:recordHead+n], castagnoli) != binary.BigEndian.Uint32(b) {
		return 0, errTorn
	}
	body := b[recordHead : recordHead+n]
	*r = record{kind: body[0]}
	body = body[1:]
	ok := true
	switch r.kind {
	case kindCommit:
		if len(body) < 12 {
			return 0, errTorn
		}
		r.queue, r.offset = int32(binary.BigEndian.Uint32(body)), message.QueueOffset(binary.BigEndian.Uint64(body[4:]))
		if r.group, body, ok = cutName(body[12:]); ok {
			r.topic, _, ok = cutName(body)
		}
	case kindDropTopic:
		r.topic, _, ok = cutName(body)
	case kindDropGroup:
		r.group, _, ok = cutName(body)
	case kindDropPair:
		if r.group, body, ok = cutName(body); ok {
			r.topic, _, ok = cutName(body)
		}
	case kindIntent:
		if ok = len(body) >= identitySize; ok {
			r.id = parseIdentity(body)
		}
	}
	if !ok {
		return 0, errTorn
	}
	return recordHead + n, nil
}

// parseJournal hands the header and each whole record of a file to the callbacks and stops at the first torn one.
func parseJournal(data []byte, header func(gen uint64, base identity), each func(*record)) error {
	if len(data) < headerSize || string(data[:8]) != journalMagic {
		return errors.New("no journal header")
	}
	if crc32.Checksum(data[:headerSize-4], castagnoli) != binary.BigEndian.Uint32(data[headerSize-4:]) {
		return errors.New("header checksum")
	}
	header(binary.BigEndian.Uint64(data[8:]), parseIdentity(data[16:]))
	var r record
	for rest := data[headerSize:]; len(rest) > 0; {
		n, err := parseRecord(rest, &r)
		if err != nil {
			return err
		}
		each(&r)
		rest = rest[n:]
	}
	return nil
}

// journal is the file that is being written. It belongs to whoever settles (see Table).
type journal struct {
	fs   mappedfile.FS
	dir  string
	file mappedfile.File // nil after a failed write: the next settle opens the next generation
	gen  uint64
	end  int64
	base identity // of the JSON file, for the header of the next generation
}

func journalName(dir string, gen uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s%016d%s", journalPrefix, gen, journalSuffix))
}

// next closes the present generation and begins another.
func (j *journal) next() error {
	if err := j.close(); err != nil {
		return err
	}
	gen := j.gen + 1
	name := journalName(j.dir, gen)
	f, err := j.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("create offset journal: %w", err)
	}
	head := append(make([]byte, 0, headerSize), journalMagic...)
	head = binary.BigEndian.AppendUint64(head, gen)
	head = j.base.append(head)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := f.WriteAt(head, 0); err != nil {
		return errors.Join(fmt.Errorf("write offset journal %s: %w", name, err), f.Close(), j.fs.Remove(name))
	}
	j.file, j.gen, j.end = f, gen, headerSize
	return nil
}

// write appends whole records. After an error the file is given up: a torn record would hide what follows it.
func (j *journal) write(p []byte) error {
	if j.file == nil {
		if err := j.next(); err != nil {
			return err
		}
	}
	if _, err := j.file.WriteAt(p, j.end); err != nil {
		err = fmt.Errorf("write offset journal %s: %w", journalName(j.dir, j.gen), err)
		return errors.Join(err, j.close())
	}
	j.end += int64(len(p))
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	if err != nil {
		return fmt.Errorf("close offset journal: %w", err)
	}
	return nil
}

// generations lists the journal files of the folder, oldest first.
func generations(fsys mappedfile.FS, dir string) ([]uint64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list offset journals: %w", err)
	}
	var gens []uint64
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), journalPrefix)
		if name, ok2 := strings.CutSuffix(name, journalSuffix); ok && ok2 {
			if gen, err := strconv.ParseUint(name, 10, 63); err == nil {
				gens = append(gens, gen)
			}
		}
	}
	slices.Sort(gens)
	return gens, nil
}

// dropBelow removes the generations below keep.
func (j *journal) dropBelow(keep uint64) error {
	gens, err := generations(j.fs, j.dir)
	if err != nil {
		return err
	}
	for _, gen := range gens {
		if gen < keep {
			if err := j.fs.Remove(journalName(j.dir, gen)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove offset journal: %w", err)
			}
		}
	}
	return nil
}

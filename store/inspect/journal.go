package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"

	"github.com/epochmq/epochmq/store/checkpoint"
)

// The journal of committed group offsets: docs/formats/offset-journal.md. It is decoded here once more, because the store
// does not import the broker.

const (
	journalMagic  = "EMQOFF\x00\x01"
	journalHeader = 32
	journalHead   = 6 // of a record: checksum and length
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journals reads every journal below epochmq/ and names files that are not known.
func (in *inspector) journals() error {
	root := filepath.Join(in.root, checkpoint.Dir)
	list, err := in.readDir(root)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(root, e.Name())
		switch {
		case e.IsDir():
			inner, err := in.readDir(path)
			if err != nil {
				return err
			}
			for _, f := range inner {
				if err := in.ours(filepath.Join(path, f.Name())); err != nil {
					return err
				}
			}
		case e.Name() == "run", e.Name() == "boot", e.Name() == "cut", kindOf(path) == KindMark:
		default:
			if err := in.ours(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ours reads one file of ours that is neither mark nor one of the small notes of the store.
func (in *inspector) ours(path string) error {
	if kindOf(path) == KindJournal {
		return in.journal(path)
	}
	st, err := in.fs.Stat(path)
	if err != nil {
		return err
	}
	in.file(path, KindOther, st.Size(), nil)
	if strings.HasSuffix(path, ".tmp") && !in.rep.Live {
		in.find(Note, path, -1, "left by a crash, of no consequence")
	}
	return nil
}

func (in *inspector) journal(path string) error {
	b, err := in.fs.ReadFile(path)
	if err != nil {
		return err
	}
	counts := map[byte]int{}
	rows := 0
	pos, err := parseJournal(b, func(r journalRecord) {
		counts[r.kind]++
		in.row(path, &rows, func() Fields { return r.fields() })
	})
	var fields Fields
	if len(b) >= journalHeader {
		fields = Fields{{"generation", binary.BigEndian.Uint64(b[8:])}, {"baseSize", binary.BigEndian.Uint64(b[16:])}}
	}
	for kind := byte(1); kind <= 5; kind++ {
		if counts[kind] > 0 {
			fields = append(fields, Field{journalKinds[kind], counts[kind]})
		}
	}
	in.file(path, KindJournal, int64(len(b)), fields)
	if err != nil {
		in.find(in.tornJournal(), path, int64(pos), "%v; what follows is not read", err)
	}
	return nil
}

// tornJournal is a Note where a torn last record is to be expected.
func (in *inspector) tornJournal() Severity {
	if in.rep.Kind != KindStore {
		return Damage
	}
	return in.uncertain()
}

var journalKinds = map[byte]string{1: "commit", 2: "dropTopic", 3: "dropGroup", 4: "dropPair", 5: "intent"}

type journalRecord struct {
	kind         byte
	queue        int32
	offset       int64
	group, topic []byte
	size         int64
	crc          uint32
}

func (r *journalRecord) fields() Fields {
	f := Fields{{"kind", journalKinds[r.kind]}}
	if r.group != nil {
		f = append(f, Field{"group", string(r.group)})
	}
	if r.topic != nil {
		f = append(f, Field{"topic", string(r.topic)})
	}
	switch r.kind {
	case 1:
		f = append(f, Field{"queue", r.queue}, Field{"offset", r.offset})
	case 5:
		f = append(f, Field{"size", r.size}, Field{"crc", fmt.Sprintf("%08x", r.crc)})
	}
	return f
}

// parseJournal calls fn for each whole record; pos is where it stopped.
func parseJournal(b []byte, fn func(journalRecord)) (pos int, err error) {
	if len(b) < journalHeader || string(b[:8]) != journalMagic {
		return 0, errors.New("no journal header")
	}
	if crc32.Checksum(b[:journalHeader-4], castagnoli) != binary.BigEndian.Uint32(b[journalHeader-4:]) {
		return 0, errors.New("checksum of the header is wrong")
	}
	for pos = journalHeader; pos < len(b); {
		rest := b[pos:]
		if len(rest) < journalHead+1 {
			return pos, errors.New("record is cut")
		}
		n := int(binary.BigEndian.Uint16(rest[4:]))
		if n < 1 || len(rest) < journalHead+n {
			return pos, errors.New("record is cut")
		}
		if crc32.Checksum(rest[4:journalHead+n], castagnoli) != binary.BigEndian.Uint32(rest) {
			return pos, errors.New("checksum of a record is wrong")
		}
		r, ok := journalBody(rest[journalHead : journalHead+n])
		if !ok {
			return pos, fmt.Errorf("record of kind %d is not understood", r.kind)
		}
		fn(r)
		pos += journalHead + n
	}
	return pos, nil
}

func journalBody(b []byte) (r journalRecord, ok bool) {
	r.kind, b = b[0], b[1:]
	name := func(dst *[]byte) bool {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return false
		}
		n := 1 + int(b[0])
		*dst, b = b[1:n], b[n:]
		return true
	}
	switch r.kind {
	case 1:
		if len(b) < 12 {
			return r, false
		}
		r.queue, r.offset = int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:]))
		b = b[12:]
		return r, name(&r.group) && name(&r.topic)
	case 2:
		return r, name(&r.topic)
	case 3:
		return r, name(&r.group)
	case 4:
		return r, name(&r.group) && name(&r.topic)
	case 5:
		if len(b) < 12 {
			return r, false
		}
		r.size, r.crc = int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])
		return r, true
	}
	return r, false
}

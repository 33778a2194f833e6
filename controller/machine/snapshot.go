package machine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"
)

// Schema is the newest form of snapshots that this package writes and reads.
const Schema = 1

// snapshotMagic begins a snapshot. The layout is in docs/formats/controller-snapshot.md.
var snapshotMagic = []byte("EMQCTRL1")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Meta says of which moment a snapshot is.
type Meta struct {
	Index   uint64 `json:"appliedIndex"`
	Term    uint64 `json:"appliedTerm"`
	Created int64  `json:"createdAt"` // ms since 1970, for people
}

type snapshotJSON struct {
	Schema int `json:"schema"`
	Meta
	Sets       map[string]setJSON   `json:"sets"`
	Tombstones map[string]Tombstone `json:"tombstones,omitempty"`
}

type setJSON struct {
	Cluster      string            `json:"cluster"`
	Next         int64             `json:"nextId"`
	Replicas     map[int64]Replica `json:"ids"`
	Master       int64             `json:"masterId"`
	MasterEpoch  int32             `json:"masterEpoch"`
	SyncEpoch    int32             `json:"sssEpoch"`
	Sync         []int64           `json:"sss"`
	UncleanEpoch int32             `json:"uncleanEpoch,omitempty"`
	Elected      bool              `json:"elected,omitempty"`
	Restarted    bool              `json:"restarted,omitempty"`
}

// Snapshot is the state as bytes: equal states and metas give equal bytes.
func (s *State) Snapshot(m Meta) ([]byte, error) {
	out := snapshotJSON{Schema: Schema, Meta: m, Sets: make(map[string]setJSON, len(s.sets)), Tombstones: s.tombs}
	for name, t := range s.sets {
		out.Sets[name] = setJSON{t.Cluster, t.Next, t.Replicas, t.Master, t.MasterEpoch, t.SyncEpoch, t.Sync, t.UncleanEpoch, t.Elected, t.Restarted}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return seal(body), nil
}

// seal puts magic and checksum around a body.
func seal(body []byte) []byte {
	b := append(make([]byte, 0, len(snapshotMagic)+len(body)+4), snapshotMagic...)
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Restore reads a snapshot. The error is a *FormatError; nothing of a damaged snapshot is used.
func Restore(b []byte) (*State, Meta, error) {
	fail := func(format string, args ...any) (*State, Meta, error) {
		return nil, Meta{}, &FormatError{What: "snapshot: " + fmt.Sprintf(format, args...)}
	}
	if len(b) < len(snapshotMagic)+4 || !bytes.HasPrefix(b, snapshotMagic) {
		return fail("it does not begin with %s", snapshotMagic)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return fail("checksum %08x, want %08x", got, sum)
	}
	var in snapshotJSON
	if err := json.Unmarshal(body[len(snapshotMagic):], &in); err != nil {
		return fail("%v", err)
	}
	if in.Schema < 1 || in.Schema > Schema {
		return nil, Meta{}, &FormatError{What: fmt.Sprintf("snapshot: schema %d, this program knows up to %d", in.Schema, Schema), Newer: in.Schema > Schema}
	}
	s := New()
	for name, j := range in.Sets {
		t := &Set{j.Cluster, name, j.Next, j.Replicas, j.Master, j.MasterEpoch, j.SyncEpoch, j.Sync, j.UncleanEpoch, j.Elected, j.Restarted}
		if t.Sync == nil {
			t.Sync = []int64{}
		}
		if what := t.fault(); what != "" {
			return fail("broker set %q: %s", name, what)
		}
		s.sets[name] = t
	}
	for name, tomb := range in.Tombstones {
		if s.sets[name] != nil || tomb.Next < 1 || tomb.MasterEpoch < 0 || tomb.SyncEpoch < 0 {
			return fail("dropped set %q contradicts itself", name)
		}
		s.tombs[name] = tomb
	}
	return s, in.Meta, nil
}

// fault says what is impossible about a set, empty for nothing.
func (t *Set) fault() string {
	_, masterKnown := t.Replicas[t.Master]
	switch {
	case t.Name == "" || len(t.Replicas) == 0 || len(t.Replicas) > MaxReplicas:
		return fmt.Sprintf("%d replicas", len(t.Replicas))
	case t.MasterEpoch < 0 || t.SyncEpoch < 0 || t.UncleanEpoch < 0 || t.UncleanEpoch > t.MasterEpoch:
		return "an epoch is out of range"
	case t.Master != 0 && !masterKnown:
		return "the master is no replica"
	case t.Master != 0 && !t.InSync(t.Master):
		return "the master is not in sync"
	case t.Master == 0 && t.Restarted:
		return "a restarted master, but no master"
	case !slices.IsSorted(t.Sync) || len(slices.Compact(slices.Clone(t.Sync))) != len(t.Sync):
		return "the in-sync set is in disorder"
	case slices.ContainsFunc(t.Sync, func(id int64) bool { _, ok := t.Replicas[id]; return !ok }):
		return "the in-sync set has an unknown id"
	}
	for id := range maps.Keys(t.Replicas) {
		if id <= 0 || id >= t.Next || t.Next == math.MaxInt64 {
			return fmt.Sprintf("id %d with %d as the next one", id, t.Next)
		}
	}
	return ""
}

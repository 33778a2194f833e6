package machine

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// command draws a command that often fits the state.
func command(t *rapid.T, s *State) Command {
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "set")
	id := rapid.Int64Range(0, 5)
	facts := Facts{Alive: map[int64]Live{}, Unclean: rapid.IntRange(0, 9).Draw(t, "unclean") == 0}
	for i := int64(1); i < 6; i++ {
		if rapid.Bool().Draw(t, "alive") {
			facts.Alive[i] = Live{Known: true, Epoch: int32(rapid.IntRange(0, 3).Draw(t, "epoch")), End: rapid.Int64Range(0, 9).Draw(t, "end"),
				Learner: rapid.IntRange(0, 9).Draw(t, "learner") == 0}
		}
	}
	set := s.Set(name)
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0, 1:
		next := s.NextID(name)
		if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
			next = id.Draw(t, "id")
		}
		return &ApplyID{Cluster: "c", Broker: name, ID: next, Addr: "h", Code: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "code"),
			Reclaim: rapid.IntRange(0, 9).Draw(t, "reclaim") == 0}
	case 2:
		return &Register{Broker: name, ID: id.Draw(t, "id"), Addr: "h", Unclean: rapid.Bool().Draw(t, "lost"), Facts: facts}
	case 3, 4, 5:
		return &Elect{Broker: name, ID: id.Draw(t, "id"), Designate: rapid.IntRange(0, 4).Draw(t, "designate") == 0, Facts: facts}
	case 6, 7, 8:
		c := &Alter{Broker: name, Master: id.Draw(t, "id"), Sync: rapid.SliceOfN(id, 0, 4).Draw(t, "sync"), Facts: facts}
		if set != nil && rapid.IntRange(0, 3).Draw(t, "fit") > 0 {
			c.Master, c.MasterEpoch, c.SyncEpoch = set.Master, set.MasterEpoch, set.SyncEpoch
			c.Sync = append(c.Sync, set.Master)
		}
		return c
	case 9:
		return &Clean{Cluster: "c", Broker: name, IDs: rapid.SliceOfN(id, 0, 2).Draw(t, "ids"), Living: rapid.Bool().Draw(t, "living"), Facts: facts}
	case 10:
		return &Preregister{Cluster: "c", Broker: name, IDs: rapid.SliceOfN(id, 0, 2).Draw(t, "ids")}
	}
	return &Noop{}
}

// history is what must never be contradicted.
type history struct {
	masters map[string]map[int32]int64 // set -> epoch -> master
	codes   map[string]map[int64]string
	epochs  map[string][2]int32
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		h := history{masters: map[string]map[int32]int64{"a": {}, "b": {}}, codes: map[string]map[int64]string{"a": {}, "b": {}}, epochs: map[string][2]int32{}}
		var log [][]byte
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			c := command(t, s)
			b, err := Encode(c)
			require.NoError(t, err)
			log = append(log, b)
			before := s.Clone()
			r := s.Apply(c)
			if !r.Changed {
				require.Equal(t, before, s, "a refusal changes nothing")
			}
			if r.Code != OK && r.Code != MasterNotAvailable {
				require.False(t, r.Changed)
			}
			checkState(t, s, before, c, r, &h)
			again := s.Clone().Apply(c)
			if _, elect := c.(*Elect); !elect && again.Changed {
				require.IsType(t, &Clean{}, c, "repeated: %#v", c)
			}
		}
		replayed := New()
		for _, b := range log {
			c, err := Decode(b)
			require.NoError(t, err)
			replayed.Apply(c)
		}
		require.Equal(t, s, replayed, "replay of the log")
		snap, err := s.Snapshot(Meta{Index: 9, Term: 2, Created: 3})
		require.NoError(t, err)
		restored, meta, err := Restore(snap)
		require.NoError(t, err)
		require.Equal(t, s, restored, "snapshot")
		require.Equal(t, Meta{9, 2, 3}, meta)
		twice, err := restored.Snapshot(meta)
		require.NoError(t, err)
		require.Equal(t, snap, twice)
	})
}

func checkState(t *rapid.T, s, before *State, c Command, r Result, h *history) {
	for _, name := range []string{"a", "b"} {
		set, old := s.Set(name), before.Set(name)
		epochs := [2]int32{s.tombs[name].MasterEpoch, s.tombs[name].SyncEpoch}
		if set != nil {
			epochs = [2]int32{set.MasterEpoch, set.SyncEpoch}
		}
		last := h.epochs[name]
		require.GreaterOrEqual(t, epochs[0], last[0], "master epochs of %s", name)
		require.GreaterOrEqual(t, epochs[1], last[1], "sync epochs of %s", name)
		h.epochs[name] = epochs
		if set == nil {
			continue
		}
		require.Empty(t, set.fault())
		if set.Master != 0 {
			m := h.masters[name]
			if was, ok := m[set.MasterEpoch]; ok {
				require.Equal(t, was, set.Master, "two masters in epoch %d", set.MasterEpoch)
			}
			m[set.MasterEpoch] = set.Master
		}
		for id, rep := range set.Replicas {
			if was := h.codes[name][id]; was != "" && !reclaims(c) {
				require.Equal(t, was, rep.Code, "id %d of %s went to another directory", id, name)
			}
			h.codes[name][id] = rep.Code
		}
		if old != nil && !slices.Equal(old.Sync, set.Sync) {
			require.Greater(t, set.SyncEpoch, old.SyncEpoch, "a changed in-sync set has a new epoch")
			if a, ok := c.(*Alter); ok {
				require.Equal(t, old.SyncEpoch, a.SyncEpoch)
				require.Equal(t, old.MasterEpoch, a.MasterEpoch)
				require.Equal(t, old.Master, a.Master)
			}
		}
		if r.Elected && r.Set == set {
			f := c.(*Elect).Facts
			_, alive := f.Alive[set.Master]
			require.True(t, alive && !f.Alive[set.Master].Learner, "elected: registered, alive, no learner")
			require.Equal(t, []int64{set.Master}, set.Sync)
			if old.Elected && !r.Unclean {
				require.True(t, old.InSync(set.Master), "elected from outside")
			}
			require.Equal(t, r.Unclean, set.UncleanEpoch == set.MasterEpoch)
		}
	}
}

// reclaims says that a command may give an id to a directory that says it had it.
func reclaims(c Command) bool {
	switch c := c.(type) {
	case *ApplyID:
		return c.Reclaim
	case *Preregister:
		return true
	}
	return false
}

func TestCloneIsolates(t *testing.T) {
	s := New()
	s.Apply(&ApplyID{Cluster: "c", Broker: "a", ID: 1, Addr: "h", Code: "x"})
	c := s.Clone()
	seen := c.Set("a")
	s.Apply(&Elect{Broker: "a", ID: 1, Facts: Facts{Alive: map[int64]Live{1: {}}}})
	s.Apply(&Clean{Broker: "a", Living: true})
	require.Equal(t, int64(0), seen.Master)
	require.Equal(t, []string{"a"}, c.Names())
	require.Zero(t, s.Len())
}

func TestLimits(t *testing.T) {
	s := New()
	r := s.Apply(&ApplyID{Broker: strings.Repeat("x", MaxText+1), ID: 1, Code: "x"})
	require.Equal(t, BrokerIDInvalid, r.Code)
	for i := range int64(MaxReplicas) {
		require.Equal(t, OK, s.Apply(&ApplyID{Broker: "a", ID: i + 1, Code: "x"}).Code)
	}
	require.Equal(t, BrokerIDInvalid, s.Apply(&ApplyID{Broker: "a", ID: MaxReplicas + 1, Code: "x"}).Code)
	_, err := Encode(&ApplyID{Code: strings.Repeat("x", MaxCommand)})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestUnknownVersions(t *testing.T) {
	for _, b := range [][]byte{nil, {1}, {0, 1, '{', '}'}, {Version + 1, 1, '{', '}'}, {1, 200, '{', '}'}, {1, 1, '{'}} {
		_, err := Decode(b)
		var format *FormatError
		require.ErrorAs(t, err, &format, "%q", b)
	}
}

// golden are commands in the byte form that controllers on disk already have: it must stay readable.
var golden = map[string]Command{
	`{"broker":"a","master":1,"masterEpoch":2,"sync":[1,2],"syncEpoch":3,"facts":{"alive":{"1":{"addr":"h","known":true,"epoch":2,"end":9,"priority":7}}}}`: &Alter{"a", 1, 2, []int64{1, 2}, 3,
		Facts{Alive: map[int64]Live{1: {Addr: "h", Known: true, Epoch: 2, End: 9, Priority: 7}}}},
	`{"broker":"a","id":-1,"designate":true,"facts":{"unclean":true}}`:                              &Elect{Broker: "a", ID: -1, Designate: true, Facts: Facts{Unclean: true}},
	`{"broker":"a","id":1,"addr":"h","code":"k","learner":true,"unclean":true,"facts":{}}`:          &Register{Broker: "a", ID: 1, Addr: "h", Code: "k", Learner: true, Unclean: true},
	`{"cluster":"c","broker":"a","id":1,"addr":"h","code":"k","reclaim":true}`:                      &ApplyID{"c", "a", 1, "h", "k", true},
	`{"cluster":"c","broker":"a","ids":[1],"living":true,"facts":{"alive":{"2":{"learner":true}}}}`: &Clean{"c", "a", []int64{1}, true, Facts{Alive: map[int64]Live{2: {Learner: true}}}},
	`{}`: &Noop{}, `{"cluster":"c","broker":"a","ids":[1,2]}`: &Preregister{"c", "a", []int64{1, 2}},
}

func TestCommandBytes(t *testing.T) {
	kinds := map[Kind]bool{}
	for text, want := range golden {
		b, err := Encode(want)
		require.NoError(t, err)
		require.Equal(t, "\x01"+string(rune(want.Kind()))+text, string(b))
		got, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		kinds[want.Kind()] = true
	}
	require.Len(t, slices.Collect(maps.Keys(kinds)), 7)
}

func TestSnapshotBytes(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "snapshot-1.bin"))
	if *rewrite && errors.Is(err, os.ErrNotExist) {
		b = sample(t)
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "snapshot-1.bin"), b, 0o644))
		err = nil
	}
	require.NoError(t, err)
	require.Equal(t, sample(t), b, "the form of schema 1")
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 4
		_, _, err := Restore(bad)
		var format *FormatError
		require.ErrorAs(t, err, &format, "bit flipped at %d", i)
		_, _, err = Restore(b[:i])
		require.ErrorAs(t, err, &format, "cut at %d", i)
	}
}

func sample(t testing.TB) []byte {
	s := New()
	s.Apply(&ApplyID{"c", "a", 1, "h1", "k1", false})
	s.Apply(&ApplyID{"c", "a", 2, "h2", "k2", false})
	f := Facts{Alive: map[int64]Live{1: {}, 2: {}}}
	s.Apply(&Elect{Broker: "a", ID: 1, Facts: f})
	s.Apply(&Alter{"a", 1, 1, []int64{1, 2}, 1, f})
	s.Apply(&Register{Broker: "a", ID: 2, Addr: "h2", Learner: true, Unclean: true, Facts: f})
	s.Apply(&ApplyID{"c", "gone", 1, "h3", "k3", false})
	s.Apply(&Clean{Broker: "gone", Living: true})
	b, err := s.Snapshot(Meta{Index: 8, Term: 2, Created: 1700000000000})
	require.NoError(t, err)
	return b
}

func FuzzCommand(f *testing.F) {
	for _, c := range golden {
		b, err := Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		s, _, err := Restore(sample(t))
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(c)
		for _, name := range s.Names() {
			if what := s.Set(name).fault(); what != "" {
				t.Fatalf("set %q after %q: %s", name, b, what)
			}
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add(sample(f)[len(snapshotMagic):])
	f.Add([]byte(`{"schema":1,"sets":{"a":{"nextId":2,"ids":{"1":{}},"masterId":1,"sss":[1]}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if s, _, err := Restore(body); err == nil {
			t.Fatalf("accepted without a head: %v", s)
		}
		s, m, err := Restore(seal(body))
		if err != nil {
			return
		}
		again, err := s.Snapshot(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Restore(again); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

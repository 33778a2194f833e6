package offset

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/epochmq/epochmq/broker/topic"
)

// Open loads the JSON file and replays the journal over it. A JSON file that is present but broken (and has no good
// copy) is an error. When the JSON file is not one that this journal knows, somebody else (a Java broker) has written
// it since: then it wins, and the journal is dropped.
func Open(opt Options) (*Table, error) {
	if opt.Step <= 0 {
		opt.Step = 500
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	t := &Table{opt: opt, log: opt.Log, groups: map[string]*groupOffsets{}, version: topic.NewVersion()}
	t.cond = sync.NewCond(&t.jmu)
	if err := opt.FS.MkdirAll(opt.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of offset journal: %w", err)
	}
	t.journal = journal{fs: opt.FS, dir: opt.Dir}
	if _, err := opt.File.Load(func(data []byte) error {
		f, err := decode(data)
		if err == nil {
			t.load(f)
			t.journal.base = identify(data)
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("load consumer offsets: %w", err)
	}
	if err := t.replay(); err != nil {
		return nil, err
	}
	return t, t.journal.next()
}

// replay applies the journal files in order when they belong to the JSON file that was loaded.
func (t *Table) replay() error {
	gens, err := generations(t.opt.FS, t.opt.Dir)
	if err != nil {
		return err
	}
	files := make([][]byte, len(gens))
	known := false
	for i, gen := range gens {
		t.journal.gen = gen
		name := journalName(t.opt.Dir, gen)
		if files[i], err = t.opt.FS.ReadFile(name); err != nil {
			return fmt.Errorf("read offset journal %s: %w", name, err)
		}
		see := func(id identity) { known = known || id == t.journal.base }
		err := parseJournal(files[i], func(_ uint64, base identity) { see(base) }, func(r *record) {
			if r.kind == kindIntent {
				see(r.id)
			}
		})
		if err != nil && !errors.Is(err, errTorn) {
			t.log.Warn("offset journal is not readable", "file", name, "err", err)
			files[i] = nil
		}
	}
	if !known {
		if len(gens) > 0 {
			t.log.Warn("consumerOffset.json was written by another program since; its offsets stand, the journal is dropped")
		}
		t.need = t.journal.gen + 1
		return t.journal.dropBelow(t.need)
	}
	t.need = gens[0]
	for _, data := range files {
		if data == nil {
			continue
		}
		err := parseJournal(data, func(uint64, identity) {}, t.applyLocked)
		if err != nil && !errors.Is(err, errTorn) {
			return err
		}
	}
	t.dirty.Store(true)
	return nil
}

func (t *Table) load(f *file) {
	t.groups, t.order, t.groupRank = map[string]*groupOffsets{}, nil, nil
	t.version = f.version
	for _, group := range f.groupRank {
		if _, dup := t.groups[group.name]; !dup {
			t.groups[group.name] = &groupOffsets{name: group.name, topics: map[string]*entry{}, rank: group.topics}
			t.groupRank = append(t.groupRank, group.name)
		}
	}
	for _, p := range f.pairs {
		e := t.entryLocked([]byte(p.group), []byte(p.topic))
		t.listLocked(e)
		e.offsets = p.offsets
	}
	// groupTopicMap is derived: what it names beyond the offsets goes.
	for name, g := range t.groups {
		g.rank = slices.DeleteFunc(g.rank, func(s string) bool { return g.topics[s] == nil })
		if len(g.topics) == 0 {
			delete(t.groups, name)
			t.groupRank = slices.DeleteFunc(t.groupRank, func(s string) bool { return s == name })
		} else if !slices.Contains(t.groupRank, name) {
			t.groupRank = append(t.groupRank, name)
		}
	}
}

// Flush writes the JSON file when something has changed, and drops the journal files that neither it nor its .bak needs.
// A crash at any point leaves a JSON file that the remaining journal knows.
func (t *Table) Flush() error {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	if !t.dirty.Swap(false) {
		return nil
	}
	if err := t.flush(); err != nil {
		t.dirty.Store(true)
		return err
	}
	return nil
}

func (t *Table) flush() error {
	var next uint64
	err := t.exclusive(func() error {
		err := t.journal.next()
		next = t.journal.gen
		return err
	})
	if err != nil {
		return err
	}
	data := t.Encode()
	id := identify(data)
	if err := t.change(&record{kind: kindIntent, id: id}); err != nil {
		return err
	}
	if err := t.opt.File.Save(data); err != nil {
		return fmt.Errorf("save consumer offsets: %w", err)
	}
	keep := t.need // the .bak is the file that was there
	t.need = next
	return t.exclusive(func() error {
		t.journal.base = id
		return t.journal.dropBelow(keep)
	})
}

// Encode returns the content of consumerOffset.json.
func (t *Table) Encode() []byte {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f := &file{version: t.version}
	for _, name := range t.groupRank {
		if g := t.groups[name]; g != nil && len(g.rank) > 0 {
			f.groupRank = append(f.groupRank, groupTopics{name, g.rank})
		}
	}
	for _, e := range t.order {
		f.pairs = append(f.pairs, pair{e.group, e.topic, e.offsets})
	}
	return encode(f)
}

// Empty says whether no group has an offset.
func (t *Table) Empty() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.order) == 0
}

// Close settles, writes the JSON file and closes the journal. Twice is fine.
func (t *Table) Close() error {
	t.jmu.Lock()
	if t.closed {
		t.jmu.Unlock()
		return nil
	}
	t.jmu.Unlock()
	err := t.Flush()
	return errors.Join(err, t.exclusive(func() error {
		t.jmu.Lock()
		t.closed = true
		t.jmu.Unlock()
		return t.journal.close()
	}))
}

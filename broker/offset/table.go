// Package offset keeps where consumer groups are.
//
// The main type is Table: (group, topic, queue) to the next offset to consume. Consumers commit into it, pull and
// queries read it, admin requests reset it. consumerOffset.json is the Java broker's file and is written at intervals;
// between two writings every commit stands in a small journal first, so that a killed broker does not take a group
// back: a commit is written to the journal before it is answered and before anyone can read it. It never checks an
// offset against the queue and never forces the journal to the medium (the JSON file is forced).
//
// Formats: docs/formats/config-json.md, docs/formats/offset-journal.md.
package offset

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Options say what a Table is made of.
type Options struct {
	File topic.File    // consumerOffset.json
	FS   mappedfile.FS // holds Dir
	Dir  string        // folder of the journal, made when missing
	Step int           // commits for each step of the version; 500 when 0
	Log  *slog.Logger
}

// Errors that callers branch on.
var (
	ErrClosed  = errors.New("offset table closed")
	ErrTooLong = errors.New("name of group or topic too long for an offset")
)

// Table holds the offsets of one broker. Its methods may be called from any goroutine.
type Table struct {
	opt Options
	log *slog.Logger

	mu      sync.RWMutex
	groups  map[string]*groupOffsets // guarded by mu
	order   []*entry                 // guarded by mu: as in the file, new ones last
	version topic.Version            // guarded by mu
	commits int                      // guarded by mu: since the last step of the version
	resets  atomic.Int64             // pending resets of all entries

	jmu     sync.Mutex
	cond    *sync.Cond
	pending []byte // guarded by jmu: records to be written
	spare   []byte // guarded by jmu
	staged  uint64 // guarded by jmu: batches of records handed in
	settled uint64 // guarded by jmu: of them written and applied, or failed
	failed  uint64 // guarded by jmu: the last that failed
	failure error  // guarded by jmu
	busy    bool   // guarded by jmu: somebody writes; he alone touches journal
	closed  bool   // guarded by jmu
	journal journal

	unsettled atomic.Int64 // staged - settled, for Staged

	flushing  sync.Mutex // one Flush at a time
	need      uint64     // guarded by flushing: first generation to replay over the present JSON file
	dirty     atomic.Bool
	groupRank []string // guarded by mu: order of groupTopicMap in the file
}

type groupOffsets struct {
	name   string
	topics map[string]*entry
	rank   []string // topics in the order of groupTopicMap
}

// entry holds the offsets of one group on one topic; all of it is guarded by Table.mu.
type entry struct {
	group, topic string
	offsets      map[int32]message.QueueOffset
	pulled       map[int32]message.QueueOffset // where the group reads; memory only
	reset        map[int32]pendingReset        // server-side resets; memory only
	listed       bool                          // in Table.order
}

// pendingReset is where readers of a queue are to go on.
type pendingReset struct {
	to   message.QueueOffset
	told int // pulls that were told
}

// maxTold bounds how often pulls of one queue are told of a reset that they do not follow.
const maxTold = 16

// Query returns the committed offset of a queue. No allocation.
func (t *Table) Query(group, topic []byte, queue int32) (off message.QueueOffset, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if g := t.groups[string(group)]; g != nil {
		if e := g.topics[string(topic)]; e != nil {
			off, ok = e.offsets[queue]
		}
	}
	return off, ok
}

// Stage hands in a commit. It takes effect when Settle returns; the names may be reused at once. A commit of what is
// there already costs nothing.
func (t *Table) Stage(group, topic []byte, queue int32, off message.QueueOffset) error {
	if len(group) > maxName || len(topic) > maxName {
		return ErrTooLong
	}
	if !t.Staged() {
		if now, ok := t.Query(group, topic, queue); ok && now == off {
			return nil
		}
	}
	return t.stage(&record{kind: kindCommit, queue: queue, offset: off, group: group, topic: topic})
}

// Staged says whether something waits for Settle.
func (t *Table) Staged() bool { return t.unsettled.Load() != 0 }

func (t *Table) stage(r *record) error {
	t.jmu.Lock()
	defer t.jmu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.pending = appendRecord(t.pending, r)
	t.staged++
	t.unsettled.Add(1)
	return nil
}

// Settle writes what was staged before the call to the journal and then makes it visible. The first caller writes for
// all. After an error the caller's records may be without effect, and must not be said to have one.
func (t *Table) Settle() error {
	t.jmu.Lock()
	defer t.jmu.Unlock()
	want := t.staged
	for t.settled < want {
		if t.busy {
			t.cond.Wait()
			continue
		}
		t.settleLocked()
	}
	if t.failed != 0 && want <= t.failed && t.failure != nil {
		return t.failure
	}
	return nil
}

// settleLocked writes and applies the pending records; jmu is released meanwhile.
func (t *Table) settleLocked() {
	t.busy = true
	buf, upTo := t.pending, t.staged
	t.pending = t.spare[:0]
	t.jmu.Unlock()
	err := t.journal.write(buf)
	if err == nil {
		t.apply(buf)
	}
	t.jmu.Lock()
	t.spare = buf[:0]
	t.unsettled.Add(-int64(upTo - t.settled))
	t.settled = upTo
	if err != nil {
		t.failed, t.failure = upTo, err
	}
	t.busy = false
	t.cond.Broadcast()
}

// exclusive runs fn as the one who may touch the journal, with everything settled.
func (t *Table) exclusive(fn func() error) error {
	t.jmu.Lock()
	defer t.jmu.Unlock()
	for t.busy || len(t.pending) > 0 {
		if t.busy {
			t.cond.Wait()
		} else {
			t.settleLocked()
		}
	}
	t.busy = true
	t.jmu.Unlock()
	err := fn()
	t.jmu.Lock()
	t.busy = false
	t.cond.Broadcast()
	return err
}

// Commit stages and settles one offset.
func (t *Table) Commit(group, topic []byte, queue int32, off message.QueueOffset) error {
	if err := t.Stage(group, topic, queue, off); err != nil {
		return err
	}
	return t.Settle()
}

// apply makes a run of whole records visible.
func (t *Table) apply(buf []byte) {
	var r record
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(buf) > 0 {
		n, err := parseRecord(buf, &r)
		if err != nil {
			panic("offset: own record does not parse")
		}
		t.applyLocked(&r)
		buf = buf[n:]
		if r.kind != kindIntent {
			t.dirty.Store(true)
		}
	}
}

func (t *Table) applyLocked(r *record) {
	switch r.kind {
	case kindCommit:
		e := t.entryLocked(r.group, r.topic)
		t.listLocked(e)
		e.offsets[r.queue] = r.offset
		if t.commits++; t.commits >= t.opt.Step {
			t.commits = 0
			t.version = t.version.Next()
		}
	case kindDropTopic:
		t.dropLocked(func(e *entry) bool { return e.topic == string(r.topic) })
	case kindDropGroup:
		t.dropLocked(func(e *entry) bool { return e.group == string(r.group) })
	case kindDropPair:
		t.dropLocked(func(e *entry) bool { return e.group == string(r.group) && e.topic == string(r.topic) })
	}
}

func (t *Table) entryLocked(group, topic []byte) *entry {
	g := t.groups[string(group)]
	if g == nil {
		g = &groupOffsets{name: string(group), topics: map[string]*entry{}}
		t.groups[g.name] = g
	}
	e := g.topics[string(topic)]
	if e == nil {
		e = &entry{group: g.name, topic: string(topic), offsets: map[int32]message.QueueOffset{}}
		g.topics[e.topic] = e
	}
	return e
}

// listLocked makes an entry one that is saved: a group that only pulls has none.
func (t *Table) listLocked(e *entry) {
	if e.listed {
		return
	}
	e.listed = true
	t.order = append(t.order, e)
	g := t.groups[e.group]
	if !slices.Contains(g.rank, e.topic) {
		g.rank = append(g.rank, e.topic)
	}
	if len(g.rank) == 1 && !slices.Contains(t.groupRank, e.group) {
		t.groupRank = append(t.groupRank, e.group)
	}
}

func (t *Table) dropLocked(match func(*entry) bool) {
	keep := t.order[:0]
	for _, e := range t.order {
		if !match(e) {
			keep = append(keep, e)
		}
	}
	clear(t.order[len(keep):])
	t.order = keep
	for name, g := range t.groups {
		for topic, e := range g.topics {
			if match(e) {
				t.resets.Add(-int64(len(e.reset)))
				delete(g.topics, topic)
				g.rank = slices.DeleteFunc(g.rank, func(s string) bool { return s == topic })
			}
		}
		if len(g.topics) == 0 {
			delete(t.groups, name)
			t.groupRank = slices.DeleteFunc(t.groupRank, func(s string) bool { return s == name })
		}
	}
}

// DropTopic removes the offsets of all groups on a topic.
func (t *Table) DropTopic(topic string) error {
	return t.change(&record{kind: kindDropTopic, topic: []byte(topic)})
}

// DropGroup removes all offsets of a group.
func (t *Table) DropGroup(group string) error {
	return t.change(&record{kind: kindDropGroup, group: []byte(group)})
}

// Drop removes the offsets of a group on a topic.
func (t *Table) Drop(group, topic string) error {
	return t.change(&record{kind: kindDropPair, group: []byte(group), topic: []byte(topic)})
}

func (t *Table) change(r *record) error {
	if len(r.group) > maxName || len(r.topic) > maxName {
		return nil // cannot have been stored
	}
	if err := t.stage(r); err != nil {
		return err
	}
	return t.Settle()
}

// Pulled remembers where a group reads. Memory only.
func (t *Table) Pulled(group, topic []byte, queue int32, off message.QueueOffset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryLocked(group, topic)
	if e.pulled == nil {
		e.pulled = map[int32]message.QueueOffset{}
	}
	e.pulled[queue] = off
}

// PullOffset returns what Pulled remembered.
func (t *Table) PullOffset(group, topic string, queue int32) (off message.QueueOffset, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if e := t.groups[group].entry(topic); e != nil {
		off, ok = e.pulled[queue]
	}
	return off, ok
}

func (g *groupOffsets) entry(topic string) *entry {
	if g == nil {
		return nil
	}
	return g.topics[topic]
}

// AssignReset commits the offset and makes it pending: the next pull or query is told it, and commits of the queue are
// ignored until a pull follows it.
func (t *Table) AssignReset(group, topic string, queue int32, off message.QueueOffset) error {
	if err := t.Commit([]byte(group), []byte(topic), queue, off); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entryLocked([]byte(group), []byte(topic))
	if e.reset == nil {
		e.reset = map[int32]pendingReset{}
	}
	if _, ok := e.reset[queue]; !ok {
		t.resets.Add(1)
	}
	e.reset[queue] = pendingReset{to: off}
	delete(e.pulled, queue)
	return nil
}

// PendingReset returns a pending reset. No allocation; cheap when there is none at all.
func (t *Table) PendingReset(group, topic []byte, queue int32) (off message.QueueOffset, ok bool) {
	if t.resets.Load() == 0 {
		return 0, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if g := t.groups[string(group)]; g != nil {
		if e := g.topics[string(topic)]; e != nil {
			var r pendingReset
			r, ok = e.reset[queue]
			off = r.to
		}
	}
	return off, ok
}

// TakeReset returns a pending reset to a pull that asks for an offset. The reset ends, and is not returned, when the pull asks for the
// offset of the reset: the reader that the queue now has follows it. A pull of a reader that has lost the queue does not end it, unless
// readers go on asking for something else.
func (t *Table) TakeReset(group, topic []byte, queue int32, asked message.QueueOffset) (off message.QueueOffset, ok bool) {
	if _, ok := t.PendingReset(group, topic, queue); !ok {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.groups[string(group)].entry(string(topic))
	if e == nil {
		return 0, false
	}
	r, ok := e.reset[queue]
	if !ok {
		return 0, false
	}
	if r.told++; r.to == asked || r.told == maxTold {
		delete(e.reset, queue)
		t.resets.Add(-1)
	} else {
		e.reset[queue] = r
	}
	return r.to, r.to != asked
}

// Offsets returns the committed offsets of a group on a topic; nil when there are none.
func (t *Table) Offsets(group, topic string) map[int32]message.QueueOffset {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.groups[group].entry(topic)
	if e == nil || !e.listed {
		return nil
	}
	out := make(map[int32]message.QueueOffset, len(e.offsets))
	for q, off := range e.offsets {
		out[q] = off
	}
	return out
}

// TopicsOf returns the topics on which a group has offsets.
func (t *Table) TopicsOf(group string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []string
	for _, e := range t.order {
		if e.group == group {
			out = append(out, e.topic)
		}
	}
	return out
}

// GroupsOf returns the groups that have offsets on a topic.
func (t *Table) GroupsOf(topic string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []string
	for _, e := range t.order {
		if e.topic == topic {
			out = append(out, e.group)
		}
	}
	return out
}

// Version is the version of the present state.
func (t *Table) Version() topic.Version {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.version
}

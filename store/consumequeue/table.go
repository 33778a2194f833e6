// Package consumequeue holds the queues of a broker: for each message of a topic and queue id a unit of 20 bytes that
// says where the message stands in the log.
//
// The main types are Table, all queues of a store, and Queue. The store's dispatcher puts units, its readers take ranges;
// the store's facade loads, cuts, flushes and deletes. The package never reads the log and never decides when to flush.
//
// Units wait in memory until the table is drained or a buffer is full, then go to their exact place in a sparse file with
// one pwrite per queue: putting a unit again writes the same bytes. What a killed process had not drained is built
// again from the log, which holds everything. Readers take the newest units from that same buffer and older ones from
// read-only maps, which are made on first use and bounded in number, as are open descriptors, so that many thousand
// queues cost little.
//
// Format: docs/formats/consumequeue.md.
package consumequeue

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/epochmq/epochmq/store/mappedfile"
)

// Limits of open things unless the Config says otherwise.
const (
	defaultMaxFiles = 1024
	defaultMaxMaps  = 16384
	defaultFileSize = 300000 * UnitSize
)

// Config is where the queues are and how much they may keep open.
type Config struct {
	Dir      string // <storePathRootDir>/consumequeue
	FileSize int64  // mappedFileSizeConsumeQueue in bytes, rounded up to whole units; 0 is RocketMQ's default
	MaxFiles int    // descriptors kept open for writing; 0 is 1024
	MaxMaps  int    // files kept mapped for reading; 0 is 16384
}

// Table is all queues of a store. All methods are safe for concurrent use. It starts no goroutine.
type Table struct {
	fs      mappedfile.FS
	dir     string
	perFile int64 // units

	files ring[*Queue]
	maps  ring[*mapped]

	mu     sync.RWMutex
	topics map[string]map[int32]*Queue
	closed bool

	// dmu guards the lists of queues that have something to do.
	dmu      sync.Mutex
	dirty    []*Queue // have units that are not written
	unsynced []*Queue // have written units that are not durable
	stale    []*Queue // may have bytes above their end, of a run that ended uncleanly
	warm     []*Queue // have a buffer in memory
	rounds   uint64   // flushes so far
	syncAll  bool     // files may hold bytes that the run before wrote and did not sync

	flushMu sync.Mutex // one flush at a time
}

// Open returns the table over cfg.Dir, still empty: call Load. It creates the folder when it is missing and refuses a
// RocksDB folder with an *UnsupportedError.
func Open(fsys mappedfile.FS, cfg Config) (*Table, error) {
	size := cfg.FileSize
	if size <= 0 {
		size = defaultFileSize
	}
	if err := CheckFolder(fsys, cfg.Dir); err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create consume queue folder: %w", err)
	}
	t := &Table{
		fs:      fsys,
		dir:     cfg.Dir,
		perFile: (size + UnitSize - 1) / UnitSize,
		topics:  make(map[string]map[int32]*Queue),
	}
	t.files.limit = cfg.MaxFiles
	if t.files.limit <= 0 {
		t.files.limit = defaultMaxFiles
	}
	t.maps.limit = cfg.MaxMaps
	if t.maps.limit <= 0 {
		t.maps.limit = defaultMaxMaps
	}
	return t, nil
}

// Get returns the queue, nil when there is none. It does not allocate.
func (t *Table) Get(topic []byte, id int32) *Queue {
	t.mu.RLock()
	q := t.topics[string(topic)][id]
	t.mu.RUnlock()
	return q
}

// Find is Get for a topic that is a string.
func (t *Table) Find(topic string, id int32) *Queue {
	t.mu.RLock()
	q := t.topics[topic][id]
	t.mu.RUnlock()
	return q
}

// GetOrCreate returns the queue and makes an empty one when there is none; its folder comes with the first unit. A name
// that cannot be a folder is a *NameError.
func (t *Table) GetOrCreate(topic string, id int32) (*Queue, error) {
	if q := t.Find(topic, id); q != nil {
		return q, nil
	}
	if !usable(topic, id) {
		return nil, &NameError{Topic: topic, ID: id}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if q := t.topics[topic][id]; q != nil {
		return q, nil
	}
	topic = strings.Clone(topic)
	q := newQueue(t, topic, id)
	t.insertLocked(q)
	return q, nil
}

func (t *Table) insertLocked(q *Queue) {
	ids := t.topics[q.topic]
	if ids == nil {
		ids = make(map[int32]*Queue)
		t.topics[q.topic] = ids
	}
	ids[q.id] = q
}

// usable reports whether topic and id can name a folder: a topic may come from a damaged record.
func usable(topic string, id int32) bool {
	return id >= 0 && topic != "" && topic != "." && topic != ".." && len(topic) <= 255 && !strings.ContainsAny(topic, "/\\\x00")
}

// All returns the queues that exist now, in no order.
func (t *Table) All() []*Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := 0
	for _, ids := range t.topics {
		n += len(ids)
	}
	all := make([]*Queue, 0, n)
	for _, ids := range t.topics {
		for _, q := range ids {
			all = append(all, q)
		}
	}
	return all
}

// Each calls fn for every queue that existed at the call, without a lock, until fn returns false.
func (t *Table) Each(fn func(*Queue) bool) {
	for _, q := range t.All() {
		if !fn(q) {
			return
		}
	}
}

// Topics returns the names of all topics with a queue, sorted.
func (t *Table) Topics() []string {
	t.mu.RLock()
	names := make([]string, 0, len(t.topics))
	for name := range t.topics {
		names = append(names, name)
	}
	t.mu.RUnlock()
	slices.Sort(names)
	return names
}

// Queues returns the queues of one topic, sorted by id.
func (t *Table) Queues(topic string) []*Queue {
	t.mu.RLock()
	qs := make([]*Queue, 0, len(t.topics[topic]))
	for _, q := range t.topics[topic] {
		qs = append(qs, q)
	}
	t.mu.RUnlock()
	slices.SortFunc(qs, func(a, b *Queue) int { return int(a.id) - int(b.id) })
	return qs
}

// Stats is how much a table keeps open.
type Stats struct {
	Queues, OpenFiles, Maps int
	BufferBytes             int64
}

// Stats counts what is open now.
func (t *Table) Stats() Stats {
	s := Stats{OpenFiles: t.files.len(), Maps: t.maps.len()}
	for _, q := range t.All() {
		s.Queues++
		q.mu.Lock()
		s.BufferBytes += int64(cap(q.tail))
		q.mu.Unlock()
	}
	return s
}

// Destroy deletes the queues of a topic with their files. Their readers end with what they hold; a put answers ErrDropped.
func (t *Table) Destroy(topic string) error {
	t.mu.Lock()
	ids := t.topics[topic]
	delete(t.topics, topic)
	t.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	var errs []error
	for _, q := range ids {
		errs = append(errs, q.drop())
	}
	dir := filepath.Join(t.dir, topic)
	errs = append(errs, ignoreMissing(t.fs.Remove(dir)), t.fs.SyncDir(t.dir))
	return errors.Join(errs...)
}

// Close drains and flushes every queue and closes all files. Twice is fine; after a failure the files are closed as well.
func (t *Table) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	errs := []error{t.Flush(), t.cleanTails(-1)}
	for _, q := range t.All() {
		errs = append(errs, q.release())
	}
	return errors.Join(errs...)
}

// Abandon closes all files and writes nothing, for a store that has failed.
func (t *Table) Abandon() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	var errs []error
	for _, q := range t.All() {
		errs = append(errs, q.release())
	}
	return errors.Join(errs...)
}

func (t *Table) fileSize() int64 { return t.perFile * UnitSize }

func (t *Table) queueDir(topic string, id int32) string {
	return filepath.Join(t.dir, topic, strconv.Itoa(int(id)))
}

// Package index finds messages by key: hash index files in RocketMQ's format.
//
// The main type is Index. The store's dispatcher puts the key hashes of each message, its facade queries, loads, cuts,
// flushes and deletes. The package never reads the log: hashes collide, and whoever queries compares the keys.
//
// The heads of a file's hash chains are overwritten in place, and there is no saying from a file alone which of them
// belong to entries that survived a crash. Therefore new entries stay in memory, where queries find them, until Drain
// writes them: all entries with few large writes, then the heads page by page, then the header. A recovery mark holds
// how many entries a file had (State). After a crash entries above that number are put again from the log, and Repair
// restores the heads that point to them; neither holds up the start.
//
// Format: docs/formats/index.md.
package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// maxPending is how many entries wait in memory before Put writes them itself.
const maxPending = 1 << 17

// ErrClosed is the answer of a closed index.
var ErrClosed = errors.New("index closed")

// Config is where the files are and how large they get.
type Config struct {
	Dir     string // <storePathRootDir>/index
	Slots   int32  // maxHashSlotNum; 0 is RocketMQ's 5,000,000
	Entries int32  // maxIndexNum; 0 is RocketMQ's 20,000,000
}

// Record is the keys of one message. A message without keys is put as well, so that the index knows how far it has come.
type Record struct {
	Log       message.LogOffset
	StoreTime int64   // ms since the epoch
	Hashes    []int32 // see AppendHashes
}

// State is what a recovery mark keeps of the index: what the files held after a Drain.
type State struct {
	File    string            // name of the newest file, empty when there is none
	Count   int32             // its header's count
	EndLog  message.LogOffset // its header's end: start of the last message with a key
	EndTime int64             // store time of that message
	Last    message.LogOffset // start of the last message put, with or without a key; -1 when there was none
}

// Index is the files of a store, oldest first. All methods are safe for concurrent use. It starts no goroutine.
//
// Locks are taken in the order p, w, mu.
type Index struct {
	fs     mappedfile.FS
	dir    string
	layout Layout

	// p serialises Put and cuts.
	p sync.Mutex

	// w serialises whoever changes files and is held over file operations. Put takes it only when it must write.
	w        sync.Mutex
	cur      mappedfile.File // the newest file, open for writing; nil before its first use
	disk     Header          // of the newest file, as it is on disk
	repaired bool            // heads of the newest file are right
	unsynced []string        // files with bytes that are not durable
	closed   bool
	spare    *batch
	linkBuf  []older
	pageBuf  []byte
	writeBuf []byte

	// mu guards what queries see. No file operation happens under it.
	mu          sync.Mutex
	files       []*file // the last one takes new entries
	pending     *batch  // takes new entries
	writing     *batch  // is being written; nil when no drain is under way
	last        message.LogOffset
	done        State
	flushedTime int64
}

// file is one file. The header of the last one counts the entries in memory too.
type file struct {
	name string
	h    Header
}

// batch is entries in memory, numbers base, base+1, …. An entry with Prev 0 is the oldest of its slot in the batch.
type batch struct {
	base    int32
	entries []Entry
	heads   heads
}

func newBatch() *batch { return &batch{base: 1} }

// Open returns the index over cfg.Dir, still empty: call Load. It creates the folder when it is missing.
func Open(fsys mappedfile.FS, cfg Config) (*Index, error) {
	x := &Index{fs: fsys, dir: cfg.Dir, layout: Layout{Slots: cfg.Slots, Entries: cfg.Entries},
		pending: newBatch(), spare: newBatch(), last: -1, done: State{EndLog: -1, Last: -1}, repaired: true}
	if x.layout.Slots <= 0 {
		x.layout.Slots = 5000000
	}
	if x.layout.Entries <= 1 {
		x.layout.Entries = 20000000
	}
	if err := fsys.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create index folder: %w", err)
	}
	return x, nil
}

// Last is the start of the last message put, -1 when there is none. Put skips messages at or below it.
func (x *Index) Last() message.LogOffset {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last
}

// Put adds messages in log order. Those at or below Last are skipped, so that a part of the log may be dispatched again.
// It only copies, unless much waits in memory or a file is full. An error is a failed write or ErrClosed.
func (x *Index) Put(records []Record) error {
	x.p.Lock()
	defer x.p.Unlock()
	for i, key := 0, 0; i < len(records); {
		var room bool
		if i, key, room = x.add(records, i, key); room {
			continue
		}
		if err := x.makeRoom(); err != nil {
			return err
		}
	}
	return nil
}

// putAtOnce is how many records are added under one lock: queries wait for it.
const putAtOnce = 64

// add adds records from the given one and its key on, and returns where to go on. room is false when there is none.
func (x *Index) add(records []Record, i, key int) (int, int, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for end := min(i+putAtOnce, len(records)); i < end; i, key = i+1, 0 {
		r := &records[i]
		if key += x.addRecordLocked(r, r.Hashes[key:]); key < len(r.Hashes) {
			return i, key, false
		}
	}
	return i, 0, true
}

// addRecordLocked takes as many keys of a record as there is room for. The keys of a record are added together, so that no
// drain sees a part of them, unless the file is full in between.
func (x *Index) addRecordLocked(r *Record, hashes []int32) int {
	if r.Log <= x.last {
		return len(hashes)
	}
	if len(hashes) > 0 && (len(x.files) == 0 || len(x.pending.entries) >= maxPending) {
		return 0
	}
	for i, hash := range hashes {
		h := &x.files[len(x.files)-1].h
		if h.Count >= x.layout.Entries {
			return i
		}
		x.addLocked(h, hash, r)
	}
	x.last = r.Log
	return len(hashes)
}

func (x *Index) addLocked(h *Header, hash int32, r *Record) {
	b := x.pending
	slot := nonNegative(hash) % x.layout.Slots
	b.entries = append(b.entries, Entry{Hash: hash, Log: r.Log, Seconds: seconds(h.BeginTime, r.StoreTime), Prev: b.heads.swap(slot, h.Count)})
	if h.Count <= 1 {
		h.BeginTime, h.BeginLog = r.StoreTime, r.Log
	}
	h.Count++
	h.EndTime, h.EndLog = r.StoreTime, r.Log
}

// makeRoom writes out what waits in memory and begins a new file when the newest one is full. The caller holds p.
func (x *Index) makeRoom() error {
	x.w.Lock()
	defer x.w.Unlock()
	if x.closed {
		return ErrClosed
	}
	if err := x.drain(); err != nil {
		return err
	}
	if n := len(x.files); n > 0 && x.files[n-1].h.Count < x.layout.Entries {
		return nil
	}
	return x.create(time.Now())
}

// create adds an empty file. Everything is drained and the caller holds p and w.
func (x *Index) create(now time.Time) error {
	name := FileName(now)
	h := Header{Count: 1}
	if n := len(x.files); n > 0 {
		before := x.files[n-1]
		h.BeginTime, h.EndTime, h.BeginLog, h.EndLog = before.h.EndTime, before.h.EndTime, before.h.EndLog, before.h.EndLog
		if name <= before.name { // the clock went back, or two files in a millisecond
			t, err := ParseName(before.name)
			if err != nil {
				return err
			}
			name = FileName(t.Add(time.Millisecond))
		}
	}
	if err := x.closeCurrent(); err != nil {
		return err
	}
	path := filepath.Join(x.dir, name)
	f, err := x.fs.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = f.Allocate(x.layout.FileSize())
	if err == nil {
		_, err = f.WriteAt(h.Append(nil), 0)
	}
	if err != nil { // a full disk: leave no odd file behind
		return errors.Join(err, f.Close(), x.fs.Remove(path))
	}
	x.cur, x.disk, x.repaired = f, h, true
	x.unsynced = append(x.unsynced, name)
	x.mu.Lock()
	x.files = append(x.files, &file{name: name, h: h})
	x.pending.base = 1
	x.done = State{File: name, Count: h.Count, EndLog: h.EndLog, EndTime: h.EndTime, Last: x.last}
	x.mu.Unlock()
	return x.fs.SyncDir(x.dir)
}

// State is what the files held after the last completed Drain, for a recovery mark.
func (x *Index) State() State {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.done
}

// FlushedTime is the store time up to which entries are known to be durable: the indexMsgTimestamp of the checkpoint file.
func (x *Index) FlushedTime() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.flushedTime
}

// Drain hands all entries in memory to the operating system. While a repair is due it leaves them there and State stays
// as it was. An error is a failed write and final.
func (x *Index) Drain() error {
	if !x.w.TryLock() { // a repair, or another drain
		return nil
	}
	defer x.w.Unlock()
	if x.closed || !x.repaired {
		return nil
	}
	return x.drain()
}

// Flush repairs if need be, drains, and makes everything put before the call durable. An error is final.
func (x *Index) Flush() error {
	if err := x.Repair(); err != nil {
		return err
	}
	x.w.Lock()
	if x.closed {
		x.w.Unlock()
		return ErrClosed
	}
	if err := x.drain(); err != nil {
		x.w.Unlock()
		return err
	}
	names, end := x.unsynced, x.disk.EndTime
	x.unsynced = nil
	x.w.Unlock()
	for _, name := range names {
		if err := x.syncFile(name); err != nil {
			return err
		}
	}
	x.mu.Lock()
	x.flushedTime = end
	x.mu.Unlock()
	return nil
}

// syncFile uses a descriptor of its own, so that a drain does not wait for the disk.
func (x *Index) syncFile(name string) error {
	f, err := x.fs.OpenFile(filepath.Join(x.dir, name), os.O_RDWR, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	return errors.Join(f.Datasync(), f.Close())
}

// markUnsynced notes that the newest file has bytes that are not durable. The caller holds w.
func (x *Index) markUnsynced(name string) {
	if n := len(x.unsynced); n == 0 || x.unsynced[n-1] != name {
		x.unsynced = append(x.unsynced, name)
	}
}

// newest is the file that takes new entries; nil when there is none. The caller holds w or mu.
func (x *Index) newest() *file {
	if len(x.files) == 0 {
		return nil
	}
	return x.files[len(x.files)-1]
}

// DeleteExpired removes files whose last message is no longer in a log that starts at low, never the newest file.
func (x *Index) DeleteExpired(low message.LogOffset) (int, error) {
	x.w.Lock()
	defer x.w.Unlock()
	if x.closed {
		return 0, ErrClosed
	}
	n := 0
	x.mu.Lock()
	for n < len(x.files)-1 && x.files[n].h.EndLog < low {
		n++
	}
	gone := x.files[:n]
	x.files = append([]*file(nil), x.files[n:]...)
	x.mu.Unlock()
	for _, f := range gone {
		if err := x.remove(f.name); err != nil {
			return n, err
		}
	}
	if n == 0 {
		return 0, nil
	}
	return n, x.fs.SyncDir(x.dir)
}

func (x *Index) remove(name string) error {
	return ignoreMissing(x.fs.Remove(filepath.Join(x.dir, name)))
}

// Close flushes and closes. Twice is fine.
func (x *Index) Close() error {
	err := x.Flush()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return errors.Join(err, x.Abandon())
}

// Abandon closes and writes nothing, for a store that has failed.
func (x *Index) Abandon() error {
	x.w.Lock()
	defer x.w.Unlock()
	x.closed = true
	return x.closeCurrent()
}

func (x *Index) closeCurrent() error {
	if x.cur == nil {
		return nil
	}
	f := x.cur
	x.cur = nil
	return f.Close()
}

package store

import (
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

// Queue is the append end of one topic queue, found by Store.Queue without allocation and valid until its topic is deleted.
type Queue = commitlog.Queue

// Placed says where a batch went in the log.
type Placed = commitlog.Placed

// GetStatus is the outcome of Get, in RocketMQ's words.
type GetStatus uint8

// Outcomes of Get.
const (
	Found GetStatus = iota
	NoMatchedMessage
	MessageWasRemoving
	OffsetFoundNull
	OffsetOverflowBadly
	OffsetOverflowOne
	OffsetTooSmall
	NoMatchedLogicQueue
	NoMessageInQueue
)

var statusNames = [...]string{"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL", "OFFSET_OVERFLOW_BADLY",
	"OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL", "NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE"}

// String returns RocketMQ's name of the status.
func (g GetStatus) String() string {
	if int(g) < len(statusNames) {
		return statusNames[g]
	}
	return "UNKNOWN"
}

// Filter decides which messages Get hands out. Its methods are called on the goroutine of Get and must not block.
type Filter interface {
	// MatchTags is asked first, with the tags code of the queue entry.
	MatchTags(code int64) bool
	// NeedsRecord says whether MatchRecord is to be asked too.
	NeedsRecord() bool
	// MatchRecord sees the decoded record; it must not keep it.
	MatchRecord(r *message.Record) bool
}

// Query asks for messages of one queue.
type Query struct {
	Topic    []byte
	QueueID  int32
	Offset   message.QueueOffset
	MaxMsgs  int    // at most so many messages
	MaxBytes int    // at most so many bytes, clamped to 100 bytes and 128 MiB; 0 means the largest
	Filter   Filter // nil takes everything
	HotOnly  bool   // do not read what is not in memory: Result.Cold is set and nothing is handed out
}

// Result is the answer of Get. It is reused without allocating; Release gives the views back and must be called once after
// each Get that returned no error, before the next.
type Result struct {
	Status         GetStatus
	Next, Min, Max message.QueueOffset // where to ask next; the queue's range now
	Count, Bytes   int                 // messages and bytes in Views
	Views          []commitlog.View    // raw records; those that touch each other in the log share one view
	Last           message.LogOffset   // log offset of the newest message visited
	SuggestSlave   bool                // the reader is farther behind than memory reaches
	Cold           bool                // with Query.HotOnly: the data is not in memory, ask again without it off the hot path

	units [64]consumequeue.Unit // scratch
	rec   message.Record        // scratch for filters
	raw   []byte                // scratch for cold records
	head  [recordHead]byte      // of a record under inspection
}

// Release gives the views back and empties the result.
func (r *Result) Release() {
	for i := range r.Views {
		r.Views[i].Release()
		r.Views[i] = commitlog.View{}
	}
	r.Views = r.Views[:0]
	r.Count, r.Bytes = 0, 0
}

// Arrival tells that messages of one queue became visible.
type Arrival struct {
	Topic     string
	QueueID   int32
	Offset    message.QueueOffset // the offset behind the newest one
	TagsCode  int64               // of the newest one
	StoreTime int64               // of the newest one, ms
	Count     int                 // how many became visible in this round
}

// QueueInfo describes one queue.
type QueueInfo struct {
	Topic    string
	ID       int32
	Min, Max message.QueueOffset
}

// KeyResult is the answer of QueryKeys. Release gives the views back.
type KeyResult struct {
	Views           []commitlog.View // one record each, ascending in the log
	Bytes           int
	LastUpdateTime  int64             // store time of the newest indexed record, ms
	LastUpdateStart message.LogOffset // its log offset
}

// Release gives the views back.
func (r *KeyResult) Release() {
	for i := range r.Views {
		r.Views[i].Release()
	}
	r.Views = nil
}

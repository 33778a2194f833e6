// Package history records what clients, brokers and the fault injector did and saw, and checks it against what a broker
// group promises.
//
// The main types are Event, one line of a history, and Verdict, what Check says of a whole one. A history is JSON lines, so
// that a failed run can be kept and checked again. The package starts no process, knows no clock and reads no broker: the
// chaos driver and `epochmq demo failover` write events, and tests plant faults in histories to see each rule fail.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Kind says what an event tells.
type Kind string

// Kinds of events.
const (
	// Of a producer. Each message has a producer and a number in it that grows by one.
	Acked   Kind = "acked"   // SEND_OK: topic, queue, offset are where it is
	Unknown Kind = "unknown" // no answer, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SERVICE_NOT_AVAILABLE: it may be stored or not
	Refused Kind = "refused" // an answer that says for sure that it is not stored

	// Of a consumer.
	Received  Kind = "received"  // a message that was handed to the application
	Committed Kind = "committed" // the group's offset on a queue was accepted by the broker
	Asked     Kind = "asked"     // the group's offset on a queue as the broker gave it
	Reset     Kind = "reset"     // an operator moved the group's offset

	// Of the end of a run, after healing: what a replica holds.
	Held   Kind = "held"   // a message found in the replica's queue; replica, topic, queue, offset, producer, number
	Range  Kind = "range"  // checksum of the log bytes [From, To) of a replica below the confirm offset
	Bounds Kind = "bounds" // lowest and next offset of a queue in a replica: From, To

	// Of the cluster.
	Master Kind = "master" // a broker says that it is the master of an epoch, or acknowledged under it
	Fault  Kind = "fault"  // what was done to the cluster; only for reading
)

// Event is one line. Fields that a kind does not use are zero.
type Event struct {
	At       int64  `json:"t"` // ns since the start of the run, by the clock of the process that writes the history
	Kind     Kind   `json:"kind"`
	Topic    string `json:"topic,omitempty"`
	Queue    int32  `json:"queue,omitempty"`
	Offset   int64  `json:"offset,omitempty"` // in the queue
	Producer string `json:"producer,omitempty"`
	Number   int64  `json:"number,omitempty"` // of the message among its producer's
	Group    string `json:"group,omitempty"`
	Broker   string `json:"broker,omitempty"` // replica, or master
	Epoch    int32  `json:"epoch,omitempty"`
	From     int64  `json:"from,omitempty"`
	To       int64  `json:"to,omitempty"`
	Sum      string `json:"sum,omitempty"`
	Text     string `json:"text,omitempty"`
}

// Writer appends events to a history. It may be used by several goroutines, whose events then stand in one order.
type Writer struct {
	mu  sync.Mutex
	buf *bufio.Writer
	enc *json.Encoder
	err error
}

// NewWriter makes a writer on w. Flush it at the end.
func NewWriter(w io.Writer) *Writer {
	b := bufio.NewWriterSize(w, 256<<10)
	return &Writer{buf: b, enc: json.NewEncoder(b)}
}

// Add appends an event. The first error is kept for Flush.
func (w *Writer) Add(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.enc.Encode(&e)
	}
}

// Flush writes what is buffered and returns the first error of all.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// Read hands every event of a history to fn, in order.
func Read(r io.Reader, fn func(Event)) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for line := 1; s.Scan(); line++ {
		if len(s.Bytes()) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d of the history: %w", line, err)
		}
		fn(e)
	}
	return s.Err()
}

package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
)

// Batch is one message, or several that lie side by side in the log. It is reused: Reset, Add, Append. One goroutine uses it.
type Batch struct {
	s *Store
	b *commitlog.Batch

	last *Queue // of the message before: a client batch looks its queue up once
}

// NewBatch returns an empty batch for this store.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, b: s.log.NewBatch()} }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.b.Reset()
	b.last = nil
}

// Len is the number of messages.
func (b *Batch) Len() int { return b.b.Len() }

// Bytes is the size of the encoded records.
func (b *Batch) Bytes() int { return b.b.Bytes() }

// Entry tells what is known of message i; its offsets and store time after Append. Valid until Reset.
func (b *Batch) Entry(i int) *commitlog.Entry { return b.b.Entry(i) }

// Add encodes m; nothing of it is kept. ErrTooLarge, ErrPropertiesTooLong and ErrIllegal leave the batch as it was.
func (b *Batch) Add(m *message.Message) error {
	cfg := b.s.config()
	switch {
	case len(m.Body) > cfg.MaxMessageSize:
		return fmt.Errorf("%w: body of %d bytes, maxMessageSize is %d", ErrTooLarge, len(m.Body), cfg.MaxMessageSize)
	case len(m.Properties) > message.MaxPropertiesLen:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrPropertiesTooLong, len(m.Properties), message.MaxPropertiesLen)
	case len(m.Topic) == 0 || len(m.Topic) > message.MaxTopicLenStore:
		return fmt.Errorf("%w: topic of %d bytes", ErrIllegal, len(m.Topic))
	case len(m.Topic) > message.MaxTopicLen && !cfg.AutoMessageVersionOnTopicLen:
		return fmt.Errorf("%w: topic of %d bytes, and autoMessageVersionOnTopicLen is off", ErrIllegal, len(m.Topic))
	case int64(message.Size(m)) > cfg.maxRecord():
		return fmt.Errorf("%w: record of %d bytes, the limit is %d", ErrTooLarge, message.Size(m), cfg.maxRecord())
	}
	q := b.last
	if q == nil || q.ID != m.QueueID || q.Topic != string(m.Topic) {
		var err error
		if q, err = b.s.Queue(m.Topic, m.QueueID); err != nil {
			return err
		}
		b.last = q
	}
	if err := b.b.Add(m, q); err != nil {
		return fmt.Errorf("%w: %w", ErrIllegal, err)
	}
	return nil
}

// Append places the batch at the end of the log and says where. The bytes are staged: before an acknowledgement the caller
// calls Write with Placed.End and, where the durability in force asks, waits for Flushed.
func (s *Store) Append(b *Batch) (Placed, error) {
	if err := s.writable(); err != nil {
		s.count.putFailed.Add(int64(b.Len()))
		return Placed{}, err
	}
	p, err := s.log.Append(b.b)
	if err != nil {
		s.count.putFailed.Add(int64(b.Len()))
		return Placed{}, s.mapErr(err)
	}
	s.count.put(int64(b.Len()), int64(b.Bytes()), p.Waited)
	return p, nil
}

// Write returns when everything below to is in the page cache; the first caller writes for all.
func (s *Store) Write(to message.LogOffset) error { return s.mapErr(s.log.Write(to)) }

// Flush returns when everything below to is on disk.
func (s *Store) Flush(to message.LogOffset) error { return s.mapErr(s.log.Flush(to)) }

// Busy is how long the oldest appended and unwritten byte has been waiting.
func (s *Store) Busy() time.Duration { return s.log.Busy() }

// Writable returns why an append would be refused now, nil when it would not: *FencedError, *DiskFullError, ErrNotMaster,
// ErrClosed.
func (s *Store) Writable() error { return s.writable() }

func (s *Store) writable() error {
	if s.closed.Load() {
		return ErrClosed
	}
	if err := s.notMaster(); err != nil {
		return err
	}
	f := s.flags.load()
	if f.Writable() {
		return nil
	}
	if err := s.fenceErr(); err != nil {
		return err
	}
	if f&(DiskFull|QueueDiskFull) != 0 {
		return s.usage.Load().refusal(s.config())
	}
	return fmt.Errorf("%w: running flags %d", ErrNotWritable, f)
}

func (s *Store) mapErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, commitlog.ErrFenced):
		if fenced := s.fenceErr(); fenced != nil {
			return fenced
		}
		return &FencedError{Cause: err}
	case errors.Is(err, commitlog.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, commitlog.ErrFull):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	case errors.Is(err, commitlog.ErrClosed):
		return ErrClosed
	case errors.Is(err, commitlog.ErrFollowing):
		if cause := s.notMaster(); cause != nil {
			return cause
		}
		return ErrNotMaster
	}
	return err
}

// Package put is the one door for messages that the broker itself writes: delivered delayed messages, send-backs, and
// whatever later features store.
//
// The main type is Door. A message that goes through it is checked, refused while the broker must not write, and is as
// durable as the configuration says when Put returns. It never redirects: a DELAY property that a delivered message still
// carries is not applied again. Messages of producers do not come here; they go through produce.
package put

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/commitlog"
)

// Store is where messages go.
type Store interface {
	NewBatch() *store.Batch
	Append(b *store.Batch) (store.Placed, error)
	Write(to message.LogOffset) error
	Flushed() *watermark.Mark
	Log() *commitlog.Log // for FlushSoon
	SyncFlush() bool
}

// ErrUncertain is joined to an error that came after the messages were appended: they may be in the log, now or after a
// restart. Without it nothing was stored.
var ErrUncertain = errors.New("message may be stored")

// Door stores messages. Its methods may be called from any goroutine and block until the disk has done what is asked.
type Door struct {
	store   Store
	need    func() (*watermark.Mark, error)
	batches sync.Pool // *store.Batch
}

// New makes a door. need is asked before each write: its error refuses it, as in a broker that is no master, and its mark
// says what the replicas have, nil for no replicas. A nil need means open, and no replicas.
func New(st Store, need func() (*watermark.Mark, error)) *Door {
	d := &Door{store: st, need: need}
	d.batches.New = func() any { return st.NewBatch() }
	return d
}

// maxBatch bounds what is appended at once, so that it fits one stage of the log.
const maxBatch = 120 << 10

// Put stores one message.
func (d *Door) Put(ctx context.Context, m *message.Message) error {
	_, err := d.PutAll(ctx, []*message.Message{m})
	return err
}

// PutAll stores messages in their order and waits once for all of them. n is how many are stored for sure, always the
// first ones; with an error the next one is the one that failed, or it and some after it are ErrUncertain. When ctx ends
// the wait, what was appended is ErrUncertain and its flush goes on. The messages belong to the caller throughout.
func (d *Door) PutAll(ctx context.Context, ms []*message.Message) (n int, err error) {
	var copies *watermark.Mark
	if d.need != nil {
		if copies, err = d.need(); err != nil {
			return 0, err
		}
	}
	b := d.batches.Get().(*store.Batch)
	defer func() {
		b.Reset()
		d.batches.Put(b)
	}()
	var end message.LogOffset
	appended := 0
	for i, m := range ms {
		if b.Len() > 0 && b.Bytes()+len(m.Body)+len(m.Properties) > maxBatch {
			if end, err = d.append(b, end); err != nil {
				break
			}
			appended = i
		}
		if err = add(b, m); err != nil {
			break
		}
	}
	if b.Len() > 0 { // also when one behind them was refused
		before := b.Len()
		var failed error
		if end, failed = d.append(b, end); failed == nil {
			appended += before
		} else if err == nil {
			err = failed
		}
	}
	if appended == 0 {
		return 0, err
	}
	if durable := d.await(ctx, end, copies); durable != nil {
		return 0, fmt.Errorf("%w: %w", ErrUncertain, durable)
	}
	return appended, err
}

func add(b *store.Batch, m *message.Message) error {
	if err := b.Add(m); err != nil {
		return fmt.Errorf("put %s/%d: %w", m.Topic, m.QueueID, err)
	}
	return nil
}

func (d *Door) append(b *store.Batch, end message.LogOffset) (message.LogOffset, error) {
	defer b.Reset()
	p, err := d.store.Append(b)
	if err != nil {
		return end, err
	}
	return p.End, nil
}

// await returns when what was appended is as durable as it must be, here and in the replicas.
func (d *Door) await(ctx context.Context, end message.LogOffset, copies *watermark.Mark) error {
	if d.store.SyncFlush() {
		d.store.Log().FlushSoon()
		if err := d.store.Flushed().Wait(ctx, int64(end)); err != nil {
			return err
		}
	} else if err := d.store.Write(end); err != nil {
		return err
	}
	if copies == nil {
		return nil
	}
	return copies.Wait(ctx, int64(end))
}

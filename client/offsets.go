package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/internal/statefile"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// offsetStore is where a group's offsets are kept.
type offsetStore interface {
	// read returns the offset of a queue; found is false when the group has none there.
	read(ctx context.Context, q Queue) (offset int64, found bool, err error)
	// commit stores offsets and returns the queues for which that was done.
	commit(ctx context.Context, offsets map[Queue]int64) (done []Queue, err error)
}

// brokerOffsets keeps each offset at the queue's own broker.
type brokerOffsets struct {
	c     *Client
	group string
}

func (b *brokerOffsets) read(ctx context.Context, q Queue) (int64, bool, error) {
	answer, err := b.c.callQueue(ctx, q, protocol.ReqQueryConsumerOffset, map[string]string{"consumerGroup": b.group})
	switch {
	case code(err) == protocol.QueryNotFound:
		return 0, false, nil
	case err != nil:
		return 0, false, err
	}
	off, err := offsetOf(answer, "offset")
	return off, err == nil, err
}

func (b *brokerOffsets) commit(ctx context.Context, offsets map[Queue]int64) (done []Queue, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	ctx, cancel := context.WithTimeout(ctx, b.c.cfg.RequestTimeout)
	defer cancel()
	at, _ := ctx.Deadline()
	for q, off := range offsets {
		finish := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", q, err))
				return
			}
			done = append(done, q)
		}
		r := b.c.routes.known(q.Topic)
		if r == nil || r.Master(q.Broker) == "" {
			finish(&RouteError{Topic: q.Topic})
			continue
		}
		addr := r.Master(q.Broker)
		cmd := protocol.NewRequest(protocol.ReqUpdateConsumerOffset, map[string]string{"consumerGroup": b.group, "topic": q.Topic,
			"queueId": strconv.Itoa(int(q.ID)), "commitOffset": strconv.FormatInt(off, 10), "bname": q.Broker}, nil)
		b.c.dress(addr, cmd)
		wg.Add(1)
		b.c.rpc.Async(deadline{ctx, at}, addr, cmd, func(answer *protocol.Command, err error) {
			defer wg.Done()
			finish(b.c.wrap(addr, answer, err))
		})
	}
	wg.Wait()
	return done, errors.Join(errs...)
}

func offsetOf(answer *protocol.Command, field string) (int64, error) {
	n, err := strconv.ParseInt(answer.Ext[field], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("answer without a valid %s: %w", field, err)
	}
	return n, nil
}

// callQueue asks the master of a queue's broker; topic and queueId are added to ext. A broker that cannot be reached makes the route stale.
func (c *Client) callQueue(ctx context.Context, q Queue, request int32, ext map[string]string) (*protocol.Command, error) {
	r, err := c.Route(ctx, q.Topic)
	if err != nil {
		return nil, err
	}
	addr, _ := r.Any(q.Broker, 0)
	if addr == "" {
		return nil, &RouteError{Topic: q.Topic}
	}
	ext["topic"], ext["queueId"], ext["bname"] = q.Topic, strconv.Itoa(int(q.ID)), q.Broker
	answer, err := c.Call(ctx, addr, protocol.NewRequest(request, ext, nil))
	if unreachable(err) {
		c.staleRoute(q.Topic)
	}
	return answer, err
}

// MinOffset returns the first offset of a queue.
func (c *Client) MinOffset(ctx context.Context, q Queue) (int64, error) {
	return c.queueOffset(ctx, q, protocol.ReqGetMinOffset, map[string]string{})
}

// MaxOffset returns the offset that the next message of a queue will get.
func (c *Client) MaxOffset(ctx context.Context, q Queue) (int64, error) {
	return c.queueOffset(ctx, q, protocol.ReqGetMaxOffset, map[string]string{"committed": "true"})
}

// OffsetForTime returns the offset of the first message of a queue that was stored at a time (ms since the epoch) or later, or the end of
// the queue.
func (c *Client) OffsetForTime(ctx context.Context, q Queue, ms int64) (int64, error) {
	return c.queueOffset(ctx, q, protocol.ReqSearchOffsetByTimestamp, map[string]string{"timestamp": strconv.FormatInt(ms, 10),
		"boundaryType": "LOWER"})
}

func (c *Client) queueOffset(ctx context.Context, q Queue, request int32, ext map[string]string) (int64, error) {
	answer, err := c.callQueue(ctx, q, request, ext)
	if err != nil {
		return 0, err
	}
	return offsetOf(answer, "offset")
}

// firstOffset is where reading a queue begins: at the stored offset, else by the group's rule. Retry topics of new groups begin at their start,
// since nothing in them is older than the group.
func (g *group) firstOffset(ctx context.Context, q Queue) (int64, error) {
	off, found, err := g.offsets.read(ctx, q)
	if err != nil || found {
		return off, err
	}
	if message.IsRetryTopic(q.Topic) {
		return g.c.MinOffset(ctx, q)
	}
	switch g.cfg.from {
	case FromFirst:
		return g.c.MinOffset(ctx, q)
	case FromTime:
		return g.c.OffsetForTime(ctx, q, g.cfg.fromTime.UnixMilli())
	}
	return g.c.MaxOffset(ctx, q)
}

// fileOffsets keeps a broadcasting member's offsets in a file of its own, in RocketMQ's form.
type fileOffsets struct {
	path string

	mu     sync.Mutex
	loaded bool
	table  map[Queue]int64
}

func newFileOffsets(c *Client, cfg groupConfig) *fileOffsets {
	name := c.cfg.Name
	if name == "" {
		name = "DEFAULT"
	}
	return &fileOffsets{path: filepath.Join(cfg.offsetDir, c.host.String()+"@"+name, cfg.name, "offsets.json")}
}

func (f *fileOffsets) loadLocked() error {
	if f.loaded {
		return nil
	}
	table := map[Queue]int64{}
	_, err := statefile.Load(statefile.OS, f.path, func(data []byte) error {
		var body protocol.ResetOffsetBody
		if err := fastjson.Unmarshal(data, &body); err != nil {
			return err
		}
		clear(table)
		for _, e := range body.OffsetTable {
			table[queueOf(e.Queue)] = e.Value
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.table, f.loaded = table, true
	return nil
}

func (f *fileOffsets) read(_ context.Context, q Queue) (int64, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadLocked(); err != nil {
		return 0, false, err
	}
	off, ok := f.table[q]
	return off, ok, nil
}

func (f *fileOffsets) commit(_ context.Context, offsets map[Queue]int64) ([]Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadLocked(); err != nil {
		return nil, err
	}
	done := make([]Queue, 0, len(offsets))
	for q, off := range offsets {
		f.table[q] = off
		done = append(done, q)
	}
	var body protocol.ResetOffsetBody
	for q, off := range f.table {
		body.OffsetTable = append(body.OffsetTable, protocol.QueueEntry[int64]{Queue: q.wire(), Value: off})
	}
	data, err := fastjson.MarshalPretty(&body)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return nil, err
	}
	if err := statefile.Write(statefile.OS, f.path, data); err != nil {
		return nil, err
	}
	return done, nil
}

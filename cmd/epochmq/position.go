package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/epochmq/epochmq/client"
)

// position is where reading of queues begins.
type position struct {
	kind   byte // 'f' first, 'l' last, 'o' offset, 't' time
	offset int64
	time   time.Time
}

const positionHelp = "first, last, offset:N, or time:T with T as 2026-01-31T12:00:00Z, '2026-01-31 12:00:00', milliseconds since 1970, or an age like 10m"

// parsePosition reads what --from and --to take.
func parsePosition(s string, now time.Time) (position, error) {
	kind, arg := s, ""
	if i := strings.IndexAny(s, ":= "); i >= 0 {
		kind, arg = s[:i], strings.TrimSpace(s[i+1:])
	}
	switch {
	case kind == "first" && arg == "":
		return position{kind: 'f'}, nil
	case kind == "last" && arg == "":
		return position{kind: 'l'}, nil
	case kind == "offset":
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n < 0 {
			return position{}, misuse("use offset:N", "offset %q is no number of a message", arg)
		}
		return position{kind: 'o', offset: n}, nil
	case kind == "time":
		t, err := parseTime(arg, now)
		return position{kind: 't', time: t}, err
	}
	return position{}, misuse("use "+positionHelp, "position %q is unknown", s)
}

func parseTime(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(strings.TrimPrefix(s, "-")); err == nil {
		return now.Add(-d), nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 {
		return time.UnixMilli(ms), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, misuse("use "+positionHelp, "time %q cannot be read", s)
}

// resolve finds the offset in one queue, always within the queue.
func (p position) resolve(ctx context.Context, c *client.Client, q client.Queue) (int64, error) {
	switch p.kind {
	case 'f':
		return c.MinOffset(ctx, q)
	case 'l':
		return c.MaxOffset(ctx, q)
	case 't':
		return c.OffsetForTime(ctx, q, p.time.UnixMilli())
	}
	least, err := c.MinOffset(ctx, q)
	if err != nil {
		return 0, err
	}
	most, err := c.MaxOffset(ctx, q)
	return min(max(p.offset, least), most), err
}

func (p position) String() string {
	switch p.kind {
	case 'f':
		return "first"
	case 'l':
		return "last"
	case 'o':
		return fmt.Sprintf("offset:%d", p.offset)
	}
	return "time:" + p.time.Format(time.RFC3339)
}

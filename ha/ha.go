// Package ha copies the log of a master to its slaves, in RocketMQ's two protocols: the classic one and AutoSwitch, which
// adds epochs, an in-sync set and a confirm offset.
//
// The main types are ClassicMaster and AutoMaster, which send; ClassicFollower and AutoFollower, which receive; Server, which
// accepts connections for whichever master there is; and Acks, which tells waiting producers what has been copied. The broker
// creates them when its role changes. The package never decides who is master, never cuts a log unless its master's history
// demands it, and never talks to the controller itself.
//
// Formats: docs/formats/ha-frames.md. Design: DESIGN.md.
package ha

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
)

// Log is what replication needs of a store. All methods but AppendRaw and TruncateTo are safe for concurrent use; those two
// are called by one follower, or by nobody.
type Log interface {
	Min() message.LogOffset
	End() message.LogOffset // counting what is staged
	Written() *watermark.Mark
	Flushed() *watermark.Mark
	Confirmed() *watermark.Mark
	SetConfirmed(off message.LogOffset)
	SegmentSize() int64
	// ViewAt returns up to limit bytes from an offset; it ends at Written and at the end of the segment.
	ViewAt(from message.LogOffset, limit int) (commitlog.View, error)
	// AppendRaw continues the log at its end, or at the start of any segment when it is empty. The bytes are in the page
	// cache when it returns; p may be reused.
	AppendRaw(at message.LogOffset, p []byte) error
	FlushSoon()
	// TruncateTo cuts the log at the greatest boundary of a record at or below to and returns that boundary. A crash leaves
	// the log as it was or cut. What is derived from the log, and Confirmed, follow.
	TruncateTo(to message.LogOffset) (message.LogOffset, error)
}

// Times and sizes of RocketMQ's keys.
const (
	DefaultHeartbeat    = 5 * time.Second  // haSendHeartbeatInterval
	DefaultHousekeeping = 20 * time.Second // haHousekeepingInterval
	DefaultBatch        = 32 << 10         // haTransferBatchSize
	DefaultMaxGap       = 256 << 20        // haMaxGapNotInSync
	DefaultMaxLag       = 15 * time.Second // haMaxTimeSlaveNotCatchup
)

const (
	handshakeTimeout = 5 * time.Second
	// roomyBatch is what one frame carries when haTransferBatchSize was left alone. RocketMQ's slave takes frames below 4 MiB.
	roomyBatch = 1 << 20
	// confirmDelay is how long a confirm offset waits for data to travel with.
	confirmDelay = 5 * time.Millisecond
)

// Errors that callers branch on.
var (
	ErrClosed    = errors.New("replication closed")
	ErrNotEnough = errors.New("not enough replicas are in sync") // the message was not appended
	ErrProtocol  = errors.New("peer broke the replication protocol")
	// ErrRefused is what AutoConfig.Alter wraps when the controller has looked at the proposal and will not apply it.
	ErrRefused = errors.New("the controller refused the change of the in-sync set")
	// ErrNoHistory is a log that has no history in common with its master's: it has to be copied again as a whole.
	ErrNoHistory = errors.New("no common history with the master")
	// ErrCommitted is a cut that would drop committed bytes and that nobody allows.
	ErrCommitted = errors.New("the master lacks committed bytes of this log")
	// ErrStale is a master that is older than what is known.
	ErrStale = errors.New("the master is of an older epoch")
)

// MasterConfig is what both kinds of master need.
type MasterConfig struct {
	Log          Log
	Heartbeat    time.Duration // something is sent at least that often
	Housekeeping time.Duration // a peer that is silent for so long is gone
	Batch        int           // haTransferBatchSize
	Flow         int64         // bytes per second and connection, 0: no limit
	Logger       *slog.Logger
}

func (c *MasterConfig) defaults() {
	c.Heartbeat = orDefault(c.Heartbeat, DefaultHeartbeat)
	c.Housekeeping = orDefault(c.Housekeeping, DefaultHousekeeping)
	c.Batch = min(orDefault(c.Batch, DefaultBatch), maxFrame-autoHeadSize)
	if c.Batch == DefaultBatch {
		c.Batch = roomyBatch
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

func orDefault[T time.Duration | int | int64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// host is the address without the port.
func host(a net.Addr) string {
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}

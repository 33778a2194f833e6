package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/message"
)

// AutoFollowerConfig describes an AutoFollower.
type AutoFollowerConfig struct {
	FollowerConfig
	ID       int64       // controller id
	Epochs   *epoch.File // history of the log
	LastFile bool        // syncFromLastFile: an empty log begins with the master's last file
	Learner  bool        // asyncLearner: never in sync
	Legacy   bool        // haAllowLegacyMasterEpoch, see epoch.Local
	// Ready returns when what belongs to the log but is not in it has been copied from the master of an epoch. The first ack
	// of the epoch waits for it. It may be called again after an error. nil: nothing to copy.
	Ready func(ctx context.Context) error
	// MayLose reports whether the controller marked the election of an epoch as unclean: only then may committed bytes be
	// cut. nil: never.
	MayLose func(epoch int32) bool
	// Resync hears that the log has to be copied again as a whole. It must not call Close and may be called again. nil:
	// the error in Status says it.
	Resync func(reason string)
}

// AutoFollower copies the log of the master of an epoch in the AutoSwitch protocol. It cuts what that master does not have,
// and nothing else.
type AutoFollower struct {
	dialer
	cfg   AutoFollowerConfig
	ready int32 // epoch for which Ready has returned; of the session's goroutine
}

// NewAutoFollower is a follower of nobody; SetMaster names a master and Start begins.
func NewAutoFollower(cfg AutoFollowerConfig) (*AutoFollower, error) {
	if cfg.ID <= 0 {
		return nil, errors.New("follow: a controller id is needed")
	}
	f := &AutoFollower{cfg: cfg, ready: epoch.None}
	f.cfg.defaults()
	f.init(&f.cfg.FollowerConfig, f.follow)
	return f, nil
}

// SetMaster names the HA address of the master, host:port, and the epoch that the controller told; empty: not known. Anything
// new ends the connection and dials at once, so that histories are compared again.
func (f *AutoFollower) SetMaster(addr string, epoch int32) { f.set(master{addr, epoch}) }

// follow is a session: handshake, comparison, cut, transfer.
func (f *AutoFollower) follow(ctx context.Context, c net.Conn, to master) error {
	now := time.Now()
	if err := c.SetDeadline(now.Add(handshakeTimeout)); err != nil {
		return err
	}
	hand := handshake{f.cfg.ID, f.cfg.LastFile, f.cfg.Learner}
	if _, err := c.Write(hand.put(make([]byte, handshakeSize))); err != nil {
		return err
	}
	f.wrote.Store(now.UnixNano())
	d := masterDecoder{auto: true}
	in := &autoInput{AutoFollower: f, ctx: ctx, conn: c, to: to}
	// The reply comes alone; housekeeping is longer than the patience for it.
	err := f.handshake(c, &d, in)
	if err == nil {
		err = f.receive(c, func(p []byte) error { return d.decode(p, in) })
	}
	if in.end != nil {
		err = cause(err, in.end())
	}
	return err
}

// handshake reads until the reply was handled.
func (f *AutoFollower) handshake(c net.Conn, d *masterDecoder, in *autoInput) error {
	for in.end == nil {
		n, err := c.Read(f.buf)
		if err != nil {
			return fmt.Errorf("read the handshake reply: %w", err)
		}
		f.read.Store(time.Now().UnixNano())
		if err := d.decode(f.buf[:n], in); err != nil {
			return err
		}
	}
	return nil
}

// autoInput handles what a master sends in one session.
type autoInput struct {
	*AutoFollower
	ctx       context.Context
	conn      net.Conn
	to        master
	end       func() error // of the reporting goroutine, nil before the first ack
	theirs    epoch.List   // the master's history as it told
	last      int32        // newest epoch in our history
	confirmed message.LogOffset
}

// reply brings the log to what it has in common with the master's and asks for what follows.
func (in *autoInput) reply(m epoch.Master) error {
	if err := in.align(m); err != nil {
		return err
	}
	in.theirs, in.last = m.Epochs, in.cfg.Epochs.List().LastEpoch()
	if in.cfg.Ready != nil && in.ready != m.Epoch {
		if err := in.cfg.Ready(in.ctx); err != nil {
			return fmt.Errorf("copy what belongs to the log: %w", err)
		}
		in.ready = m.Epoch
	}
	first, err := in.settle(in.ctx)
	if err != nil {
		return err
	}
	if err := in.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	in.cfg.Logger.Info("following", "master", in.to.addr, "epoch", m.Epoch, "from", first)
	in.end = in.start(in.conn, first, putAck)
	return nil
}

// align compares the histories and cuts. (I12)
func (in *autoInput) align(m epoch.Master) error {
	log, file := in.cfg.Log, in.cfg.Epochs
	v := epoch.Compare(epoch.Local{Epochs: file.List(), Min: log.Min(), End: log.End(), Known: in.to.epoch, Legacy: in.cfg.Legacy}, m)
	above := log.End() // entries from here on say nothing
	switch v.Kind {
	case epoch.Blank:
		above = 0
	case epoch.Stale:
		return fmt.Errorf("%w: %s", ErrStale, v.Reason)
	case epoch.Resync:
		if in.cfg.Resync != nil {
			in.cfg.Resync(v.Reason)
		}
		return fmt.Errorf("%w: %s", ErrNoHistory, v.Reason)
	case epoch.Cut:
		end, confirmed := log.End(), message.LogOffset(log.Confirmed().Load())
		if v.At < confirmed && (in.cfg.MayLose == nil || !in.cfg.MayLose(m.Epoch)) {
			return fmt.Errorf("%w: its history ends at %d, committed is %d", ErrCommitted, v.At, confirmed)
		}
		cut, err := log.TruncateTo(v.At)
		if err != nil {
			return fmt.Errorf("cut the log at %d: %w", v.At, err)
		}
		above = log.End()
		in.cfg.Logger.Warn("cut what the master does not have", "master", in.to.addr, "epoch", m.Epoch, "end", end, "common", v.At, "cut", cut, "committed", confirmed)
	}
	// Entries without bytes were announced by somebody; this master says what comes next. After a crash before this line
	// they are dropped when the file is opened.
	if err := file.CutOffset(above); err != nil {
		return fmt.Errorf("cut the history at %d: %w", above, err)
	}
	return nil
}

// frame makes the epoch durable before a byte of it is appended. (I13)
func (in *autoInput) frame(f *frame) error {
	if in.end == nil {
		return fmt.Errorf("%w: data before it was asked for", ErrProtocol)
	}
	if err := in.next(f); err != nil {
		return err
	}
	switch {
	case f.At >= 0 && f.Epoch > in.last:
		if err := in.learn(f); err != nil {
			return err
		}
	case f.Size > 0 && f.Epoch < in.last:
		return fmt.Errorf("%w: bytes of epoch %d after epoch %d", ErrProtocol, f.Epoch, in.last)
	}
	in.confirmed = f.Confirmed
	if f.Size == 0 {
		in.confirm()
	}
	return nil
}

// learn takes over the history up to a frame. RocketMQ labels the bytes below the boundary with the epoch above it, and may
// pass over an epoch in the first frame, so the master's own list comes first.
func (in *autoInput) learn(f *frame) error {
	file, end := in.cfg.Epochs, in.cfg.Log.End()
	if end > 0 && f.EpochStart < end && file.List().LastEpoch() != epoch.None {
		return fmt.Errorf("%w: epoch %d starts at %d, below the end %d of the common history", ErrProtocol, f.Epoch, f.EpochStart, end)
	}
	for i, e := range in.theirs {
		ended := i+1 < len(in.theirs) && in.theirs[i+1].Start <= f.At
		if e.Epoch <= in.last || e.Epoch >= f.Epoch || ended || e.Start >= f.EpochStart {
			continue
		}
		if err := in.append(e); err != nil {
			return err
		}
	}
	return in.append(epoch.Entry{Epoch: f.Epoch, Start: f.EpochStart})
}

func (in *autoInput) append(e epoch.Entry) error {
	if err := in.cfg.Epochs.Append(e); err != nil {
		if errors.Is(err, epoch.ErrOrder) || errors.Is(err, epoch.ErrStale) {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		return fmt.Errorf("learn epoch %d: %w", e.Epoch, err)
	}
	in.last = e.Epoch
	return nil
}

func (in *autoInput) body(at message.LogOffset, p []byte) error {
	if err := in.cfg.Log.AppendRaw(at, p); err != nil {
		return fmt.Errorf("append copied bytes at %d: %w", at, err)
	}
	in.cfg.Log.FlushSoon()
	in.confirm()
	return nil
}

// confirm passes the master's confirm offset on, as far as this log reaches.
func (in *autoInput) confirm() {
	if off := min(in.confirmed, message.LogOffset(in.cfg.Log.Written().Load())); off > 0 {
		in.cfg.Log.SetConfirmed(off)
	}
}

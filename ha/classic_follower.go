package ha

import (
	"context"
	"fmt"
	"net"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/message"
)

// ClassicFollower copies the log of a master in the classic protocol. It never cuts its log: where the two logs do not
// continue each other it stays as it is, says so, and tries again.
type ClassicFollower struct {
	dialer
	cfg FollowerConfig
}

// NewClassicFollower is a follower of nobody; SetMaster names a master and Start begins.
func NewClassicFollower(cfg FollowerConfig) *ClassicFollower {
	f := &ClassicFollower{cfg: cfg}
	f.cfg.defaults()
	f.init(&f.cfg, f.follow)
	return f
}

// SetMaster names the HA address of the master, host:port; empty: not known. Another address ends the connection.
func (f *ClassicFollower) SetMaster(addr string) { f.set(master{addr: addr}) }

func (f *ClassicFollower) follow(ctx context.Context, c net.Conn, to master) error {
	first, err := f.settle(ctx)
	if err != nil {
		return err
	}
	f.cfg.Logger.Info("following", "master", to.addr, "from", first)
	end := f.start(c, first, putReport)
	d := masterDecoder{}
	in := classicInput{f}
	err = f.receive(c, func(p []byte) error { return d.decode(p, in) })
	return cause(err, end())
}

// classicInput handles what a master sends.
type classicInput struct{ *ClassicFollower }

func (in classicInput) reply(epoch.Master) error {
	return fmt.Errorf("%w: a handshake reply", ErrProtocol)
}

func (in classicInput) frame(f *frame) error { return in.next(f) }

func (in classicInput) body(at message.LogOffset, p []byte) error {
	if err := in.cfg.Log.AppendRaw(at, p); err != nil {
		return fmt.Errorf("append copied bytes at %d: %w", at, err)
	}
	in.cfg.Log.FlushSoon()
	return nil
}

package ha

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

// ErrNotHeld is a start that a replica asks for and the master's log does not have: it is ahead, or retention has passed it.
var ErrNotHeld = errors.New("the requested offset is not in the log")

// alarm wakes a goroutine when a mark passes an offset. It is the goroutine's own; a wake may come late or for nothing, so
// the goroutine looks at the mark itself.
type alarm struct {
	mark  *watermark.Mark
	wake  chan struct{} // room for one
	armed atomic.Bool   // the waiter is in the mark's list
	dead  atomic.Bool   // the mark has failed: it will not move again
	w     watermark.Waiter
}

func (a *alarm) init(m *watermark.Mark, wake chan struct{}) {
	a.mark, a.wake = m, wake
	a.w.Done = func(err error) {
		if err != nil {
			a.dead.Store(true)
		}
		a.armed.Store(false)
		poke(wake)
	}
}

// above asks for a wake once the mark is above off. While an earlier wish stands this one is left out: that one comes first.
func (a *alarm) above(off message.LogOffset) {
	if a.dead.Load() || !a.armed.CompareAndSwap(false, true) {
		return
	}
	a.w.At = int64(off) + 1
	a.mark.Add(&a.w)
}

// stop ends the wish. A wake that is under way goes into the channel, where nobody reads it.
func (a *alarm) stop() {
	if a.armed.Load() {
		a.mark.Remove(&a.w)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sender is the writing half of a master's connection, for both protocols. Its goroutine owns everything but the fields at
// the top.
type sender struct {
	wake    chan struct{}     // something to look at: a request, data, a confirm offset
	request chan request      // room for one, what the replica asks for
	hands   chan epoch.Master // AutoSwitch: a reply that is owed
	next    atomic.Int64      // the next offset to be sent, -1 before the start is known
	flow    flow

	cfg    *MasterConfig
	conn   net.Conn
	epochs *epoch.File // nil: classic
	data   alarm
	confs  alarm

	head   [autoHeadSize]byte
	pair   [2][]byte
	bufs   net.Buffers // over pair; a field, so that sending allocates nothing
	timer  *time.Timer
	last   time.Time         // of the last write
	told   message.LogOffset // confirm offset that was sent
	behind time.Time         // since when a newer one waits, zero: none does
	entry  epoch.Entry       // that holds next
	until  message.LogOffset // its end
}

// request is where a replica wants to begin.
type request struct {
	at       message.LogOffset
	lastFile bool // 0 means the last file, not the whole log
}

func newSender(cfg *MasterConfig, c net.Conn, epochs *epoch.File) *sender {
	s := &sender{
		wake: make(chan struct{}, 1), request: make(chan request, 1), hands: make(chan epoch.Master, 1),
		flow: flow{limit: cfg.Flow}, cfg: cfg, conn: c, epochs: epochs, told: -1,
	}
	s.next.Store(-1)
	s.data.init(cfg.Log.Written(), s.wake)
	s.confs.init(cfg.Log.Confirmed(), s.wake)
	return s
}

// run sends until the connection fails or done is closed.
func (s *sender) run(done <-chan struct{}) error {
	s.timer = time.NewTimer(s.cfg.Heartbeat)
	defer s.timer.Stop()
	defer s.data.stop()
	defer s.confs.stop()
	s.last = time.Now()
	for {
		select {
		case <-done:
			return ErrClosed
		case m := <-s.hands:
			if err := s.write(appendReply(nil, m)); err != nil {
				return err
			}
		case r := <-s.request:
			if err := s.start(r); err != nil {
				return err
			}
			return s.transfer(done)
		}
	}
}

// start finds where to begin. A request that cannot be served is answered by one heartbeat with the nearest offset there
// is, so that the replica knows why.
func (s *sender) start(r request) error {
	low, high := s.cfg.Log.Min(), message.LogOffset(s.cfg.Log.Written().Load())
	high = max(low, high)
	at := r.at
	switch {
	case at == 0 && r.lastFile:
		at = max(low, high-high%message.LogOffset(s.cfg.Log.SegmentSize()))
	case at == 0:
		at = low
	}
	s.next.Store(int64(min(max(at, low), high)))
	if at < low || at > high {
		return errors.Join(fmt.Errorf("%w: %d was asked for, it holds %d to %d", ErrNotHeld, at, low, high), s.heartbeat())
	}
	return nil
}

func (s *sender) transfer(done <-chan struct{}) error {
	if s.epochs != nil { // the replica learns the epoch and the confirm offset at once
		if err := s.heartbeat(); err != nil {
			return err
		}
	}
	for {
		select {
		case <-done:
			return ErrClosed
		default:
		}
		sent, wait, err := s.batch()
		if err != nil {
			return err
		}
		if sent {
			continue
		}
		now := time.Now()
		if s.epochs != nil {
			if w, due := s.confirmDue(now); due {
				if err := s.heartbeat(); err != nil {
					return err
				}
				continue
			} else if w > 0 && (wait == 0 || w < wait) {
				wait = w
			}
		}
		idle := s.last.Add(s.cfg.Heartbeat).Sub(now)
		if idle <= 0 {
			if err := s.heartbeat(); err != nil {
				return err
			}
			continue
		}
		if wait == 0 {
			s.data.above(s.at())
		}
		if wait == 0 || idle < wait {
			wait = idle
		}
		s.timer.Reset(wait)
		select {
		case <-done:
			return ErrClosed
		case <-s.wake:
		case <-s.timer.C:
		}
	}
}

func (s *sender) at() message.LogOffset { return message.LogOffset(s.next.Load()) }

// confirmDue reports whether a confirm offset has to travel without data, and otherwise when it will have to, 0: none waits.
func (s *sender) confirmDue(now time.Time) (time.Duration, bool) {
	if message.LogOffset(s.cfg.Log.Confirmed().Load()) <= s.told {
		s.behind = time.Time{}
		s.confs.above(s.told)
		return 0, false
	}
	if s.behind.IsZero() {
		s.behind = now
	}
	w := s.behind.Add(confirmDelay).Sub(now)
	return w, w <= 0
}

// batch sends one frame of data if there is some. wait > 0: there is, but the flow limit is used up for so long.
func (s *sender) batch() (sent bool, wait time.Duration, err error) {
	at := s.at()
	room := message.LogOffset(s.cfg.Log.Written().Load()) - at
	if room <= 0 {
		return false, 0, nil
	}
	n := int(min(room, message.LogOffset(s.cfg.Batch)))
	if s.epochs != nil {
		s.resolve(at)
		n = int(min(message.LogOffset(n), s.until-at))
	}
	if s.flow.limit > 0 {
		if n, wait = s.flow.allow(n, time.Now()); n == 0 {
			return false, wait, nil
		}
	}
	v, err := s.cfg.Log.ViewAt(at, n)
	if err != nil {
		return false, 0, fmt.Errorf("read log for a replica: %w", err)
	}
	defer v.Release()
	b := v.Bytes()
	if len(b) == 0 {
		return false, 0, fmt.Errorf("read log for a replica: nothing at %d", at)
	}
	if err := s.frame(at, b); err != nil {
		return false, 0, err
	}
	s.next.Store(int64(at) + int64(len(b)))
	s.flow.add(len(b), s.last)
	return true, 0, nil
}

func (s *sender) heartbeat() error {
	if s.epochs != nil {
		s.resolve(s.at())
	}
	return s.frame(s.at(), nil)
}

// resolve finds the entry of the bytes at an offset. Bytes below the whole history, whose entries were too many to be
// kept, go as epoch 0.
func (s *sender) resolve(at message.LogOffset) {
	if at >= s.entry.Start && at < s.until {
		return
	}
	list := s.epochs.List()
	e, end, ok := list.Find(at)
	if !ok {
		e, end = epoch.Entry{Epoch: 0, Start: s.cfg.Log.Min()}, epoch.Unbounded
		if len(list) > 0 {
			end = list[0].Start
		}
	}
	s.entry, s.until = e, end
}

func (s *sender) frame(at message.LogOffset, body []byte) error {
	f := frame{At: at, Size: len(body)}
	if s.epochs == nil {
		return s.write(f.putClassic(s.head[:]), body)
	}
	f.Epoch, f.EpochStart = s.entry.Epoch, s.entry.Start
	f.Confirmed = message.LogOffset(s.cfg.Log.Confirmed().Load())
	s.told, s.behind = f.Confirmed, time.Time{}
	return s.write(f.putAuto(s.head[:]), body)
}

// write sends a head and perhaps a body, straight from the log's memory.
func (s *sender) write(head []byte, body ...[]byte) error {
	s.last = time.Now()
	if err := s.conn.SetWriteDeadline(s.last.Add(s.cfg.Housekeeping)); err != nil {
		return err
	}
	s.pair[0] = head
	s.bufs = s.pair[:1]
	if len(body) == 1 && len(body[0]) > 0 {
		s.pair[1] = body[0]
		s.bufs = s.pair[:2]
	}
	_, err := s.bufs.WriteTo(s.conn)
	s.pair = [2][]byte{}
	return err
}

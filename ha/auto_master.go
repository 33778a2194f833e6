package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

// Times of the talk with the controller.
const (
	askTimeout  = 3 * time.Second        // of one request; shorter than syncset.Settle
	pollSoon    = time.Second            // while the outcome of a proposal is unknown
	pollUsual   = 5 * time.Second        // syncBrokerMetadataPeriod
	checkPeriod = 500 * time.Millisecond // how often time alone may change the set
)

// AutoConfig describes an AutoMaster. Log must end where Epochs says, see epoch.File.Begin.
type AutoConfig struct {
	MasterConfig
	Self      int64       // controller id
	Epoch     int32       // of the term; the newest entry of Epochs
	Epochs    *epoch.File // history of the log
	Agreed    syncset.Agreed
	MinInSync int           // minInSyncReplicas
	AllAck    bool          // allAckInSyncStateSet
	SyncFlush bool          // the master's own share of the confirm offset is what it has flushed, not what it has written
	MaxLag    time.Duration // haMaxTimeSlaveNotCatchup
	// Alter asks the controller for another in-sync set. ErrRefused: it was looked at and will not come; any other error
	// leaves open what became of it.
	Alter func(ctx context.Context, p syncset.Proposal) (syncset.Agreed, error)
	// Poll asks the controller what the set is.
	Poll func(ctx context.Context) (syncset.Agreed, error)
}

// AutoMaster sends its log to replicas in the AutoSwitch protocol, keeps the in-sync set, and moves the confirm offset. It is
// the master of one epoch: a new epoch needs a new one.
type AutoMaster struct {
	cfg   AutoConfig
	acks  *Acks
	own   *watermark.Mark
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup // calls of Serve, the two loops, and calls from outside that publish
	check chan struct{}  // room for one: the set may have to change
	count atomic.Int64   // see InSync

	mu      sync.Mutex
	started bool
	closed  bool
	frozen  bool // nothing is published
	set     *syncset.Set
	links   map[*autoLink]struct{}
	byID    map[int64]*autoLink // the newest of each replica
	agreed  map[int64]bool      // members, as set has them
}

// autoLink is one connection. Fields below serial are guarded by AutoMaster.mu.
type autoLink struct {
	*sender
	hand   handshake // after the handshake constant
	serial uint64    // 0: before the handshake
	acked  message.LogOffset
	heard  bool
}

// NewAutoMaster is a master without replicas. Start begins the term.
func NewAutoMaster(cfg AutoConfig) (*AutoMaster, error) {
	cfg.defaults()
	cfg.MaxLag = orDefault(cfg.MaxLag, DefaultMaxLag)
	last, ok := cfg.Epochs.List().Last()
	if !ok || last.Epoch != cfg.Epoch || last.Start > cfg.Log.End() {
		return nil, fmt.Errorf("lead epoch %d: the last entry of the history is %d-%d, the log ends at %d", cfg.Epoch, last.Epoch, last.Start, cfg.Log.End())
	}
	if cfg.Self <= 0 || cfg.Alter == nil || cfg.Poll == nil {
		return nil, errors.New("lead: controller id, Alter and Poll are needed")
	}
	m := &AutoMaster{cfg: cfg, check: make(chan struct{}, 1), links: make(map[*autoLink]struct{}), byID: make(map[int64]*autoLink)}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.acks = newAcks(m.refresh)
	m.own = cfg.Log.Written()
	if cfg.SyncFlush {
		m.own = cfg.Log.Flushed()
	}
	set := syncset.Config{Self: cfg.Self, EpochStart: last.Start, MinInSync: cfg.MinInSync, AllAck: cfg.AllAck, MaxLag: cfg.MaxLag}
	m.set = syncset.New(set, cfg.Agreed, message.LogOffset(cfg.Log.Confirmed().Load()), time.Now())
	m.changedLocked()
	return m, nil
}

// Start begins the term: the confirm offset follows the rule of the set from here on.
func (m *AutoMaster) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started || m.closed {
		return
	}
	m.started = true
	m.wg.Add(2)
	go m.grow()
	go m.negotiate()
}

// Close ends the term: the confirm offset stands, the marks fail with why, all connections end. Nothing of this master
// touches the log afterwards. Twice is fine.
func (m *AutoMaster) Close(why error) {
	m.mu.Lock()
	m.closed, m.frozen = true, true
	m.set.Freeze()
	for l := range m.links {
		l.conn.Close() //nolint:errcheck // it only has to end
	}
	m.mu.Unlock()
	m.stop()
	m.acks.Fail(why)
	m.wg.Wait()
}

// Acks are the marks of this term. All is the confirm offset: held by every member if AllAck is on.
func (m *AutoMaster) Acks() *Acks { return m.acks }

// Freeze stops the confirm offset, the marks and the set: the lease has run out. Data goes on flowing.
func (m *AutoMaster) Freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen = true
	m.set.Freeze()
}

// Thaw undoes Freeze when the lease was renewed.
func (m *AutoMaster) Thaw() {
	m.update(func(time.Time) {
		if !m.closed {
			m.frozen = false
			m.set.Thaw()
		}
	})
}

// SetAgreed says what the controller's set is, unasked. Old news change nothing.
func (m *AutoMaster) SetAgreed(a syncset.Agreed) {
	m.update(func(now time.Time) { m.set.Applied(a, now) })
}

// InSync is how many members are alive, the master among them; while a change is under way, of both sets.
func (m *AutoMaster) InSync() int { return int(m.count.Load()) }

// Admit is ErrNotEnough when fewer members are alive than a message needs.
func (m *AutoMaster) Admit() error {
	if m.InSync() < m.cfg.MinInSync {
		return ErrNotEnough
	}
	return nil
}

// Members is the agreed set.
func (m *AutoMaster) Members() syncset.Agreed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set.Members()
}

// Status is the present state for administrators.
func (m *AutoMaster) Status() MasterStatus {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	st := MasterStatus{End: m.cfg.Log.End(), InSync: len(m.agreed) - 1}
	for l := range m.links {
		if l.serial == 0 {
			continue
		}
		st.Conns = append(st.Conns, ConnStatus{
			Addr: l.conn.RemoteAddr().String(), ID: l.hand.ID, Acked: l.acked, Next: l.at(), Behind: int64(st.End - l.acked),
			InSync: m.agreed[l.hand.ID], Rate: l.flow.rate(now),
		})
	}
	return st
}

// enter counts a call that may publish, so that Close waits for it; false: the term is over.
func (m *AutoMaster) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Add(1)
	return true
}

// update changes what concerns all of the set, and publishes. For rare events.
func (m *AutoMaster) update(fn func(now time.Time)) {
	if !m.enter() {
		return
	}
	defer m.wg.Done()
	m.apply(fn)
}

// apply is update for the goroutines that Close waits for anyway.
func (m *AutoMaster) apply(fn func(now time.Time)) {
	var p progress
	now := time.Now()
	m.mu.Lock()
	m.growLocked()
	fn(now)
	m.changedLocked()
	m.collectLocked(&p)
	m.mu.Unlock()
	m.publish(&p)
	poke(m.check)
}

// growLocked tells the set how far the log is. It comes before every ack, so that an ack is measured with the present end.
func (m *AutoMaster) growLocked() {
	m.set.Grow(message.LogOffset(m.own.Load()), message.LogOffset(m.cfg.Log.Written().Load()))
}

// changedLocked keeps what is derived from members and connections.
func (m *AutoMaster) changedLocked() {
	m.count.Store(int64(m.set.InSync()))
	m.agreed = make(map[int64]bool)
	for _, id := range m.set.Members().Members {
		m.agreed[id] = true
	}
}

func (m *AutoMaster) collectLocked(p *progress) {
	if m.frozen {
		return
	}
	p.all = m.set.Confirm()
	m.acks.collect(p, m.set.Acked)
}

// publish is called without the lock by goroutines that Close waits for. Readers see what is committed before producers
// hear of it.
func (m *AutoMaster) publish(p *progress) {
	if p.all > 0 {
		m.cfg.Log.SetConfirmed(p.all)
	}
	m.acks.publish(p)
}

// refresh is for a mark that is asked for the first time.
func (m *AutoMaster) refresh() {
	if !m.enter() {
		return
	}
	defer m.wg.Done()
	var p progress
	m.mu.Lock()
	m.collectLocked(&p)
	m.mu.Unlock()
	m.publish(&p)
}

// grow moves the confirm offset with the master's own share: for a master that is alone, or slower than its replicas.
func (m *AutoMaster) grow() {
	defer m.wg.Done()
	var a alarm
	wake := make(chan struct{}, 1)
	a.init(m.own, wake)
	defer a.stop()
	for {
		var p progress
		m.mu.Lock()
		off := message.LogOffset(m.own.Load())
		m.growLocked()
		m.collectLocked(&p)
		m.mu.Unlock()
		m.publish(&p)
		a.above(off)
		select {
		case <-m.ctx.Done():
			return
		case <-wake:
		}
	}
}

// negotiate keeps the set as it should be, with one request to the controller at a time. (I8)
func (m *AutoMaster) negotiate() {
	defer m.wg.Done()
	timer := time.NewTimer(checkPeriod)
	defer timer.Stop()
	polled := time.Now()
	var unsure time.Time // since when the outcome of a proposal is unknown, zero: it is not
	for {
		now := time.Now()
		every := pollUsual
		if !unsure.IsZero() {
			every = pollSoon
		}
		if now.Sub(polled) >= every {
			polled = now
			if m.poll(now) && now.Sub(unsure) >= syncset.Settle {
				unsure = time.Time{}
			}
		}
		switch err := m.propose(); {
		case err == nil:
		case errors.Is(err, ErrRefused): // perhaps because the controller has moved on
			polled = time.Now()
			m.poll(polled)
		default:
			unsure = time.Now()
		}
		timer.Reset(checkPeriod)
		select {
		case <-m.ctx.Done():
			return
		case <-m.check:
		case <-timer.C:
		}
	}
}

// propose asks for the set that should be, if it is not the one there is. The error is that of Alter.
func (m *AutoMaster) propose() error {
	var p progress
	m.mu.Lock()
	m.growLocked()
	want, ok := m.set.Propose(time.Now())
	if ok {
		m.changedLocked()
	}
	m.collectLocked(&p)
	m.mu.Unlock()
	m.publish(&p)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
	got, err := m.cfg.Alter(ctx, want)
	cancel()
	if err == nil && got.SetEpoch <= want.SetEpoch {
		err = fmt.Errorf("the answer has epoch %d", got.SetEpoch) // which says nothing
	}
	m.apply(func(now time.Time) {
		switch {
		case err == nil:
			m.set.Applied(got, now)
		case errors.Is(err, ErrRefused):
			m.set.Refused(now)
		default:
			m.set.Unknown(now)
		}
	})
	if err != nil {
		if m.ctx.Err() == nil {
			m.cfg.Logger.Warn("change of the in-sync set", "want", want.Members, "setEpoch", want.SetEpoch, "err", err)
		}
		return err
	}
	m.cfg.Logger.Info("in-sync set", "members", got.Members, "setEpoch", got.SetEpoch)
	return nil
}

// poll asks what the set is and reports whether there was an answer.
func (m *AutoMaster) poll(asked time.Time) bool {
	ctx, cancel := context.WithTimeout(m.ctx, askTimeout)
	got, err := m.cfg.Poll(ctx)
	cancel()
	if err != nil {
		if m.ctx.Err() == nil {
			m.cfg.Logger.Warn("ask for the in-sync set", "err", err)
		}
		return false
	}
	m.apply(func(now time.Time) { m.set.Polled(got, asked, now) })
	return true
}

// Serve runs a connection until it ends. The caller's goroutine reads, another one writes. A connection without a handshake
// changes nothing. (I27)
func (m *AutoMaster) Serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // whatever was to be said has been said
	l := &autoLink{sender: newSender(&m.cfg.MasterConfig, c, m.cfg.Epochs)}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.links[l] = struct{}{}
	m.wg.Add(1)
	m.mu.Unlock()
	defer m.wg.Done()

	done := make(chan struct{})
	wrote := make(chan error, 1)
	go func() {
		err := l.run(done)
		c.Close() //nolint:errcheck // ends the reader
		wrote <- err
	}()
	err := m.read(l)
	c.Close() //nolint:errcheck // ends the writer
	close(done)
	m.leave(l)
	if err = cause(err, <-wrote); l.serial != 0 {
		m.cfg.Logger.Info("replica disconnected", "replica", l.hand.ID, "peer", c.RemoteAddr(), "err", err)
	}
}

func (m *AutoMaster) leave(l *autoLink) {
	m.mu.Lock()
	delete(m.links, l)
	if l.serial == 0 {
		m.mu.Unlock()
		return
	}
	if m.byID[l.hand.ID] == l {
		delete(m.byID, l.hand.ID)
	}
	m.mu.Unlock()
	m.apply(func(time.Time) { m.set.Disconnect(l.hand.ID, l.serial) })
}

func (m *AutoMaster) read(l *autoLink) error {
	d := slaveDecoder{auto: true}
	buf := make([]byte, 1<<10)
	until := time.Now().Add(handshakeTimeout)
	for {
		if d.hands > 0 {
			until = time.Now().Add(m.cfg.Housekeeping)
		}
		if err := l.conn.SetReadDeadline(until); err != nil {
			return err
		}
		n, err := l.conn.Read(buf)
		if err != nil {
			return err
		}
		hands, acks := d.hands, d.acks
		if err := d.decode(buf[:n]); err != nil {
			return err
		}
		if d.hands > hands {
			if err := m.greet(l, d.hand, hands == 0); err != nil {
				return err
			}
		}
		if d.acks == acks {
			continue
		}
		if acks == 0 {
			l.request <- request{d.first, d.hand.LastFile}
			if err := m.ack(l, d.first); err != nil {
				return err
			}
		}
		if err := m.ack(l, d.last); err != nil {
			return err
		}
	}
}

// greet takes a handshake: the replica's older connection, if there is one, ends.
func (m *AutoMaster) greet(l *autoLink, h handshake, first bool) error {
	if h.ID == m.cfg.Self {
		return fmt.Errorf("%w: handshake of this very broker", ErrProtocol)
	}
	if first {
		m.cfg.Logger.Info("replica connected", "replica", h.ID, "peer", l.conn.RemoteAddr(), "learner", h.Learner)
		m.apply(func(now time.Time) {
			if old := m.byID[h.ID]; old != nil {
				old.conn.Close() //nolint:errcheck // it only has to end
			}
			m.byID[h.ID] = l
			l.hand = h
			l.serial = m.set.Connect(h.ID, h.Learner, now)
		})
	}
	reply := epoch.Master{Epochs: m.cfg.Epochs.List().Newest(), Epoch: m.cfg.Epoch, End: message.LogOffset(m.cfg.Log.Written().Load())}
	select {
	case l.hands <- reply:
		return nil
	default: // RocketMQ's slave repeats a handshake only after seconds without an answer
		return fmt.Errorf("%w: handshakes without waiting for the reply", ErrProtocol)
	}
}

// ack takes an ack. It allocates nothing unless the set has to change.
func (m *AutoMaster) ack(l *autoLink, off message.LogOffset) error {
	var p progress
	m.mu.Lock()
	m.growLocked()
	err := m.set.Ack(l.hand.ID, l.serial, off, time.Now())
	if err == nil {
		l.acked = max(l.acked, off)
	}
	candidate := !l.hand.Learner && !m.agreed[l.hand.ID]
	if first := !l.heard; first {
		l.heard, candidate = true, true
		m.changedLocked()
	}
	m.collectLocked(&p)
	m.mu.Unlock()
	m.publish(&p)
	if candidate {
		poke(m.check)
	}
	return err
}

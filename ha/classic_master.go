package ha

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/message"
)

// settleTime is how long behind the arrival of a newer connection from the same address an older one must still speak to
// count as another replica.
const settleTime = time.Second

// ClassicConfig describes a ClassicMaster.
type ClassicConfig struct {
	MasterConfig
	MaxGap int64 // haMaxGapNotInSync: a replica that is further behind is not in sync
}

// ClassicMaster sends its log to slaves that connect, in the classic protocol. It knows nothing of them but their addresses:
// slaves of one address count as several only while each of them keeps reporting.
type ClassicMaster struct {
	cfg  ClassicConfig
	acks *Acks
	done chan struct{}
	wg   sync.WaitGroup // calls of Serve

	mu     sync.Mutex
	closed bool
	links  []*classicLink // in order of arrival
}

// classicLink is one connection; its fields are guarded by ClassicMaster.mu.
type classicLink struct {
	*sender
	host  string
	acked message.LogOffset // -1: has not reported yet
	doubt time.Time         // reports before that do not show that it is a replica of its own
	sure  bool              // and it has reported since
}

// NewClassicMaster is a master without slaves.
func NewClassicMaster(cfg ClassicConfig) *ClassicMaster {
	cfg.defaults()
	cfg.MaxGap = orDefault(cfg.MaxGap, DefaultMaxGap)
	m := &ClassicMaster{cfg: cfg, done: make(chan struct{})}
	m.acks = newAcks(m.refresh)
	return m
}

// Acks are the marks of this master. All is what every slave in sync holds; without one it does not move.
func (m *ClassicMaster) Acks() *Acks { return m.acks }

// Close ends all connections, waits for them and fails the marks with why. Twice is fine.
func (m *ClassicMaster) Close(why error) {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	for _, l := range m.links {
		l.conn.Close() //nolint:errcheck // it only has to end
	}
	m.mu.Unlock()
	if first {
		close(m.done)
	}
	m.acks.Fail(why)
	m.wg.Wait()
}

// Serve runs a connection until it ends. The caller's goroutine reads, another one writes.
func (m *ClassicMaster) Serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // whatever was to be said has been said
	l := &classicLink{sender: newSender(&m.cfg.MasterConfig, c, nil), host: host(c.RemoteAddr()), acked: -1, sure: true}
	if !m.join(l) {
		return
	}
	defer m.wg.Done()
	log := m.cfg.Logger.With("slave", c.RemoteAddr())
	log.Info("slave connected")
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
	log.Info("slave disconnected", "err", cause(err, <-wrote))
}

// cause picks the error that explains the end of a connection from those of its two goroutines: the one that was not
// caused by the other's closing it.
func cause(read, write error) error {
	if read == nil || errors.Is(read, net.ErrClosed) || errors.Is(read, io.ErrClosedPipe) {
		return write
	}
	return read
}

func (m *ClassicMaster) join(l *classicLink) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	now := time.Now()
	for _, o := range m.links {
		if o.host == l.host {
			o.doubt, o.sure = now.Add(settleTime), false
		}
	}
	m.links = append(m.links, l)
	m.wg.Add(1)
	return true
}

func (m *ClassicMaster) leave(l *classicLink) {
	m.mu.Lock()
	m.links = slices.DeleteFunc(m.links, func(o *classicLink) bool { return o == l })
	m.mu.Unlock()
}

func (m *ClassicMaster) read(l *classicLink) error {
	var d slaveDecoder
	buf := make([]byte, 1<<10)
	for {
		if err := l.conn.SetReadDeadline(time.Now().Add(m.cfg.Housekeeping)); err != nil {
			return err
		}
		n, err := l.conn.Read(buf)
		if err != nil {
			return err
		}
		before := d.acks
		if err := d.decode(buf[:n]); err != nil {
			return err
		}
		if d.acks == before {
			continue
		}
		// The first report asks; only when it can be served does it say what the slave holds.
		if top := message.LogOffset(m.cfg.Log.Written().Load()); before > 0 && d.last > top {
			return fmt.Errorf("%w: %d, the end is %d", syncset.ErrAboveEnd, d.last, top)
		}
		if before == 0 {
			l.request <- request{at: d.first, lastFile: true}
			if top := message.LogOffset(m.cfg.Log.Written().Load()); d.last > top || d.first > 0 && d.first < m.cfg.Log.Min() {
				continue // the writer says so to the slave and ends the connection
			}
		}
		m.ack(l, d.last)
	}
}

func (m *ClassicMaster) ack(l *classicLink, off message.LogOffset) {
	now := time.Now()
	var p progress
	m.mu.Lock()
	l.acked = max(l.acked, off)
	l.sure = l.sure || !now.Before(l.doubt)
	m.collectLocked(&p)
	m.mu.Unlock()
	m.acks.publish(&p)
}

func (m *ClassicMaster) refresh() {
	var p progress
	m.mu.Lock()
	m.collectLocked(&p)
	m.mu.Unlock()
	m.acks.publish(&p)
}

// collectLocked takes the state of the marks.
func (m *ClassicMaster) collectLocked(p *progress) {
	var room [16]message.LogOffset
	held := room[:0]
	end := m.cfg.Log.End()
	all := message.LogOffset(-1)
	for _, l := range m.links {
		if l.acked < 0 || !l.sure {
			continue
		}
		held = append(held, l.acked)
		if m.nearLocked(l, end) && (all < 0 || l.acked < all) {
			all = l.acked
		}
	}
	slices.Sort(held)
	p.all = max(all, 0)
	m.acks.collect(p, func(n int) (message.LogOffset, bool) {
		if n-1 > len(held) {
			return 0, false
		}
		return held[len(held)-(n-1)], true
	})
}

func (m *ClassicMaster) nearLocked(l *classicLink, end message.LogOffset) bool {
	return l.acked >= 0 && int64(end-l.acked) < m.cfg.MaxGap
}

// InSync is how many replicas are in sync, the master among them.
func (m *ClassicMaster) InSync() int {
	end := m.cfg.Log.End()
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 1
	for _, l := range m.links {
		if l.sure && m.nearLocked(l, end) {
			n++
		}
	}
	return n
}

// Status is the present state for administrators.
func (m *ClassicMaster) Status() MasterStatus {
	now := time.Now()
	st := MasterStatus{End: m.cfg.Log.End(), InSync: m.InSync() - 1}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		st.Conns = append(st.Conns, ConnStatus{
			Addr: l.conn.RemoteAddr().String(), Acked: max(l.acked, 0), Next: l.at(), Behind: int64(st.End - max(l.acked, 0)),
			InSync: l.sure && m.nearLocked(l, st.End), Rate: l.flow.rate(now),
		})
	}
	return st
}

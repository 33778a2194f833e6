package ha

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/pipenet"
)

const classicAddr = "127.0.0.1:10912"

type classicPair struct {
	net    *pipenet.Network
	server *Server
	master *ClassicMaster
	log    *testLog
}

func newClassic(t *testing.T, cfg ClassicConfig) *classicPair {
	p := &classicPair{net: pipenet.New(), log: newLog(t, testSegment, 500*time.Millisecond)}
	cfg.Log, cfg.Logger = p.log, quietly
	p.master = NewClassicMaster(cfg)
	var err error
	p.server, err = NewServer(ServerConfig{Addr: classicAddr, Listen: p.net.Listen, Logger: quietly})
	require.NoError(t, err)
	p.server.SetMaster(p.master)
	p.server.Start()
	return p
}

func (p *classicPair) close(t *testing.T) {
	p.master.Close(errDemoted)
	require.NoError(t, p.server.Close())
}

func (p *classicPair) slave(t *testing.T, l *testLog, flushed bool) *ClassicFollower {
	f := NewClassicFollower(FollowerConfig{Log: l, Dial: p.net.Dial, AckFlushed: flushed, Logger: quietly})
	f.SetMaster(classicAddr)
	f.Start()
	return f
}

func TestClassicCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		l, m := newLog(t, testSegment, time.Second), newLog(t, testSegment, 100*time.Millisecond)
		f, g := p.slave(t, l, false), p.slave(t, m, true)
		defer f.Close()
		defer g.Close()
		synctest.Wait()
		end := p.log.fill(t, 40, "a")
		wait(t, p.master.Acks().Mark(2), end)
		require.LessOrEqual(t, m.Flushed().Load(), m.Written().Load())
		time.Sleep(3 * time.Second) // two slaves of one address count as two once both have spoken
		end = p.log.fill(t, 5, "b")
		start := time.Now()
		wait(t, p.master.Acks().Mark(3), end)
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond, "the slower one flushes first")
		require.EqualValues(t, end, m.Flushed().Load())
		require.EqualValues(t, end, p.master.Acks().All().Load())
		require.Equal(t, 3, p.master.InSync())
		same(t, p.log, l, end)
		same(t, p.log, m, end)
		time.Sleep(time.Minute) // heartbeats (I26)
		st := p.master.Status()
		require.Equal(t, 2, st.InSync)
		require.Len(t, st.Conns, 2)
		for _, c := range st.Conns {
			require.True(t, c.InSync)
			require.Equal(t, end, c.Acked)
			require.Equal(t, end, c.Next)
		}
		fs := f.Status()
		require.True(t, fs.Connected)
		require.Less(t, time.Since(fs.Read), 6*time.Second)
		require.Less(t, time.Since(fs.Wrote), 6*time.Second)
	})
}

// TestClassicLastFile: a blank slave gets the last file only; a slave that comes back continues, also in half a record.
func TestClassicLastFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		end := p.log.fill(t, 60, "a")
		l := newLog(t, testSegment, time.Second)
		f := p.slave(t, l, false)
		until(t, time.Second, func() bool { return l.End() == end })
		require.Equal(t, end-end%testSegment, l.Min())
		same(t, p.log, l, end)
		f.Close()

		half := newLog(t, testSegment, time.Second)
		require.NoError(t, half.AppendRaw(0, p.log.bytes(t, 0, 333)))
		f = p.slave(t, half, false)
		defer f.Close()
		until(t, time.Second, func() bool { return half.End() == end })
		same(t, p.log, half, end)
	})
}

// TestClassicDiverged: logs that do not continue each other stay as they are.
func TestClassicDiverged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		p.log.fill(t, 5, "a")
		l := newLog(t, testSegment, time.Second)
		was := l.fill(t, 9, "other")
		f := p.slave(t, l, false)
		defer f.Close()
		until(t, time.Second, func() bool { return errors.Is(f.Status().Err, ErrAhead) })
		time.Sleep(time.Minute)
		require.ErrorIs(t, f.Status().Err, ErrAhead)
		require.Equal(t, was, l.End())
		require.Empty(t, l.cuts)
		require.Zero(t, p.master.Acks().Mark(2).Load(), "what the master does not have is nobody's ack (I14)")

		end := p.log.fill(t, 60, "b")
		require.NoError(t, p.log.Flush(end))
		_, err := p.log.DropBefore(testSegment, 100)
		require.NoError(t, err)
		require.EqualValues(t, testSegment, p.log.Min())
		old := newLog(t, testSegment, time.Second)
		old.fill(t, 1, "a")
		g := p.slave(t, old, false)
		defer g.Close()
		until(t, time.Second, func() bool { return errors.Is(g.Status().Err, ErrGap) })
		require.Less(t, old.End(), end)
	})
}

// TestClassicRedial: a master that comes back is found, another address at once.
func TestClassicRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		end := p.log.fill(t, 5, "a")
		l := newLog(t, testSegment, time.Second)
		f := NewClassicFollower(FollowerConfig{Log: l, Dial: p.net.Dial, Logger: quietly})
		defer f.Close()
		f.Start()
		f.Start()
		f.SetMaster("127.0.0.9:1")
		time.Sleep(time.Minute)
		require.Error(t, f.Status().Err)
		start := time.Now()
		f.SetMaster(classicAddr)
		until(t, time.Second, func() bool { return l.End() == end })
		require.LessOrEqual(t, time.Since(start), 2*time.Millisecond)

		p.server.SetMaster(nil)
		p.master.Close(errDemoted)
		require.ErrorIs(t, p.master.Acks().Mark(2).Err(), errDemoted)
		time.Sleep(time.Minute)
		require.False(t, f.Status().Connected)
		m := NewClassicMaster(ClassicConfig{MasterConfig: MasterConfig{Log: p.log, Logger: quietly}})
		p.server.SetMaster(m)
		end = p.log.fill(t, 5, "b")
		until(t, 6*time.Second, func() bool { return l.End() == end })
		m.Close(errDemoted)
	})
}

// TestClassicFlow: haFlowControlEnable.
func TestClassicFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{MasterConfig: MasterConfig{Flow: 1000}})
		defer p.close(t)
		end := p.log.fill(t, 20, "a")
		l := newLog(t, testSegment, time.Second)
		f := p.slave(t, l, false)
		defer f.Close()
		start := time.Now()
		until(t, time.Minute, func() bool { return l.End() == end })
		want := time.Duration((end-l.Min())/1000) * time.Second
		require.InDelta(t, want.Seconds(), time.Since(start).Seconds(), 1.1)
		require.InDelta(t, 1000, float64(p.master.Status().Conns[0].Rate), 100)
	})
}

// TestClassicBadSlave: bogus acks and silence end a connection and count for nothing. (I14, I26)
func TestClassicBadSlave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		end := p.log.fill(t, 5, "a")
		mark := p.master.Acks().Mark(2)
		dial := func(reports ...int64) (net.Conn, chan []byte) {
			c, err := p.net.Dial(t.Context(), "tcp", classicAddr)
			require.NoError(t, err)
			got := make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(c)
				got <- b
			}()
			for _, r := range reports {
				if _, err = c.Write(binary.BigEndian.AppendUint64(nil, uint64(r))); err != nil {
					break // closed on the way
				}
				synctest.Wait()
			}
			return c, got
		}
		_, got := dial(int64(end) + 1)
		require.Equal(t, frame{At: end}, *decodeClassic(t, <-got), "one heartbeat says where the log ends")
		_, got = dial(0, int64(end)+1)
		<-got
		require.Zero(t, mark.Load())
		_, got = dial(-7)
		<-got
		start := time.Now()
		_, got = dial(int64(end) - 1)
		require.EqualValues(t, end-1, mark.Load())
		<-got
		require.Equal(t, DefaultHousekeeping, time.Since(start))
		// A slave that comes again while its old connection still seems alive is not two.
		_, got = dial(int64(end))
		_, again := dial(int64(end))
		require.Zero(t, p.master.Acks().Mark(3).Load())
		require.Equal(t, 2, p.master.InSync())
		<-got
		<-again
	})
}

func decodeClassic(t *testing.T, b []byte) *frame {
	r := &recorder{}
	d := masterDecoder{}
	require.NoError(t, d.decode(b, r))
	require.Len(t, r.frames, 1)
	return &r.frames[0]
}

// TestClassicStalledSlave: one that does not read is dropped and holds up nobody.
func TestClassicStalledSlave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newClassic(t, ClassicConfig{})
		defer p.close(t)
		end := p.log.fill(t, 5, "a")
		c, err := p.net.Dial(t.Context(), "tcp", classicAddr)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write(make([]byte, 8))
		require.NoError(t, err)
		l := newLog(t, testSegment, time.Second)
		f := p.slave(t, l, false)
		defer f.Close()
		until(t, time.Second, func() bool { return l.End() == end })
		time.Sleep(DefaultHousekeeping)
		synctest.Wait()
		require.Len(t, p.master.Status().Conns, 1)
	})
}

func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := pipenet.New()
		log := newLog(t, testSegment, time.Second)
		allowed := false
		s, err := NewServer(ServerConfig{
			Addr: classicAddr, Listen: network.Listen, MaxConns: 5, Logger: quietly,
			Allow: func(a net.Addr) bool { return allowed && host(a) == "127.0.0.1" },
		})
		require.NoError(t, err)
		require.Equal(t, classicAddr, s.Addr().String())
		s.Start()
		s.Start()
		alive := func() bool {
			c, err := network.Dial(context.Background(), "tcp", classicAddr)
			require.NoError(t, err)
			synctest.Wait()
			if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				return false
			}
			_, err = c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		m := NewClassicMaster(ClassicConfig{MasterConfig: MasterConfig{Log: log, Logger: quietly}})
		allowed = true
		require.False(t, alive(), "no master")
		s.SetMaster(m)
		allowed = false
		require.False(t, alive(), "not allowed")
		allowed = true
		for range 4 {
			require.True(t, alive())
		}
		require.False(t, alive(), "too many of one address")
		time.Sleep(DefaultHousekeeping + time.Second)
		require.True(t, alive(), "silent ones are gone")
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.Empty(t, m.Status().Conns)
		m.Close(errDemoted)
		m.Close(errDemoted)
		_, err = NewServer(ServerConfig{Addr: "nonsense"})
		require.Error(t, err)
	})
}

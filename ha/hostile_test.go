package ha

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/message"
)

// scripted is a connection whose peer says something whatever it hears, and then is gone.
type scripted struct {
	net.Conn
	say  []byte
	step int
}

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.say) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(p[:min(len(p), s.step)], s.say)
	s.say = s.say[n:]
	return n, nil
}

func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 9} }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }

func seeds(f *testing.F, add func(auto bool, fromMaster, fromSlave []byte)) {
	for _, kind := range []string{"classic", "autoswitch"} {
		for _, file := range goldenConns(f, kind) {
			_, m, s := goldenStreams(f, filepath.Clean(file))
			add(kind == "autoswitch", m[:min(len(m), 4096)], s[:min(len(s), 4096)])
		}
	}
}

// FuzzHostileMaster lets a follower listen to anything: it appends only what continues its log under a known epoch, keeps
// what is committed, and never confirms above its end.
func FuzzHostileMaster(f *testing.F) {
	seeds(f, func(auto bool, m, _ []byte) { f.Add(auto, m, uint16(100)) })
	f.Fuzz(func(t *testing.T, auto bool, stream []byte, step uint16) {
		l := newLog(t, 64<<10, time.Hour)
		end := l.fill(t, 5, "a")
		c := &scripted{say: stream, step: int(step) + 1}
		if !auto {
			fo := NewClassicFollower(FollowerConfig{Log: l, Logger: quietly})
			fo.buf = make([]byte, readBuffer)
			require.Error(t, fo.follow(t.Context(), c, master{}))
			fo.Close()
			require.GreaterOrEqual(t, l.End(), end, "never cuts")
			return
		}
		file := tempEpochs(t, l)
		require.NoError(t, file.Append(epoch.Entry{Epoch: 1, Start: 0}))
		half := end / 2
		l.SetConfirmed(half)
		was := l.bytes(t, 0, half)
		l.before = func(at message.LogOffset, n int) {
			_, _, ok := file.List().Find(at)
			require.True(t, ok)
		}
		fo, err := NewAutoFollower(AutoFollowerConfig{FollowerConfig: FollowerConfig{Log: l, Logger: quietly}, ID: 2, Epochs: file})
		require.NoError(t, err)
		fo.buf = make([]byte, readBuffer)
		require.Error(t, fo.follow(t.Context(), c, master{}))
		fo.Close()
		require.NoError(t, file.List().Validate())
		require.LessOrEqual(t, l.Confirmed().Load(), int64(l.End()))
		// The cut goes back to a boundary, so the record that spans the committed offset may be incomplete.
		n := min(half, l.End())
		require.Equal(t, was[:n], l.bytes(t, 0, n))
	})
}

// FuzzHostileSlave lets a master listen to anything: what it calls copied never passes its end, and a peer without a
// proper handshake changes nothing.
func FuzzHostileSlave(f *testing.F) {
	seeds(f, func(auto bool, _, s []byte) { f.Add(auto, s, uint16(100)) })
	f.Fuzz(func(t *testing.T, auto bool, stream []byte, step uint16) {
		l := newLog(t, 64<<10, time.Hour)
		end := l.fill(t, 5, "a")
		c := &scripted{say: stream, step: int(step) + 1}
		if !auto {
			m := NewClassicMaster(ClassicConfig{MasterConfig: MasterConfig{Log: l, Logger: quietly}})
			mark := m.Acks().Mark(2)
			m.Serve(c)
			m.Close(errDemoted)
			require.LessOrEqual(t, mark.Load(), int64(end))
			return
		}
		file := tempEpochs(t, l)
		require.NoError(t, file.Append(epoch.Entry{Epoch: 1, Start: 0}))
		ctl := &controller{epoch: 1, agreed: syncset.Agreed{Members: []int64{9}, SetEpoch: 1}}
		m, err := NewAutoMaster(AutoConfig{
			MasterConfig: MasterConfig{Log: l, Logger: quietly}, Self: 9, Epoch: 1, Epochs: file, Agreed: ctl.agreed, MinInSync: 1, AllAck: true,
			Alter: ctl.alter(1), Poll: ctl.poll,
		})
		require.NoError(t, err)
		mark := m.Acks().Mark(2)
		m.Start()
		m.Serve(c)
		require.Empty(t, m.Status().Conns)
		m.Close(errDemoted)
		require.LessOrEqual(t, mark.Load(), int64(end))
		require.LessOrEqual(t, l.Confirmed().Load(), int64(end))
	})
}

package ha

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/ha/epoch"
	"github.com/epochmq/epochmq/ha/syncset"
	"github.com/epochmq/epochmq/internal/pipenet"
	"github.com/epochmq/epochmq/message"
)

const goldenSegment = 262144

// goldenLog is the log that RocketMQ's brokers shared, put together from the streams of its master.
type goldenLog struct {
	kind  string
	bytes []byte
	reply map[string]epoch.Master // by connection
}

// collector puts the bodies of a stream into a log.
type collector struct {
	t  *testing.T
	to *goldenLog
	m  epoch.Master
	f  []frame
}

func (c *collector) reply(m epoch.Master) error { c.m = m; return nil }
func (c *collector) frame(f *frame) error       { c.f = append(c.f, *f); return nil }

func (c *collector) body(at message.LogOffset, p []byte) error {
	have := len(c.to.bytes)
	require.LessOrEqual(c.t, int(at), have, "no gap between connections")
	n := min(have-int(at), len(p))
	require.True(c.t, bytes.Equal(c.to.bytes[at:int(at)+n], p[:n]))
	c.to.bytes = append(c.to.bytes, p[n:]...)
	return nil
}

func newGolden(t *testing.T, kind string, conns ...string) *goldenLog {
	g := &goldenLog{kind: kind, reply: make(map[string]epoch.Master)}
	for _, name := range conns {
		_, stream, _ := goldenStreams(t, filepath.Join("testdata", kind, name+".jsonl"))
		d, c := masterDecoder{auto: kind == "autoswitch"}, &collector{t: t, to: g}
		require.NoError(t, d.decode(stream, c))
		g.reply[name] = c.m
		if name == "conn01" && len(conns) > 1 && kind == "autoswitch" {
			g.bytes = g.bytes[:203956] // half a record above was on its way when the master was killed
		}
	}
	return g
}

// session is one golden connection: what was said, and what the slave had before.
type session struct {
	fromMaster, fromSlave []byte
	frames                []frame
	first                 message.LogOffset // what the slave asks for
	rest                  int               // where the ack behind the first one begins in fromSlave
	hand                  handshake
	end                   message.LogOffset // of the last body
}

func (g *goldenLog) session(t *testing.T, name string) session {
	auto := g.kind == "autoswitch"
	_, fromMaster, fromSlave := goldenStreams(t, filepath.Join("testdata", g.kind, name+".jsonl"))
	s := session{fromMaster: fromMaster, fromSlave: fromSlave}
	d, c := masterDecoder{auto: auto}, &collector{t: t, to: g}
	require.NoError(t, d.decode(fromMaster, c))
	s.frames = c.f
	for _, f := range c.f {
		s.end = max(s.end, f.At+message.LogOffset(f.Size))
	}
	e := slaveDecoder{auto: auto}
	require.NoError(t, e.decode(fromSlave))
	s.first, s.hand = e.first, e.hand
	s.rest = reportSize
	if auto {
		s.rest = handshakeSize + ackSize
	}
	return s
}

// before is a log as it was when a connection began.
func (g *goldenLog) before(t *testing.T, end message.LogOffset) *testLog {
	l := newLog(t, goldenSegment, time.Second)
	if end > 0 {
		require.NoError(t, l.AppendRaw(0, g.bytes[:end]))
	}
	return l
}

// play is RocketMQ's master on a connection: it answers the handshake, waits for the first ack, and says the rest.
func play(t *testing.T, network *pipenet.Network, addr string, auto bool, s session) (acks chan slaveDecoder) {
	lis, err := network.Listen(addr)
	require.NoError(t, err)
	acks = make(chan slaveDecoder, 1)
	go func() {
		c, err := lis.Accept()
		_ = lis.Close()
		if err != nil {
			return
		}
		defer c.Close()
		heard := make(chan slaveDecoder, 1)
		first := make(chan struct{})
		var once sync.Once
		say := s.fromMaster
		if auto {
			b := make([]byte, handshakeSize)
			_, _ = io.ReadFull(c, b)
			require.Equal(t, s.fromSlave[:handshakeSize], b, "the handshake is RocketMQ's")
			n := replyHeadSize + replyEntrySize*int(say[7]/replyEntrySize)
			_, _ = c.Write(say[:n])
			say = say[n:]
		}
		go func() {
			d := slaveDecoder{auto: auto, hands: 1}
			for b := make([]byte, 100); ; {
				n, err := c.Read(b)
				if err != nil {
					heard <- d
					return
				}
				require.NoError(t, d.decode(b[:n]))
				if d.acks > 0 {
					once.Do(func() { close(first) })
				}
			}
		}()
		<-first
		for len(say) > 0 { // in pieces that fit nothing
			n := min(len(say), 7777)
			if _, err := c.Write(say[:n]); err != nil {
				break
			}
			say = say[n:]
		}
		time.Sleep(time.Second)
		_ = c.Close()
		acks <- <-heard
	}()
	return acks
}

// TestGoldenFollower lets a follower copy from a recorded RocketMQ master.
func TestGoldenFollower(t *testing.T) {
	all := newGolden(t, "autoswitch", "conn01", "conn04", "conn05")
	for name, before := range map[string]epoch.List{
		"conn01": nil, "conn03": {{Epoch: 1, Start: 0}}, "conn04": {{Epoch: 1, Start: 0}}, "conn05": {{Epoch: 1, Start: 0}, {Epoch: 2, Start: 203956}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := all
				if name == "conn01" {
					all = newGolden(t, "autoswitch", name)
				}
				s := all.session(t, name)
				l := all.before(t, s.first)
				if name == "conn04" { // the killed master, with bytes that nobody else has
					l.fill(t, 30, "lost")
				}
				file := tempEpochs(t, l)
				for _, e := range before {
					require.NoError(t, file.Append(e))
				}
				l.before = func(at message.LogOffset, n int) {
					_, _, ok := file.List().Find(at)
					require.True(t, ok)
				}
				network := pipenet.New()
				f, err := NewAutoFollower(AutoFollowerConfig{
					FollowerConfig: FollowerConfig{Log: l, Dial: network.Dial, Logger: quietly}, ID: s.hand.ID, Learner: s.hand.Learner, Epochs: file,
				})
				require.NoError(t, err)
				defer f.Close()
				acks := play(t, network, "127.0.0.1:19541", true, s)
				f.SetMaster("127.0.0.1:19541", s.frames[0].Epoch)
				f.Start()
				d := <-acks
				require.Equal(t, s.first, d.first, "what is asked for")
				require.Equal(t, s.end, d.last, "what is acknowledged at the end")
				require.Equal(t, s.end, l.End())
				require.True(t, bytes.Equal(all.bytes[:s.end], l.bytes(t, 0, s.end)))
				last := s.frames[len(s.frames)-1]
				require.EqualValues(t, min(last.Confirmed, s.end), l.Confirmed().Load())
				want := epoch.List{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 203956}, {Epoch: 3, Start: 297979}}
				require.Equal(t, want[:len(file.List())], file.List())
				require.Equal(t, last.Epoch, file.List().LastEpoch())
				if name == "conn04" {
					require.Equal(t, []message.LogOffset{203956}, l.cuts)
				} else {
					require.Empty(t, l.cuts)
				}
			})
		})
	}
	classic := newGolden(t, "classic", "conn01", "conn02")
	for _, name := range []string{"conn01", "conn02"} {
		t.Run("classic "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := classic.session(t, name)
				l := classic.before(t, s.first)
				network := pipenet.New()
				f := NewClassicFollower(FollowerConfig{Log: l, Dial: network.Dial, Logger: quietly})
				defer f.Close()
				acks := play(t, network, "127.0.0.1:19541", false, s)
				f.SetMaster("127.0.0.1:19541")
				f.Start()
				d := <-acks
				require.Equal(t, s.first, d.first)
				require.Equal(t, s.end, d.last)
				require.True(t, bytes.Equal(classic.bytes[:s.end], l.bytes(t, 0, s.end)))
			})
		})
	}
}

// copier is RocketMQ's slave on a connection: it says what was recorded, and keeps what it hears.
type copier struct {
	net.Conn
	d    masterDecoder
	log  goldenLog
	rec  *collector
	from message.LogOffset
}

func newCopier(t *testing.T, c net.Conn, auto bool, had []byte) *copier {
	k := &copier{Conn: c, d: masterDecoder{auto: auto}, log: goldenLog{bytes: bytes.Clone(had)}}
	k.rec = &collector{t: t, to: &k.log}
	return k
}

// hear reads until the copy ends at an offset, or, below 0, until the handshake was answered.
func (k *copier) hear(t *testing.T, end int) {
	for b := make([]byte, 1<<16); len(k.log.bytes) < end || end < 0 && !k.d.replied; {
		n, err := k.Read(b)
		require.NoError(t, err)
		require.NoError(t, k.d.decode(b[:n], k.rec))
	}
}

// TestGoldenMaster lets a recorded RocketMQ slave copy from a master.
func TestGoldenMaster(t *testing.T) {
	all := newGolden(t, "autoswitch", "conn01", "conn03", "conn04", "conn05")
	for _, name := range []string{"conn01", "conn03", "conn04", "conn05"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := all
				if name == "conn01" {
					all = newGolden(t, "autoswitch", name)
				}
				s, reply := all.session(t, name), all.reply[name]
				l := all.before(t, reply.End)
				file := tempEpochs(t, l)
				for _, e := range reply.Epochs {
					require.NoError(t, file.Append(e))
				}
				c := &controller{epoch: reply.Epoch, agreed: syncset.Agreed{Members: []int64{9}, SetEpoch: 1}}
				m, err := NewAutoMaster(AutoConfig{
					MasterConfig: MasterConfig{Log: l, Logger: quietly}, Self: 9, Epoch: reply.Epoch, Epochs: file, Agreed: c.agreed, MinInSync: 1, AllAck: true,
					Alter: c.alter(reply.Epoch), Poll: c.poll,
				})
				require.NoError(t, err)
				m.Start()
				defer m.Close(errDemoted)
				a, b := pipeConns(t)
				go m.Serve(a)
				k := newCopier(t, b, true, all.bytes[:s.first])
				defer k.Close()
				say := func(p []byte) {
					_, err := k.Write(p)
					require.NoError(t, err)
				}
				say(s.fromSlave[:handshakeSize])
				k.hear(t, -1)
				require.Equal(t, reply, k.rec.m, "the reply is RocketMQ's")
				say(s.fromSlave[handshakeSize:s.rest])
				k.hear(t, int(reply.End))
				if s.end > reply.End {
					require.NoError(t, l.AppendRaw(reply.End, all.bytes[reply.End:s.end]))
				}
				k.hear(t, int(s.end))
				go func() { // heartbeats of confirm offsets
					for b := make([]byte, 4096); ; {
						if _, err := k.Read(b); err != nil {
							return
						}
					}
				}()
				say(s.fromSlave[s.rest:])
				require.True(t, bytes.Equal(all.bytes[:s.end], k.log.bytes))
				for _, f := range k.rec.f {
					if f.Size == 0 {
						continue
					}
					e, end, ok := reply.Epochs.Find(f.At)
					require.True(t, ok)
					require.Equal(t, e, epoch.Entry{Epoch: f.Epoch, Start: f.EpochStart})
					require.LessOrEqual(t, f.At+message.LogOffset(f.Size), end, "no frame crosses the end of an epoch")
				}
				time.Sleep(time.Second)
				st := m.Status()
				require.Equal(t, s.end, st.Conns[0].Acked)
				require.Equal(t, !s.hand.Learner, st.Conns[0].InSync, "a learner never joins (I9)")
				require.EqualValues(t, s.end, m.Acks().All().Load())
				require.EqualValues(t, s.end, l.Confirmed().Load())
				if s.hand.Learner {
					require.Zero(t, m.Acks().Mark(2).Load())
				} else {
					require.EqualValues(t, s.end, m.Acks().Mark(2).Load())
				}
			})
		})
	}
	classic := newGolden(t, "classic", "conn01", "conn02")
	for _, name := range []string{"conn01", "conn02"} {
		t.Run("classic "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := classic.session(t, name)
				l := classic.before(t, s.first)
				m := NewClassicMaster(ClassicConfig{MasterConfig: MasterConfig{Log: l, Logger: quietly}})
				defer m.Close(errDemoted)
				a, b := pipeConns(t)
				go m.Serve(a)
				k := newCopier(t, b, false, classic.bytes[:s.first])
				defer k.Close()
				_, err := k.Write(s.fromSlave[:s.rest])
				require.NoError(t, err)
				require.NoError(t, l.AppendRaw(s.first, classic.bytes[s.first:s.end]))
				k.hear(t, int(s.end))
				_, err = k.Write(s.fromSlave[s.rest:])
				require.NoError(t, err)
				require.True(t, bytes.Equal(classic.bytes[:s.end], k.log.bytes))
				synctest.Wait()
				require.EqualValues(t, s.end, m.Acks().Mark(2).Load())
			})
		})
	}
}

// pipeConns are the two ends of a connection.
func pipeConns(t *testing.T) (server, client net.Conn) {
	network := pipenet.New()
	lis, err := network.Listen("127.0.0.1:1")
	require.NoError(t, err)
	defer lis.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, err := network.Dial(t.Context(), "tcp", "127.0.0.1:1")
		if err == nil {
			got <- c
		}
		close(got)
	}()
	server, err = lis.Accept()
	require.NoError(t, err)
	return server, <-got
}

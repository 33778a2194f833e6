// Package wiretest lets tests talk to request handlers over real sockets, with raw frames.
//
// Serve starts a server for a mux; Peer is a client that sends what it is given, whatever that is, and decodes what comes
// back; Pairs reads captured frames. Only tests use it.
package wiretest

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Serve starts a server on a free port of loopback and closes it at the end of the test.
func Serve(t testing.TB, mux *remoting.Mux, batchEnd ...func(*remoting.Conn)) (addr string) {
	return ServeEvents(t, mux, nil, batchEnd...)
}

// ServeEvents is Serve for handlers that want to know of connections.
func ServeEvents(t testing.TB, mux *remoting.Mux, events remoting.Events, batchEnd ...func(*remoting.Conn)) (addr string) {
	s := remoting.NewServer(remoting.ServerConfig{BindAddress: "127.0.0.1"}, mux, events, slog.New(slog.DiscardHandler))
	for _, fn := range batchEnd {
		s.OnBatchEnd(fn)
	}
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.Addr().String()
}

// Peer is one connection of a test. Not safe for concurrent use.
type Peer struct {
	t    testing.TB
	Conn net.Conn
	in   *bufio.Reader
}

// Timeout is how long Read waits for a frame.
const Timeout = 20 * time.Second

// Dial connects to a server; the connection is closed at the end of the test.
func Dial(t testing.TB, addr string) *Peer {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &Peer{t: t, Conn: c, in: bufio.NewReaderSize(c, 64<<10)}
}

// Write sends frames in one piece.
func (p *Peer) Write(frames ...[]byte) {
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	_, err := p.Conn.Write(all)
	require.NoError(p.t, err)
}

// Send sends requests in one piece.
func (p *Peer) Send(cmds ...*protocol.Command) {
	var all []byte
	for _, c := range cmds {
		all = c.Append(all)
	}
	p.Write(all)
}

// Frame reads one frame, with its length word.
func (p *Peer) Frame() []byte {
	require.NoError(p.t, p.Conn.SetReadDeadline(time.Now().Add(Timeout)))
	head := make([]byte, protocol.LengthSize)
	_, err := io.ReadFull(p.in, head)
	require.NoError(p.t, err)
	n := int(binary.BigEndian.Uint32(head))
	require.Less(p.t, n, 64<<20)
	frame := append(head, make([]byte, n)...)
	_, err = io.ReadFull(p.in, frame[protocol.LengthSize:])
	require.NoError(p.t, err)
	return frame
}

// Read reads one answer.
func (p *Peer) Read() *protocol.Command {
	cmd, err := protocol.DecodeCommand(p.Frame()[protocol.LengthSize:])
	require.NoError(p.t, err)
	return cmd
}

// Call sends a request and reads its answer.
func (p *Peer) Call(code int32, ext map[string]string, body []byte) *protocol.Command {
	cmd := protocol.NewRequest(code, ext, body)
	p.Send(cmd)
	got := p.Read()
	require.Equal(p.t, cmd.Opaque, got.Opaque)
	return got
}

// Silent fails the test when something arrives within d; it is for what must not be answered.
func (p *Peer) Silent(d time.Duration) {
	require.NoError(p.t, p.Conn.SetReadDeadline(time.Now().Add(d)))
	_, err := p.in.ReadByte()
	var ne net.Error
	require.ErrorAs(p.t, err, &ne)
	require.True(p.t, ne.Timeout())
}

// Frame is one captured frame.
type Frame struct {
	Scenario string
	Hex      string
	Bytes    []byte // with the length word
	Code     int32
	ReqCode  int32 // of answers
	Opaque   int32
	Conn     int
	Dir      string // req or resp
	Oneway   bool
}

// Pair is a captured request and its answer; Answer is nil when there is none.
type Pair struct {
	Request Frame
	Answer  *Frame
}

// Decode is the frame as a command.
func (f *Frame) Decode(t testing.TB) *protocol.Command {
	cmd, err := protocol.DecodeCommand(append([]byte(nil), f.Bytes[protocol.LengthSize:]...))
	require.NoError(t, err)
	return cmd
}

// Pairs reads a file of captured frames, gzip or plain, and returns the requests with one of the codes, in order.
func Pairs(t testing.TB, name string, codes ...int32) (out []Pair) {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		r, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	want := map[int32]bool{}
	for _, c := range codes {
		want[c] = true
	}
	type key struct {
		conn   int
		opaque int32
	}
	open := map[key]int{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var fr Frame
		require.NoError(t, json.Unmarshal(sc.Bytes(), &fr))
		fr.Bytes, err = hex.DecodeString(fr.Hex)
		require.NoError(t, err)
		k := key{fr.Conn, fr.Opaque}
		switch {
		case fr.Dir == "req" && want[fr.Code]:
			open[k] = len(out)
			out = append(out, Pair{Request: fr})
		case fr.Dir == "resp" && want[fr.ReqCode]:
			if i, ok := open[k]; ok {
				out[i].Answer = &fr
				delete(open, k)
			}
		}
	}
	require.NoError(t, sc.Err())
	return out
}

package remoting

import (
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// FuzzStream feeds a server's connection with anything, in pieces: it must end, and not the process.
func FuzzStream(f *testing.F) {
	f.Add(request(codeEcho, 1, protocol.JSON, "x"), 1)
	f.Add(append(request(codeEcho, 1, protocol.Binary, "x"), request(codeSlow, 2, protocol.JSON, "y")...), 7)
	f.Add([]byte("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n\x00\x00\x00\x06\x00\x00\x00\x02{}"), 3)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 100)
	b, _ := hex.DecodeString(strings.ReplaceAll("00000025 01000021 0069 c8 013d 00000007 00000000 00000000 0000000c 0005 746f706963 00000001 54", " ", ""))
	f.Add(b, 2)
	s := NewServer(ServerConfig{ProxyProtocol: true}, testMux(nil), nil, quiet)
	if err := s.Serve(); err != nil {
		f.Fatal(err)
	}
	s.ListenPrefix("RAFT")
	f.Cleanup(func() { _ = s.Close() })
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		if piece <= 0 || len(b)/piece > 200 {
			piece = 1 + len(b)/50
		}
		a, peer := net.Pipe()
		if err := a.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		s.open(peer, false)
		go func() { _, _ = io.Copy(io.Discard, a) }()
		for len(b) > 0 {
			n := min(piece, len(b))
			if _, err := a.Write(b[:n]); err != nil {
				break
			}
			b = b[n:]
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

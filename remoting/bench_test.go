package remoting

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// sendLike is a request of the size of a usual send: 1 KiB body, header of about 400 bytes in JSON.
func sendLike(form protocol.Form) []byte {
	var e protocol.Ext
	for _, f := range [][2]string{{"a", "please_rename_unique_group_name"}, {"b", "BenchmarkTest"}, {"c", "TBW102"}, {"d", "4"}, {"e", "2"},
		{"f", "0"}, {"g", "1700000000000"}, {"h", "0"}, {"i", "KEYS\x01k-123456\x02UNIQ_KEY\x017F0000013C2C18B4AAC2000000010000\x02WAIT\x01true\x02TAGS\x01TagA\x02"},
		{"j", "0"}, {"k", "false"}, {"m", "false"}, {"n", "broker-a"}} {
		e.Add(f[0], f[1])
	}
	body := make([]byte, 1024)
	return append(protocol.AppendFrame(nil, form, codeEcho, 0, 1, "", &e, len(body)), body...)
}

// ackMux answers like a send: a few ext fields, no body.
func ackMux(later bool) *Mux {
	mux := NewMux()
	var n atomic.Int64
	fill := func(resp *Response) {
		resp.Ext.Add("msgId", "7F00000100002A9F0000000000000000")
		resp.Ext.AddInt("queueId", 3)
		resp.Ext.AddInt("queueOffset", n.Add(1))
	}
	mux.Handle(codeEcho, Inline, func(req *Request, resp *Response) error {
		if _, ok := req.Get("i"); !ok {
			return protocol.Missing("i")
		}
		if later {
			p := req.Defer()
			fill(resp)
			p.Reply(resp)
			return Later
		}
		fill(resp)
		return nil
	})
	return mux
}

// drive keeps window requests in flight on a connection until n are answered. Writes are one per request, or all that the
// window allows at once.
func drive(tb testing.TB, c net.Conn, frame []byte, n, window int, batched bool) {
	r := bufio.NewReaderSize(c, 64<<10)
	many := make([]byte, 0, window*len(frame))
	for range window {
		many = append(many, frame...)
	}
	sent, got := 0, 0
	send := func(k int) {
		k = min(k, n-sent)
		sent += k
		for k > 0 {
			m := 1
			if batched {
				m = k
			}
			if _, err := c.Write(many[:m*len(frame)]); err != nil {
				tb.Error(err)
				return
			}
			k -= m
		}
	}
	send(window)
	var head [4]byte
	for got < n {
		fresh := 0
		for { // everything that has come
			if _, err := io.ReadFull(r, head[:]); err != nil {
				tb.Error(err)
				return
			}
			if _, err := r.Discard(int(binary.BigEndian.Uint32(head[:]))); err != nil {
				tb.Error(err)
				return
			}
			got, fresh = got+1, fresh+1
			if r.Buffered() < 4 || got == n {
				break
			}
		}
		send(fresh)
	}
}

func benchmarkEcho(b *testing.B, conns, window int, form protocol.Form, batched bool) {
	s := startServer(b, ServerConfig{}, ackMux(false), nil)
	frame := sendLike(form)
	var list []net.Conn
	for range conns {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		list = append(list, c)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range list {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		wg.Go(func() { drive(b, c, frame, n, window, batched) })
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func BenchmarkEcho1x64(b *testing.B)        { benchmarkEcho(b, 1, 64, protocol.JSON, false) }
func BenchmarkEcho1x64Binary(b *testing.B)  { benchmarkEcho(b, 1, 64, protocol.Binary, false) }
func BenchmarkEcho1x64Batched(b *testing.B) { benchmarkEcho(b, 1, 64, protocol.JSON, true) }
func BenchmarkEcho64x1(b *testing.B)        { benchmarkEcho(b, 64, 1, protocol.JSON, false) }
func BenchmarkEcho64x16(b *testing.B)       { benchmarkEcho(b, 64, 16, protocol.JSON, true) }

func BenchmarkClientCall(b *testing.B) {
	s := startServer(b, ServerConfig{}, ackMux(false), nil)
	c := startClient(b, ClientConfig{}, nil)
	addr, body := s.Addr().String(), make([]byte, 1024)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, err := c.Call(b.Context(), addr, protocol.NewRequest(codeEcho, map[string]string{"i": "x", "a": "group", "b": "topic"}, body))
			if err != nil || a.Code != 0 {
				b.Error(a, err)
				return
			}
		}
	})
}

// raceEnabled says that the race detector runs, under which pools forget on purpose.
var raceEnabled bool

// A running server allocates nothing per request, over real sockets, in both forms, answered at once or with Defer.
func TestServerAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools forget under the race detector")
	}
	const n = 30_000
	for _, form := range []protocol.Form{protocol.JSON, protocol.Binary} {
		for _, later := range []bool{false, true} {
			for _, window := range []int{1, 64} {
				s := startServer(t, ServerConfig{}, ackMux(later), nil)
				c, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				frame := sendLike(form)
				drive(t, c, frame, 2000, window, false)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				drive(t, c, frame, n, window, false)
				runtime.ReadMemStats(&after)
				if per := float64(after.Mallocs-before.Mallocs) / n; per >= 0.01 {
					t.Errorf("form %d, deferred %v, window %d: %.4f allocations a request", form, later, window, per)
				}
				_ = c.Close()
			}
		}
	}
}

package broker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// perMessage is what a message may cost in allocations on a running broker: those of rounds, timers and growing tables, shared by thousands.
const perMessage = 0.01

// pump writes the same bytes again and again and reads as many answers as they hold requests, without allocating itself.
type pump struct {
	t       *testing.T
	conn    net.Conn
	out, in []byte
	answers int
}

func (p *pump) turn() {
	if _, err := p.conn.Write(p.out); err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < p.answers; i++ {
		if _, err := io.ReadFull(p.conn, p.in[:4]); err != nil {
			p.t.Fatal(err)
		}
		n := int(binary.BigEndian.Uint32(p.in))
		if n > len(p.in) {
			p.t.Fatalf("an answer of %d bytes", n)
		}
		if _, err := io.ReadFull(p.conn, p.in[:n]); err != nil {
			p.t.Fatal(err)
		}
	}
}

// mallocs returns the allocations of n turns, each of which carries a number of messages, per message.
func (p *pump) mallocs(n, messages int) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := 0; i < n; i++ {
		p.turn()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n*messages)
}

// TestAllocationsPerMessage sends and pulls over sockets, with dispatch and index on, and counts the allocations of the whole process.
func TestAllocationsPerMessage(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector lets pools forget, so that allocations say nothing")
	}
	w := start(t, t.TempDir(), "mappedFileSizeCommitLog", strconv.Itoa(256<<20), "mappedFileSizeConsumeQueue", "6000000", "maxHashSlotNum", "100000", "maxIndexNum", "4000000")
	w.createTopic("Alloc", "4")
	w.createGroup("AllocGroup")
	properties := "KEYS\x01some-key\x02TAGS\x01TagA\x02UNIQ_KEY\x017F000001000018B4AAC2000000000001\x02WAIT\x01true\x02"
	for i := 0; i < 8; i++ {
		properties += fmt.Sprintf("property%d\x01value of property %d\x02", i, i)
	}
	turns := 4000
	if testing.Short() {
		turns = 1000
	}
	for _, form := range []protocol.Form{protocol.JSON, protocol.Binary} {
		name := map[protocol.Form]string{protocol.JSON: "JSON", protocol.Binary: "binary"}[form]
		conn := func() net.Conn {
			c, err := net.DialTimeout("tcp", w.addr, 5*time.Second)
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			return c
		}
		t.Run("send, "+name, func(t *testing.T) {
			p := &pump{t: t, conn: conn(), in: make([]byte, 1<<20), answers: 64}
			for i := 0; i < 64; i++ {
				cmd := protocol.NewRequest(protocol.ReqSendMessageV2, map[string]string{"a": "P", "b": "Alloc", "c": "TBW102", "d": "4", "e": strconv.Itoa(i % 4), "f": "0", "g": "1700000000000",
					"h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}, make([]byte, 1024))
				cmd.Form, cmd.Opaque = form, int32(i)
				p.out = cmd.Append(p.out)
			}
			p.mallocs(turns/4, 64) // buffers grow to their size
			if got := p.mallocs(turns, 64); got > perMessage {
				t.Errorf("%.4f allocations per message sent, the limit is %v", got, perMessage)
			} else {
				t.Logf("%.4f allocations per message over %d", got, turns*64)
			}
		})
		t.Run("pull of 32, "+name, func(t *testing.T) {
			p := &pump{t: t, conn: conn(), in: make([]byte, 1<<20), answers: 1}
			cmd := protocol.NewRequest(protocol.ReqPullMessage, map[string]string{"consumerGroup": "AllocGroup", "topic": "Alloc", "queueId": "1", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
				"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, nil)
			cmd.Form = form
			p.out = cmd.Append(nil)
			p.mallocs(turns/4, 32)
			if got := p.mallocs(turns, 32); got > perMessage {
				t.Errorf("%.4f allocations per message pulled, the limit is %v", got, perMessage)
			} else {
				t.Logf("%.4f allocations per message over %d", got, turns*32)
			}
		})
	}
}

package produce

import (
	"testing"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// FuzzHeader: no frame makes the decoding of a send panic, and what is accepted has its required fields.
func FuzzHeader(f *testing.F) {
	for _, file := range []string{"client-json", "client-rocketmq"} {
		for _, pair := range wiretest.Pairs(f, "testdata/"+file+".jsonl.gz", protocol.ReqSendMessage, protocol.ReqSendMessageV2, protocol.ReqSendBatchMessage) {
			f.Add(pair.Request.Bytes[protocol.LengthSize:])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var h protocol.Header
		_, err := protocol.Decode(append([]byte(nil), frame...), &h)
		if err != nil {
			return
		}
		var m header
		if m.decode(&h) == nil && m.seen != sawAll {
			t.Fatalf("accepted with fields %b", m.seen)
		}
		var p properties
		p.clean(nil, m.properties)
	})
}

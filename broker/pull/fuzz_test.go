package pull

import (
	"testing"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// FuzzRequest: no frame makes the decoding of a pull panic, and what is accepted names a group, a topic and a place.
func FuzzRequest(f *testing.F) {
	for _, file := range []string{"client-json", "client-rocketmq"} {
		for _, pair := range wiretest.Pairs(f, "testdata/"+file+".jsonl.gz", protocol.ReqPullMessage, protocol.ReqLitePullMessage) {
			f.Add(pair.Request.Bytes[protocol.LengthSize:])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var h protocol.Header
		if _, err := protocol.Decode(append([]byte(nil), frame...), &h); err != nil {
			return
		}
		var r request
		if r.decode(&h) == nil && (len(r.group) == 0 || len(r.topic) == 0 || !r.hasQueue || !r.hasOff) {
			t.Fatalf("accepted without a required field: %+v", r)
		}
	})
}

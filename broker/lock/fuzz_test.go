package lock

import (
	"testing"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// FuzzBody: no body makes the decoding of a lock request panic, and what is accepted names a group and a client.
func FuzzBody(f *testing.F) {
	for _, pair := range wiretest.Pairs(f, "testdata/client-json.jsonl.gz", protocol.ReqLockBatchMQ, protocol.ReqUnlockBatchMQ) {
		f.Add(pair.Request.Decode(f).Body)
	}
	h := NewHandler(NewTable(0), func(string, Queue) bool { return true })
	f.Fuzz(func(t *testing.T, data []byte) {
		var b protocol.LockBatchRequestBody
		if qs, err := h.decode(data, &b); err == nil && (b.ClientID == "" || b.ConsumerGroup == "" || len(qs) > len(b.MQSet)) {
			t.Fatalf("accepted %+v", b)
		}
	})
}

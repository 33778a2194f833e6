package produce

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

func uniq(id string) []string { return []string{"i", "UNIQ_KEY\x01" + id + "\x02"} }

// An answer waits for the replicas, and with synchronous flush for the disk as well, whichever comes last.
func TestReplicas(t *testing.T) {
	for name, edit := range map[string]func(*world, *store.Config){
		"async flush":              func(*world, *store.Config) {},
		"sync flush, disk first":   func(w *world, _ *store.Config) { w.st.mark = watermark.New(0) },
		"sync flush, copies first": func(w *world, _ *store.Config) { w.st.mark = watermark.New(0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, edit)
			copies := watermark.New(0)
			w.copies.mark.Store(copies)
			marks := []*watermark.Mark{copies}
			if w.st.mark != nil {
				marks = []*watermark.Mark{w.st.mark, copies}
				if name == "sync flush, copies first" {
					marks[0], marks[1] = marks[1], marks[0]
				}
			}
			p := w.dial()
			for round := range 3 { // the objects that wait are used again
				p.Send(protocol.NewRequest(protocol.ReqSendMessageV2, v2("i", "WAIT\x01false\x02UNIQ_KEY\x01a\x02"), []byte("does not wait")),
					protocol.NewRequest(protocol.ReqSendMessageV2, v2(uniq("b")...), []byte("waits")),
					protocol.NewRequest(protocol.ReqSendMessageV2, v2(uniq("c")...), []byte("waits")))
				require.Equal(t, "a", p.Read().Ext["transactionId"])
				waitFor(t, func() bool { return w.stored() == 3*round+3 })
				for _, m := range marks {
					p.Silent(20 * time.Millisecond)
					m.Advance(int64(w.st.Log().End()))
				}
				require.Equal(t, "b", p.Read().Ext["transactionId"])
				require.Equal(t, "c", p.Read().Ext["transactionId"])
			}
		})
	}
}

func TestReplicasTooLate(t *testing.T) {
	w := newWorld(t, func(w *world, _ *store.Config) { w.st.mark = watermark.New(0) })
	copies := watermark.New(0)
	w.copies.mark.Store(copies)
	p := w.dial()
	cfg := testConfig()
	cfg.SlaveTimeout = 10 * time.Millisecond
	w.h.Apply(cfg)
	require.Equal(t, protocol.FlushSlaveTimeout, p.Call(protocol.ReqSendMessageV2, v2(), []byte("x")).Code)

	// The replicas are in time, the disk is not.
	copies.Advance(1 << 40)
	cfg.SyncFlushTimeout = 20 * time.Millisecond
	w.h.Apply(cfg)
	require.Equal(t, protocol.FlushDiskTimeout, p.Call(protocol.ReqSendMessageV2, v2(), []byte("x")).Code)

	// What timed out is not answered again when it passes.
	w.h.Apply(testConfig())
	p.Send(protocol.NewRequest(protocol.ReqSendMessageV2, v2(uniq("d")...), []byte("x")))
	waitFor(t, func() bool { return w.stored() == 3 })
	w.st.mark.Advance(int64(w.st.Log().End()))
	require.Equal(t, "d", p.Read().Ext["transactionId"])
}

// When a term ends its waiters get a code that nobody reads as stored, and what comes later is refused before it is stored.
func TestReplicasTermEnds(t *testing.T) {
	for _, sync := range []bool{false, true} {
		w := newWorld(t, func(w *world, _ *store.Config) {
			if sync {
				w.st.mark = watermark.New(0)
			}
		})
		copies := watermark.New(0)
		w.copies.mark.Store(copies)
		p := w.dial()
		p.Send(protocol.NewRequest(protocol.ReqSendMessageV2, v2(), []byte("x")))
		waitFor(t, func() bool { return w.stored() == 1 })
		copies.Fail(errors.New("no longer the master of epoch 3"))
		got := p.Read()
		require.Equal(t, protocol.ServiceNotAvailable, got.Code)
		require.Contains(t, got.Remark, "epoch 3")
		if sync {
			w.st.mark.Advance(1 << 40) // the other wait ends without a second answer
		}

		w.copies.refuse.Store(&protocol.Error{Code: protocol.SystemError, Remark: "in-sync replicas not enough"})
		got = p.Call(protocol.ReqSendMessageV2, v2(), []byte("x"))
		require.Equal(t, protocol.SystemError, got.Code)
		require.Equal(t, "in-sync replicas not enough", got.Remark)
		require.EqualValues(t, 1, w.stored(), "nothing is stored")
		p.Silent(10 * time.Millisecond)
	}
}

// A broker that takes no messages says so before it looks at them.
func TestNotAccepting(t *testing.T) {
	w := newWorld(t)
	w.copies.slave.Store(true)
	p := w.dial()
	for name, ext := range map[string]map[string]string{"a good send": v2(), "an unknown topic": v2("b", "NoSuchTopic")} {
		got := p.Call(protocol.ReqSendMessageV2, ext, []byte("x"))
		require.Equal(t, []any{protocol.SystemBusy, "[REJECTREQUEST]"}, []any{got.Code, got.Remark}, name)
	}
	require.Equal(t, protocol.SystemBusy, p.Call(protocol.ReqConsumerSendMsgBack, nil, nil).Code)
	require.Zero(t, w.stored())
	w.copies.slave.Store(false)
	require.Equal(t, protocol.Success, p.Call(protocol.ReqSendMessageV2, v2(), []byte("x")).Code)
}

package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/epochmq/epochmq/controller/machine"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// notifyTimeout bounds one notification.
const notifyTimeout = 3 * time.Second

// tell sends the master of a set to all its replicas, in sync or not, each on its own. What is lost they learn by asking.
func (t *term) tell(s *machine.Set) {
	if s == nil || s.Master == 0 || !t.c.config().NotifyBrokerRoleChanged {
		return
	}
	body, err := fastjson.Marshal(syncStateSet(s))
	if err != nil {
		t.c.log.Error("encode a notification", "error", err)
		return
	}
	ext := map[string]string{"masterAddress": s.MasterAddr(), "masterBrokerId": strconv.FormatInt(s.Master, 10),
		"masterEpoch": strconv.Itoa(int(s.MasterEpoch)), "syncStateSetEpoch": strconv.Itoa(int(s.SyncEpoch))}
	if s.UncleanEpoch > 0 {
		ext["uncleanEpoch"] = strconv.Itoa(int(s.UncleanEpoch))
	}
	addrs := map[string]bool{}
	for _, r := range s.Replicas {
		if r.Addr != "" {
			addrs[r.Addr] = true
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(addrs)) {
		t.c.spawn(func() {
			ctx, cancel := context.WithTimeout(t.ctx, notifyTimeout)
			defer cancel()
			if err := t.c.client.Oneway(ctx, addr, protocol.NewRequest(protocol.ReqNotifyBrokerRoleChanged, maps.Clone(ext), body)); err != nil {
				t.c.log.Debug("a broker was not told of its master", "set", s.Name, "addr", addr, "error", err)
			}
		})
	}
}

// syncState is an in-sync set on the wire.
type syncState struct {
	SyncStateSet      []int64 `json:"syncStateSet"`
	SyncStateSetEpoch int32   `json:"syncStateSetEpoch"`
}

func syncStateSet(s *machine.Set) syncState { return syncState{s.Sync, s.SyncEpoch} }

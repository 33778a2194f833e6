package admin

import (
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Window is what a counter did in a minute, an hour or a day.
type Window struct {
	Sum int64   `json:"sum"`
	TPS float64 `json:"tps"`
	Avg float64 `json:"avgpt"`
}

// Statistics reads counters.
type Statistics struct {
	// Item returns the three windows of a counter; ok is false when nothing was counted under the key yet.
	Item func(name, key string) (minute, hour, day Window, ok bool)
}

// View is request 315.
func (h *Statistics) View(req *remoting.Request, resp *remoting.Response) error {
	name, err := required(req, "statsName")
	if err != nil {
		return err
	}
	key, err := required(req, "statsKey")
	if err != nil {
		return err
	}
	minute, hour, day, ok := h.Item(name, key)
	if !ok {
		return protocol.Errorf(protocol.SystemError, "The stats <%s> <%s> not exist", name, key)
	}
	return put(resp, map[string]any{"statsMinute": minute, "statsHour": hour, "statsDay": day})
}

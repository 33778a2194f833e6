package ha

import (
	"time"

	"github.com/epochmq/epochmq/message"
)

// MasterStatus is what a master tells of its replicas. (request 907)
type MasterStatus struct {
	End    message.LogOffset // of the log
	InSync int               // replicas in sync, the master not counted
	Conns  []ConnStatus      // in no particular order
}

// ConnStatus is one connection of a master.
type ConnStatus struct {
	Addr   string // of the replica
	ID     int64  // its controller id, 0 in the classic protocol
	Acked  message.LogOffset
	Next   message.LogOffset // the next byte to be sent, -1 before the transfer
	Behind int64             // bytes of the log that are not acked
	InSync bool
	Rate   int64 // bytes in the last second
}

// FollowerStatus is what a follower tells of its master. (request 907)
type FollowerStatus struct {
	Master    string // HA address, empty: not known
	Connected bool   // data is flowing or the log is equal
	End       message.LogOffset
	Rate      int64     // bytes in the last second
	Read      time.Time // when something came last, zero: never
	Wrote     time.Time // when something was sent last
	Err       error     // why the last connection ended or was refused, nil while Connected
}

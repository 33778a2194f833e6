package client

import (
	"crypto/md5"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Strategy tells which queues of a topic a member of a group reads. All members must use the same one and get the same lists, queues sorted
// by broker and number, members sorted by name; self is one of them. It must depend on nothing else.
type Strategy interface {
	// Name is what tools show.
	Name() string
	Allocate(self string, queues []Queue, members []string) []Queue
}

type strategy struct {
	name string
	fn   func(self int, queues []Queue, members []string) []Queue
}

func (s strategy) Name() string { return s.name }

func (s strategy) Allocate(self string, queues []Queue, members []string) []Queue {
	i := slices.Index(members, self)
	if i < 0 || len(queues) == 0 {
		return nil
	}
	return s.fn(i, queues, members)
}

// Average gives each member a run of neighbouring queues, RocketMQ's default.
func Average() Strategy { return strategy{"AVG", average} }

// AverageByCircle deals the queues out one by one.
func AverageByCircle() Strategy {
	return strategy{"AVG_BY_CIRCLE", func(self int, queues []Queue, members []string) (out []Queue) {
		for i := self; i < len(queues); i += len(members) {
			out = append(out, queues[i])
		}
		return out
	}}
}

func average(self int, queues []Queue, members []string) []Queue {
	n, m := len(queues), len(members)
	size := n / m
	switch {
	case n <= m:
		size = 1
	case n%m > 0 && self < n%m:
		size++
	}
	start := self * size
	if n > m && n%m > 0 && self >= n%m {
		start += n % m
	}
	if start >= n {
		return nil
	}
	return slices.Clone(queues[start:min(start+size, n)])
}

// Fixed gives exactly these queues. The group's retry topic is shared out by Average.
func Fixed(queues ...Queue) Strategy { return fixed(slices.Clone(queues)) }

type fixed []Queue

func (fixed) Name() string { return "CONFIG" }

func (f fixed) Allocate(_ string, queues []Queue, _ []string) (out []Queue) {
	for _, q := range f {
		if slices.Contains(queues, q) {
			out = append(out, q)
		}
	}
	return out
}

// MachineRoom reads only the queues of brokers whose name starts with one of the rooms and an @.
func MachineRoom(rooms ...string) Strategy {
	rooms = slices.Clone(rooms)
	return strategy{"MACHINE_ROOM", func(self int, queues []Queue, members []string) (out []Queue) {
		var near []Queue
		for _, q := range queues {
			if room, _, ok := strings.Cut(q.Broker, "@"); ok && slices.Contains(rooms, room) {
				near = append(near, q)
			}
		}
		m := len(members)
		each := len(near) / m
		out = append(out, near[each*self:each*(self+1)]...)
		if self < len(near)%m {
			out = append(out, near[self+each*m])
		}
		return out
	}}
}

// MachineRoomNearby shares the queues of a room among the members of that room with another strategy, and those of rooms without a member
// among all. The two functions tell the room of a broker and of a member.
func MachineRoomNearby(s Strategy, brokerRoom, memberRoom func(name string) string) Strategy {
	return nearby{s, brokerRoom, memberRoom}
}

type nearby struct {
	inner                  Strategy
	brokerRoom, memberRoom func(string) string
}

func (n nearby) Name() string { return "MACHINE_ROOM_NEARBY-" + n.inner.Name() }

func (n nearby) Allocate(self string, queues []Queue, members []string) []Queue {
	if !slices.Contains(members, self) {
		return nil
	}
	byRoom := map[string][]Queue{}
	for _, q := range queues {
		room := n.brokerRoom(q.Broker)
		byRoom[room] = append(byRoom[room], q)
	}
	inRoom := map[string][]string{}
	for _, m := range members {
		room := n.memberRoom(m)
		inRoom[room] = append(inRoom[room], m)
	}
	mine := n.memberRoom(self)
	out := n.inner.Allocate(self, byRoom[mine], inRoom[mine])
	rooms := make([]string, 0, len(byRoom))
	for room := range byRoom {
		rooms = append(rooms, room)
	}
	slices.Sort(rooms)
	for _, room := range rooms {
		if len(inRoom[room]) == 0 {
			out = append(out, n.inner.Allocate(self, byRoom[room], members)...)
		}
	}
	return out
}

// ConsistentHash puts members on a ring, each at several points (10 when points is 0), so that few queues move when one comes or goes.
func ConsistentHash(points int) Strategy {
	setDefault(&points, 10)
	return strategy{"CONSISTENT_HASH", func(self int, queues []Queue, members []string) (out []Queue) {
		type point struct {
			hash   uint32
			member int
		}
		at := map[uint32]int{}
		for i, m := range members {
			for p := range points {
				at[ringHash(fmt.Sprintf("%s-%d", m, p))] = i
			}
		}
		ring := make([]point, 0, len(at))
		for h, m := range at {
			ring = append(ring, point{h, m})
		}
		slices.SortFunc(ring, func(a, b point) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		})
		for _, q := range queues {
			h := ringHash(fmt.Sprintf("MessageQueue [topic=%s, brokerName=%s, queueId=%d]", q.Topic, q.Broker, q.ID))
			i := sort.Search(len(ring), func(i int) bool { return ring[i].hash >= h })
			if ring[i%len(ring)].member == self {
				out = append(out, q)
			}
		}
		return out
	}}
}

// ringHash is the first four bytes of MD5, as RocketMQ's members place themselves.
func ringHash(s string) uint32 {
	sum := md5.Sum([]byte(s))
	return uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
}

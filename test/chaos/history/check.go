package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rule names what was broken.
type Rule string

// Rules, with the invariant of the checker that they stand for.
const (
	Lost       Rule = "lost"         // 1: an acknowledged message is in no queue at the end
	Misplaced  Rule = "misplaced"    // 1: it is elsewhere than its answer said
	Reused     Rule = "reused"       // 2: one topic, queue and offset was seen with two messages
	Vanished   Rule = "vanished"     // 3: a message that a consumer received is not in the log
	Undelivery Rule = "undelivered"  // 1: an acknowledged message was never received
	Unordered  Rule = "out of order" // 4: acknowledged messages of one producer stand in a queue in another order
	Hole       Rule = "hole"         // 5: a queue's offsets are not dense
	WentBack   Rule = "offset back"  // 6: a group's offset is lower than one that was accepted before
	TwoMasters Rule = "two masters"  // 7: two brokers were master of one epoch, or an epoch came back
	Diverged   Rule = "diverged"     // 9: replicas hold different bytes, or different messages
	Invented   Rule = "invented"     // a message that nobody sent
)

// samples is how many breaches of one rule are kept in words.
const samples = 5

// Verdict is what a history says.
type Verdict struct {
	Acked, Unknown, Refused, Received, Held int64
	Doubled                                 int64 // messages that stand more than once in the queues: retries of unknown outcomes, no breach
	Again                                   int64 // deliveries of a message after its first, no breach
	Faults                                  int64
	Longest, Total                          time.Duration // without an acknowledgement, for gaps of at least Gap
	Epochs                                  int32         // the highest

	Breaches map[Rule]int64
	Samples  map[Rule][]string
}

// OK says that nothing was broken.
func (v *Verdict) OK() bool { return len(v.Breaches) == 0 }

// Rules are the broken rules, sorted.
func (v *Verdict) Rules() []Rule { return slices.Sorted(maps.Keys(v.Breaches)) }

func (v *Verdict) breach(r Rule, format string, args ...any) {
	if v.Breaches[r]++; len(v.Samples[r]) < samples {
		v.Samples[r] = append(v.Samples[r], fmt.Sprintf(format, args...))
	}
}

// Gap is how long a pause between acknowledgements must be to count as unavailability.
const Gap = 50 * time.Millisecond

// message is one message of one producer.
type message struct {
	producer string
	number   int64
}

func (m message) String() string { return fmt.Sprintf("%s/%d", m.producer, m.number) }

// queue is one queue of a topic.
type queue struct {
	topic string
	id    int32
}

func (q queue) String() string { return fmt.Sprintf("%s/%d", q.topic, q.id) }

// place is where a message stands; printed as orders/3@17.
type place struct {
	queue
	offset int64
}

func (p place) String() string { return fmt.Sprintf("%s@%d", p.queue, p.offset) }

// Checker takes events in their order. The zero value is not usable, see NewChecker.
type Checker struct {
	v Verdict

	outcome  map[message]Kind             // the best: acked over unknown over refused
	acked    map[message][]place          // where answers said that it is; several when it was sent again
	seen     map[place]message            // by anybody
	received map[message]place            // first
	held     map[string]map[place]message // by replica
	bounds   map[string]map[queue][2]int64
	groups   map[string]map[queue]int64 // offsets that were accepted
	masters  map[int32]string
	ranges   map[[2]int64]map[string]string // by range: replica -> sum
	lastAck  int64
	consumed bool
}

// NewChecker returns a checker that has seen nothing.
func NewChecker() *Checker {
	return &Checker{v: Verdict{Breaches: map[Rule]int64{}, Samples: map[Rule][]string{}}, outcome: map[message]Kind{}, acked: map[message][]place{},
		seen: map[place]message{}, received: map[message]place{}, held: map[string]map[place]message{}, bounds: map[string]map[queue][2]int64{},
		groups: map[string]map[queue]int64{}, masters: map[int32]string{}, ranges: map[[2]int64]map[string]string{}, lastAck: -1}
}

// Add takes the next event.
func (c *Checker) Add(e Event) {
	m, p := message{e.Producer, e.Number}, place{queue{e.Topic, e.Queue}, e.Offset}
	switch e.Kind {
	case Acked:
		c.v.Acked++
		c.outcome[m] = Acked
		c.acked[m] = append(c.acked[m], p)
		c.note(p, m, "the answer to a send")
		if c.lastAck >= 0 {
			if gap := time.Duration(e.At - c.lastAck); gap >= Gap {
				c.v.Total += gap
				c.v.Longest = max(c.v.Longest, gap)
			}
		}
		c.lastAck = e.At
		if e.Epoch > 0 && e.Broker != "" {
			c.master(e)
		}
	case Unknown:
		c.v.Unknown++
		if c.outcome[m] != Acked {
			c.outcome[m] = Unknown
		}
	case Refused:
		c.v.Refused++
		if c.outcome[m] == "" {
			c.outcome[m] = Refused
		}
	case Received:
		c.v.Received++
		c.consumed = true
		c.note(p, m, "a consumer")
		if _, again := c.received[m]; again {
			c.v.Again++
		} else {
			c.received[m] = p
		}
	case Committed, Reset, Asked:
		c.offset(e)
	case Held:
		c.v.Held++
		if c.held[e.Broker] == nil {
			c.held[e.Broker] = map[place]message{}
		}
		c.held[e.Broker][p] = m
		c.note(p, m, "replica "+e.Broker)
	case Bounds:
		if c.bounds[e.Broker] == nil {
			c.bounds[e.Broker] = map[queue][2]int64{}
		}
		c.bounds[e.Broker][p.queue] = [2]int64{e.From, e.To}
	case Range:
		r := [2]int64{e.From, e.To}
		if c.ranges[r] == nil {
			c.ranges[r] = map[string]string{}
		}
		c.ranges[r][e.Broker] = e.Sum
	case Master:
		c.master(e)
	case Fault:
		c.v.Faults++
	}
}

// note holds against each other what different parties saw at one place.
func (c *Checker) note(p place, m message, who string) {
	if have, ok := c.seen[p]; ok && have != m {
		c.v.breach(Reused, "%s is %s, and for %s it is %s", p, have, who, m)
		return
	}
	c.seen[p] = m
}

func (c *Checker) offset(e Event) {
	q := queue{e.Topic, e.Queue}
	g := c.groups[e.Group]
	if g == nil {
		g = map[queue]int64{}
		c.groups[e.Group] = g
	}
	have, ok := g[q]
	switch {
	case e.Kind == Asked && ok && e.Offset < have:
		c.v.breach(WentBack, "group %s on %s: %d was accepted, later it is %d", e.Group, q, have, e.Offset)
	case e.Kind == Reset, e.Kind == Committed: // a consumer itself may commit backwards
		g[q] = e.Offset
	}
}

func (c *Checker) master(e Event) {
	if have := c.masters[e.Epoch]; have != "" && have != e.Broker {
		c.v.breach(TwoMasters, "epoch %d: %s and %s", e.Epoch, have, e.Broker)
	}
	c.masters[e.Epoch] = e.Broker
	c.v.Epochs = max(c.v.Epochs, e.Epoch)
}

// Finish checks what needs the whole history, and returns the verdict. The checker must not be used afterwards.
func (c *Checker) Finish() *Verdict {
	if len(c.held) > 0 {
		c.checkHeld()
	}
	for m, places := range c.acked {
		if _, ok := c.received[m]; c.consumed && !ok {
			c.v.breach(Undelivery, "%s at %s", m, places[0])
		}
	}
	for r, sums := range c.ranges {
		var first, sum string
		for _, broker := range slices.Sorted(maps.Keys(sums)) {
			switch {
			case first == "":
				first, sum = broker, sums[broker]
			case sums[broker] != sum:
				c.v.breach(Diverged, "log bytes [%d, %d) of %s and %s", r[0], r[1], first, broker)
			}
		}
	}
	return &c.v
}

// checkHeld compares what the replicas hold at the end with what was promised.
func (c *Checker) checkHeld() {
	all := map[message][]place{}
	replicas := slices.Sorted(maps.Keys(c.held))
	low := map[queue]int64{} // below it at least one replica has nothing any more
	for _, b := range replicas {
		for q, r := range c.bounds[b] {
			low[q] = max(low[q], r[0])
		}
	}
	for p, m := range c.held[replicas[0]] {
		all[m] = append(all[m], p)
		if _, sent := c.outcome[m]; !sent {
			c.v.breach(Invented, "%s at %s was never sent", m, p)
		}
	}
	for _, places := range all {
		if len(places) > 1 {
			c.v.Doubled++
		}
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.offset, b.offset) })
	}
	for m, places := range c.acked {
		for _, p := range places {
			switch have := all[m]; {
			case p.offset < low[p.queue]: // expired
			case len(have) == 0:
				c.v.breach(Lost, "%s, acknowledged at %s", m, p)
			case !slices.Contains(have, p):
				c.v.breach(Misplaced, "%s, acknowledged at %s, stands at %s", m, p, have[0])
			}
		}
	}
	for m, p := range c.received {
		if _, ok := c.held[replicas[0]][p]; !ok && p.offset >= low[p.queue] {
			c.v.breach(Vanished, "%s, received from %s", m, p)
		}
	}
	c.checkQueues(replicas[0])
	for _, b := range replicas[1:] {
		c.compare(replicas[0], b, low)
	}
}

// checkQueues looks for holes, and for acknowledged messages of one producer that stand in another order than they were sent.
func (c *Checker) checkQueues(b string) {
	byQueue := map[queue][]place{}
	for p := range c.held[b] {
		byQueue[p.queue] = append(byQueue[p.queue], p)
	}
	for q, list := range byQueue {
		slices.SortFunc(list, func(a, b place) int { return cmp.Compare(a.offset, b.offset) })
		last := map[string]message{}
		for i, p := range list {
			if i > 0 && p.offset != list[i-1].offset+1 {
				c.v.breach(Hole, "%s of %s: nothing between %d and %d", q, b, list[i-1].offset, p.offset)
			}
			m := c.held[b][p]
			if c.outcome[m] != Acked || len(c.acked[m]) > 1 || c.acked[m][0] != p {
				continue // a copy of an unknown outcome has no place in the order
			}
			if before, ok := last[m.producer]; ok && m.number < before.number {
				c.v.breach(Unordered, "%s of %s: %s stands behind %s", q, b, m, before)
			}
			last[m.producer] = m
		}
		if r, ok := c.bounds[b][q]; ok && (r[0] != list[0].offset || r[1] != list[len(list)-1].offset+1) {
			c.v.breach(Hole, "%s of %s should hold [%d, %d) and holds [%d, %d)", q, b, r[0], r[1], list[0].offset, list[len(list)-1].offset+1)
		}
	}
}

// compare looks for places at which two replicas differ, above what has expired in one of them.
func (c *Checker) compare(a, b string, low map[queue]int64) {
	differ := func(x, y string) {
		for p, m := range c.held[x] {
			if have, ok := c.held[y][p]; p.offset >= low[p.queue] && !ok {
				c.v.breach(Diverged, "%s has %s at %s, %s has nothing there", x, m, p, y)
			} else if ok && have != m && x < y {
				c.v.breach(Diverged, "%s has %s at %s, %s has %s", x, m, p, y, have)
			}
		}
	}
	differ(a, b)
	differ(b, a)
}

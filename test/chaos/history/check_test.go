package history

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// good is a history of two queues, three replicas, a failover and a consumer, in which nothing is broken.
func good() []Event {
	ms := int64(time.Millisecond)
	var h []Event
	add := func(e Event) { h = append(h, e) }
	add(Event{Kind: Master, Broker: "a", Epoch: 1})
	for n := range int64(6) {
		add(Event{At: n * ms, Kind: Acked, Topic: "T", Queue: int32(n % 2), Offset: n / 2, Producer: "p", Number: n, Broker: "a", Epoch: 1})
		add(Event{At: n * ms, Kind: Received, Topic: "T", Queue: int32(n % 2), Offset: n / 2, Producer: "p", Number: n})
	}
	add(Event{Kind: Committed, Group: "G", Topic: "T", Queue: 1, Offset: 3})
	add(Event{At: 6 * ms, Kind: Unknown, Producer: "p", Number: 6}) // and it was stored, twice
	add(Event{At: 7 * ms, Kind: Fault, Text: "kill a"})
	add(Event{Kind: Master, Broker: "b", Epoch: 2})
	add(Event{At: 300 * ms, Kind: Unknown, Producer: "p", Number: 7}) // and it was not
	add(Event{At: 305 * ms, Kind: Refused, Producer: "p", Number: 8})
	add(Event{At: 305 * ms, Kind: Acked, Topic: "T", Queue: 0, Offset: 5, Producer: "p", Number: 9, Broker: "b", Epoch: 2})
	add(Event{Kind: Received, Topic: "T", Queue: 0, Offset: 3, Producer: "p", Number: 6})
	add(Event{Kind: Received, Topic: "T", Queue: 0, Offset: 4, Producer: "p", Number: 6})
	add(Event{Kind: Received, Topic: "T", Queue: 0, Offset: 5, Producer: "p", Number: 9})
	add(Event{Kind: Asked, Group: "G", Topic: "T", Queue: 1, Offset: 3})
	for _, b := range []string{"a", "b", "c"} {
		for n := range int64(6) {
			add(Event{Kind: Held, Broker: b, Topic: "T", Queue: int32(n % 2), Offset: n / 2, Producer: "p", Number: n})
		}
		add(Event{Kind: Held, Broker: b, Topic: "T", Offset: 3, Producer: "p", Number: 6})
		add(Event{Kind: Held, Broker: b, Topic: "T", Offset: 4, Producer: "p", Number: 6})
		add(Event{Kind: Held, Broker: b, Topic: "T", Offset: 5, Producer: "p", Number: 9})
		add(Event{Kind: Bounds, Broker: b, Topic: "T", Queue: 0, To: 6})
		add(Event{Kind: Bounds, Broker: b, Topic: "T", Queue: 1, To: 3})
		add(Event{Kind: Range, Broker: b, From: 0, To: 4096, Sum: "x"})
	}
	return h
}

func check(h []Event) *Verdict {
	c := NewChecker()
	for _, e := range h {
		c.Add(e)
	}
	return c.Finish()
}

func TestGoodHistory(t *testing.T) {
	v := check(good())
	require.True(t, v.OK(), "%v", v.Samples)
	require.Equal(t, []int64{7, 2, 1, 9, 27, 1, 1, 1}, []int64{v.Acked, v.Unknown, v.Refused, v.Received, v.Held, v.Doubled, v.Again, v.Faults})
	require.Equal(t, 300*time.Millisecond, v.Longest)
	require.Equal(t, 300*time.Millisecond, v.Total)
	require.EqualValues(t, 2, v.Epochs)
}

// Each rule is seen to fail: a checker that cannot fail checks nothing.
func TestPlantedFaults(t *testing.T) {
	drop := func(h []Event, unwanted func(Event) bool) (out []Event) {
		for _, e := range h {
			if !unwanted(e) {
				out = append(out, e)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		rule  Rule
		plant func([]Event) []Event
	}{
		"an acknowledged message is gone everywhere": {Lost, func(h []Event) []Event {
			return drop(h, func(e Event) bool { return (e.Kind == Held || e.Kind == Received) && e.Number == 9 })
		}},
		"an acknowledged message stands elsewhere": {Misplaced, func(h []Event) []Event {
			for i := range h {
				if h[i].Kind == Acked && h[i].Number == 9 {
					h[i].Offset = 7
				}
			}
			return h
		}},
		"an offset was given twice": {Reused, func(h []Event) []Event {
			return append(h, Event{Kind: Acked, Topic: "T", Queue: 1, Offset: 2, Producer: "q", Number: 1})
		}},
		"a consumer saw what was cut": {Vanished, func(h []Event) []Event {
			return append(h, Event{Kind: Received, Topic: "T", Queue: 1, Offset: 3, Producer: "p", Number: 7})
		}},
		"a message is never delivered": {Undelivery, func(h []Event) []Event {
			return drop(h, func(e Event) bool { return e.Kind == Received && e.Number == 2 })
		}},
		"a producer's messages changed places": {Unordered, func(h []Event) []Event {
			for i := range h {
				if e := &h[i]; e.Topic == "T" && e.Queue == 0 && e.Producer == "p" && e.Kind != Bounds && (e.Number == 0 || e.Number == 2) {
					e.Number = 2 - e.Number
				}
			}
			return h
		}},
		"a queue has a hole": {Hole, func(h []Event) []Event {
			return drop(h, func(e Event) bool { return (e.Kind == Held || e.Kind == Acked || e.Kind == Received) && e.Number == 2 })
		}},
		"a queue is shorter than it says": {Hole, func(h []Event) []Event {
			for i := range h {
				if h[i].Kind == Bounds && h[i].Queue == 1 {
					h[i].To = 4
				}
			}
			return h
		}},
		"a group's offset went back": {WentBack, func(h []Event) []Event {
			return append(h, Event{Kind: Asked, Group: "G", Topic: "T", Queue: 1, Offset: 2})
		}},
		"two masters of one epoch": {TwoMasters, func(h []Event) []Event {
			return append(h, Event{Kind: Acked, Topic: "U", Producer: "q", Number: 1, Broker: "c", Epoch: 2})
		}},
		"replicas hold different messages": {Diverged, func(h []Event) []Event {
			return drop(h, func(e Event) bool { return e.Kind == Held && e.Broker == "c" && e.Number == 9 })
		}},
		"replicas hold different bytes": {Diverged, func(h []Event) []Event {
			return append(h, Event{Kind: Range, Broker: "c", From: 0, To: 4096, Sum: "y"})
		}},
		"a message that nobody sent": {Invented, func(h []Event) []Event {
			return append(h, Event{Kind: Held, Broker: "a", Topic: "V", Producer: "ghost", Number: 1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := check(c.plant(good()))
			require.Contains(t, v.Rules(), c.rule, "%v", v.Samples)
			require.NotEmpty(t, v.Samples[c.rule])
		})
	}
}

// What is allowed: expired messages, a reset, a consumer that commits backwards, messages of unknown outcome.
func TestAllowed(t *testing.T) {
	h := good()
	var kept []Event
	for _, e := range h {
		if e.Kind == Held && e.Broker == "c" && e.Queue == 1 && e.Offset == 0 {
			continue // has expired there
		}
		if e.Kind == Bounds && e.Broker == "c" && e.Queue == 1 {
			e.From = 1
		}
		kept = append(kept, e)
	}
	kept = append(kept, Event{Kind: Reset, Group: "G", Topic: "T", Queue: 1, Offset: 0}, Event{Kind: Asked, Group: "G", Topic: "T", Queue: 1, Offset: 0},
		Event{Kind: Committed, Group: "G", Topic: "T", Queue: 1, Offset: 3}, Event{Kind: Committed, Group: "G", Topic: "T", Queue: 1, Offset: 2},
		Event{Kind: Asked, Group: "G", Topic: "T", Queue: 1, Offset: 2})
	v := check(kept)
	require.True(t, v.OK(), "%v", v.Samples)
}

func TestReadWrite(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	want := good()
	for _, e := range want {
		w.Add(e)
	}
	require.NoError(t, w.Flush())
	var got []Event
	require.NoError(t, Read(&b, func(e Event) { got = append(got, e) }))
	require.Equal(t, want, got)
	require.ErrorContains(t, Read(strings.NewReader("{}\n\n{\"t\":\n"), func(Event) {}), "line 3")
	require.Error(t, Read(strings.NewReader(strings.Repeat("x", 2<<20)), func(Event) {}))
}

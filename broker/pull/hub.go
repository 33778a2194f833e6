package pull

import "github.com/epochmq/epochmq/store"

// Hub tells every registered feature that messages can be read from a queue. The store calls Arrived from its
// dispatcher after the queue's index was written, with no lock held; pull, delay, and whatever else waits for messages
// register one function each. A function must return at once: it hands work to goroutines of its own.
//
// Register belongs to the wiring, before the store starts; afterwards the list does not change, so reading it needs no
// lock.
type Hub struct {
	fns []func(store.Arrival)
}

// Register adds fn. Not safe once the store has started.
func (h *Hub) Register(fn func(store.Arrival)) { h.fns = append(h.fns, fn) }

// Arrived passes a to every registered function, in the order of registration.
func (h *Hub) Arrived(a store.Arrival) {
	for _, fn := range h.fns {
		fn(a)
	}
}

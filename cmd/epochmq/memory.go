package main

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	trimInterval = 10 * time.Second
	quietBytes   = 4 << 20 // allocated in an interval: below it the process counts as idle
	spareBytes   = 4 << 20 // memory that is free but still held: below it trimming is not worth a collection
)

// trimWhenIdle gives memory back that a burst has left behind. A server allocates next to nothing while it works, so that without it
// the collector would let the memory of a burst lie for minutes. The returned function ends it.
func trimWhenIdle() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(trimInterval)
		defer tick.Stop()
		samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
		last, trimmed := uint64(0), uint64(0)
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			metrics.Read(samples)
			allocated, spare, objects := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
			// Objects that nobody uses any more count as spare until a collection.
			if allocated-last < quietBytes && allocated-trimmed > quietBytes && spare+objects/2 > spareBytes {
				debug.FreeOSMemory()
				trimmed = allocated
			}
			last = allocated
		}
	})
	return func() { close(end); wg.Wait() }
}

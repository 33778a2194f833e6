package store

import "sync/atomic"

// Flags are RocketMQ's running flags: why a store does not read or write now.
type Flags int32

// Bits of Flags. QueueError and IndexError stay until restart; the disk flags go when space returns.
const (
	NotReadable   Flags = 1
	NotWritable   Flags = 2
	QueueError    Flags = 4
	IndexError    Flags = 8
	DiskFull      Flags = 16
	Fenced        Flags = 32
	QueueDiskFull Flags = 64
)

// Writable says whether none of the bits that refuse a write is set.
func (f Flags) Writable() bool {
	return f&(NotWritable|QueueError|IndexError|DiskFull|Fenced|QueueDiskFull) == 0
}

// Readable says whether reads are served.
func (f Flags) Readable() bool { return f&NotReadable == 0 }

// flagSet is Flags with atomic changes.
type flagSet struct{ v atomic.Int32 }

func (s *flagSet) load() Flags { return Flags(s.v.Load()) }

func (s *flagSet) set(f Flags, on bool) {
	if on {
		s.v.Or(int32(f))
	} else {
		s.v.And(^int32(f))
	}
}

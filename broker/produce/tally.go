package produce

import "bytes"

// tally is what one read brought for one queue. Stats are told once for all of it: their counters are shared by all
// connections, and each addition to a shared counter waits for the other processors.
type tally struct {
	topic              []byte // a copy
	queue              int32
	sends, msgs, bytes int
}

// count notes an accepted send.
func (p *pending) count(topic []byte, queue int32, msgs, size int) {
	t := &p.tally
	if t.sends > 0 && (t.queue != queue || !bytes.Equal(t.topic, topic)) {
		p.countAll()
	}
	if t.sends == 0 {
		t.topic, t.queue = append(t.topic[:0], topic...), queue
	}
	t.sends, t.msgs, t.bytes = t.sends+1, t.msgs+msgs, t.bytes+size
}

// countAll tells Stats what was noted. It is called before the answers, so that who has one finds its message counted.
func (p *pending) countAll() {
	t := &p.tally
	if t.sends == 0 {
		return
	}
	p.h.Stats.Put(t.topic, t.queue, t.sends, t.msgs, t.bytes)
	t.sends, t.msgs, t.bytes = 0, 0, 0
}

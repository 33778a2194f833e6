package ha

import (
	"sync"

	"github.com/epochmq/epochmq/internal/watermark"
	"github.com/epochmq/epochmq/message"
)

// maxCopies bounds the numbers of copies that can be waited for.
const maxCopies = 16

// Acks are the marks that producers wait for: how far the log has been copied, for each number of copies somebody asked for,
// and to all of the in-sync set. They last for a term: Fail answers everybody who still waits.
type Acks struct {
	all     *watermark.Mark
	refresh func() // publishes the present state

	mu     sync.Mutex
	copies [maxCopies + 1]*watermark.Mark // by number, the master's own included; nil: not asked for yet
	err    error
}

func newAcks(refresh func()) *Acks { return &Acks{all: watermark.New(0), refresh: refresh} }

// All is the mark below which every replica of the in-sync set, and of a change of it that is under way, holds the log.
func (a *Acks) All() *watermark.Mark { return a.all }

// Mark is the mark below which n replicas hold the log, the master among them; nil when n <= 1: there is nothing to wait
// for. More than 16 count as 16.
func (a *Acks) Mark(n int) *watermark.Mark {
	if n <= 1 {
		return nil
	}
	n = min(n, maxCopies)
	a.mu.Lock()
	m := a.copies[n]
	if m != nil {
		a.mu.Unlock()
		return m
	}
	m = watermark.New(0)
	a.copies[n] = m
	if a.err != nil {
		m.Fail(a.err)
	}
	a.mu.Unlock()
	a.refresh()
	return m
}

// Fail ends the term for everybody who waits; only the first call counts. nil stands for ErrClosed.
func (a *Acks) Fail(err error) {
	if err == nil {
		err = ErrClosed
	}
	a.mu.Lock()
	if a.err == nil {
		a.err = err
	}
	marks := a.copies
	a.mu.Unlock()
	a.all.Fail(err)
	for _, m := range marks {
		if m != nil {
			m.Fail(err)
		}
	}
}

// progress is a state to be published: taken under the owner's lock, published outside of it.
type progress struct {
	all    message.LogOffset
	copies [maxCopies + 1]message.LogOffset
}

// collect asks how far each number of copies reaches that somebody waits for.
func (a *Acks) collect(p *progress, acked func(n int) (message.LogOffset, bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, m := range a.copies {
		if m != nil {
			p.copies[n], _ = acked(n)
		}
	}
}

// publish advances the marks. Marks never go back, so the order of calls does not matter.
func (a *Acks) publish(p *progress) {
	a.all.Advance(int64(p.all))
	for n, off := range p.copies {
		if off <= 0 {
			continue
		}
		a.mu.Lock()
		m := a.copies[n]
		a.mu.Unlock()
		if m != nil {
			m.Advance(int64(off))
		}
	}
}

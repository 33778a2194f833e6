package watermark

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestWaiters(t *testing.T) {
	m := New(10)
	var order []int64
	add := func(at int64) {
		m.Add(&Waiter{At: at, Done: func(err error) {
			if err != nil {
				t.Errorf("waiter at %d: %v", at, err)
			}
			order = append(order, at)
		}})
	}
	for _, at := range []int64{10, 30, 20, 40, 25, 20, 5} {
		add(at)
	}
	m.Advance(9)
	m.Advance(20)
	m.Advance(39)
	want := []int64{10, 5, 20, 20, 25, 30}
	if len(order) != len(want) {
		t.Fatalf("answered %v, want %v", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("answered %v, want %v", order, want)
		}
	}
	if m.Load() != 39 {
		t.Errorf("mark at %d", m.Load())
	}
}

func TestFailIsFinal(t *testing.T) {
	m := New(0)
	boom := errors.New("boom")
	var got []error
	w := &Waiter{At: 5, Done: func(err error) { got = append(got, err) }}
	m.Add(w)
	m.Fail(boom)
	m.Fail(errors.New("later"))
	m.Advance(100)
	m.Add(&Waiter{At: 1, Done: func(err error) { got = append(got, err) }})
	m.Add(&Waiter{At: 0, Done: func(err error) { got = append(got, err) }})
	if len(got) != 3 || got[0] != boom || got[1] != boom || got[2] != nil || m.Load() != 0 || m.Err() != boom {
		t.Errorf("%v, mark at %d, error %v", got, m.Load(), m.Err())
	}
}

func TestWait(t *testing.T) {
	m := New(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Wait(ctx, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled wait: %v", err)
	}
	done := make(chan error)
	go func() { done <- m.Wait(context.Background(), 7) }()
	m.Advance(7)
	if err := <-done; err != nil {
		t.Error(err)
	}
	m.Reset(3)
	if m.Load() != 3 {
		t.Errorf("mark at %d after Reset", m.Load())
	}
}

// TestConcurrent lets many goroutines add waiters while one advances: each is answered once, and not before its offset.
func TestConcurrent(t *testing.T) {
	m := New(0)
	const last = 5000
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				at := rand.Int64N(last)
				m.Add(&Waiter{At: at, Done: func(err error) {
					if err != nil || m.Load() < at {
						t.Errorf("answered at %d for %d: %v", m.Load(), at, err)
					}
					answered.Add(1)
				}})
			}
		})
	}
	wg.Go(func() {
		for i := int64(1); i <= last; i++ {
			m.Advance(i)
		}
	})
	wg.Wait()
	if answered.Load() != 8*500 {
		t.Errorf("%d of 4000 answered", answered.Load())
	}
}

func TestAllocates(t *testing.T) {
	m := New(0)
	at := int64(0)
	w := &Waiter{Done: func(error) {}}
	if n := testing.AllocsPerRun(1000, func() {
		at++
		w.At = at
		m.Add(w)
		m.Advance(at)
	}); n != 0 {
		t.Errorf("%v allocations per wait", n)
	}
}

package stats

import (
	"sync"
	"sync/atomic"
	"time"
)

// Intervals of the samples and how many are kept: a list of n samples spans n-1 intervals.
const (
	sampleEvery  = 10 * time.Second
	hourEvery    = 10 * time.Minute
	dayEvery     = time.Hour
	minuteKeep   = 7
	hourKeep     = 7
	dayKeep      = 25
	sampleJitter = time.Second // a tick may come that much early
)

// Item is one counter and its samples.
type Item struct {
	key          string
	value, times atomic.Int64

	mu                sync.Mutex
	minute, hour, day []snapshot // guarded by mu
}

type snapshot struct {
	at           time.Time
	value, times int64
}

// Window is what a counter did in a span of time.
type Window struct {
	Sum int64
	TPS float64 // per second
	Avg float64 // for each counted event
}

func (it *Item) add(n, times int64) {
	it.value.Add(n)
	it.times.Add(times)
}

// Value is the total.
func (it *Item) Value() int64 { return it.value.Load() }

// Minute is the last minute, made of samples of 10 s.
func (it *Item) Minute() Window { return it.window(&it.minute) }

// Hour is the last hour, made of samples of 10 min.
func (it *Item) Hour() Window { return it.window(&it.hour) }

// Day is the last day, made of samples of 1 h.
func (it *Item) Day() Window { return it.window(&it.day) }

func (it *Item) window(list *[]snapshot) Window {
	it.mu.Lock()
	defer it.mu.Unlock()
	l := *list
	if len(l) == 0 {
		return Window{}
	}
	first, last := l[0], l[len(l)-1]
	w := Window{Sum: last.value - first.value}
	if span := last.at.Sub(first.at); span > 0 {
		w.TPS = float64(w.Sum) * 1000 / float64(span.Milliseconds())
	}
	if n := last.times - first.times; n > 0 {
		w.Avg = float64(w.Sum) / float64(n)
	}
	return w
}

func (it *Item) sample(now time.Time) {
	s := snapshot{now, it.value.Load(), it.times.Load()}
	it.mu.Lock()
	defer it.mu.Unlock()
	it.minute = push(it.minute, s, sampleEvery, minuteKeep)
	it.hour = push(it.hour, s, hourEvery, hourKeep)
	it.day = push(it.day, s, dayEvery, dayKeep)
}

// push appends a sample when the interval has passed. The first is preceded by a zero sample one interval earlier.
func push(list []snapshot, s snapshot, every time.Duration, keep int) []snapshot {
	if n := len(list); n > 0 {
		if s.at.Sub(list[n-1].at) < every-sampleJitter {
			return list
		}
	} else {
		list = append(list, snapshot{at: s.at.Add(-every)})
	}
	list = append(list, s)
	if len(list) > keep {
		list = append(list[:0], list[len(list)-keep:]...)
	}
	return list
}

// mornings remembers totals at the last two midnights of local time.
type mornings struct {
	mu                                             sync.Mutex
	day                                            int
	putToday, gotToday, putYesterday, gotYesterday int64
}

func (m *mornings) roll(now time.Time, put, got int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	day := now.Year()*400 + now.YearDay()
	if m.day != 0 && m.day != day {
		m.putYesterday, m.gotYesterday = m.putToday, m.gotToday
		m.putToday, m.gotToday = put, got
	}
	m.day = day
}

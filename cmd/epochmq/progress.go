package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// progress rewrites one line of a terminal from time to time. On anything else it says nothing.
type progress struct {
	w    io.Writer // nil: off
	text func() string
	stop chan struct{}
	wg   sync.WaitGroup
	once sync.Once
}

// startProgress shows text's result twice a second until close. quiet turns it off.
func startProgress(w io.Writer, quiet bool, text func() string) *progress {
	p := &progress{text: text, stop: make(chan struct{})}
	if f, ok := w.(*os.File); ok && !quiet && isatty.IsTerminal(f.Fd()) {
		p.w = w
		p.wg.Go(p.run)
	}
	return p
}

func (p *progress) run() {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	shown := false
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(p.w, "\r\x1b[K%s", p.text())
			shown = true
		case <-p.stop:
			if shown {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		}
	}
}

// close removes the line. Twice is fine.
func (p *progress) close() {
	p.once.Do(func() { close(p.stop) })
	p.wg.Wait()
}

// pace says how long n things took, and how many a second that is when there were enough to tell.
func pace(n int64, took time.Duration) string {
	text := fmt.Sprintf(", %.2f s", took.Seconds())
	switch ms := took.Seconds() * 1000; {
	case ms < 10:
		text = fmt.Sprintf(", %.1f ms", ms)
	case ms < 1000:
		text = fmt.Sprintf(", %.0f ms", ms)
	}
	if n > 0 {
		text += fmt.Sprintf(", %d/s", rateOf(n, took))
	}
	return text
}

// rateOf is how many per second, rounded.
func rateOf(n int64, took time.Duration) int64 {
	if took <= 0 {
		return 0
	}
	return int64(float64(n) / took.Seconds())
}

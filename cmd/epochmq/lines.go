package main

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// line is one line of input.
type line struct {
	number int64
	text   []byte // without its end; owned by the receiver
	long   bool   // longer than the limit, text is nil
}

// readLines reads lines from r until its end and sends them to the returned channel, which it closes. The error, if any, is in the second
// channel by then. The goroutine ends with ctx as soon as its read returns: a read of a terminal cannot be interrupted.
func readLines(ctx context.Context, r io.Reader, first int64, limit int) (<-chan line, <-chan error) {
	lines := make(chan line, 256)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		if err := eachLine(r, first, limit, func(l line) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}); err != nil {
			failed <- err
		}
	}()
	return lines, failed
}

// eachLine calls fn for each line until it returns false. It never holds more than limit bytes of a line.
func eachLine(r io.Reader, first int64, limit int, fn func(line) bool) error {
	b := bufio.NewReaderSize(r, 64<<10)
	for n := first; ; n++ {
		l := line{number: n}
		any := false
		for {
			part, err := b.ReadSlice('\n')
			any = any || len(part) > 0
			end := err == nil
			if end {
				part = part[:len(part)-1]
			}
			if l.long = l.long || len(l.text)+len(part) > limit; l.long {
				l.text = nil
			} else {
				l.text = append(l.text, part...)
			}
			if end {
				break
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if any && !fn(l) || errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if !fn(l) {
			return nil
		}
	}
}

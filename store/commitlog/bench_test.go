package commitlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func benchLog(b *testing.B, cfg Config) (*Log, *Queue) {
	cfg.Paths = []string{b.TempDir()}
	cfg.SegmentSize = 256 << 20
	l, err := Open(mappedfile.OS, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	return l, NewQueue("TopicTest", 1, 0)
}

func kilobyte() *message.Message {
	return msg(strings.Repeat("x", 1024), "KEYS", "k1 k2", "TAGS", "TagA", "UNIQ_KEY", "C000020246E44E0E2F2A01F87B9F0000", "WAIT", "true")
}

// BenchmarkAppend is encoding, placing, staging and the dispatch ring; every 64 messages are written.
func BenchmarkAppend(b *testing.B) {
	for _, group := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("write-each-%d", group), func(b *testing.B) {
			l, q := benchLog(b, Config{})
			batch, m := l.NewBatch(), kilobyte()
			var p Placed
			b.SetBytes(1024)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				batch.Reset()
				err := batch.Add(m, q)
				if err == nil {
					p, err = l.Append(batch)
				}
				if i++; err == nil && i%group == 0 {
					err = l.Write(p.End)
				}
				if err != nil {
					b.Fatal(err)
				}
				if p.End > 1<<30 {
					if _, err := l.DropBefore(p.End-512<<20, 0); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	l, q := benchLog(b, Config{})
	batch, m := l.NewBatch(), kilobyte()
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		if err := batch.Add(m, q); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlush is the group commit of a sync log: each round appends a group and waits for the disk.
func BenchmarkFlush(b *testing.B) {
	for _, group := range []int{1, 64} {
		b.Run(fmt.Sprintf("group-%d", group), func(b *testing.B) {
			l, q := benchLog(b, Config{SyncFlush: true})
			batch, m := l.NewBatch(), kilobyte()
			for b.Loop() {
				var p Placed
				for range group {
					batch.Reset()
					err := batch.Add(m, q)
					if err == nil {
						p, err = l.Append(batch)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				if err := l.Flush(p.End); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRecover scans and checks a log in the page cache.
func BenchmarkRecover(b *testing.B) {
	path := b.TempDir()
	l, err := Open(mappedfile.OS, Config{Paths: []string{path}, SegmentSize: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	batch, m, q := l.NewBatch(), kilobyte(), NewQueue("TopicTest", 1, 0)
	for l.End() < 60<<20 {
		batch.Reset()
		if err := batch.Add(m, q); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Append(batch); err != nil {
			b.Fatal(err)
		}
	}
	size := int64(l.End())
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		l, err := Open(mappedfile.OS, Config{Paths: []string{path}, SegmentSize: 64 << 20})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Recover(0, nil); err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkView(b *testing.B) {
	l, q := benchLog(b, Config{})
	batch := l.NewBatch()
	if err := batch.Add(kilobyte(), q); err != nil {
		b.Fatal(err)
	}
	p, err := l.Append(batch)
	if err == nil {
		err = l.Write(p.End)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		v, err := l.View(p.Start, 1200)
		if err != nil || !v.Resident() {
			b.Fatal(err)
		}
		v.Release()
	}
}

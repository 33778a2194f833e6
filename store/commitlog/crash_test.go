package commitlog

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var seeds = flag.Int("crash-seeds", 1500, "number of crash histories")

// world is one history of a log over several crashes, and what must be true of it.
type world struct {
	rng          *rand.Rand
	sim          *mappedfile.Sim
	cfg          Config
	log          *Log
	queue        *Queue
	live         [][]byte // the records of the present timeline
	old          [][]byte // when a truncation may not have happened: the timeline before it
	at           []message.LogOffset
	safe         message.LogOffset // flushed: must survive a power cut
	kept         message.LogOffset // written: must survive a kill
	cutTo, whole message.LogOffset // while old is set: where the truncation cuts, and what was safe before it
	killed       bool              // the last crash was a kill
}

// TestCrashes: whatever is flushed survives a power cut, whatever is written survives a kill; what is found afterwards is a
// beginning of what was appended, byte for byte; nothing above the end comes alive later. Power cuts keep any part of what
// was not flushed, sector by sector. Crashes hit appends, flushes, rolls, truncations and recoveries.
func TestCrashes(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(n) {
		if err := history(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func history(seed uint64) error {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), sim: mappedfile.NewSim(seed), queue: NewQueue("TopicTest", 1, 0)}
	w.sim.SetTorn(seed%4 != 0)
	w.cfg = quiet(int64(1024 + 512*w.rng.IntN(6)))
	w.cfg.StageSize, w.cfg.Stages = 512+256*w.rng.IntN(4), 2+w.rng.IntN(4)
	for round := range 7 {
		if err := w.reopen(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		w.run()
		if err := w.crash(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// reopen recovers, sometimes through crashes of the recovery itself, and checks.
func (w *world) reopen() error {
	for attempt := 0; ; attempt++ {
		if attempt < 3 && w.rng.IntN(3) == 0 {
			ops := []mappedfile.Op{mappedfile.OpSync, mappedfile.OpZero, mappedfile.OpRemove, mappedfile.OpSyncDir, mappedfile.OpOpen}
			w.sim.Fail(mappedfile.Fault{Op: ops[w.rng.IntN(len(ops))], Skip: w.rng.IntN(3)})
		}
		l, err := Open(w.sim, w.cfg)
		var found [][]byte
		if err == nil {
			_, err = l.Recover(0, func(rec *message.Record) error {
				found = append(found, nil)
				return nil
			})
		}
		w.cfg.Rewrite = err != nil || w.cfg.Rewrite && l == nil
		if err == nil {
			w.sim.Heal()
			w.log = l
			return w.check(len(found))
		}
		if l != nil {
			_ = l.Close() // the process dies anyway
		}
		if attempt == 3 {
			return err
		}
		if w.killed { // what was only written is not to be lost by the second blow
			w.sim = w.sim.Kill()
		} else {
			w.sim = w.sim.Crash()
		}
	}
}

// check expects that the log holds what must be there, and takes it as the new beginning.
func (w *world) check(n int) error {
	l := w.log
	w.live, w.at = w.match(n)
	if w.live == nil && n > 0 {
		return fmt.Errorf("%d records do not begin any timeline", n)
	}
	if l.End() < w.safe {
		return fmt.Errorf("ends at %d, %d was safe", l.End(), w.safe)
	}
	if w.old != nil && l.End() > w.cutTo && l.End() < w.whole {
		return fmt.Errorf("ends at %d: a truncation from %d to %d was done by half", l.End(), w.whole, w.cutTo)
	}
	if len(w.at) > 0 {
		last := len(w.at) - 1
		if got := w.at[last] + message.LogOffset(len(w.live[last])); int64(l.End())%w.cfg.SegmentSize != 0 && got != l.End() {
			return fmt.Errorf("ends at %d, the last record at %d", l.End(), got)
		}
	}
	list, err := w.sim.ReadDir(dir)
	if err != nil && n > 0 {
		return err
	}
	for _, e := range list {
		base, _ := mappedfile.ParseName(e.Name())
		b, err := w.sim.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return err
		}
		from := min(max(int64(l.End())-base, 0), int64(len(b)))
		if len(bytes.Trim(b[from:], "\x00")) > 0 {
			return fmt.Errorf("%s holds bytes above the end %d", e.Name(), l.End())
		}
	}
	w.old, w.safe, w.kept = nil, l.End(), l.End()
	w.queue.SetNext(message.QueueOffset(len(w.live)))
	return nil
}

// match finds the timeline that the n records of the log begin.
func (w *world) match(n int) ([][]byte, []message.LogOffset) {
	for _, line := range [][][]byte{w.live, w.old} {
		if len(line) < n {
			continue
		}
		var at []message.LogOffset
		same := true
		_, err := w.log.Scan(0, w.log.End(), func(rec *message.Record) error {
			v, err := w.log.View(rec.LogOffset, int(rec.Size))
			if err != nil {
				return err
			}
			same = same && bytes.Equal(v.Bytes(), line[len(at)])
			v.Release()
			at = append(at, rec.LogOffset)
			return nil
		})
		if err == nil && same && len(at) == n {
			return line[:n:n], at
		}
	}
	return nil, nil
}

func (w *world) run() {
	b := w.log.NewBatch()
	if w.rng.IntN(3) == 0 {
		op := []mappedfile.Op{mappedfile.OpWrite, mappedfile.OpSync, mappedfile.OpSyncDir, mappedfile.OpAllocate, mappedfile.OpRemove, mappedfile.OpZero}[w.rng.IntN(6)]
		w.sim.Fail(mappedfile.Fault{Op: op, Skip: w.rng.IntN(12), Count: 1, Err: syscall.EIO})
	}
	for range w.rng.IntN(40) {
		var err error
		switch k := w.rng.IntN(20); {
		case k < 13:
			err = w.append(b)
		case k < 16:
			end := w.log.End()
			if err = w.log.Write(end); err == nil {
				w.kept = end
			}
		case k < 19:
			end := w.log.End()
			if err = w.log.Flush(end); err == nil {
				w.kept, w.safe = end, end
			}
		default:
			err = w.truncate()
		}
		if err != nil {
			return
		}
	}
}

func (w *world) append(b *Batch) error {
	b.Reset()
	for range 1 + w.rng.IntN(3) {
		body := strings.Repeat(string(rune('a'+w.rng.IntN(26))), w.rng.IntN(200))
		if err := b.Add(msg(body, "KEYS", "k"), w.queue); err != nil {
			return err
		}
	}
	if _, err := w.log.Append(b); err != nil {
		return err
	}
	pos := 0
	for i := range b.Len() {
		e := b.Entry(i)
		w.live = append(w.live, bytes.Clone(b.buf[pos:pos+int(e.Size)]))
		w.at = append(w.at, e.LogOffset)
		pos += int(e.Size)
	}
	return nil
}

func (w *world) truncate() error {
	if len(w.at) == 0 || w.old != nil {
		return nil
	}
	i := w.rng.IntN(len(w.at))
	to := w.at[i]
	w.old, w.cutTo, w.whole = w.live, to, w.safe
	w.live, w.at = w.live[:i:i], w.at[:i:i]
	w.safe, w.kept = min(w.safe, to), min(w.kept, to)
	err := w.log.Truncate(to)
	if err == nil {
		w.old, w.safe, w.kept = nil, to, to
		w.queue.SetNext(message.QueueOffset(i))
	}
	return err
}

func (w *world) crash() error {
	next := w.sim.Crash
	w.killed = false
	w.cfg.Rewrite = w.log.Err() != nil
	if w.rng.IntN(3) == 0 {
		next, w.killed = w.sim.Kill, true
		if w.log.Err() == nil {
			w.safe = w.kept
		}
	}
	w.sim.Heal()
	after := next()
	err := w.log.Close()
	w.sim = after
	if err != nil && !errors.Is(err, ErrFenced) {
		return err
	}
	return nil
}

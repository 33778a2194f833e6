package store

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/commitlog"
	"github.com/epochmq/epochmq/store/consumequeue"
)

const (
	// manualRounds is how many rounds a manual deletion goes on.
	manualRounds = 20
	// sane is the oldest store time that retention believes: a file from before 2010 was written by a wrong clock.
	sane = 1262304000000
)

// diskUse is one look at the file systems. It is replaced, never changed.
type diskUse struct {
	log   []PathUsage
	queue PathUsage
	full  map[string]bool // folders of the log that get no new segment
}

// refusal is the error of a write while a disk is full.
func (u *diskUse) refusal(cfg *Config) error {
	_, _, warning := cfg.ratios()
	e := &DiskFullError{Log: lowest(u.log), Queue: u.queue.Ratio, Limit: warning}
	return e
}

// lowest is the ratio of the path that has most room, -1 when none is known.
func lowest(paths []PathUsage) float64 {
	r := -1.0
	for _, p := range paths {
		if p.Ratio >= 0 && (r < 0 || p.Ratio < r) {
			r = p.Ratio
		}
	}
	return r
}

// cleaner watches the disks, deletes what may go, and is the only one that deletes. One goroutine, run.
type cleaner struct {
	worker
	s      *Store
	kick   chan struct{}
	manual atomic.Int32 // rounds that a manual deletion still has
	low    message.LogOffset
}

func newCleaner(s *Store) *cleaner {
	return &cleaner{worker: newWorker(), s: s, kick: make(chan struct{}, 1), low: -1}
}

func (c *cleaner) run() {
	defer close(c.gone)
	for {
		if err := c.round(); err != nil {
			c.s.o.Log.Error("old files cannot be deleted", "error", err)
		}
		t := time.NewTimer(time.Duration(c.s.config().CleanResourceInterval) * time.Millisecond)
		select {
		case <-c.stop:
			t.Stop()
			return
		case <-c.kick:
			t.Stop()
		case <-t.C:
		}
	}
}

// round gives idle maps back, looks at the disks and deletes if it is time, if space is short, or if somebody asked.
func (c *cleaner) round() error {
	cfg := c.s.config()
	c.s.log.UnmapIdle()
	atOnce, short := c.s.watchDisks(cfg)
	hours, err := parseHours(cfg.DeleteWhen)
	if err != nil {
		return err
	}
	asked := c.manual.Load() > 0
	if asked {
		c.manual.Add(-1)
	}
	if hours[time.Now().Hour()] || atOnce || short || asked {
		err = c.log(cfg, atOnce && cfg.CleanFileForciblyEnable)
	}
	low := c.s.log.Min()
	if low == c.low {
		return err
	}
	derr := c.derived(cfg, low)
	if derr == nil {
		c.low = low
	}
	return errors.Join(err, derr)
}

// watchDisks looks at the file systems and sets and clears the flags that refuse writes, log and queues apart. atOnce: space
// is so short that files go before their time; short: files whose time has come may go at any hour.
func (s *Store) watchDisks(cfg *Config) (atOnce, short bool) {
	normal, forced, warning := cfg.ratios()
	writable, readOnly := cfg.LogPaths()
	u := &diskUse{full: make(map[string]bool), queue: s.measure(filepath.Join(s.root, "consumequeue"))}
	for _, p := range slices.Concat(writable, readOnly) {
		m := s.measure(p)
		u.log = append(u.log, m)
		if m.Ratio > forced {
			u.full[p] = true
		}
	}
	s.usage.Store(u)
	for _, one := range []struct {
		ratio float64
		flag  Flags
		name  string
	}{{lowest(u.log), DiskFull, "commit log"}, {u.queue.Ratio, QueueDiskFull, "consume queues"}} {
		was := s.flags.load()&one.flag != 0
		switch {
		case one.ratio > warning:
			s.flags.set(one.flag, true)
			if !was {
				s.o.Log.Error("disk is full, messages are refused until space returns", "of", one.name, "used", one.ratio, "limit", warning)
			}
			atOnce = true
		case one.ratio > forced:
			atOnce = true
		default:
			s.flags.set(one.flag, false)
			if was {
				s.o.Log.Info("space has returned, messages are taken again", "of", one.name, "used", one.ratio)
			}
		}
		short = short || one.ratio < 0 || one.ratio > normal
	}
	return atOnce, short
}

// measure tells how full the file system of a path is; a path that does not exist yet counts as its parent.
func (s *Store) measure(path string) PathUsage {
	u := PathUsage{Path: path, Ratio: -1}
	for p := path; ; p = filepath.Dir(p) {
		total, avail, err := s.fs.Usage(p)
		if err == nil {
			u.Total, u.Avail = total, avail
			if total > 0 {
				u.Ratio = math.Ceil(float64(total-avail)*100/float64(total)) / 100
			}
			return u
		}
		if filepath.Dir(p) == p {
			return u
		}
	}
}

// log deletes the oldest files of the log whose time has come, or any but the last when force is set.
func (c *cleaner) log(cfg *Config, force bool) error {
	reserved := time.Duration(cfg.FileReservedTime) * time.Hour
	for n := 0; n < cfg.DeleteFileBatchMax; n++ {
		segs := c.s.log.Segments()
		if len(segs) < 2 || !force && time.Since(c.s.age(segs)) < reserved {
			return nil
		}
		dropped, err := c.s.log.DropBefore(segs[0].End, 1)
		if err != nil || dropped == 0 {
			return err
		}
		c.s.o.Log.Info("old file of the commit log is deleted", "file", segs[0].Path, "forced", force)
		if !c.pause(time.Duration(cfg.DeleteCommitLogFilesInterval) * time.Millisecond) {
			return nil
		}
	}
	return nil
}

// age is when the oldest file got its last message: the file's time of change, as RocketMQ takes it, or the store time of
// the message after it where that is earlier, so that copying a store does not start its retention anew.
func (s *Store) age(segs []commitlog.SegmentInfo) time.Time {
	t := segs[0].ModTime
	if ms := s.storeTimeAt(segs[1].Base); ms >= sane {
		if stored := time.UnixMilli(ms); stored.Before(t) {
			return stored
		}
	}
	return t
}

// derived deletes what the queues and the index hold for messages that are gone.
func (c *cleaner) derived(cfg *Config, low message.LogOffset) error {
	var errs []error
	c.s.queues.Each(func(q *consumequeue.Queue) bool {
		n, err := q.DeleteExpired(low)
		if err != nil {
			errs = append(errs, err)
		}
		if n > 0 {
			return c.pause(time.Duration(cfg.DeleteConsumeQueueFilesInterval) * time.Millisecond)
		}
		return true
	})
	if c.s.idx != nil {
		_, err := c.s.idx.DeleteExpired(low)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DeleteExpiredLog starts a manual deletion: for the next rounds files whose time has come go at any hour.
func (s *Store) DeleteExpiredLog() {
	s.cleaner.manual.Store(manualRounds)
	select {
	case s.cleaner.kick <- struct{}{}:
	default:
	}
}

// CleanExpired deletes now what queues and index hold for messages that are gone, and corrects the queues' minima.
func (s *Store) CleanExpired() error {
	if s.closed.Load() {
		return ErrClosed
	}
	low := s.log.Min()
	_, err := s.queues.DeleteExpired(low)
	if s.idx != nil {
		_, ierr := s.idx.DeleteExpired(low)
		err = errors.Join(err, ierr)
	}
	return err
}

package role

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Pauses before a change that failed begins again.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// Runner carries out the steps of a Machine on one goroutine. Start once; Close twice is fine.
type Runner struct {
	do     func(ctx context.Context, s Step, t Target) error
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	machine Machine            // guarded by mu
	drop    context.CancelFunc // guarded by mu: of the step that runs
	changed chan struct{}      // guarded by mu: closed when the role in force or the target changes
}

// NewRunner makes a runner in the unknown role. do carries out one step; it is called by one goroutine, returns early when
// ctx ends because a newer epoch came, and may be called again for a step that was done or half done.
func NewRunner(do func(ctx context.Context, s Step, t Target) error, log *slog.Logger) *Runner {
	r := &Runner{do: do, log: log, changed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start starts the goroutine.
func (r *Runner) Start() { r.wg.Go(r.run) }

// Close ends the goroutine; the step that runs sees its context end. The role stays what it was.
func (r *Runner) Close() {
	r.cancel()
	r.wg.Wait()
}

// Aim asks for a role, see Machine.Aim. It does not wait for the change.
func (r *Runner) Aim(t Target) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, err := r.machine.Aim(t)
	if changed {
		if r.drop != nil {
			r.drop()
		}
		r.wakeLocked()
	}
	return err
}

// Applied is the role in force, Unknown while a change is under way.
func (r *Runner) Applied() Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Applied()
}

// Target is the role that is wanted, in force or not.
func (r *Runner) Target() Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Target()
}

// Wait returns the role in force as soon as there is one.
func (r *Runner) Wait(ctx context.Context) (Target, error) {
	for {
		r.mu.Lock()
		t, changed := r.machine.Applied(), r.changed
		r.mu.Unlock()
		if t.Kind != Unknown {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Target{}, ctx.Err()
		case <-r.ctx.Done():
			return Target{}, context.Canceled
		}
	}
}

func (r *Runner) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Runner) run() {
	pause := firstPause
	for {
		r.mu.Lock()
		step, target, more := r.machine.Next()
		changed := r.changed
		ctx, cancel := context.WithCancel(r.ctx)
		r.drop = cancel
		r.mu.Unlock()
		if !more {
			cancel()
			pause = firstPause
			select {
			case <-changed:
				continue
			case <-r.ctx.Done():
				return
			}
		}
		err := r.do(ctx, step, target)
		cancel()
		if r.ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		overtaken := r.machine.Target() != target
		r.machine.Done(target, err)
		if r.machine.Applied() == target {
			r.wakeLocked()
			r.log.Info("role in force", "role", target.String())
		}
		r.mu.Unlock()
		if err == nil || overtaken {
			pause = firstPause
			continue
		}
		r.log.Error("a change of role failed, it is tried again", "role", target.String(), "step", step.String(), "error", err, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
		case <-r.ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// Package cluster runs real epochmq processes on loopback for tests: it builds the binary once, picks free ports, writes
// configuration files into temporary folders, starts, stops, kills and restarts processes, and keeps their output.
// Its main type is Process. Integration and conformance tests use it; it is never part of the product.
package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	buildOnce sync.Once
	buildPath string
	buildErr  error
)

// Binary builds cmd/epochmq once per test process and returns its path. EPOCHMQ_BINARY names a ready one instead.
func Binary(tb testing.TB) string {
	tb.Helper()
	buildOnce.Do(func() {
		if p := os.Getenv("EPOCHMQ_BINARY"); p != "" {
			buildPath = p
			return
		}
		dir, err := os.MkdirTemp("", "epochmq-test-bin")
		if err != nil {
			buildErr = err
			return
		}
		buildPath = filepath.Join(dir, "epochmq")
		cmd := exec.Command("go", "build", "-o", buildPath, "github.com/epochmq/epochmq/cmd/epochmq")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = fmt.Errorf("build epochmq: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		tb.Fatal(buildErr)
	}
	return buildPath
}

// Cleanup removes the binary that Binary built; call it from TestMain.
func Cleanup() {
	if buildPath != "" && os.Getenv("EPOCHMQ_BINARY") == "" {
		os.RemoveAll(filepath.Dir(buildPath))
	}
}

// FreePorts returns n ports of 127.0.0.1 that were free at the time of the call. Each has two free neighbours below and one above,
// because a broker also listens on listenPort-2 and keeps listenPort+1 for replication. They lie below the ports that systems give
// to outgoing connections, so that a server can be started on its port again.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	const low, high = 15000, 32000
	var ports []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for tries := 0; len(ports) < n; tries++ {
		if tries > 500 {
			tb.Fatal("no free ports")
		}
		p := low + rand.IntN(high-low)
		ok := true
		for _, q := range []int{p, p - 2, p - 1, p + 1} {
			x, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", q))
			if err != nil {
				ok = false
				break
			}
			held = append(held, x)
		}
		if ok {
			ports = append(ports, p)
		}
	}
	return ports
}

// Process is one started program. Its output is kept in memory, the last mebibyte of it.
type Process struct {
	Name string
	Addr string // address that tells that it is ready

	tb   testing.TB
	path string
	args []string
	env  []string
	cmd  *exec.Cmd
	out  *tail
	done chan struct{}
	err  error
}

// NewProcess prepares a program; Start starts it. The test's cleanup kills it.
func NewProcess(tb testing.TB, name, addr, path string, args ...string) *Process {
	p := &Process{Name: name, Addr: addr, tb: tb, path: path, args: args, out: &tail{max: 1 << 20}}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("output of %s:\n%s", name, p.Output())
		}
	})
	return p
}

// Env adds environment variables in the form NAME=value.
func (p *Process) Env(kv ...string) *Process { p.env = append(p.env, kv...); return p }

// Args replaces the arguments for the next start.
func (p *Process) Args(args ...string) { p.args = args }

// Launch starts the program and does not wait until it is ready.
func (p *Process) Launch() error {
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = sysProcAttr()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.done = make(chan struct{})
	go func(c *exec.Cmd, done chan struct{}) { p.err = c.Wait(); close(done) }(p.cmd, p.done)
	return nil
}

// Start starts the program and returns once Addr accepts connections, with the time that took.
func (p *Process) Start() time.Duration {
	p.tb.Helper()
	start := time.Now()
	if err := p.Launch(); err != nil {
		p.tb.Fatalf("start %s: %v", p.Name, err)
	}
	if err := p.WaitReady(60 * time.Second); err != nil {
		p.tb.Fatalf("%v\n%s", err, p.Output())
	}
	return time.Since(start)
}

// WaitReady dials Addr until it answers, the program ends or the limit passes.
func (p *Process) WaitReady(limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		c, err := net.DialTimeout("tcp", p.Addr, time.Second)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready: %v", p.Name, p.err)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s did not listen on %s within %v", p.Name, p.Addr, limit)
}

// Pid returns the process id, or 0.
func (p *Process) Pid() int {
	if p.cmd == nil || p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running tells whether the program runs.
func (p *Process) Running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return errors.New(p.Name + " does not run")
	}
	return p.cmd.Process.Signal(s)
}

// Kill sends SIGKILL and waits for the end. It does nothing when the program does not run.
func (p *Process) Kill() {
	if p.Running() {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Stop sends SIGTERM and returns the exit code; it fails the test when the program does not end within the limit.
func (p *Process) Stop(limit time.Duration) int {
	p.tb.Helper()
	if !p.Running() {
		return p.ExitCode()
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(limit):
		p.Kill()
		p.tb.Errorf("%s did not end within %v of SIGTERM\n%s", p.Name, limit, p.Output())
	}
	return p.ExitCode()
}

// Wait waits for the end of the program and returns its exit code, or -1 after the limit.
func (p *Process) Wait(limit time.Duration) int {
	select {
	case <-p.done:
		return p.ExitCode()
	case <-time.After(limit):
		return -1
	}
}

// ExitCode returns the exit code of an ended program; -1 when it was killed or still runs.
func (p *Process) ExitCode() int {
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Output returns what the program printed, all starts together.
func (p *Process) Output() string { return p.out.String() }

// tail keeps the last max bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
	max int
}

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if t.buf.Len() > 2*t.max {
		keep := append([]byte(nil), t.buf.Bytes()[t.buf.Len()-t.max:]...)
		t.buf.Reset()
		t.buf.Write(keep)
	}
	return len(b), nil
}

func (t *tail) String() string { t.mu.Lock(); defer t.mu.Unlock(); return t.buf.String() }

// Namesrv returns a name server on a free port, not started.
func Namesrv(tb testing.TB) *Process {
	tb.Helper()
	port := FreePorts(tb, 1)[0]
	dir := tb.TempDir()
	conf := WriteConf(tb, filepath.Join(dir, "namesrv.conf"), map[string]string{
		"listenPort": fmt.Sprint(port), "bindAddress": "127.0.0.1", "kvConfigPath": filepath.Join(dir, "kvConfig.json"),
	})
	return NewProcess(tb, "namesrv", fmt.Sprint("127.0.0.1:", port), Binary(tb), "namesrv", "-c", conf)
}

// Broker returns a broker on a free port with its store under root, not started. Keys of extra win over the defaults, which use
// small files.
func Broker(tb testing.TB, namesrv, root string, extra map[string]string) *Process {
	tb.Helper()
	port := FreePorts(tb, 1)[0]
	return BrokerAt(tb, port, namesrv, root, extra)
}

// BrokerAt is Broker on a given port.
func BrokerAt(tb testing.TB, port int, namesrv, root string, extra map[string]string) *Process {
	tb.Helper()
	keys := map[string]string{
		"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "listenPort": fmt.Sprint(port),
		"brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "storePathRootDir": root, "namesrvAddr": namesrv,
		"mappedFileSizeCommitLog": fmt.Sprint(64 << 20), "mappedFileSizeConsumeQueue": "600000",
		"maxHashSlotNum": "10000", "maxIndexNum": "200000",
	}
	for k, v := range extra {
		keys[k] = v
	}
	conf := WriteConf(tb, filepath.Join(tb.TempDir(), "broker.conf"), keys)
	return NewProcess(tb, "broker", fmt.Sprint("127.0.0.1:", port), Binary(tb), "broker", "-c", conf)
}

// WriteConf writes a properties file with sorted keys and returns its path.
func WriteConf(tb testing.TB, path string, keys map[string]string) string {
	tb.Helper()
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, k := range names {
		fmt.Fprintf(&b, "%s=%s\n", k, keys[k])
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const floorName = "floor"

// server is one that is driven; cmd is nil if it was running already.
type server struct {
	name string
	addr string
	pid  int // 0: unknown
	cmd  *exec.Cmd
}

func build(to string) error {
	cmd := exec.Command("go", "build", "-o", to, "github.com/epochmq/epochmq/benchmarks/floor")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the floor: %w", err)
	}
	return nil
}

// startAll starts the servers of a scenario; those that did start are returned even with an error.
func startAll(o options, s scenario, dir string) ([]*server, error) {
	var list []*server
	f, err := startFloor(o, s, dir)
	if err != nil {
		return list, err
	}
	list = append(list, f)
	if o.broker != "" {
		b, err := startBroker(o, s, dir)
		if err != nil {
			return list, err
		}
		list = append(list, b)
	}
	for _, p := range o.peers {
		sv, err := external(p)
		if err != nil {
			return list, err
		}
		list = append(list, sv)
	}
	return list, nil
}

func external(spec string) (*server, error) {
	name, addr, ok := strings.Cut(spec, "=")
	if !ok {
		return nil, fmt.Errorf("-peer %s: expected name=host:port[,pid]", spec)
	}
	addr, pid, _ := strings.Cut(addr, ",")
	sv := &server{name: name, addr: addr}
	if pid != "" {
		var err error
		if sv.pid, err = strconv.Atoi(pid); err != nil {
			return nil, fmt.Errorf("-peer %s: %w", spec, err)
		}
	}
	return sv, nil
}

func startFloor(o options, s scenario, dir string) (*server, error) {
	var args []string
	if s.sync {
		args = append(args, "-sync", filepath.Join(dir, "floor.log"))
	}
	cmd := exec.Command(o.floor, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	sv := &server{name: floorName, pid: cmd.Process.Pid, cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		sv.stop()
		return nil, fmt.Errorf("floor says %q: %w", line, err)
	}
	sv.addr = addr
	return sv, nil
}

func startBroker(o options, s scenario, dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "store")
	flush := "ASYNC_FLUSH"
	if s.sync {
		flush = "SYNC_FLUSH"
	}
	conf := filepath.Join(dir, "broker.conf")
	text := fmt.Sprintf("brokerClusterName=bench\nbrokerName=bench\nbrokerId=0\nbrokerIP1=127.0.0.1\nlistenPort=%d\nstorePathRootDir=%s\nflushDiskType=%s\n", port, root, flush)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(o.broker, "broker", "-c", conf)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if o.keepLogs {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &server{name: "epochmq", addr: fmt.Sprintf("127.0.0.1:%d", port), pid: cmd.Process.Pid, cmd: cmd}, nil
}

// freePort finds a port whose neighbours that a broker uses as well (two below, one above) are free.
func freePort() (int, error) {
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := ln.Addr().(*net.TCPAddr).Port
		free := true
		for _, p := range []int{port - 2, port + 1} {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				free = false
				continue
			}
			_ = l.Close()
		}
		if err := ln.Close(); err != nil {
			return 0, err
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

// stop ends a server that was started here.
func (sv *server) stop() {
	if sv.cmd == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		_ = sv.cmd.Wait() // how it ends is of no interest
		close(done)
	}()
	_ = sv.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		_ = sv.cmd.Process.Kill()
		<-done
	}
}

const tick = time.Second / 100 // the unit of /proc/*/stat

// cpu is the user and system time of the server so far, 0 if unknown.
func (sv *server) cpu() time.Duration {
	if sv.pid == 0 {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", sv.pid))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0
	}
	return ticks(f[11]) + ticks(f[12])
}

func ticks(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * tick
}

// machineCPU is the busy time of all CPUs so far.
func machineCPU() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	var sum time.Duration
	for i, s := range f {
		if i == 0 || i == 4 || i == 5 || i > 8 { // name, idle, waiting for disks, guests (counted as user already)
			continue
		}
		sum += ticks(s)
	}
	return sum
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}
	return "kernel " + strings.TrimSpace(string(b))
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// smallDisk mounts an ext4 image of the given size in MiB and returns its folder.
func smallDisk(t *testing.T, mib int) (dir, image string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed")
	}
	dir = t.TempDir()
	image = filepath.Join(dir, "disk.img")
	mnt := filepath.Join(dir, "mnt")
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run("truncate", "-s", fmt.Sprintf("%dM", mib), image); err != nil {
		t.Fatal(err)
	}
	if err := run("mkfs.ext4", "-q", "-m", "0", image); err != nil {
		t.Fatal(err)
	}
	if err := run("mount", "-o", "loop", image, mnt); err != nil {
		t.Skipf("no loop device: %v", err)
	}
	t.Cleanup(func() {
		if err := run("umount", mnt); err != nil {
			t.Error(err)
		}
	})
	return mnt, image
}

// TestDiskFull fills the disk under a broker with a foreign file, sees sends refused with a reason while reading goes on, frees the space
// and sees sends taken again without a restart.
func TestDiskFull(t *testing.T) {
	mnt, _ := smallDisk(t, 192)
	root := filepath.Join(mnt, "store")
	broker := cluster.Broker(t, "", root, map[string]string{"mappedFileSizeCommitLog": fmt.Sprint(1 << 20), "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "1000", "maxIndexNum": "20000", "cleanResourceInterval": "1000"})
	broker.Start()
	createTopic(t, broker.Addr, "Full", queues)
	l := newLedger("Full")
	l.burst(t, broker.Addr, 200)
	known, err := dialRaw(broker.Addr) // the readers' group exists before the disk is full
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pullAll(known, "Full", 1, 0); err != nil {
		t.Fatal(err)
	}
	known.Close()
	filler := filepath.Join(mnt, "filler")
	if out, err := exec.Command("sh", "-c", fmt.Sprintf("head -c 300M /dev/zero > %s", filler)).CombinedOutput(); err == nil {
		t.Fatalf("the disk did not fill: %s", out)
	}
	c, err := dialRaw(broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refusal := ""
	for end := time.Now().Add(30 * time.Second); refusal == "" && time.Now().Before(end); {
		a, err := c.call(310, sendExt("Full", 0, ""), make([]byte, 60000), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if a.Code != 0 {
			refusal = fmt.Sprint(a.Code, " ", a.Remark)
		}
	}
	if refusal == "" {
		t.Fatal("sends were taken for 30 s on a full disk")
	}
	t.Logf("refused with: %s", refusal)
	if !strings.HasPrefix(refusal, "14 ") && !strings.HasPrefix(refusal, "1 ") {
		t.Errorf("a full disk answers %s", refusal)
	}
	if recs, err := pullAll(c, "Full", 1, 0); err != nil || len(recs) == 0 {
		t.Errorf("reading on a full disk: %d records, %v", len(recs), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		a, err := c.call(310, sendExt("Full", 0, ""), []byte("again"), 10*time.Second)
		if err == nil && a.Code == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("sends are still refused after space was freed: %+v %v", a, err)
		}
	}
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the broker ended with %d", code)
	}
	inspect(t, root)
}

// burst sends n messages and waits for all answers.
func (l *ledger) burst(t *testing.T, addr string, n int) {
	t.Helper()
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- l.produce(addr, 1, 32, 1024, stop) }()
	target := l.size() + n
	for end := time.Now().Add(30 * time.Second); l.size() < target; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d acknowledged", l.size(), target)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// diskFault makes system calls on the given files of a running broker fail. Empty files: on all files.
type diskFault struct {
	name   string
	inject string // as strace -e inject takes it
	flush  string
	files  string // pattern below the store's folder
}

// attach begins to inject the fault and returns what ends it.
func (f *diskFault) attach(t *testing.T, pid int, root string) (detach func()) {
	t.Helper()
	args := []string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=" + strings.SplitN(f.inject, ":", 2)[0], "-e", "inject=" + f.inject, "-p", fmt.Sprint(pid)}
	if f.files != "" {
		paths, err := filepath.Glob(filepath.Join(root, f.files))
		must(t, err)
		if len(paths) == 0 {
			t.Fatalf("no file is named %s", f.files)
		}
		for _, p := range paths {
			args = append(args, "-P", p)
		}
	}
	trace := exec.Command("strace", args...)
	said := &lockedBuffer{}
	trace.Stderr = said
	if err := trace.Start(); err != nil {
		t.Skipf("strace: %v", err)
	}
	ended := false
	detach = func() {
		if !ended {
			ended = true
			_ = trace.Process.Signal(os.Interrupt)
			_ = trace.Wait()
		}
	}
	t.Cleanup(detach)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if strings.Contains(said.String(), "Operation not permitted") {
			t.Skip("strace may not attach here")
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		if !strings.Contains(string(status), "TracerPid:\t0\n") {
			return detach
		}
		if time.Now().After(end) {
			t.Fatalf("strace does not attach: %s", said.String())
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *lockedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// faultKeys flush queues and index every moment, so that a failure of it does not wait a minute.
func faultKeys(flush string) map[string]string {
	return map[string]string{"flushDiskType": flush, "mappedFileSizeCommitLog": fmt.Sprint(4 << 20), "flushConsumeQueueThoroughInterval": "100", "flushIntervalConsumeQueue": "100"}
}

// TestDiskErrors makes one system call of the running broker fail and wants: no acknowledgement for what may not be stored, a clear
// refusal afterwards, reading goes on, a non-zero exit code, and after a restart everything acknowledged is there. The log, the queues, the
// index and the checkpoint are the same in this: what is not on disk must not be vouched for.
func TestDiskErrors(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	for _, c := range []diskFault{
		{"EIO on flush, SYNC_FLUSH", "fdatasync:error=EIO:when=3+", "SYNC_FLUSH", "commitlog/*"},
		{"EIO on flush, ASYNC_FLUSH", "fdatasync:error=EIO", "ASYNC_FLUSH", "commitlog/*"},
		{"EIO on write", "pwrite64:error=EIO:when=20+", "ASYNC_FLUSH", "commitlog/*"},
		{"ENOSPC on write", "pwrite64:error=ENOSPC:when=20+", "SYNC_FLUSH", "commitlog/*"},
		{"EIO on flush of a queue", "fdatasync:error=EIO", "ASYNC_FLUSH", "consumequeue/Errors/3/*"},
		{"EIO on write of a queue", "pwrite64:error=EIO:when=2+", "ASYNC_FLUSH", "consumequeue/Errors/3/*"},
		{"EIO on flush of the index", "fdatasync:error=EIO", "ASYNC_FLUSH", "index/*"},
		{"ENOSPC on write of the index", "pwrite64:error=ENOSPC", "SYNC_FLUSH", "index/*"},
		{"EIO on flush of the checkpoint", "fdatasync:error=EIO", "ASYNC_FLUSH", "checkpoint"},
	} {
		if !*long && (c.name == "ENOSPC on write" || c.name == "EIO on write of a queue" || c.name == "ENOSPC on write of the index") {
			continue // nearly the same as another
		}
		t.Run(c.name, func(t *testing.T) { diskError(t, &c) })
	}
}

func diskError(t *testing.T, c *diskFault) {
	root := filepath.Join(t.TempDir(), "store")
	broker := cluster.Broker(t, "", root, faultKeys(c.flush))
	broker.Start()
	createTopic(t, broker.Addr, "Errors", queues)
	l := newLedger("Errors")
	l.burst(t, broker.Addr, 300)
	waitForFile(t, filepath.Join(root, "checkpoint"))
	detach := c.attach(t, broker.Pid(), root)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- l.produce(broker.Addr, 2, 16, 1024, stop) }()
	refused := 0
	for end := time.Now().Add(20 * time.Second); refused <= 50 && broker.Running() && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		refused = l.refused
		l.mu.Unlock()
	}
	close(stop)
	<-done
	if refused <= 50 {
		t.Fatalf("no refusal after the disk failed (running: %v)", broker.Running())
	}
	conn, err := dialRaw(broker.Addr)
	must(t, err)
	a, err := conn.call(310, sendExt("Errors", 0, ""), []byte("x"), 5*time.Second)
	if err != nil || a.Code == 0 {
		t.Errorf("after the error a send answers %+v %v", a, err)
	} else {
		t.Logf("refused with: %d %s", a.Code, a.Remark)
	}
	if recs, err := pullAll(conn, "Errors", 1, 0); err != nil || len(recs) == 0 {
		t.Errorf("reading after the error: %d records, %v", len(recs), err)
	}
	conn.Close()
	detach()
	if code := broker.Stop(20 * time.Second); code == 0 {
		t.Error("a broker whose disk failed ended with code 0")
	}
	broker.Start()
	var zero [queues]int64
	l.check(t, broker.Addr, zero)
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the run after it ended with %d", code)
	}
	inspect(t, root)
}

// waitForFile waits until a file has content.
func waitForFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if st, err := os.Stat(path); err == nil && st.Size() > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not written", path)
		}
	}
}

// TestSmallFileErrors makes writes of files fail that the broker can do without: sends go on, what depends on the file is refused, and it is
// done again when the disk is well.
func TestSmallFileErrors(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	commit := func(c *rawConn, off int) (*answer, error) {
		return c.call(15, map[string]string{"consumerGroup": "SmallGroup", "topic": "Small", "queueId": "1", "commitOffset": fmt.Sprint(off)}, nil, 5*time.Second)
	}
	for _, c := range []struct {
		diskFault
		under func(t *testing.T, c *rawConn) // what is asked while the fault lasts
	}{
		{diskFault{"durable mark", "fdatasync,fsync:error=EIO", "ASYNC_FLUSH", "epochmq/recovery.*"}, func(t *testing.T, c *rawConn) { time.Sleep(300 * time.Millisecond) }},
		{diskFault{"offset journal", "pwrite64,write:error=EIO", "ASYNC_FLUSH", "epochmq/offsets/*"}, func(t *testing.T, c *rawConn) {
			if a, err := commit(c, 2000); err != nil || a.Code == 0 {
				t.Errorf("a commit that cannot be written answers %+v %v", a, err)
			}
		}},
		{diskFault{"topics", "fsync,fdatasync:error=EIO", "SYNC_FLUSH", "config"}, func(t *testing.T, c *rawConn) {
			a, err := c.call(17, map[string]string{"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
				"topicSysFlag": "0", "order": "false"}, nil, 5*time.Second)
			t.Logf("a topic that cannot be saved: %+v %v", a, err)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			broker := cluster.Broker(t, "", root, faultKeys(c.flush))
			broker.Start()
			createTopic(t, broker.Addr, "Small", queues)
			createGroup(t, broker.Addr, "SmallGroup")
			l := newLedger("Small")
			l.burst(t, broker.Addr, 300)
			conn, err := dialRaw(broker.Addr)
			must(t, err)
			defer conn.Close()
			if a, err := commit(conn, 1000); err != nil || a.Code != 0 {
				t.Fatalf("commit: %+v %v", a, err)
			}
			waitForFile(t, filepath.Join(root, "epochmq", "recovery.durable"))
			detach := c.attach(t, broker.Pid(), root)
			l.burst(t, broker.Addr, 300)
			c.under(t, conn)
			l.burst(t, broker.Addr, 300)
			if l.refused > 0 {
				t.Errorf("%d sends were refused", l.refused)
			}
			a, err := conn.call(14, map[string]string{"consumerGroup": "SmallGroup", "topic": "Small", "queueId": "1"}, nil, 5*time.Second)
			if err != nil || a.int("offset") != 1000 {
				t.Errorf("the group stands at %+v %v; only 1000 was acknowledged", a, err)
			}
			detach()
			if a, err := commit(conn, 3000); err != nil || a.Code != 0 {
				t.Errorf("commit after the fault: %+v %v", a, err)
			}
			broker.Kill()
			broker.Start()
			var zero [queues]int64
			l.check(t, broker.Addr, zero)
			again, err := dialRaw(broker.Addr)
			must(t, err)
			defer again.Close()
			a, err = again.call(14, map[string]string{"consumerGroup": "SmallGroup", "topic": "Small", "queueId": "1"}, nil, 5*time.Second)
			if err != nil || a.int("offset") != 3000 {
				t.Errorf("after a kill the group stands at %+v %v, not at 3000", a, err)
			}
			if code := broker.Stop(20 * time.Second); code != 0 {
				t.Errorf("ended with %d", code)
			}
			inspect(t, root)
		})
	}
}

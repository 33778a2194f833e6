package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestDiskErrors makes one system call of the running broker fail and wants: no acknowledgement for what may not be stored, a clear
// refusal afterwards, reading goes on, a non-zero exit code, and after a restart everything acknowledged is there.
func TestDiskErrors(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	for _, c := range []struct{ name, inject, flush string }{
		{"EIO on flush, SYNC_FLUSH", "fdatasync:error=EIO:when=3+", "SYNC_FLUSH"},
		{"EIO on flush, ASYNC_FLUSH", "fdatasync:error=EIO:when=2+", "ASYNC_FLUSH"},
		{"EIO on write", "pwrite64:error=EIO:when=20+", "ASYNC_FLUSH"},
		{"ENOSPC on write", "pwrite64:error=ENOSPC:when=20+", "SYNC_FLUSH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "store")
			broker := cluster.Broker(t, "", root, map[string]string{"flushDiskType": c.flush, "mappedFileSizeCommitLog": fmt.Sprint(4 << 20)})
			broker.Start()
			createTopic(t, broker.Addr, "Errors", queues)
			l := newLedger("Errors")
			l.burst(t, broker.Addr, 300)
			trace := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace="+strings.SplitN(c.inject, ":", 2)[0], "-e", "inject="+c.inject, "-p", fmt.Sprint(broker.Pid()))
			var said strings.Builder
			trace.Stderr = &said
			if err := trace.Start(); err != nil {
				t.Skipf("strace: %v", err)
			}
			defer func() { trace.Process.Kill(); trace.Wait() }()
			stop := make(chan struct{})
			done := make(chan error, 1)
			go func() { done <- l.produce(broker.Addr, 2, 16, 1024, stop) }()
			refusedAt := time.Time{}
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				l.mu.Lock()
				refused := l.refused
				l.mu.Unlock()
				if refused > 50 {
					refusedAt = time.Now()
					break
				}
				if !broker.Running() {
					break
				}
			}
			close(stop)
			<-done
			if strings.Contains(said.String(), "Operation not permitted") {
				t.Skip("strace may not attach here")
			}
			if refusedAt.IsZero() {
				t.Fatalf("no refusal after the disk failed (running: %v, strace: %s)", broker.Running(), said.String())
			}
			conn, err := dialRaw(broker.Addr)
			if err != nil {
				t.Fatal(err)
			}
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
			trace.Process.Signal(os.Interrupt)
			trace.Wait()
			if code := broker.Stop(20 * time.Second); code == 0 {
				t.Error("a broker whose disk failed ended with code 0")
			}
			broker.Start()
			var zero [queues]int64
			l.check(t, broker.Addr, zero)
		})
	}
}

//go:build linux

package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epochmq/epochmq/internal/cluster"
)

// TestPowerCut shuts a loop-mounted file system down in the middle of a load, so that everything not flushed is gone, mounts it again and
// compares. SYNC_FLUSH must lose nothing; ASYNC_FLUSH may lose the end of the log, but never a message in the middle.
func TestPowerCut(t *testing.T) {
	for _, mode := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
		t.Run(mode, func(t *testing.T) {
			n := numRounds(1, 20)
			for round := 1; round <= n; round++ {
				powerCut(t, mode, round)
			}
		})
	}
}

func powerCut(t *testing.T, mode string, round int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed")
	}
	mnt, image := smallDisk(t, 512)
	root := filepath.Join(mnt, "store")
	broker := cluster.Broker(t, "", root, map[string]string{"flushDiskType": mode, "mappedFileSizeCommitLog": fmt.Sprint(4 << 20), "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "10000", "maxIndexNum": "100000"})
	broker.Start()
	createTopic(t, broker.Addr, "Cut", queues)
	l := newLedger("Cut")
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- l.produce(broker.Addr, 4, 64, 1024, stop) }()
	time.Sleep(time.Second + time.Duration(rand.Int64N(int64(2*time.Second))))
	d, err := os.Open(mnt)
	if err != nil {
		t.Fatal(err)
	}
	const shutdown, noLogFlush = 0x8004587d, 2
	err = unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush)
	d.Close()
	if err != nil {
		close(stop)
		<-done
		t.Skipf("this file system cannot be shut down: %v", err)
	}
	broker.Kill()
	close(stop)
	<-done
	acked := l.size()
	if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, mnt).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	start := time.Now()
	broker.Start()
	first := l.firstAck(t, broker.Addr, start)
	var zero [queues]int64
	if mode == "SYNC_FLUSH" {
		l.check(t, broker.Addr, zero)
	} else {
		l.checkPrefix(t, broker.Addr)
	}
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the broker ended with %d", code)
	}
	inspect(t, root)
	t.Logf("%s round %d: %d acknowledged, first ack %v after the restart; %s", mode, round, acked, first.Round(time.Millisecond), lastRecovery(broker.Output()))
}

// checkPrefix wants each queue to hold a prefix of what was acknowledged, without a hole, apart from messages sent after the restart.
func (l *ledger) checkPrefix(t *testing.T, addr string) {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kept := 0
	for q := 0; q < queues; q++ {
		recs, err := pullAll(c, l.topic, q, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range recs {
			if r.queueOffset != int64(i) {
				t.Fatalf("%s/%d: offset %d where %d belongs", l.topic, q, r.queueOffset, i)
			}
		}
		kept += len(recs)
	}
	t.Logf("%d of %d acknowledged messages survived without a flush", kept, l.size())
}

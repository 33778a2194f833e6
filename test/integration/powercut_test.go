//go:build linux

package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/epochmq/epochmq/internal/cluster"
)

// TestPowerCut shuts a loop-mounted file system down, so that everything not flushed is gone, mounts it again and compares. Rounds in turn:
// in the middle of a load; the same in the run after a kill, which began with what only the page cache had; and after a kill, a start and
// an orderly stop. SYNC_FLUSH must lose nothing; ASYNC_FLUSH may lose the end of the log, but never a message in the middle, nor one that
// a start had recovered or a stop had closed over.
func TestPowerCut(t *testing.T) {
	for _, mode := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
		t.Run(mode, func(t *testing.T) {
			n := numRounds(1, 24)
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
	mnt, image := smallDisk(t, 768)
	root := filepath.Join(mnt, "store")
	broker := cluster.Broker(t, "", root, map[string]string{"flushDiskType": mode, "mappedFileSizeCommitLog": fmt.Sprint(4 << 20), "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "10000", "maxIndexNum": "100000"})
	broker.Start()
	createTopic(t, broker.Addr, "Cut", queues)
	l := newLedger("Cut")
	load := func(least, most time.Duration) (end func()) {
		stop := make(chan struct{})
		done := make(chan error, 1)
		go func() { done <- l.produce(broker.Addr, 4, 64, 1024, stop) }()
		time.Sleep(least + time.Duration(rand.Int64N(int64(most-least))))
		return func() { close(stop); <-done }
	}
	how := []string{"cut after kill, start and stop", "cut under load after a kill", "cut under load"}[round%3]
	end := load(time.Second/2, 2*time.Second)
	sure := map[place]uint64{} // must be there whatever the mode
	if round%3 < 2 {
		broker.Kill()
		end()
		l.mu.Lock()
		sure = maps.Clone(l.acked)
		l.mu.Unlock()
		broker.Start()
		end = load(50*time.Millisecond, time.Second)
	}
	if round%3 == 0 {
		if code := broker.Stop(20 * time.Second); code != 0 {
			t.Errorf("the broker ended with %d", code)
		}
		end()
		sure = maps.Clone(l.acked)
	}
	l.mu.Lock()
	before := maps.Clone(l.acked)
	l.mu.Unlock()
	cut := shutDown(mnt)
	broker.Kill()
	if round%3 != 0 {
		end()
	}
	if cut != nil {
		t.Skipf("this file system cannot be shut down: %v", cut)
	}
	acked := l.size()
	if mode == "SYNC_FLUSH" {
		sure = before // a flush under way at the cut may succeed and yet leave nothing: no power loss lets a process run on to tell of it
	}
	if out, err := exec.Command("umount", mnt).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, mnt).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	start := time.Now()
	broker.Start()
	first := l.firstAck(t, broker.Addr, start)
	kept := l.checkPrefix(t, broker.Addr, sure)
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the broker ended with %d", code)
	}
	inspect(t, root)
	t.Logf("%s round %d, %s: %d acknowledged, %d of them sure to survive, %d messages did; first ack %v after the restart; %s", mode, round, how, acked, len(sure), kept, first.Round(time.Millisecond), lastRecovery(broker.Output()))
}

// shutDown ends a file system as a loss of power would: nothing more is written, not even its journal.
func shutDown(mnt string) error {
	d, err := os.Open(mnt)
	if err != nil {
		return err
	}
	const shutdown, noLogFlush = 0x8004587d, 2
	return errors.Join(unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush), d.Close())
}

// checkPrefix wants each queue to be dense, with the messages of sure and no other at the place of an acknowledged one. It returns how many
// messages there are.
func (l *ledger) checkPrefix(t *testing.T, addr string, sure map[place]uint64) (kept int) {
	t.Helper()
	c, err := dialRaw(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	found := map[place]uint64{}
	for q := 0; q < queues; q++ {
		recs, err := pullAll(c, l.topic, q, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range recs {
			p := place{q, int64(i)}
			n := binary.BigEndian.Uint64(r.body)
			if want, ok := l.acked[p]; ok && want != n {
				t.Fatalf("%v holds message %d, acknowledged was %d", p, n, want)
			}
			found[p] = n
		}
		kept += len(recs)
	}
	lost := 0
	for p, n := range sure {
		if found[p] != n {
			lost++
		}
	}
	if lost > 0 {
		t.Fatalf("%d of %d messages that had to survive are lost", lost, len(sure))
	}
	return kept
}

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// TestDiskOverLevel fills a disk to 94 % with a foreign file: sends must be refused with the ratios, reading goes on, and when the file is
// gone sends are taken within 15 s without a restart.
func TestDiskOverLevel(t *testing.T) {
	mnt, _ := smallDisk(t, 256)
	root := filepath.Join(mnt, "store")
	keys := map[string]string{"mappedFileSizeCommitLog": fmt.Sprint(1 << 20), "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "1000", "maxIndexNum": "20000"}
	if !*long {
		keys["cleanResourceInterval"] = "500"
	}
	broker := cluster.Broker(t, "", root, keys)
	broker.Start()
	createTopic(t, broker.Addr, "Level", queues)
	l := newLedger("Level")
	l.burst(t, broker.Addr, 500)
	var zero [queues]int64
	l.check(t, broker.Addr, zero) // the readers' group exists before the disk is full
	c, err := dialRaw(broker.Addr)
	must(t, err)
	defer c.Close()
	var st syscall.Statfs_t
	must(t, syscall.Statfs(mnt, &st))
	filler := filepath.Join(mnt, "filler")
	size := int64(st.Bavail)*int64(st.Bsize) - int64(st.Blocks)*int64(st.Bsize)*6/100
	if out, err := exec.Command("fallocate", "-l", fmt.Sprint(size), filler).CombinedOutput(); err != nil {
		t.Skipf("fallocate: %v %s", err, out)
	}
	refusal := ""
	for end := time.Now().Add(20 * time.Second); refusal == ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("sends are taken on a disk that is over its level")
		}
		a, err := c.call(310, sendExt("Other", 0, ""), []byte("x"), 5*time.Second)
		must(t, err)
		if a.Code != 0 {
			refusal = fmt.Sprint(a.Code, " ", a.Remark)
		}
	}
	t.Logf("refused with: %s", refusal)
	if !strings.HasPrefix(refusal, "14 ") || !strings.Contains(refusal, "0.9") {
		t.Errorf("refused without the ratio: %s", refusal)
	}
	if ratio, err := strconv.ParseFloat(runtimeInfo(t, c)["commitLogDiskRatio"], 64); err != nil || ratio < 0.9 || ratio > 1 {
		t.Errorf("runtime info says commitLogDiskRatio %v, %v", ratio, err)
	}
	l.check(t, broker.Addr, zero)
	must(t, exec.Command("rm", filler).Run())
	freed := time.Now()
	for {
		a, err := c.call(310, sendExt("Other", 0, ""), []byte("x"), 5*time.Second)
		must(t, err)
		if a.Code == 0 {
			break
		}
		if time.Since(freed) > 15*time.Second {
			t.Fatalf("sends are still refused: %s", a.Remark)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("taken again %v after space was freed", time.Since(freed).Round(time.Millisecond))
	l.burst(t, broker.Addr, 500)
	l.check(t, broker.Addr, zero)
	c.Close()
	if code := broker.Stop(15 * time.Second); code != 0 {
		t.Errorf("ended with %d", code)
	}
	inspect(t, root)
}

package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

var (
	long   = flag.Bool("long", false, "run the full forms: hundreds of kills instead of a few")
	rounds = flag.Int("rounds", 0, "rounds of the kill tests; 0: 3 short, 50 long")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

func numRounds(short, full int) int {
	if *rounds > 0 {
		return *rounds
	}
	if *long {
		return full
	}
	return short
}

// TestKill9 kills the broker in the middle of a load, again and again, and compares what is there with what was acknowledged.
func TestKill9(t *testing.T) {
	for _, mode := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(mode, func(t *testing.T) { killRounds(t, mode, numRounds(3, 50), 0) })
	}
}

// TestKillDuringRecovery kills the restarting broker at a random instant several times before it may finish.
func TestKillDuringRecovery(t *testing.T) {
	killRounds(t, "ASYNC_FLUSH", numRounds(2, 20), 2)
}

func killRounds(t *testing.T, mode string, n, killsInRecovery int) {
	root := filepath.Join(t.TempDir(), "store")
	broker := cluster.Broker(t, "", root, map[string]string{"flushDiskType": mode, "mappedFileSizeCommitLog": fmt.Sprint(4 << 20), "mappedFileSizeConsumeQueue": "60000"})
	broker.Start()
	l := newLedger("Killed")
	createTopic(t, broker.Addr, l.topic, queues)
	var ends [queues]int64
	var starts []time.Duration
	counted := 0
	for round := 1; round <= n; round++ {
		before := l.size()
		stop := make(chan struct{})
		done := make(chan error, 2)
		started := time.Now()
		go func() { done <- l.produce(broker.Addr, 4, 64, 1024, stop) }()
		go func() { l.commit(broker.Addr, "KilledGroup", stop); done <- nil }()
		time.Sleep(600*time.Millisecond + time.Duration(rand.Int64N(int64(900*time.Millisecond))))
		broker.Kill()
		killed := time.Now()
		close(stop)
		for i := 0; i < 2; i++ {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		acked := l.size() - before
		for k := 0; k < killsInRecovery; k++ {
			if err := broker.Launch(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(60 * time.Millisecond))))
			broker.Kill()
		}
		restarted := time.Now()
		broker.Start()
		first := l.firstAck(t, broker.Addr, restarted)
		starts = append(starts, first)
		ends = l.check(t, broker.Addr, ends)
		l.checkCommits(t, broker.Addr, "KilledGroup")
		rate := float64(acked) / killed.Sub(started).Seconds()
		counted++
		t.Logf("round %d: %d acknowledged at %.0f/s, %d of unknown outcome, first ack %v after the restart; %s", round, acked, rate, len(l.unknown), first.Round(time.Millisecond), lastRecovery(broker.Output()))
		if acked == 0 {
			t.Fatal("a round without an acknowledged message proves nothing")
		}
	}
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the broker ended with %d", code)
	}
	inspect(t, root)
	broker.Start()
	var zero [queues]int64
	l.check(t, broker.Addr, zero)
	sort.Slice(starts, func(i, j int) bool { return starts[i] < starts[j] })
	t.Logf("%s: %d rounds, %d acknowledged, %d refused, none lost; first ack after restart: median %v, longest %v", mode, counted, l.size(), l.refused, starts[len(starts)/2], starts[len(starts)-1])
}

var recoveryLine = regexp.MustCompile(`(?m)^.*recovered.*$`)

// lastRecovery returns the broker's own line about its last recovery.
func lastRecovery(output string) string {
	all := recoveryLine.FindAllString(output, -1)
	if len(all) == 0 {
		return "no recovery line"
	}
	return all[len(all)-1]
}

// inspect runs `epochmq inspect` over a folder and wants it sound.
func inspect(t *testing.T, root string) {
	t.Helper()
	out, err := exec.Command(cluster.Binary(t), "inspect", root).CombinedOutput()
	if err != nil {
		lines := strings.Split(string(out), "\n")
		if len(lines) > 60 {
			lines = lines[len(lines)-60:]
		}
		t.Errorf("inspect %s: %v\n%s", root, err, strings.Join(lines, "\n"))
	}
}

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
	"syscall"
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

// What a round must have seen to count: a load that fills files, and something that was neither dispatched nor flushed. The rate that is
// wanted of ASYNC_FLUSH is the smaller of what a slow machine reaches and what a fault would need.
const (
	minRolls = 3
	minRate  = 20000
)

func killRounds(t *testing.T, mode string, n, killsInRecovery int) {
	root := filepath.Join(t.TempDir(), "store")
	segment := int64(4 << 20)
	if mode == "SYNC_FLUSH" {
		segment = 1 << 20
	}
	broker := cluster.Broker(t, "", root, map[string]string{"flushDiskType": mode, "mappedFileSizeCommitLog": fmt.Sprint(segment), "mappedFileSizeConsumeQueue": "60000"})
	broker.Start()
	l := newLedger("Killed")
	createTopic(t, broker.Addr, l.topic, queues)
	createGroup(t, broker.Addr, "KilledGroup")
	var ends [queues]int64
	var starts []time.Duration
	counted, round, logEnd := 0, 0, int64(0)
	for counted < n && round < 2*n {
		round++
		before := l.size()
		stop := make(chan struct{})
		done := make(chan error, 2)
		started := time.Now()
		go func() { done <- l.produce(broker.Addr, 4, 64, 1024, stop) }()
		go func() { l.commit(broker.Addr, "KilledGroup", stop); done <- nil }()
		time.Sleep(600*time.Millisecond + time.Duration(rand.Int64N(int64(900*time.Millisecond))))
		if round%5 == 0 { // in the middle of an orderly stop
			must(t, broker.Signal(syscall.SIGTERM))
			time.Sleep(time.Duration(rand.Int64N(int64(50 * time.Millisecond))))
		}
		broker.Kill()
		killed := time.Now()
		close(stop)
		for i := 0; i < 2; i++ {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		acked := l.size() - before
		state := lookAtKill(t, root, l.topic)
		rolls := state.end/segment - logEnd/segment
		logEnd = state.end
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
		if acked == 0 {
			t.Fatal("a round without an acknowledged message proves nothing")
		}
		rate := float64(acked) / killed.Sub(started).Seconds()
		verdict := "counts"
		switch {
		case rolls < minRolls:
			verdict = "does not count: too few new files"
		case state.undispatched == 0 || mode == "ASYNC_FLUSH" && state.unflushed == 0:
			verdict = "does not count: nothing was under way"
		case mode == "ASYNC_FLUSH" && rate < minRate:
			verdict = "does not count: too slow"
		default:
			counted++
		}
		t.Logf("round %d %s: %d acknowledged at %.0f/s, %d of unknown outcome, %d new files, at the kill: %v; first ack %v after the restart; %s", round, verdict, acked, rate, len(l.unknown), rolls, state,
			first.Round(time.Millisecond), lastRecovery(broker.Output()))
	}
	if code := broker.Stop(20 * time.Second); code != 0 {
		t.Errorf("the broker ended with %d", code)
	}
	inspect(t, root)
	broker.Start()
	var zero [queues]int64
	l.check(t, broker.Addr, zero)
	sort.Slice(starts, func(i, j int) bool { return starts[i] < starts[j] })
	t.Logf("%s: %d rounds count of %d, %d kills, %d acknowledged, %d refused, none lost; first ack after restart: median %v, longest %v", mode, counted, round, round*(1+killsInRecovery), l.size(), l.refused, starts[len(starts)/2], starts[len(starts)-1])
	if *long && counted < n {
		t.Errorf("only %d of %d rounds count: the machine is too slow or too busy", counted, n)
	}
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

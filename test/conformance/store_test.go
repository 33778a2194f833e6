//go:build conformance

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// TestStoresBothWays fills a folder with one broker, stops it (cleanly or with SIGKILL), opens it with the other and compares everything
// that can be read: every message, queue bound, committed offset, key query and time query.
func TestStoresBothWays(t *testing.T) {
	for _, version := range []string{java5, java4} {
		for _, end := range []string{"clean stop", "SIGKILL"} {
			// No comma in a name: it gets into the folder's, where it separates paths.
			t.Run("java "+version+" to ours after "+end, func(t *testing.T) { bothWays(t, version, end == "SIGKILL", true) })
			t.Run("ours to java "+version+" after "+end, func(t *testing.T) { bothWays(t, version, end == "SIGKILL", false) })
		}
	}
}

func bothWays(t *testing.T, version string, kill, javaFirst bool) {
	ns := cluster.Namesrv(t)
	ns.Start()
	root := filepath.Join(t.TempDir(), "store")
	port := cluster.FreePorts(t, 1)[0]
	ours := cluster.BrokerAt(t, port, ns.Addr, root, storeKeys(root))
	theirs := javaBroker(t, version, ns.Addr, port, root, nil)
	first, second := ours, theirs
	if javaFirst {
		first, second = theirs, ours
	}
	first.Start()
	awaitRoute(t, ns.Addr, "TBW102")
	filled, err := java(t, version, 3*time.Minute, nil, "StoreTool", "fill", ns.Addr, "Mixed", "4000")
	if err != nil || !strings.Contains(filled, "FILLED") {
		t.Fatalf("fill: %v\n%s", err, tail(filled, 3000))
	}
	topics := "Mixed,%RETRY%StoreToolG"
	before := dump(t, version, ns.Addr, topics)
	if kill {
		first.Kill()
	} else {
		first.Stop(60 * time.Second)
	}
	second.Start()
	awaitRoute(t, ns.Addr, "Mixed")
	after := dump(t, version, ns.Addr, topics)
	mine := before
	if javaFirst {
		mine = after
	}
	checkTimes(t, mine)
	if version == java4 {
		before, after = asOf4(before), asOf4(after)
	}
	compare(t, before, after, kill)
	for _, line := range strings.Split(filled, "\n") {
		f := strings.Fields(line)
		if len(f) == 5 && f[0] == "ACK" && !strings.Contains(after, fmt.Sprintf("MSG %s %s %s %s ", f[1], f[2], f[3], f[4])) {
			t.Fatalf("acknowledged and not there: %s", line)
		}
	}
	if !javaFirst {
		javaComplaints(t, root, kill)
	}
	// A JVM that SIGTERM ended exits with 143, so only our code is looked at.
	if code := second.Stop(60 * time.Second); javaFirst && code != 0 {
		t.Errorf("our broker ended with %d", code)
	}
}

// javaComplaints looks for what a real broker says about the folder that it opened: after a clean stop it has nothing to repair.
func javaComplaints(t *testing.T, root string, killed bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(javaHome(root), "logs", "rocketmqlogs", "*.log"))
	if err != nil || len(files) == 0 {
		t.Errorf("no logs of the Java broker: %v", err)
	}
	said := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if !repairs.MatchString(line) || strings.Contains(line, "No resource file") || nothingToCut(line) {
				continue
			}
			kind := numbers.ReplaceAllString(line, "N")
			if said[kind]++; said[kind] == 1 {
				kind = filepath.Base(file) + ": " + line
				if killed {
					t.Log(kind)
				} else {
					t.Error(kind)
				}
			}
		}
	}
}

// nothingToCut tells that a line speaks of a cut of the queues at their end, which a Java broker logs at every start.
func nothingToCut(line string) bool {
	m := regexp.MustCompile(`maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\((\d+)\)`).FindStringSubmatch(line)
	return m != nil && m[1] == m[2]
}

var repairs = regexp.MustCompile(`( (WARN|ERROR) .*(queue|commitlog|index|offset|file|order|checkpoint|recover))|\[BUG\]|abnormal|truncate`)

func dump(t *testing.T, version, namesrv, topics string) string {
	t.Helper()
	out, err := java(t, version, 2*time.Minute, nil, "StoreTool", "dump", namesrv, topics, "StoreToolG")
	if err != nil {
		t.Fatalf("dump: %v\n%s", err, tail(out, 3000))
	}
	var keep []string
	for _, line := range strings.Split(out, "\n") {
		switch strings.SplitN(line, " ", 2)[0] {
		case "QUEUE", "MSG", "TIME", "KEY":
			keep = append(keep, line)
		}
	}
	if len(keep) < 100 {
		t.Fatalf("dump is too short:\n%s", tail(out, 3000))
	}
	return strings.Join(keep, "\n") + "\n"
}

// asOf4 takes out what versions before 5.0 answer otherwise: a time query finds the message nearest to the time and any of those with
// the same time, and a group without an offset is at 0 in a queue that never held a message.
func asOf4(dump string) string {
	dump = regexp.MustCompile(`(?m)^TIME .*\n`).ReplaceAllString(dump, "")
	return regexp.MustCompile(`(?m)^(QUEUE \S+ \d+ 0 0 committed) -1$`).ReplaceAllString(dump, "$1 0")
}

// checkTimes wants that a time query finds the first message that was stored at that time or later, by the dump's own messages.
func checkTimes(t *testing.T, dump string) {
	t.Helper()
	type message struct{ offset, stored int64 }
	queues, next := map[string][]message{}, map[string]int64{}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lines := strings.Split(dump, "\n")
	for _, line := range lines {
		switch f := strings.Fields(line); {
		case strings.HasPrefix(line, "MSG "):
			q := f[1] + " " + f[2]
			queues[q] = append(queues[q], message{number(f[3]), number(f[11])})
		case strings.HasPrefix(line, "QUEUE "):
			next[f[1]+" "+f[2]] = number(f[4])
		}
	}
	checked := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "TIME ") {
			continue
		}
		f := strings.Fields(line)
		q, at := f[1]+" "+f[2], number(f[3])
		want := next[q]
		for _, m := range queues[q] {
			if m.stored >= at {
				want = m.offset
				break
			}
		}
		if got := number(f[4]); got != want {
			t.Errorf("%s: want %d", line, want)
		}
		checked++
	}
	t.Logf("%d time queries checked", checked)
}

// rank orders lines: bounds and messages first, then queries, of which a few differ when a message does.
func rank(line string) string {
	kinds := map[string]string{"QUEUE": "0", "MSG": "1", "KEY": "2", "TIME": "3"}
	return kinds[strings.SplitN(line[2:], " ", 2)[0]] + line
}

// compare wants equal dumps. After SIGKILL a Java broker may have lost the last seconds of its group offsets, which it writes every
// five seconds: there only the offsets may differ.
func compare(t *testing.T, before, after string, killed bool) {
	t.Helper()
	set := func(s string) map[string]bool {
		m := map[string]bool{}
		for _, line := range strings.Split(s, "\n") {
			if i := strings.Index(line, " committed "); i >= 0 && killed {
				line = line[:i]
			}
			m[line] = true
		}
		return m
	}
	a, b := set(before), set(after)
	var diff []string
	for line := range a {
		if !b[line] {
			diff = append(diff, "- "+line)
		}
	}
	for line := range b {
		if !a[line] {
			diff = append(diff, "+ "+line)
		}
	}
	sort.Slice(diff, func(i, j int) bool { return rank(diff[i]) < rank(diff[j]) })
	if len(diff) > 0 {
		if len(diff) > 30 {
			diff = append(diff[:30], fmt.Sprintf("... %d lines in all", len(diff)))
		}
		t.Errorf("the folder reads differently:\n%s", strings.Join(diff, "\n"))
	}
	t.Logf("%d lines equal", len(a)-1)
}

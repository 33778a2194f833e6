package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"NAMESRV_ADDR", "ROCKETMQ_HOME", "EPOCHMQ_LOG_LEVEL", "EPOCHMQ_LOG_FILE"} {
		_ = os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}

// result is what a command line left behind.
type result struct {
	code        int
	out, errOut string
}

// run executes a command line in this process.
func run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code := execute(ctx, args, strings.NewReader(stdin), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// ok is run for a command line that must succeed; it returns standard output.
func ok(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := run(t, stdin, args...)
	require.Zero(t, r.code, "%v: %s", args, r.errOut)
	return r.out
}

// watched is a writer that tells when a text was written.
type watched struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(b)
	if strings.Contains(w.all.String(), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(b), nil
}

func (w *watched) String() string { w.mu.Lock(); defer w.mu.Unlock(); return w.all.String() }

// background runs a server command until stop, which returns its exit code. It returns once the command has written text to either output.
func background(t *testing.T, text string, args ...string) (output *watched, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{text: text, seen: make(chan struct{})}
	code := make(chan int, 1)
	go func() { code <- execute(ctx, args, strings.NewReader(""), w, w) }()
	stopped := false
	stop = func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		return <-code
	}
	t.Cleanup(func() { stop() })
	select {
	case <-w.seen:
	case c := <-code:
		stopped = true
		cancel()
		t.Fatalf("%v ended with %d: %s", args, c, w)
	case <-time.After(30 * time.Second):
		t.Fatalf("%v did not get ready: %s", args, w)
	}
	return w, stop
}

// dev runs a development server on free ports.
func dev(t *testing.T, data string, more ...string) (devInfo, func() int) {
	t.Helper()
	out, stop := background(t, "readyMs", append([]string{"dev", "-o", "json", "--data", data, "--namesrv-port", "0", "--broker-port", "0"}, more...)...)
	var info devInfo
	require.NoError(t, json.Unmarshal([]byte(out.String()), &info))
	return info, stop
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	data := t.TempDir()
	info, stop := dev(t, data)
	require.Equal(t, "ASYNC_FLUSH", info.Durability)
	at := []string{"-n", info.Namesrv}
	with := func(args ...string) []string { return append(args, at...) }

	r := run(t, numbers(500), with("produce", "-t", "numbers")...)
	require.Zero(t, r.code, r.errOut)
	require.Contains(t, r.errOut, "500 lines acknowledged in topic numbers")
	all := strings.Fields(ok(t, "", with("consume", "-t", "numbers", "--exit-at-end")...))
	require.ElementsMatch(t, strings.Fields(numbers(500)), all)
	require.Len(t, strings.Fields(ok(t, "", with("consume", "-t", "numbers", "--max", "7")...)), 7)
	require.Empty(t, ok(t, "", with("consume", "-t", "numbers", "--from", "last", "--exit-at-end")...))

	first := strings.Fields(ok(t, "", with("consume", "-t", "numbers", "-g", "readers", "--max", "100")...))
	rest := strings.Fields(ok(t, "", with("consume", "-t", "numbers", "-g", "readers", "--exit-at-end")...))
	require.ElementsMatch(t, all, append(first, rest...), "the group goes on where it was")
	require.Contains(t, ok(t, "", with("group", "progress", "-g", "readers")...), "total                              0")
	ok(t, "", with("group", "reset", "-g", "readers", "-t", "numbers", "--to", "first")...)
	require.Len(t, strings.Fields(ok(t, "", with("consume", "-t", "numbers", "-g", "readers", "--exit-at-end")...)), 500)
	require.Len(t, strings.Fields(ok(t, "", with("consume", "-t", "numbers", "-g", "readers", "--from", "first", "--exit-at-end")...)), 500)

	ok(t, "", with("group", "reset", "-g", "readers", "-t", "numbers", "--to", "first")...)
	require.Empty(t, ok(t, "", with("consume", "-t", "numbers", "-g", "readers", "--from", "last", "--exit-at-end")...), "the last word counts")

	ok(t, "k1=one\n\nk2=two\n", with("produce", "-t", "pairs", "--key-delimiter", "=", "--tag", "T", "-q")...)
	lines := strings.Split(strings.TrimSpace(ok(t, "", with("consume", "-t", "pairs", "--exit-at-end", "--format", `%k %g %b\n`)...)), "\n")
	require.ElementsMatch(t, []string{"k1 T one", "k2 T two"}, lines)
	var m messageJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", with("consume", "-t", "pairs", "--max", "1", "-o", "json")...)), &m))
	require.Equal(t, "T", m.Tags)
	require.Empty(t, ok(t, "", with("consume", "-t", "pairs", "--exit-at-end", "--tags", "Other")...))

	var sum produceSummary
	require.NoError(t, json.Unmarshal([]byte(ok(t, numbers(300), with("produce", "-t", "batches", "--batch", "32", "--compression", "zlib", "-o", "json")...)), &sum))
	require.Equal(t, int64(300), sum.Acknowledged)
	places := strings.Fields(ok(t, "a\nb\nc\n", with("produce", "-t", "ordered", "--ordered", "--acks", "-q")...))
	require.Len(t, places, 3)
	require.Regexp(t, `^ordered/\d@0$`, places[0])
	require.Equal(t, "a\nb\nc\n", ok(t, "", with("consume", "-t", "ordered", "--exit-at-end")...))

	list := ok(t, "", with("topic", "list", "--names")...)
	require.Equal(t, "batches\nnumbers\nordered\npairs\n", list)
	require.Contains(t, ok(t, "", with("topic", "status", "-t", "numbers")...), "500")
	require.Contains(t, ok(t, "", with("group", "list")...), "readers")
	require.Zero(t, stop())

	// The data is there again.
	info, stop = dev(t, data)
	at = []string{"-n", info.Namesrv}
	require.ElementsMatch(t, all, strings.Fields(ok(t, "", with("consume", "-t", "numbers", "--exit-at-end")...)))
	ok(t, "", with("topic", "create", "-t", "made", "-q", "2")...)
	require.Equal(t, 2, strings.Count(ok(t, "", with("topic", "status", "-t", "made")...), "made/"))
	r = run(t, "", with("topic", "create", "-t", "made", "--perm", "r")...)
	require.Contains(t, r.errOut, "topic made is changed at dev: 2 queues, r--", "what no flag says stays")
	r = run(t, "x\n", with("produce", "-t", "made")...)
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "topic made takes no messages")
	var topics []topicRow
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", with("topic", "create", "-t", "made", "-q", "3", "-o", "json")...)), &topics))
	require.Equal(t, []topicRow{{"made", "dev", 3, 3, "r--"}}, topics)
	r = run(t, "", with("topic", "delete", "-t", "numbers")...)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.errOut, "topic numbers holds 500 messages")
	ok(t, "", with("topic", "delete", "-t", "numbers", "--yes")...)
	require.NotContains(t, ok(t, "", with("topic", "list")...), "numbers")
	ok(t, "", with("group", "create", "-g", "made", "--max-retries", "3")...)
	require.Contains(t, ok(t, "", with("group", "status", "-g", "made")...), "members 0")
	r = run(t, "", with("group", "create", "-g", "made", "--disabled")...)
	require.Contains(t, r.errOut, "group made is changed at dev: max retries 3, may not read")
	r = run(t, "", with("group", "progress", "-g", "made")...)
	require.Contains(t, r.errOut, "group made has not read anything yet")
	r = run(t, "", with("group", "progress", "-g", "readers", "-t", "none")...)
	require.Contains(t, r.errOut, "group readers does not read topic none")
	ok(t, "", with("group", "delete", "-g", "made", "--yes")...)

	r = run(t, "", with("consume", "-t", "none", "--exit-at-end")...)
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "epochmq: topic none does not exist; 'epochmq topic list'")
	r = run(t, "", "topic", "list", "-n", info.Broker)
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "is no name server, perhaps a broker; give")
	long := strings.Repeat("x", maxLine+1)
	r = run(t, "a\n"+long+"\nb\n", with("produce", "-t", "lines")...)
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "line 2 was not acknowledged: longer than 4194304 bytes")
	r = run(t, "a\n"+long+"\nb\n", with("produce", "-t", "lines2", "--keep-going")...)
	require.Equal(t, exitFailure, r.code)
	require.ElementsMatch(t, []string{"a", "b"}, strings.Fields(ok(t, "", with("consume", "-t", "lines2", "--exit-at-end")...)))

	// A reader that goes away ends the command quietly.
	rd, wr, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, rd.Close())
	var errOut bytes.Buffer
	require.Zero(t, execute(t.Context(), with("consume", "-t", "batches"), strings.NewReader(""), wr, &errOut))
	require.Empty(t, errOut.String())
	require.NoError(t, wr.Close())
	require.Zero(t, stop())
}

func TestFollowingEndsWithTheSignal(t *testing.T) {
	info, _ := dev(t, t.TempDir())
	ok(t, "hello\n", "produce", "-t", "t", "-n", info.Namesrv)
	for _, args := range [][]string{{"consume", "-t", "t", "-n", info.Namesrv}, {"consume", "-t", "t", "-g", "g", "-n", info.Namesrv}} {
		_, stop := background(t, "hello", args...)
		require.Zero(t, stop())
	}
	_, stop := background(t, "waiting for it", "consume", "-t", "later", "-n", info.Namesrv)
	require.Zero(t, stop())
}

func TestProduceFiles(t *testing.T) {
	info, _ := dev(t, t.TempDir())
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, os.WriteFile(a, []byte("1\n2"), 0o600))
	require.NoError(t, os.WriteFile(b, []byte("3\n"), 0o600))
	ok(t, "4\n", "produce", "-t", "t", "-n", info.Namesrv, a, b, "-")
	require.ElementsMatch(t, []string{"1", "2", "3", "4"}, strings.Fields(ok(t, "", "consume", "-t", "t", "--exit-at-end", "-n", info.Namesrv)))
	r := run(t, "", "produce", "-t", "t", "-n", info.Namesrv, filepath.Join(dir, "none"))
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "no such file")
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		code int
		says string
	}{
		"help":             {"", exitOK, ""},
		"version":          {"version -o json", exitOK, ""},
		"unknown command":  {"foo", exitUsage, `epochmq has no command "foo"; run 'epochmq --help'`},
		"unknown sub":      {"topic foo", exitUsage, `epochmq topic has no command "foo"`},
		"unknown flag":     {"broker --nope", exitUsage, "unknown flag: --nope; run 'epochmq broker --help'"},
		"word too much":    {"dev now", exitUsage, `"now" is not expected here`},
		"no topic":         {"produce", exitUsage, "--topic is missing"},
		"bad topic":        {"produce -t a/b", exitUsage, "illegal characters"},
		"bad group":        {"group progress -g a/b", exitUsage, "group"},
		"bad output":       {"version -o yaml", exitUsage, `output form "yaml"`},
		"bad compression":  {"produce -t t --compression rar", exitUsage, "use none, zlib, lz4 or zstd"},
		"bad batch":        {"produce -t t --batch 0", exitUsage, "--batch 0"},
		"bad format":       {"consume -t t --format %z", exitUsage, "%z is unknown"},
		"bad position":     {"consume -t t --from middle", exitUsage, `position "middle"`},
		"bad level":        {"dev --log-level loud", exitUsage, `log level "loud"`},
		"bad set":          {"dev --data . --namesrv-port 0 --broker-port 0 --set nope=1", exitUsage, "--set nope=1 names no key"},
		"bad value":        {"dev --data . --namesrv-port 0 --broker-port 0 --set flushDiskType=NEVER", exitFailure, "use ASYNC_FLUSH or SYNC_FLUSH; 'epochmq broker --keys'"},
		"set without =":    {"dev --data . --set brokerRole", exitUsage, "--set brokerRole has no value; write --set KEY=VALUE"},
		"set no number":    {"dev --data . --namesrv-port 0 --broker-port 0 --set listenPort=x", exitUsage, "--set listenPort=x"},
		"offset too large": {"dev --data . --port-offset 60000", exitUsage, "--namesrv-port 9876 with --port-offset 60000 is port 69876"},
		"data is a file":   {"dev --data main_test.go", exitFailure, "name a folder that you may write with --data"},
		"bad retries":      {"group create -g g --max-retries -1", exitUsage, "--max-retries -1 is out of range"},
		"two to inspect":   {"inspect a b", exitUsage, "inspect wants one file or folder, here are 2; run"},
		"bad kind":         {"inspect . --kind foo", exitUsage, `kind "foo" is unknown`},
		"nothing there":    {"inspect nonexistent", exitUsage, "give a store folder"},
		"slave wanted":     {"dev --data . --namesrv-port 0 --broker-port 0 --set brokerRole=SLAVE", exitFailure, "this version runs single masters"},
		"no name server":   {"topic list -n 127.0.0.1:1", exitFailure, "no name server answers at 127.0.0.1:1"},
		"no such conf":     {"broker -c /nonexistent.conf", exitFailure, "nonexistent.conf"},
		"no group":         {"namesrv -c testdata/controller.conf", exitFailure, "controllerDLegerGroup is empty: give the group a name; change the file given with -c"},
		"no peers":         {"controller", exitFailure, "controllerDLegerGroup"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "", strings.Fields(c.args)...)
			require.Equal(t, c.code, r.code, r.errOut)
			require.Contains(t, r.errOut, c.says)
			if c.code != exitOK {
				require.Equal(t, 1, strings.Count(r.errOut, "\n"), r.errOut)
				require.True(t, strings.HasPrefix(r.errOut, "epochmq: "), r.errOut)
			}
		})
	}
}

func TestListings(t *testing.T) {
	t.Setenv("NAMESRV_ADDR", "10.0.0.1:9876")
	t.Setenv("ROCKETMQ_HOME", "/opt/mq")
	t.Setenv("EPOCHMQ_LISTENPORT", "7777")
	all := ok(t, "", "broker", "-p", "-c", "../../conf/2m-noslave/broker-b.properties")
	for _, line := range []string{"brokerName=broker-b", "fileReservedTime=48", "namesrvAddr=10.0.0.1:9876", "rocketmqHome=/opt/mq", "listenPort=7777", "longPollingEnable=true"} {
		require.Contains(t, "\n"+all, "\n"+line+"\n")
	}
	few := ok(t, "", "broker", "-m", "-n", "10.0.0.2:9876")
	require.Contains(t, few, "namesrvAddr=10.0.0.2:9876\n")
	require.NotContains(t, few, "longPollingEnable")
	require.Contains(t, ok(t, "", "broker", "--keys"), "autoCreateTopicEnable=true\tdefault=true\tacts=live\thonoured\n")
	require.Contains(t, ok(t, "", "namesrv", "-p"), "orderMessageEnable=false\n")
}

func TestBrokerWithoutNameServer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "broker.conf")
	require.NoError(t, os.WriteFile(file, []byte("listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nmappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\nstorePathRootDir="+dir+"/store\n"), 0o600))
	out, stop := background(t, "no name server is configured", "broker", "-c", file)
	require.Contains(t, out.String(), "broker started")
	r := run(t, "", "broker", "-c", file)
	require.Equal(t, exitFailure, r.code, "the folder is in use")
	require.Contains(t, r.errOut, "another broker uses this folder")
	require.Zero(t, stop())
	require.NotContains(t, out.String(), "level=ERROR")
	require.NoFileExists(t, filepath.Join(dir, "store", "abort"))
}

func TestNamesrvWithProfiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("EPOCHMQ_LISTENPORT", "0")
	_, stop := background(t, "name server started", "namesrv", "--pprof", "127.0.0.1:0")
	require.Zero(t, stop())
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	port := l.Addr().(*net.TCPAddr).Port
	for _, flags := range [][]string{{"--namesrv-port", fmt.Sprint(port), "--broker-port", "0"}, {"--namesrv-port", "0", "--broker-port", fmt.Sprint(port)}} {
		r := run(t, "", append([]string{"dev", "--data", t.TempDir()}, flags...)...)
		require.Equal(t, exitFailure, r.code)
		require.Contains(t, r.errOut, fmt.Sprintf("epochmq: port %d is taken by ", port))
		require.Contains(t, r.errOut, "--port-offset 10000")
		if runtime.GOOS == "linux" {
			require.Contains(t, r.errOut, fmt.Sprintf("process %d (", os.Getpid()))
		}
	}
}

func TestDevSaysWhatToDoNext(t *testing.T) {
	dir := t.TempDir()
	out, stop := background(t, "Ctrl-C", "dev", "--data", dir, "--namesrv-port", "0", "--broker-port", "0", "--set", "flushDiskType=SYNC_FLUSH")
	for _, text := range []string{dir, "SYNC_FLUSH: an acknowledged message is on disk", "epochmq produce -n 127.0.0.1:", "epochmq consume -n"} {
		require.Contains(t, out.String(), text)
	}
	require.Zero(t, stop())
}

func TestHelpOfEveryCommand(t *testing.T) {
	var walk func(path []string)
	walk = func(path []string) {
		cmd, _, err := newRootCommand().Find(path)
		require.NoError(t, err)
		text := ok(t, "", append(append([]string{}, path...), "--help")...)
		require.Contains(t, text, "Usage:", path)
		require.NotEmpty(t, cmd.Short, path)
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
				walk(append(append([]string{}, path...), sub.Name()))
			}
		}
	}
	walk(nil)
}

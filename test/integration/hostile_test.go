package integration

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// malformed are frames that a careless decoder would die of.
var malformed = map[string]string{
	"length 0":                 "00000000",
	"no room for a header":     "000000020000",
	"length -1":                "ffffffff",
	"length 2^31-1":            "7fffffff41414141",
	"header longer than frame": "00000008000000647b7d7b7d",
	"unknown header form":      "00000006050000027b7d",
	"empty object":             "00000006000000027b7d",
	"array as header":          "00000006000000025b5d",
	"null as header":           "00000008000000046e756c6c",
	"remark of 2^31-1":         "000000190100001500690001 3d0000000700000000 7fffffff 00000000",
	"remark of -2":             "000000190100001500690001 3d0000000700000000 fffffffe 00000000",
	"fields beyond header":     "000000190100001500690001 3d0000000700000000 00000000 00ffffff",
	"key of -1":                "000000250100002100690001 3d0000000700000000 00000000 0000000c ffff746f706963 00000001 54",
	"value of 2^31":            "000000250100002100690001 3d0000000700000000 00000000 0000000c 0005746f706963 7ffffff0 54",
	"binary header of 4 bytes": "000000080100000400690001",
	"version -1":               "00000025010000210069 00ffff 0000000700000000 00000000 0000000c 0005746f706963 00000001 54",
	"language 200":             "00000025010000210069 c8013d 0000000700000000 00000000 0000000c 0005746f706963 00000001 54",
	"http":                     hex.EncodeToString([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
	"http2":                    hex.EncodeToString([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
	"ssh":                      hex.EncodeToString([]byte("SSH-2.0-OpenSSH_9.2\r\n")),
	"proxy header cut":         hex.EncodeToString([]byte("PROXY TCP4 1.2.3.4")),
	"tls hello":                "1603010200010001fc0303",
}

// TestMalformedFrames sends broken frames to name server, broker and VIP port, whole and byte by byte. Nothing may end, hang or grow, and a
// normal client beside must see no error.
func TestMalformedFrames(t *testing.T) {
	ns := cluster.Namesrv(t)
	ns.Start()
	broker := cluster.Broker(t, ns.Addr, filepath.Join(t.TempDir(), "store"), nil)
	broker.Start()
	createTopic(t, broker.Addr, "Normal", queues)
	stop := make(chan struct{})
	l := newLedger("Normal")
	done := make(chan error, 1)
	go func() { done <- l.produce(broker.Addr, 1, 8, 100, stop) }()
	var port int
	fmt.Sscanf(broker.Addr, "127.0.0.1:%d", &port)
	before := residentMiB(t, broker.Pid())
	repeat := numRounds(20, 2000)
	for name, text := range malformed {
		frame, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, addr := range []string{ns.Addr, broker.Addr, fmt.Sprint("127.0.0.1:", port-2)} {
			var wg sync.WaitGroup
			for i := 0; i < repeat; i++ {
				wg.Add(1)
				go func() { defer wg.Done(); throw(t, addr, frame, i%2 == 1) }()
				if i%50 == 49 {
					wg.Wait()
				}
			}
			wg.Wait()
		}
	}
	// Many frames on one connection: good ones around one bad one.
	good := "{\"code\":999999,\"flag\":0,\"language\":\"FOO\",\"opaque\":1,\"version\":999999,\"extFields\":{\"a\":1,\"b\":true,\"c\":null,\"d\":{\"e\":[1]}}}"
	frame := append([]byte{0, 0, 0, byte(4 + len(good)), 0, 0, 0, byte(len(good))}, good...)
	c, err := net.Dial("tcp", broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(bytes.Repeat(frame, 1000))
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for i := 0; i < 1000; i++ {
		a, err := readFrame(c)
		if err != nil || a.Code != 3 {
			t.Fatalf("answer %d to an unknown request: %+v %v", i, a, err)
		}
	}
	c.Close()
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("the normal client: %v", err)
	}
	if l.refused > 0 || len(l.unknown) > 0 {
		t.Errorf("the normal client: %d refused, %d unanswered", l.refused, len(l.unknown))
	}
	var zero [queues]int64
	l.check(t, broker.Addr, zero)
	if !ns.Running() || !broker.Running() {
		t.Fatal("a server ended")
	}
	if after := residentMiB(t, broker.Pid()); after > before+50 {
		t.Errorf("anonymous memory grew from %d to %d MiB", before, after)
	}
}

// throw opens a connection, sends the bytes and waits a moment for the server to close it.
func throw(t *testing.T, addr string, frame []byte, byByte bool) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Errorf("dial %s: %v", addr, err)
		return
	}
	defer c.Close()
	if !byByte {
		c.Write(frame)
	} else {
		for i := range frame {
			if _, err := c.Write(frame[i : i+1]); err != nil {
				break
			}
		}
	}
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	io.Copy(io.Discard, c)
}

// residentMiB reads the anonymous memory and the page tables of a process.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("anonymous memory is read from /proc: %v", err)
	}
	var kib int
	for _, line := range strings.Split(string(b), "\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "RssAnon" || name == "VmPTE" {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			must(t, err)
			kib += n
		}
	}
	return kib >> 10
}

// TestNamesStayInTheFolder sends hostile topic names through every request that takes one; none may appear on disk.
func TestNamesStayInTheFolder(t *testing.T) {
	dir := t.TempDir()
	broker := cluster.Broker(t, "", filepath.Join(dir, "store"), nil)
	broker.Start()
	c, err := dialRaw(broker.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	names := []string{"../../../tmp/pwn", "..", ".", "a/b", `a\b`, "/abs", "x\x00y", "", strings.Repeat("n", 300), "%RETRY%", "%RETRY%../x"}
	before := folders(t, dir)
	for _, name := range names {
		ext := sendExt(name, 0, "")
		a, err := c.call(310, ext, []byte("x"), 5*time.Second)
		if err != nil {
			t.Fatalf("send to %q: %v", name, err)
		}
		if a.Code == 0 {
			t.Errorf("a send to %q was taken", name)
		}
		for code, ext := range map[int]map[string]string{
			17: {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
			11: {"consumerGroup": "G", "topic": name, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
			29: {"topic": name, "queueId": "0", "timestamp": "0"}, 30: {"topic": name, "queueId": "0"}, 31: {"topic": name, "queueId": "0"}, 32: {"topic": name, "queueId": "0"},
			15: {"topic": name, "consumerGroup": "G", "queueId": "0", "commitOffset": "1"},
			12: {"topic": name, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"},
		} {
			if _, err := c.call(code, ext, nil, 5*time.Second); err != nil {
				t.Fatalf("request %d with topic %q: %v", code, name, err)
			}
		}
		body := fmt.Sprintf(`{"clientID":"c","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":%q,"messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":%q,"subString":"*","subVersion":1}]}],"producerDataSet":[]}`, strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", ""), ""), "T")
		if _, err := c.call(34, nil, []byte(body), 5*time.Second); err != nil {
			t.Fatalf("heartbeat of group %q: %v", name, err)
		}
	}
	if after := folders(t, dir); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("folders before:\n%s\nand after:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

func folders(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestForbiddenConfig tries to change keys that an attacker would like, alone and beside a harmless one.
func TestForbiddenConfig(t *testing.T) {
	ns := cluster.Namesrv(t)
	ns.Start()
	broker := cluster.Broker(t, ns.Addr, filepath.Join(t.TempDir(), "store"), nil)
	broker.Start()
	for _, c := range []struct {
		addr string
		code int
		read int
		body string
	}{
		{broker.Addr, 25, 26, "rocketmqHome=/nonexistent/evil\nfilterServerNums=1\n"},
		{broker.Addr, 25, 26, "brokerConfigPath=/nonexistent/x\n"},
		{broker.Addr, 25, 26, "configBlackList=x\ndefaultQueryMaxNum=77\n"},
		{ns.Addr, 318, 319, "configStorePath=/nonexistent/pwned\nproductEnvName=a\n"},
		{ns.Addr, 318, 319, "kvConfigPath=/nonexistent/pwned\n"},
	} {
		conn, err := dialRaw(c.addr)
		if err != nil {
			t.Fatal(err)
		}
		before, err := conn.call(c.read, nil, nil, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		a, err := conn.call(c.code, nil, []byte(c.body), 5*time.Second)
		if err != nil || a.Code != 16 {
			t.Errorf("%q: %+v %v; want code 16", c.body, a, err)
		}
		after, err := conn.call(c.read, nil, nil, 5*time.Second)
		if err != nil || !bytes.Equal(before.Body, after.Body) {
			t.Errorf("%q changed the configuration (%v)", c.body, err)
		}
		conn.Close()
	}
}

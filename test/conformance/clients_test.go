//go:build conformance

package conformance

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

// TestJavaClients runs the scenarios of java/Conformance.java with unmodified clients, in both header forms and all compressions.
func TestJavaClients(t *testing.T) {
	cases := []struct {
		name, version string
		props         []string
		only          []string
	}{
		{"5.3.3 JSON zlib", java5, []string{"-Drocketmq.message.compressType=ZLIB"}, nil},
		{"5.3.3 binary LZ4", java5, []string{"-Drocketmq.serialize.type=ROCKETMQ", "-Drocketmq.message.compressType=LZ4"}, nil},
		// Without rebalance-and-kill: see README.md, what the client does by itself.
		{"5.3.3 heartbeat V2 zstd", java5, []string{"-Dcom.rocketmq.heartbeat.v2=true", "-Drocketmq.message.compressType=ZSTD"}, []string{"send-and-push", "compressed", "tags", "broadcast", "recreate-topic", "admin-live"}},
		{"4.9.4 JSON", java4, nil, nil},
		{"4.9.4 binary", java4, []string{"-Drocketmq.serialize.type=ROCKETMQ"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			namesrv, broker := startBroker(t, c.version)
			only := c.only
			if v := os.Getenv("EPOCHMQ_CONFORMANCE_ONLY"); v != "" {
				only = strings.Split(v, ",")
			}
			props := append([]string{fmt.Sprint("-Doracle=", oracle())}, c.props...)
			out, err := java(t, c.version, 15*time.Minute, props, append([]string{"Conformance", namesrv}, only...)...)
			report(t, out, err)
			if code := broker.Stop(30 * time.Second); code != 0 && !oracle() {
				t.Errorf("broker ended with %d", code)
			}
		})
	}
}

// oracle tells that the scenarios are to be checked themselves, against a real broker: EPOCHMQ_CONFORMANCE_ORACLE=1.
func oracle() bool { return os.Getenv("EPOCHMQ_CONFORMANCE_ORACLE") != "" }

// startBroker starts a name server and a broker, ours unless the scenarios themselves are checked.
func startBroker(t *testing.T, version string) (namesrv string, broker *cluster.Process) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "store")
	ns := cluster.Namesrv(t)
	if oracle() {
		ns = javaNamesrv(t, version)
	}
	ns.Start()
	if oracle() {
		broker = javaBroker(t, version, ns.Addr, cluster.FreePorts(t, 1)[0], root, map[string]string{
			"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000", "maxHashSlotNum": "10000", "maxIndexNum": "200000", "maxMessageSize": "4194304", "timerWheelEnable": "true",
		})
	} else {
		broker = cluster.Broker(t, ns.Addr, root, nil)
	}
	broker.Start()
	awaitRoute(t, ns.Addr, "TBW102")
	return ns.Addr, broker
}

// TestGoClient runs the scenarios of goclient/main.go with the unmodified Go client.
func TestGoClient(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "goclient")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "goclient"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go client: %v\n%s", err, out)
	}
	namesrv, _ := startBroker(t, java5)
	out, err := exec.Command(bin, namesrv).CombinedOutput()
	report(t, string(out), err)
}

func report(t *testing.T, out string, err error) {
	t.Helper()
	passed := 0
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "PASS ") {
			passed++
			t.Log(line)
		}
		if strings.HasPrefix(line, "INFO ") {
			t.Log(line)
		}
		if strings.HasPrefix(line, "FAIL ") {
			t.Error(line)
		}
	}
	if err != nil || passed == 0 {
		t.Errorf("%v; %d scenarios passed\n%s", err, passed, tail(out, 6000))
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

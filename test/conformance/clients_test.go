//go:build conformance

package conformance

import (
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
		{"5.3.3 heartbeat V2 zstd", java5, []string{"-Dcom.rocketmq.heartbeat.v2=true", "-Drocketmq.message.compressType=ZSTD"}, []string{"send-and-push", "compressed", "tags", "broadcast", "rebalance-and-kill"}},
		{"4.9.4 JSON", java4, nil, nil},
		{"4.9.4 binary", java4, []string{"-Drocketmq.serialize.type=ROCKETMQ"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ns := cluster.Namesrv(t)
			ns.Start()
			broker := cluster.Broker(t, ns.Addr, filepath.Join(t.TempDir(), "store"), nil)
			broker.Start()
			awaitRoute(t, ns.Addr, "TBW102")
			out, err := java(t, c.version, 10*time.Minute, c.props, append([]string{"Conformance", ns.Addr}, c.only...)...)
			report(t, out, err)
			if code := broker.Stop(20 * time.Second); code != 0 {
				t.Errorf("broker ended with %d", code)
			}
		})
	}
}

// TestGoClient runs the scenarios of goclient/main.go with the unmodified Go client.
func TestGoClient(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "goclient")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "goclient"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go client: %v\n%s", err, out)
	}
	ns := cluster.Namesrv(t)
	ns.Start()
	broker := cluster.Broker(t, ns.Addr, filepath.Join(t.TempDir(), "store"), nil)
	broker.Start()
	awaitRoute(t, ns.Addr, "TBW102")
	out, err := exec.Command(bin, ns.Addr).CombinedOutput()
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

//go:build conformance

package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

const (
	java5 = "5.3.3"
	java4 = "4.9.4"
)

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Cleanup()
	for _, dir := range classFolders {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

var (
	fetchMu sync.Mutex
	fetched = map[string]string{}
	// classFolders are removed at the end.
	classFolders []string
)

// classpath fetches the artifacts of one RocketMQ version, compiles the programs of ./java against them and returns the class path.
func classpath(t *testing.T, version string) string {
	t.Helper()
	fetchMu.Lock()
	defer fetchMu.Unlock()
	if cp, ok := fetched[version]; ok {
		return cp
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(cache, "epochmq-conformance", version, "lib")
	if _, err := os.Stat(filepath.Join(lib, "done")); err != nil {
		cmd := exec.Command("mvn", "-q", "-B", "-f", "java/pom.xml", "-Drocketmq.version="+version, "dependency:copy-dependencies", "-DoutputDirectory="+lib)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("fetch RocketMQ %s: %v\n%s", version, err, out)
		}
		if err := os.WriteFile(filepath.Join(lib, "done"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	classes, err := os.MkdirTemp("", "epochmq-conformance-classes")
	if err != nil {
		t.Fatal(err)
	}
	classFolders = append(classFolders, classes)
	sources, _ := filepath.Glob("java/*.java")
	cmd := exec.Command("javac", append([]string{"-nowarn", "-cp", lib + "/*", "-d", classes}, sources...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile for RocketMQ %s: %v\n%s", version, err, out)
	}
	fetched[version] = classes + ":" + lib + "/*"
	return fetched[version]
}

// javaArgs are the arguments in front of a Java program: its own home folder, time zone and class path.
func javaArgs(t *testing.T, version, home string, props ...string) []string {
	args := []string{"-Xmx700m", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", "-Duser.home=" + home, "-Drocketmq.home.dir=" + home,
		"-Drocketmq.client.logRoot=" + home, "-Djava.io.tmpdir=" + home}
	if version == java4 { // unmaps files by reflection, which JDK 17 allows only when told so
		for _, pkg := range []string{"java.nio", "sun.nio.ch", "jdk.internal.ref"} {
			args = append(args, "--add-opens=java.base/"+pkg+"=ALL-UNNAMED")
		}
	}
	args = append(args, props...)
	return append(args, "-cp", classpath(t, version))
}

// java runs a Java program to its end and returns what it printed.
func java(t *testing.T, version string, limit time.Duration, props []string, program ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, "java", append(javaArgs(t, version, home, props...), program...)...)
	cmd.Dir = home // some commands write files where they stand
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// logback is the configuration that servers before 5.0 read from their home folder. It writes what javaComplaints reads.
const logback = `<configuration>
<appender name="file" class="ch.qos.logback.core.FileAppender"><file>${user.home}/logs/rocketmqlogs/all.log</file>
<encoder><pattern>%d %p %t - %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="file"/></root>
</configuration>
`

func writeLogback(t *testing.T, home string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(home, "conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"logback_broker.xml", "logback_namesrv.xml"} {
		if err := os.WriteFile(filepath.Join(home, "conf", name), []byte(logback), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// javaNamesrv returns the real name server on a free port, not started.
func javaNamesrv(t *testing.T, version string) *cluster.Process {
	t.Helper()
	home := t.TempDir()
	writeLogback(t, home)
	port := cluster.FreePorts(t, 1)[0]
	conf := cluster.WriteConf(t, filepath.Join(home, "namesrv.conf"), map[string]string{"listenPort": fmt.Sprint(port), "kvConfigPath": filepath.Join(home, "kv.json")})
	args := append(javaArgs(t, version, home), "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf)
	return cluster.NewProcess(t, "java namesrv "+version, fmt.Sprint("127.0.0.1:", port), "java", args...).Env("ROCKETMQ_HOME=" + home)
}

// storeKeys are the keys that shape files: both brokers must use the same.
func storeKeys(root string) map[string]string {
	return map[string]string{
		"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerIP1": "127.0.0.1",
		"storePathRootDir": root, "storePathCommitLog": filepath.Join(root, "commitlog"), "mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "1000",
		"maxIndexNum": "4000", "timerWheelEnable": "false", "maxMessageSize": "65536", "deleteWhen": "04", "fileReservedTime": "720",
		"flushDelayOffsetInterval": "1000", // StoreTool fill waits longer than that: else SIGKILL makes the next broker deliver delayed messages again
	}
}

// javaHome is the home folder of a real broker with the given store; its logs are below logs/rocketmqlogs.
func javaHome(root string) string { return filepath.Join(filepath.Dir(root), "java-home") }

// javaBroker returns the real broker on the given port and folder, not started.
func javaBroker(t *testing.T, version, namesrv string, port int, root string, extra map[string]string) *cluster.Process {
	t.Helper()
	home := javaHome(root)
	writeLogback(t, home)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, name := range []string{"all.log", "broker.log", "store.log"} {
			if text, err := os.ReadFile(filepath.Join(home, "logs", "rocketmqlogs", name)); err == nil {
				t.Logf("end of %s:\n%s", name, tail(string(text), 4000))
			}
		}
	})
	keys := storeKeys(root)
	keys["listenPort"] = fmt.Sprint(port)
	keys["haListenPort"] = fmt.Sprint(port + 1) // by default 10912, which another broker may hold
	keys["namesrvAddr"] = namesrv
	keys["brokerFastFailureEnable"] = "false" // on a busy machine it refuses what waited 200 ms
	for k, v := range extra {
		keys[k] = v
	}
	conf := cluster.WriteConf(t, filepath.Join(home, "broker.conf"), keys)
	args := append(javaArgs(t, version, home), "org.apache.rocketmq.broker.BrokerStartup", "-c", conf)
	return cluster.NewProcess(t, "java broker "+version, fmt.Sprint("127.0.0.1:", port), "java", args...).Env("ROCKETMQ_HOME=" + home)
}

// awaitRoute waits until the name server knows a route for the topic, asked by the tools of the given version.
func awaitRoute(t *testing.T, namesrv, topic string) {
	t.Helper()
	var out string
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		out, _ = mqadmin(t, java5, "topicRoute", "-n", namesrv, "-t", topic)
		if strings.Contains(out, "brokerAddrs\":{0:") {
			return
		}
	}
	t.Fatalf("no route for %s:\n%s", topic, out)
}

// mqadmin runs the unmodified admin tool.
func mqadmin(t *testing.T, version string, args ...string) (string, error) {
	t.Helper()
	out, err := java(t, version, 60*time.Second, nil, append([]string{"org.apache.rocketmq.tools.command.MQAdminStartup"}, args...)...)
	var keep []string
	for _, line := range strings.Split(out, "\n") {
		if !strings.Contains(line, "|-INFO in ") && !strings.Contains(line, "|-WARN in ") && !strings.Contains(line, "RocketMQLog") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "\n"), err
}

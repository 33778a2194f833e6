//go:build conformance

package conformance

import (
	"fmt"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// adminCluster is a name server and a broker, ours or RocketMQ's, that the same commands are sent to.
type adminCluster struct {
	name, namesrv, broker string
	firstID, lastUniq     string
}

// command is one call of mqadmin; {ns}, {broker} and {id} stand for the cluster's own values.
type command struct {
	args string
	// sorted: the order of the lines is that of a Java hash map.
	sorted bool
	// keysOnly: values depend on the run; the names must be the same.
	keysOnly bool
}

// TestAdminTool sends the same commands to a RocketMQ cluster and to ours and compares what the unmodified mqadmin prints.
func TestAdminTool(t *testing.T) {
	theirs := startAdminCluster(t, true)
	ours := startAdminCluster(t, false)
	commands := []command{
		{args: "clusterList -n {ns}", keysOnly: true},
		{args: "topicList -n {ns}", sorted: true},
		{args: "topicList -n {ns} -c", sorted: true},
		{args: "topicRoute -n {ns} -t Adm"},
		{args: "topicRoute -n {ns} -t NoSuchTopic"},
		{args: "topicStatus -n {ns} -t Adm"},
		{args: "topicClusterList -n {ns} -t Adm"},
		{args: "brokerStatus -n {ns} -b {broker}", keysOnly: true},
		{args: "updateTopic -n {ns} -b {broker} -t AdmNew -r 3 -w 5 -p 6"},
		{args: "updateTopic -n {ns} -c DefaultCluster -t AdmCluster"},
		{args: "updateTopic -n {ns} -b {broker} -t AdmBad%%/x"},
		{args: "updateTopic -n {ns} -b {broker} -t SELF_TEST_TOPIC"},
		{args: "updateTopicPerm -n {ns} -b {broker} -t AdmNew -p 4"},
		{args: "topicRoute -n {ns} -t AdmNew"},
		{args: "updateSubGroup -n {ns} -b {broker} -g AdmGroup -s true -d true"},
		{args: "updateSubGroup -n {ns} -c DefaultCluster -g AdmGroup2 -r 3 -q 2"},
		{args: "consumerProgress -n {ns} -g StoreToolG", sorted: true},
		{args: "consumerProgress -n {ns}", sorted: true},
		{args: "consumerConnection -n {ns} -g StoreToolG"},
		{args: "queryMsgById -n {ns} -i {id} -t Adm"},
		{args: "queryMsgByKey -n {ns} -t Adm -k k1"},
		{args: "queryMsgByUniqueKey -n {ns} -t Adm -i {uniq}"},
		{args: "queryMsgByOffset -n {ns} -t Adm -b broker-a -i 0 -o 1"},
		{args: "queryMsgByOffset -n {ns} -t Adm -b broker-a -i 0 -o 100000"},
		{args: "printMsg -n {ns} -t Adm -d false", sorted: true},
		{args: "queryCq -n {ns} -t Adm -q 0 -i 0 -c 3"},
		{args: "getBrokerConfig -n {ns} -b {broker}", keysOnly: true},
		{args: "updateBrokerConfig -n {ns} -b {broker} -k defaultQueryMaxNum -v 16"},
		{args: "updateBrokerConfig -n {ns} -b {broker} -k brokerConfigPath -v x"},
		{args: "getNamesrvConfig -n {ns}", keysOnly: true},
		{args: "updateKvConfig -n {ns} -s NS -k a -v b"},
		{args: "deleteKvConfig -n {ns} -s NS -k a"},
		{args: "updateOrderConf -n {ns} -m put -t Adm -v broker-a:4"},
		{args: "updateOrderConf -n {ns} -m get -t Adm"},
		{args: "wipeWritePerm -n {ns} -b broker-a"},
		{args: "addWritePerm -n {ns} -b broker-a"},
		{args: "resetOffsetByTime -n {ns} -g StoreToolG -t Adm -s now", sorted: true},
		{args: "brokerConsumeStats -n {ns} -b {broker}", sorted: true},
		{args: "statsAll -n {ns}", keysOnly: true},
		{args: "cleanUnusedTopic -n {ns} -b {broker}"},
		{args: "cleanExpiredCQ -n {ns} -b {broker}"},
		{args: "deleteSubGroup -n {ns} -b {broker} -g AdmGroup"},
		{args: "deleteTopic -n {ns} -c DefaultCluster -t AdmNew"},
		{args: "topicList -n {ns}", sorted: true},
		{args: "noSuchCommand"},
	}
	for _, c := range commands {
		t.Run(strings.ReplaceAll(c.args, "/", "_"), func(t *testing.T) {
			want, got := theirs.run(t, c), ours.run(t, c)
			if want != got {
				t.Errorf("mqadmin prints\n%s\nand against RocketMQ\n%s\n%s", got, want, lineDiff(want, got))
			}
		})
	}
}

func startAdminCluster(t *testing.T, javaBrokers bool) *adminCluster {
	t.Helper()
	c := &adminCluster{name: "ours"}
	root := filepath.Join(t.TempDir(), "store")
	port := cluster.FreePorts(t, 1)[0]
	var ns, broker *cluster.Process
	if javaBrokers {
		c.name = "java"
		ns = javaNamesrv(t, java5)
		broker = javaBroker(t, java5, ns.Addr, port, root, map[string]string{"timerWheelEnable": "true"})
	} else {
		ns = cluster.Namesrv(t)
		keys := storeKeys(root)
		keys["timerWheelEnable"] = "true"
		broker = cluster.BrokerAt(t, port, ns.Addr, root, keys)
	}
	ns.Start()
	broker.Start()
	c.namesrv, c.broker = ns.Addr, broker.Addr
	awaitRoute(t, c.namesrv, "TBW102")
	out, err := mqadmin(t, java5, "updateTopic", "-n", c.namesrv, "-b", c.broker, "-t", "Adm", "-r", "4", "-w", "4")
	if err != nil || !strings.Contains(out, "success") {
		t.Fatalf("create topic: %v\n%s", err, out)
	}
	awaitRoute(t, c.namesrv, "Adm")
	out, err = java(t, java5, 2*time.Minute, nil, "StoreTool", "fill", c.namesrv, "Adm", "40")
	if err != nil {
		t.Fatalf("fill: %v\n%s", err, out)
	}
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "ACK" && c.firstID == "" {
			c.firstID = f[4]
		}
	}
	out, err = mqadmin(t, java5, "queryMsgById", "-n", c.namesrv, "-i", c.firstID, "-t", "Adm")
	if m := regexp.MustCompile(`UNIQ_KEY=([0-9A-F]+)`).FindStringSubmatch(out); m != nil {
		c.lastUniq = m[1]
	} else {
		t.Fatalf("no unique key (%v) in\n%s", err, out)
	}
	return c
}

var scrubs = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3}|:\d{3})?`), "TIME"},
	{regexp.MustCompile(`\b[0-9A-Fa-f]{32}\b`), "ID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`\b1[78]\d{11}\b`), "MILLIS"},
	{regexp.MustCompile(`(?m)^\s+at .*\n`), ""},
	{regexp.MustCompile(`/\S*(junit|Test)\S*`), "PATH"},
	{regexp.MustCompile(`Message Body Path:.*`), "Message Body Path"},
	{regexp.MustCompile(`\b\d+\.\d+\b`), "NUM"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func (c *adminCluster) run(t *testing.T, cmd command) string {
	t.Helper()
	line := strings.NewReplacer("{ns}", c.namesrv, "{broker}", c.broker, "{id}", c.firstID, "{uniq}", c.lastUniq).Replace(cmd.args)
	out, _ := mqadmin(t, java5, strings.Fields(line)...)
	for _, s := range scrubs {
		out = s.re.ReplaceAllString(out, s.to)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
		if strings.Contains(l, "Properties:") {
			f := strings.Split(strings.Trim(strings.TrimSpace(strings.TrimPrefix(lines[i], "Properties:")), "{}"), ", ")
			sort.Strings(f)
			lines[i] = "Properties: " + strings.Join(f, ", ")
		}
		if cmd.keysOnly {
			lines[i] = regexp.MustCompile(`\s*[:=].*`).ReplaceAllString(lines[i], "")
			if strings.Contains(line, "clusterList") && i > 0 {
				f := strings.Fields(lines[i])
				lines[i] = strings.Join(f[:min(5, len(f))], " ")
			}
		}
	}
	if cmd.sorted || cmd.keysOnly {
		sort.Strings(lines)
	}
	return strings.Join(lines, "\n")
}

func lineDiff(want, got string) string {
	in := func(s string) map[string]bool {
		m := map[string]bool{}
		for _, l := range strings.Split(s, "\n") {
			m[l] = true
		}
		return m
	}
	w, g := in(want), in(got)
	var b strings.Builder
	for l := range w {
		if !g[l] {
			fmt.Fprintf(&b, "missing: %s\n", l)
		}
	}
	for l := range g {
		if !w[l] {
			fmt.Fprintf(&b, "extra:   %s\n", l)
		}
	}
	return b.String()
}

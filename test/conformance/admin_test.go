//go:build conformance

package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/internal/cluster"
)

// adminCluster is a name server and a broker, ours or RocketMQ's, that the same commands are sent to.
type adminCluster struct {
	name, namesrv, broker string
	firstID, uniq         string // of one message
	client                string // id of the live consumer
	live                  *cluster.Process
	files                 string
}

// command is one call of mqadmin; words in braces stand for the cluster's own values.
type command struct {
	args string
	// sorted: the order of the lines is that of a Java hash map.
	sorted bool
	// keysOnly: values depend on the run; the names must be the same.
	keysOnly bool
	// numbers: they depend on the run.
	numbers bool
	// differs are the differences that are meant, each with its reason.
	differs []difference
}

// difference is a line of a diff that may be there, and why.
type difference struct {
	line *regexp.Regexp
	why  string
}

func differs(why string, lines ...string) (list []difference) {
	for _, l := range lines {
		list = append(list, difference{regexp.MustCompile(l), why})
	}
	return list
}

// Differences that are meant.
var (
	phantomGroup = differs("RocketMQ 5.3.3 counts a group with the topic's own name among the readers of a topic that had a consumer; no such group exists",
		`^- DefaultCluster Adm Adm$`, `^- Adm Adm( |$)`, `^- MessageTrack \[consumerGroup=Adm,`, `^- See https://rocketmq.apache.org/.*MQClientAPIImpl`)
	retryTopic = differs("creating a group creates its retry topic too, with RocketMQ the first consumer does",
		`^\+ (DefaultCluster )?%RETRY%Adm\S+$`, `^\+ Adm(Group2?|ListG) N OFFLINE N N$`, `^\+ %RETRY%Adm\S+ N NUM N NO_CONSUMER$`)
	oldName = differs("the name that RocketMQ 4.9 has for getTransferredTps is kept too, since mqadmin 4.9 reads it", `^\+ getTransferedTps$`)
	newKeys = differs("our listing has every known key: also those of RocketMQ 5.3.4, and those without a value, which RocketMQ leaves out",
		`^\+ (authConfigPath|auth(entication|orization)MetadataProvider|combine(AssignOffset|CQ)\w+|dLeger\w+|enableAcceleratedRecovery|enableLogConsumeQueueRepeatedlyBuildWhenRecover)$`,
		`^\+ (enableRunningFlagsInFlush|enableSplitMetadata|splitMetadataSize|haMasterAddress|preferredLeaderId|readOnlyCommitLogStorePaths|storePath(BrokerIdentity|DLedgerCommitLog|EpochFile))$`,
		`^\+ (timerWheelSlots|writeWithoutMmap)$`)
)

var adminCommands = []command{
	{args: "clusterList -n {ns}", keysOnly: true},
	{args: "topicList -n {ns}", sorted: true},
	{args: "topicList -n {ns} -c", sorted: true, differs: phantomGroup},
	{args: "topicRoute -n {ns} -t Adm"},
	{args: "topicRoute -n {ns} -t NoSuchTopic"},
	{args: "topicStatus -n {ns} -t Adm"},
	{args: "topicClusterList -n {ns} -t Adm"},
	{args: "allocateMQ -n {ns} -t Adm -i 10.0.0.1,10.0.0.2,10.0.0.3"},
	{args: "brokerStatus -n {ns} -b {broker}", keysOnly: true, differs: oldName},
	{args: "updateTopic -n {ns} -b {broker} -t AdmNew -r 3 -w 5 -p 6"},
	{args: "updateTopic -n {ns} -c DefaultCluster -t AdmCluster"},
	{args: "updateTopic -n {ns} -b {broker} -t AdmBad%%/x"},
	{args: "updateTopic -n {ns} -b {broker} -t SELF_TEST_TOPIC"},
	{args: "updateTopicList -n {ns} -b {broker} -f {topics}"},
	{args: "updateTopicPerm -n {ns} -b {broker} -t AdmNew -p 4"},
	{args: "topicRoute -n {ns} -t AdmNew"},
	{args: "topicRoute -n {ns} -t AdmList"},
	{args: "updateSubGroup -n {ns} -b {broker} -g AdmGroup -s true -d true"},
	{args: "updateSubGroup -n {ns} -c DefaultCluster -g AdmGroup2 -r 3 -q 2"},
	{args: "updateSubGroupList -n {ns} -b {broker} -f {groups}"},
	{args: "getConsumerConfig -n {ns} -g AdmGroup2"},
	{args: "getConsumerConfig -n {ns} -g NoSuchGroup"},
	{args: "consumerProgress -n {ns} -g StoreToolG", sorted: true},
	{args: "consumerProgress -n {ns} -g AdmLive", sorted: true},
	{args: "consumerProgress -n {ns}", sorted: true, numbers: true, differs: retryTopic},
	{args: "consumerConnection -n {ns} -g StoreToolG"},
	{args: "consumerConnection -n {ns} -g AdmLive"},
	{args: "consumerConnection -n {ns} -g NoSuchGroup"},
	{args: "producerConnection -n {ns} -g AdmLiveP -t Adm"},
	{args: "producerConnection -n {ns} -g NoSuchGroup -t Adm"},
	{args: "producer -n {ns} -b {broker}", sorted: true},
	{args: "consumerStatus -n {ns} -g AdmLive"},
	{args: "consumerStatus -n {ns} -g AdmLive -i {client}", keysOnly: true},
	{args: "consumerStatus -n {ns} -g AdmLive -i nobody"},
	{args: "queryMsgById -n {ns} -i {id} -t Adm", sorted: true, differs: phantomGroup},
	{args: "queryMsgById -n {ns} -i {id} -t Adm -g AdmLive -d {client}"},
	{args: "queryMsgByKey -n {ns} -t Adm -k k1"},
	{args: "queryMsgByKey -n {ns} -t Adm -k nothing"},
	{args: "queryMsgByUniqueKey -n {ns} -t Adm -i {uniq}", sorted: true, differs: phantomGroup},
	{args: "queryMsgByUniqueKey -n {ns} -t Adm -i {uniq} -g AdmLive -d {client}"},
	{args: "queryMsgByOffset -n {ns} -t Adm -b broker-a -i 0 -o 1", sorted: true, differs: phantomGroup},
	{args: "queryMsgByOffset -n {ns} -t Adm -b broker-a -i 0 -o 100000"},
	{args: "printMsg -n {ns} -t Adm -d false", sorted: true},
	{args: "printMsgByQueue -n {ns} -t Adm -a broker-a -i 1 -p true -f true"},
	{args: "consumeMessage -n {ns} -t Adm", sorted: true},
	{args: "queryCq -n {ns} -t Adm -q 0 -i 0 -c 3"},
	{args: "sendMessage -n {ns} -t AdmCluster -p body -k key -c Tag", numbers: true},
	{args: "checkMsgSendRT -n {ns} -t AdmCluster -a 3 -s 16", numbers: true},
	{args: "sendMsgStatus -n {ns} -b broker-a -s 20 -c 2", numbers: true},
	{args: "getBrokerConfig -n {ns} -b {broker}", keysOnly: true, differs: newKeys},
	{args: "updateBrokerConfig -n {ns} -b {broker} -k defaultQueryMaxNum -v 16"},
	{args: "updateBrokerConfig -n {ns} -c DefaultCluster -k defaultQueryMaxNum -v 32"},
	{args: "updateBrokerConfig -n {ns} -b {broker} -k brokerConfigPath -v x"},
	{args: "getNamesrvConfig -n {ns}", keysOnly: true},
	{args: "updateNamesrvConfig -n {ns} -k orderMessageEnable -v true"},
	{args: "updateKvConfig -n {ns} -s NS -k a -v b"},
	{args: "deleteKvConfig -n {ns} -s NS -k a"},
	{args: "updateOrderConf -n {ns} -m put -t Adm -v broker-a:4"},
	{args: "updateOrderConf -n {ns} -m get -t Adm"},
	{args: "updateOrderConf -n {ns} -m delete -t Adm"},
	{args: "wipeWritePerm -n {ns} -b broker-a", numbers: true},
	{args: "addWritePerm -n {ns} -b broker-a", numbers: true},
	{args: "resetOffsetByTime -n {ns} -g StoreToolG -t Adm -s now", sorted: true},
	{args: "resetOffsetByTime -n {ns} -g AdmLive -t Adm -s -1", sorted: true},
	{args: "resetOffsetByTime -n {ns} -g AdmLive -t Adm -s 0", sorted: true},
	{args: "resetOffsetByTime -n {ns} -g AdmLive -t Adm -s now", sorted: true},
	{args: "skipAccumulatedMessage -n {ns} -g AdmLive -t Adm -f true", sorted: true},
	{args: "cloneGroupOffset -n {ns} -s AdmLive -d AdmClone -t Adm -o false"},
	{args: "brokerConsumeStats -n {ns} -b {broker}", sorted: true},
	{args: "statsAll -n {ns}", sorted: true, numbers: true, differs: slices.Concat(phantomGroup, retryTopic)},
	{args: "haStatus -n {ns} -b {broker}", numbers: true},
	{args: "checkRocksdbCqWriteProgress -n {ns} -c DefaultCluster -t Adm"},
	{args: "cleanUnusedTopic -n {ns} -b {broker}"},
	{args: "cleanExpiredCQ -n {ns} -b {broker}"},
	{args: "deleteExpiredCommitLog -n {ns} -b {broker}"},
	{args: "deleteSubGroup -n {ns} -b {broker} -g AdmGroup"},
	{args: "deleteTopic -n {ns} -c DefaultCluster -t AdmNew"},
	{args: "topicList -n {ns}", sorted: true, differs: retryTopic},
	{args: "noSuchCommand"},
}

// TestAdminTool sends the same commands to a RocketMQ cluster and to ours and compares what the unmodified mqadmin prints.
func TestAdminTool(t *testing.T) {
	theirs := startAdminCluster(t, true)
	ours := startAdminCluster(t, false)
	for _, c := range adminCommands {
		t.Run(strings.ReplaceAll(c.args, "/", "_"), func(t *testing.T) {
			var want string
			done := make(chan struct{})
			go func() { defer close(done); want = theirs.run(t, c) }()
			got := ours.run(t, c)
			<-done
			if diff := explain(t, c, lineDiff(want, got)); len(diff) > 0 {
				t.Errorf("mqadmin prints against RocketMQ (-) and against ours (+)\n%s", strings.Join(diff, "\n"))
			}
		})
	}
	// The live consumers got every message, and one of them twice more by queryMsg... -d. What a reset is followed by at once is not told.
	for _, c := range []*adminCluster{theirs, ours} {
		if got := strings.Count(c.live.Output(), "GOT "); got < 40+2 {
			t.Errorf("%s: the live consumer got %d messages, want at least 42", c.name, got)
		}
	}
}

func startAdminCluster(t *testing.T, javaBrokers bool) *adminCluster {
	t.Helper()
	c := &adminCluster{name: "ours", files: t.TempDir()}
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
		c.uniq = m[1]
	} else {
		t.Fatalf("no unique key (%v) in\n%s", err, out)
	}
	for name, text := range map[string]string{
		"topics.json": `[{"topicName":"AdmList","readQueueNums":2,"writeQueueNums":2,"perm":6,"topicFilterType":"SINGLE_TAG","order":false}]`,
		"groups.json": `[{"groupName":"AdmListG","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":4}]`,
	} {
		if err := os.WriteFile(filepath.Join(c.files, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.startLive(t)
	return c
}

// startLive starts a consumer of the group AdmLive and a producer of AdmLiveP, and waits until the consumer has everything.
func (c *adminCluster) startLive(t *testing.T) {
	t.Helper()
	args := append(javaArgs(t, java5, t.TempDir()), "StoreTool", "live", c.namesrv, "Adm", "AdmLive")
	c.live = cluster.NewProcess(t, c.name+" live client", "", "java", args...)
	if err := c.live.Launch(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		out := c.live.Output()
		m := regexp.MustCompile(`READY (\S+)`).FindStringSubmatch(out)
		if m != nil && strings.Count(out, "GOT ") == 40 {
			c.client = m[1]
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the live client did not get 40 messages:\n%s", tail(out, 3000))
		}
	}
}

var scrubs = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:]\d{3})?`), "TIME"},
	{regexp.MustCompile(`\b[0-9A-Fa-f]{32,}\b`), "ID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`@\d+#\d+`), "@PID"}, // client ids of short-lived clients
	{regexp.MustCompile(`\b1[78]\d{11}\b`), "MILLIS"},
	{regexp.MustCompile(`rt=\d+ms|spentTimeMills=\d+`), "MS"},
	{regexp.MustCompile(`(?m)^\s+at .*\n`), ""},
	{regexp.MustCompile(`/\S*(junit|Test)\S*`), "PATH"},
	{regexp.MustCompile(`Message Body Path:.*`), "Message Body Path"},
	{regexp.MustCompile(`\b\d+\.\d+\b`), "NUM"},
	{regexp.MustCompile(`([^\n])MessageTrack \[`), "$1\nMessageTrack ["},
	{regexp.MustCompile(`[ \t]+`), " "},
}

var numbers = regexp.MustCompile(`\b\d+\b`)

func (c *adminCluster) run(t *testing.T, cmd command) string {
	t.Helper()
	line := strings.NewReplacer("{ns}", c.namesrv, "{broker}", c.broker, "{id}", c.firstID, "{uniq}", c.uniq, "{client}", c.client,
		"{topics}", filepath.Join(c.files, "topics.json"), "{groups}", filepath.Join(c.files, "groups.json")).Replace(cmd.args)
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
		if cmd.numbers {
			lines[i] = numbers.ReplaceAllString(lines[i], "N")
		}
	}
	if cmd.sorted || cmd.keysOnly {
		sort.Strings(lines)
	}
	return strings.Join(lines, "\n")
}

// explain drops the lines of a difference that the command's exceptions name and logs why.
func explain(t *testing.T, cmd command, diff []string) []string {
	t.Helper()
	var rest []string
	said := map[string]bool{}
	for _, line := range diff {
		why := ""
		for _, e := range cmd.differs {
			if e.line.MatchString(line) {
				why = e.why
				break
			}
		}
		if why == "" {
			rest = append(rest, line)
		} else if !said[why] {
			said[why] = true
			t.Logf("differs, explained: %s", why)
		}
	}
	return rest
}

// lineDiff lists the lines that only one of two texts has, "-" in front of want's and "+" in front of got's, in their order.
func lineDiff(want, got string) []string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// common[i][j] is the length of the longest common sequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var diff []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			diff = append(diff, "- "+a[i])
			i++
		default:
			diff = append(diff, "+ "+b[j])
			j++
		}
	}
	return diff
}

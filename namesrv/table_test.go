package namesrv

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the scripts' expected output")

// TestScripts runs testdata/*.txt: a line is a command, the indented lines below it are what it must print.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s prints\n%s\nwant\n%s", file, got, text)
			}
		})
	}
}

type script struct {
	table *Table
	now   time.Time
}

func run(t *testing.T, text string) string {
	s := script{table: NewTable(TableConfig{}), now: time.UnixMilli(0)}
	var out strings.Builder
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		for _, l := range strings.Split(s.command(t, line), "\n") {
			if l != "" {
				out.WriteString("\t" + l + "\n")
			}
		}
	}
	return out.String()
}

// command runs one line: a verb and name=value pairs.
func (s *script) command(t *testing.T, line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	arg := map[string]string{}
	for _, f := range strings.Fields(rest) {
		k, v, _ := strings.Cut(f, "=")
		arg[k] = v
	}
	num := func(k string) int64 {
		n, err := strconv.ParseInt(arg[k], 10, 64)
		if err != nil && arg[k] != "" {
			t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	cluster := arg["in"]
	if cluster == "" {
		cluster = "c"
	}
	switch verb {
	case "table":
		s.table = NewTable(TableConfig{SupportActingMaster: arg["acting"] == "true", NotifyMinBrokerIDChanged: arg["notify"] == "true", DeleteTopicsOnRegister: arg["delete"] == "true"})
	case "advance":
		s.now = s.now.Add(time.Duration(num("ms")) * time.Millisecond)
	case "register":
		body := &protocol.RegisterBrokerBody{}
		body.Topics.DataVersion = protocol.DataVersion{Counter: num("version"), StateVersion: num("state")}
		body.Topics.TopicConfigTable = map[string]*protocol.TopicConfig{}
		for _, topic := range strings.Split(arg["topics"], ",") {
			if topic == "" {
				continue
			}
			name, perm, ok := strings.Cut(topic, ":")
			p := int64(6)
			if ok {
				p, _ = strconv.ParseInt(perm, 10, 32)
			}
			body.Topics.TopicConfigTable[name] = &protocol.TopicConfig{TopicName: name, ReadQueueNums: 4, WriteQueueNums: 4, Perm: int32(p)}
		}
		r := &Registration{Cluster: cluster, Broker: arg["broker"], Addr: arg["addr"], HAAddr: arg["addr"] + "-ha", ID: num("id"), Timeout: time.Duration(num("timeout")) * time.Millisecond, Zone: arg["zone"], Body: body, Whole: arg["whole"] == "true"}
		if arg["channel"] != "" {
			r.Channel = arg["channel"]
		}
		if v, ok := arg["acting"]; ok {
			b := v == "true"
			r.ActingMaster = &b
		}
		out, err := s.table.Register(r, s.now)
		text := ""
		if err != nil {
			text = "error: " + err.Error()
		}
		if out.MasterAddr != "" {
			text += fmt.Sprintf("master %s ha %s\n", out.MasterAddr, out.HAAddr)
		}
		return text + changeText(out.Notify)
	case "unregister":
		return changeText(s.table.Unregister(cluster, arg["broker"], arg["addr"], nil))
	case "close":
		text := ""
		for _, e := range s.table.OfChannel(arg["channel"]) {
			text += fmt.Sprintf("drop %s/%d at %s\n", e.Broker, e.ID, e.Addr) + changeText(s.table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel))
		}
		return text
	case "heartbeat":
		s.table.Heartbeat(cluster, arg["broker"], arg["addr"], s.now)
	case "version":
		changed, stored := s.table.QueryVersion(cluster, arg["broker"], arg["addr"], protocol.DataVersion{Counter: num("version"), StateVersion: num("state")}, s.now)
		if stored == nil {
			return fmt.Sprintf("changed %v, unknown", changed)
		}
		return fmt.Sprintf("changed %v, stored %d", changed, stored.Counter)
	case "expire":
		gone, next := s.table.Expire(s.now)
		text := ""
		for _, e := range gone {
			text += fmt.Sprintf("expired %s/%d at %s\n", e.Broker, e.ID, e.Addr) + changeText(s.table.Unregister(e.Cluster, e.Broker, e.Addr, e.Channel))
		}
		if !next.IsZero() {
			text += fmt.Sprintf("next in %d ms", next.Sub(s.now).Milliseconds())
		}
		return text
	case "route":
		r := s.table.Route(arg["topic"])
		if r == nil {
			return "no route"
		}
		if arg["zone"] != "" {
			FilterZone(r, arg["zone"])
		}
		b, err := r.Encode(false)
		if err != nil {
			return err.Error()
		}
		return string(b)
	case "wipe":
		return fmt.Sprint(s.table.SetWrite(arg["broker"], false), " topics")
	case "add":
		return fmt.Sprint(s.table.SetWrite(arg["broker"], true), " topics")
	case "delete":
		s.table.DeleteTopic(arg["topic"], arg["cluster"])
	case "addtopic":
		var queues []protocol.QueueData
		for _, b := range strings.Split(arg["brokers"], ",") {
			queues = append(queues, protocol.QueueData{BrokerName: b, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6})
		}
		s.table.RegisterTopic(arg["topic"], queues)
	case "topics":
		if arg["cluster"] != "" {
			return strings.Join(s.table.TopicsOfCluster(arg["cluster"]), " ")
		}
		return strings.Join(s.table.Topics(), " ")
	case "members":
		return fmt.Sprint(s.table.Members(cluster, arg["broker"]).BrokerAddrs)
	case "size":
		return s.table.String()
	default:
		t.Fatalf("unknown command %q", line)
	}
	return ""
}

func changeText(c *MinBrokerChange) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("tell %v: smallest id of %s is %d at %s, offline %q, ha %q\n", c.Recipients, c.Broker, c.MinID, c.MinAddr, c.OfflineTo, c.HAAddr)
}

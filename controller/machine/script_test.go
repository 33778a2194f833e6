package machine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the scripts' expected output")

// TestScripts runs testdata/*.txt: a line is a command, the indented lines below it are what it must print. Every command
// goes through its byte form.
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
			s := &script{t: t, state: New(), live: map[int64]Live{}}
			var out strings.Builder
			for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
				if strings.HasPrefix(line, "\t") {
					continue
				}
				out.WriteString(line + "\n")
				if line == "" || line[0] == '#' {
					continue
				}
				if answer := s.run(line); answer != "" {
					out.WriteString("\t" + strings.ReplaceAll(answer, "\n", "\n\t") + "\n")
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if out.String() != string(text) {
				t.Errorf("%s prints\n%s\nwant\n%s", file, out.String(), text)
			}
		})
	}
}

type script struct {
	t       *testing.T
	state   *State
	live    map[int64]Live
	unclean bool
}

// run carries out "verb set key=value ...". The set may be left out for alive and dead.
func (s *script) run(line string) string {
	words := strings.Fields(line)
	verb, arg := words[0], map[string]string{}
	name := ""
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			arg[k] = strings.ReplaceAll(v, "_", " ")
		} else if name == "" {
			name = w
		} else {
			arg[w] = "true"
		}
	}
	num := func(key string) int64 {
		if arg[key] == "" {
			return 0
		}
		n, err := strconv.ParseInt(arg[key], 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	list := func(key string) (out []int64) {
		for _, p := range strings.FieldsFunc(arg[key], func(r rune) bool { return r == ',' }) {
			n, err := strconv.ParseInt(p, 10, 64)
			if err != nil {
				s.t.Fatalf("%s: %v", line, err)
			}
			out = append(out, n)
		}
		return out
	}
	facts := Facts{Alive: s.live, Unclean: s.unclean}
	switch verb {
	case "alive": // alive id epoch=1 end=100
		id, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		s.live[id] = Live{Addr: arg["addr"], Known: arg["unknown"] == "", Epoch: int32(num("epoch")), End: num("end"), Priority: num("priority"), Learner: arg["learner"] != ""}
		return ""
	case "dead":
		id, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		delete(s.live, id)
		return ""
	case "unclean":
		s.unclean = name == "on"
		return ""
	case "next":
		return fmt.Sprint(s.state.NextID(name))
	case "show":
		return show(s.state.Set(name))
	case "reload":
		b, err := s.state.Snapshot(Meta{Index: 7})
		if err != nil {
			s.t.Fatal(err)
		}
		if s.state, _, err = Restore(b); err != nil {
			s.t.Fatal(err)
		}
		return ""
	}
	cluster := "c"
	if arg["cluster"] != "" {
		cluster = arg["cluster"]
	}
	var c Command
	switch verb {
	case "apply":
		c = &ApplyID{Cluster: cluster, Broker: name, ID: num("id"), Addr: arg["addr"], Code: arg["code"], Reclaim: arg["reclaim"] != ""}
	case "register":
		c = &Register{Broker: name, ID: num("id"), Addr: arg["addr"], Code: arg["code"], Learner: arg["learner"] != "", Unclean: arg["unclean"] != "", Facts: facts}
	case "elect":
		c = &Elect{Broker: name, ID: num("id"), Designate: arg["designate"] != "", Facts: facts}
	case "alter":
		c = &Alter{Broker: name, Master: num("master"), MasterEpoch: int32(num("epoch")), Sync: list("set"), SyncEpoch: int32(num("sss")), Facts: facts}
	case "clean":
		c = &Clean{Cluster: cluster, Broker: name, IDs: list("ids"), Living: arg["living"] != "", Facts: facts}
	case "preregister":
		c = &Preregister{Cluster: cluster, Broker: name, IDs: list("ids")}
	case "noop":
		c = &Noop{}
	default:
		s.t.Fatalf("unknown command %q", line)
	}
	b, err := Encode(c)
	if err != nil {
		s.t.Fatal(err)
	}
	if c, err = Decode(b); err != nil {
		s.t.Fatal(err)
	}
	r := s.state.Apply(c)
	out := strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, r.Remark))
	if verb == "register" && r.Code == OK {
		out += fmt.Sprintf(" master told: %v", r.Master)
	}
	if r.Changed {
		out += "\n" + show(r.Set)
	}
	return out
}

func show(t *Set) string {
	if t == nil {
		return "no such set"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s next=%d master=%d epoch=%d sss=%v sssEpoch=%d", t.Cluster, t.Name, t.Next, t.Master, t.MasterEpoch, t.Sync, t.SyncEpoch)
	if t.UncleanEpoch > 0 {
		fmt.Fprintf(&b, " uncleanEpoch=%d", t.UncleanEpoch)
	}
	if t.Restarted {
		b.WriteString(" restarted")
	}
	for _, id := range t.IDs() {
		r := t.Replicas[id]
		fmt.Fprintf(&b, " %d:%s", id, r.Addr)
		if r.Learner {
			b.WriteString(":learner")
		}
		if r.Suspect {
			b.WriteString(":suspect")
		}
	}
	return b.String()
}

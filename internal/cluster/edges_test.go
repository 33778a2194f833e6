package cluster

import (
	"os/exec"
	"strings"
	"testing"
)

// forbidden are the import edges that docs/architecture.md rules out, as prefixes below the module path.
var forbidden = []struct{ from, to string }{
	{"store", "remoting"}, {"store", "broker"}, {"store", "client"}, {"store", "namesrv"}, {"store", "conf"},
	{"remoting", "store"}, {"remoting", "broker"}, {"remoting", "client"}, {"remoting", "namesrv"}, {"remoting", "message"},
	{"client", "broker"}, {"client", "store"}, {"client", "namesrv"}, {"client", "conf"},
	{"namesrv", "broker"}, {"namesrv", "store"}, {"namesrv", "client"},
	{"message", "store"}, {"message", "remoting"}, {"conf", "broker"}, {"conf", "store"}, {"conf", "remoting"},
	{"broker", "client"}, {"broker", "namesrv"},
	{"ha", "remoting"}, {"ha", "broker"}, {"ha", "conf"}, {"ha", "client"}, {"ha", "namesrv"}, {"ha", "controller"}, {"store", "ha"}, {"remoting", "ha"}, {"message", "ha"},
	{"controller", "broker"}, {"controller", "namesrv"}, {"controller", "store"}, {"controller", "ha"}, {"controller", "client"},
	{"controller/machine", "remoting"}, {"controller/machine", "conf"}, {"namesrv", "controller"}, {"broker", "controller"},
}

// siblings are features of the broker that others may import: data types.
var siblings = map[string]bool{"broker/topic": true, "broker/group": true, "broker/stats": true}

func TestImportEdges(t *testing.T) {
	const module = "github.com/epochmq/epochmq/"
	out, err := exec.Command("go", "list", "-f", "{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}\n{{end}}", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	edges := 0
	for _, line := range strings.Split(string(out), "\n") {
		from, to, ok := strings.Cut(line, " ")
		if !ok || !strings.HasPrefix(to, module) {
			continue
		}
		edges++
		from, to = strings.TrimPrefix(from, module), strings.TrimPrefix(to, module)
		for _, f := range forbidden {
			if under(from, f.from) && under(to, f.to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
		if strings.HasPrefix(from, "broker/") && under(to, "broker") && !siblings[to] && parent(to) != parent(from) {
			t.Errorf("the feature %s imports %s", from, to)
		}
	}
	if edges < 50 {
		t.Fatalf("only %d edges were read", edges)
	}
}

func under(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// parent is the feature that a package belongs to: broker/x.
func parent(path string) string {
	f := strings.Split(path, "/")
	if len(f) < 2 {
		return path
	}
	return f[0] + "/" + f[1]
}

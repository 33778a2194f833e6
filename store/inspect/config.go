package inspect

import (
	"path/filepath"
	"strings"

	"github.com/epochmq/epochmq/internal/fastjson"
)

// config reads the JSON files of the config folder. A damaged file is damage even when its .bak is good, because a start
// then goes back to the .bak.
func (in *inspector) config() error {
	dir := filepath.Join(in.root, "config")
	list, err := in.readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			in.find(Note, path, -1, "configuration in RocksDB, not read by EpochMQ")
		case kindOf(path) == KindConfig, isMetrics(e.Name()):
			if err := in.json(path); err != nil {
				return err
			}
		default:
			info, err := e.Info()
			if err != nil {
				return err
			}
			in.file(path, KindOther, info.Size(), nil)
		}
	}
	return nil
}

func isMetrics(name string) bool {
	name = strings.TrimSuffix(name, ".bak")
	return name == "timermetrics" || name == "transactionMetrics"
}

func (in *inspector) json(path string) error {
	b, err := in.fs.ReadFile(path)
	if err != nil {
		return err
	}
	node, err := fastjson.Parse(b)
	if err != nil {
		in.file(path, KindConfig, int64(len(b)), nil)
		sev := Damage
		if in.rep.Live || strings.HasSuffix(path, ".bak") && len(b) == 0 {
			sev = Note
		}
		in.find(sev, path, 0, "not readable: %v", err)
		return nil
	}
	var fields Fields
	for _, m := range node.Members {
		if n := len(m.Value.Members); n > 0 && m.Key.Text != "dataVersion" {
			fields = append(fields, Field{m.Key.Text, n})
		}
	}
	in.file(path, KindConfig, int64(len(b)), fields)
	return nil
}

package conf

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzProperties reads any text as properties, changes a key in it, and wants exactly that key changed.
func FuzzProperties(f *testing.F) {
	samples, err := filepath.Glob("*.conf")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range samples {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), "5")
	}
	f.Add("# c\nlistenPort = 1\\\n 2\nlistenPort=3\nother: x\n!z\n\\\n", " a\\b")
	f.Add("<!-- x\ny -->\na=b", "")
	f.Fuzz(func(t *testing.T, text, value string) {
		before, err := ParseProperties([]byte(text))
		if err != nil {
			return
		}
		for _, c := range value {
			if c == '\n' || c == '\r' || c == 0 || c == '\uFFFD' {
				return
			}
		}
		edited := editProperties([]byte(text), map[string]string{"fuzzedKey": value})
		after, err := ParseProperties(edited)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, edited, err)
		}
		if _, had := before["fuzzedKey"]; had {
			return
		}
		if len(after) != len(before)+1 && len(after) != len(before) {
			t.Fatalf("%d keys became %d: %q", len(before), len(after), edited)
		}
	})
}

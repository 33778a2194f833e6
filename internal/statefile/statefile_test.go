package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "topics.json")
	load := func() (string, bool, error) {
		var got string
		found, err := Load(OS, path, func(b []byte) error {
			if !strings.HasPrefix(string(b), "good") {
				return errors.New("not good")
			}
			got = string(b)
			return nil
		})
		return got, found, err
	}
	if got, found, err := load(); found || err != nil || got != "" {
		t.Fatalf("without files: %q %v %v", got, found, err)
	}
	for i := 1; i <= 3; i++ {
		if err := Write(OS, path, []byte(fmt.Sprint("good", i))); err != nil {
			t.Fatal(err)
		}
		if got, found, err := load(); got != fmt.Sprint("good", i) || !found || err != nil {
			t.Fatalf("after write %d: %q %v %v", i, got, found, err)
		}
	}
	bak, err := os.ReadFile(path + ".bak")
	if err != nil || string(bak) != "good2" {
		t.Fatalf("backup: %q %v", bak, err)
	}
	for _, damage := range []string{"", "goo", "}old}"} {
		if err := os.WriteFile(path, []byte(damage), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, found, err := load(); got != "good2" || !found || err != nil {
			t.Errorf("with %q: %q %v %v", damage, got, found, err)
		}
	}
	if err := os.WriteFile(path+".bak", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err = load()
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), ".bak") {
		t.Fatalf("both bad: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "}old}" {
		t.Error("a file that could not be read was changed")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// stopFS lets a number of changes through and fails every later one, as a power loss would.
type stopFS struct {
	FS
	left int
}

var errStopped = errors.New("stopped")

func (s *stopFS) change(fn func() error) error {
	if s.left <= 0 {
		return errStopped
	}
	s.left--
	return fn()
}

func (s *stopFS) WriteFile(name string, b []byte, perm fs.FileMode) error {
	if s.left == 1 { // cut off in the middle of the file
		_ = s.FS.WriteFile(name, b[:len(b)/2], perm)
		s.left = 0
		return errStopped
	}
	return s.change(func() error { return s.FS.WriteFile(name, b, perm) })
}
func (s *stopFS) Rename(a, b string) error {
	return s.change(func() error { return s.FS.Rename(a, b) })
}
func (s *stopFS) Link(a, b string) error { return s.change(func() error { return s.FS.Link(a, b) }) }
func (s *stopFS) Remove(a string) error  { return s.change(func() error { return s.FS.Remove(a) }) }

// TestStoppedAnywhere stops a replacement after each of its steps: what is loaded then is the old content or the new one.
func TestStoppedAnywhere(t *testing.T) {
	for steps := 0; ; steps++ {
		path := filepath.Join(t.TempDir(), "f.json")
		for _, old := range []string{"old1", "old2"} {
			if err := Write(OS, path, []byte(old)); err != nil {
				t.Fatal(err)
			}
		}
		err := Write(&stopFS{OS, steps}, path, []byte("new3"))
		var got string
		found, lerr := Load(OS, path, func(b []byte) error {
			if len(b) != 4 {
				return errors.New("cut off")
			}
			got = string(b)
			return nil
		})
		if lerr != nil || !found || err != nil && got != "old2" && got != "new3" {
			t.Fatalf("stopped after %d steps (%v): loaded %q, %v", steps, err, got, lerr)
		}
		if err == nil {
			if got != "new3" {
				t.Fatalf("written, but loaded %q", got)
			}
			return
		}
		// The next start must be able to write again over whatever was left.
		if err := Write(OS, path, []byte("next")); err != nil {
			t.Fatalf("write after a stop at step %d: %v", steps, err)
		}
	}
}

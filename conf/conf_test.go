package conf

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type server struct {
	Port  int     `property:"listenPort" default:"10" live:"true" effect:"honoured"`
	Name  string  `property:"brokerName" default:"x" effect:"honoured"`
	On    bool    `property:"traceOn" default:"true" live:"true" effect:"honoured"`
	Ratio float64 `property:"ratio" default:"0.8" effect:"none: test"`
	Share int64   `property:"shared" default:"7" effect:"honoured"`
	inner int
}

func (s *server) Validate() error {
	if s.Port < 0 {
		return errors.New("listenPort is negative")
	}
	return nil
}

type other struct {
	Share int64 `property:"shared" default:"1" effect:"honoured"`
	Big   int64 `property:"bigNumber" default:"0" effect:"honoured"`
}

func newSet(t *testing.T) *Set {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler))
	require.NoError(t, s.Register(&server{inner: 1}))
	require.NoError(t, s.Register(new(other)))
	return s
}

func values(s *Set) (server, other) {
	var a server
	var b other
	s.Value(&a)
	s.Value(&b)
	return a, b
}

func TestLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.conf")
	require.NoError(t, os.WriteFile(file, []byte("<!-- licence -->\n# comment\nlistenPort = 20\nbrokerNAME=fromfile\nBrokerName=later\ntraceOn=no\nbigNumber=12x\nunknownKey=1\n"), 0o600))
	t.Setenv("EPOCHMQ_RATIO", "0.5")
	t.Setenv("EPOCHMQ_BIG_NUMBER", "99")
	s := newSet(t)
	require.NoError(t, s.Load(file))
	a, b := values(s)
	require.Equal(t, server{Port: 20, Name: "later", On: false, Ratio: 0.5, Share: 7, inner: 1}, a)
	require.Equal(t, other{Share: 7, Big: 99}, b, "a shared key has the first one's default")
	require.Equal(t, []string{"unknownKey"}, s.Unknown())
	require.True(t, s.Given("listenPort"))
	require.False(t, s.Given("shared"))
	require.True(t, s.Put("LISTENPORT", "30"))
	require.True(t, s.Put("listenPort", "many"), "known, but the value is ignored")
	require.False(t, s.Put("nope", "1"))
	a, _ = values(s)
	require.Equal(t, 30, a.Port)
	require.Equal(t, "bigNumber=99\nbrokerName=later\nlistenPort=30\nratio=0.5\nshared=7\ntraceOn=false\n", s.Text())
	require.Error(t, newSet(t).Load(file+".none"))
}

func TestApply(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.conf")
	require.NoError(t, os.WriteFile(file, []byte("# mine\nlistenport=20\n\nother = kept\n"), 0o600))
	s := newSet(t)
	require.NoError(t, s.Load(file))
	s.Forbid(" brokerName ")
	var seen []server
	s.OnChange(new(server), func(v any) { seen = append(seen, v.(server)) })
	var others []other
	s.OnChange(new(other), func(v any) { others = append(others, v.(other)) })

	require.NoError(t, s.Apply(map[string]string{"listenPort": "21", "shared": "8", "unknown": "1"}))
	require.Len(t, seen, 1)
	require.Equal(t, []other{{Share: 8}}, others)
	require.Equal(t, 21, seen[0].Port)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "# mine\nlistenPort=21\n\nother = kept\nshared=8\n", string(text))

	for name, changes := range map[string]map[string]string{
		"forbidden": {"BROKERNAME": "y", "listenPort": "22"}, "no number": {"listenPort": "x"}, "refused": {"listenPort": "-1"}, "line break": {"brokerName2": "", "traceOn": "a\nb=c"},
	} {
		require.Error(t, s.Apply(changes), name)
	}
	var no *ForbiddenError
	require.ErrorAs(t, s.Apply(map[string]string{"brokerName": "y"}), &no)
	require.NoError(t, s.Apply(map[string]string{"unknown": "1"}))
	require.NoError(t, s.Apply(nil))
	require.Len(t, seen, 1)
	a, _ := values(s)
	require.Equal(t, 21, a.Port)

	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700)) // the file cannot be written: nothing changes
	require.Error(t, s.Apply(map[string]string{"listenPort": "23"}))
	a, _ = values(s)
	require.Equal(t, 21, a.Port)
}

func TestCheckChangesNothing(t *testing.T) {
	s := newSet(t)
	require.ErrorContains(t, s.Check("LISTENPORT", "abc"), "key listenPort")
	require.NoError(t, s.Check("listenPort", "20"))
	require.NoError(t, s.Check("unknown", "x"))
	var v server
	s.Value(&v)
	require.Equal(t, 10, v.Port)
	require.False(t, s.Given("listenPort"))
}

func TestRegisterRefuses(t *testing.T) {
	require.Error(t, New(nil).Register(server{}))
	require.Error(t, New(nil).Register(new(struct {
		A int `property:"a" default:"x"`
	})))
	require.Error(t, New(nil).Register(new(struct {
		A []int `property:"a" default:"1"`
	})))
	require.Panics(t, func() { newSet(t).Value(new(struct{})) })
}

func TestEditProperties(t *testing.T) {
	for name, c := range map[string]struct {
		old, want string
		changes   map[string]string
	}{
		"empty":         {"", "a=1\nb=2\n", map[string]string{"b": "2", "a": "1"}},
		"kept":          {"# c\n a : 0\n!x\nz=9", "# c\na=1\n!x\nz=9", map[string]string{"a": "1"}},
		"repeated":      {"a=0\nA=5\n", "a=1\na=1\n", map[string]string{"a": "1"}},
		"continued":     {"a=0 \\\n  more\nb=2\\\n  a=4\n", "a=1\nb=2\\\n  a=4\n", map[string]string{"a": "1"}},
		"ends open":     {"b=2\\", "b=2\\\n\na=1\n", map[string]string{"a": "1"}},
		"escapes":       {"", `a=\ x\\y` + "\n", map[string]string{"a": ` x\y`}},
		"XML comment":   {"<!--\n a=7\n-->\n# c\n", "<!--\n a=7\n-->\n# c\na=1\n", map[string]string{"a": "1"}},
		"no comment":    {"b=<!--\na=7\nc=-->\n", "b=<!--\na=1\nc=-->\n", map[string]string{"a": "1"}},
		"line ends":     {"a=1\r\nb=2\r\n", "a=1\r\nb=3\r\nc=4\r\n", map[string]string{"b": "3", "c": "4"}},
		"old line ends": {"a=1\rb=2\rz=1", "a=1\rb=3\rz=1", map[string]string{"b": "3"}},
		"escaped key":   {"\\u0061=1\nb\\:=2\n", "a=7\nb\\:=2\n", map[string]string{"a": "7"}},
		"mark":          {"\uFEFFa=1\nb=2", "\uFEFFa=3\nb=2\nc=1\n", map[string]string{"a": "3", "c": "1"}},
		"comment slash": {"# a \\\nb=1\n", "# a \\\nb=2\n", map[string]string{"b": "2"}},
	} {
		got, err := editProperties([]byte(c.old), c.changes)
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
	}
}

// FuzzProperties changes a key of any file: the file stays readable, the key has the value, others keep theirs.
func FuzzProperties(f *testing.F) {
	for _, name := range []string{"broker.conf", "2m-noslave/broker-a.properties", "testdata/java-getBrokerConfig.txt"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), "5")
	}
	f.Add("a=1\n# c\nb=2\\\n  x\n", "value")
	f.Add("<!-- key=1\nkey=2 --> key=3\nb=<!--\n", "-->")
	f.Add("Key=1\nkey:2\nkey 3", `a\b`)
	f.Add("\uFEFFk\\u0065y=1\r\nx=\\ud83d\\ude00\r# c", "\u00e9")
	f.Fuzz(func(t *testing.T, old, value string) {
		before, err := ParseProperties([]byte(old))
		if err != nil || strings.ContainsAny(value, "\r\n\x00") {
			return
		}
		edited, err := editProperties([]byte(old), map[string]string{"key": value})
		if err != nil && strings.Contains(value, "-->") {
			return // it would end an XML comment that is open
		}
		if err != nil {
			t.Fatalf("%q cannot be edited: %v", old, err)
		}
		after, err := ParseProperties(edited)
		if err != nil {
			t.Fatalf("%q becomes unreadable: %v", old, err)
		}
		if got := strings.TrimSpace(after["key"]); got != strings.TrimSpace(value) {
			t.Fatalf("%q: key is %q, want %q in %q", old, got, value, edited)
		}
		for k, v := range before {
			if !strings.EqualFold(k, "key") && after[k] != v {
				t.Fatalf("%q: key %q was %q and is %q in %q", old, k, v, after[k], edited)
			}
		}
		for k := range after {
			if _, had := before[k]; !had && k != "key" {
				t.Fatalf("%q: key %q is new in %q", old, k, edited)
			}
		}
	})
}

func TestParseProperties(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
	}{
		"separators":   {"a=1\nb:2\nc 3\n d\t=\t4 \ne = = 5\nf\ng=\n", map[string]string{"a": "1", "b": "2", "c": "3", "d": "4 ", "e": "= 5", "f": "", "g": ""}},
		"comments":     {"# a=1 \\\n! b=2\n  # c\nd=#e\n", map[string]string{"d": "#e"}},
		"continuation": {"a=1\\\n   2\\\r\n3\nb=x\\\\\nc=y\\\n", map[string]string{"a": "123", "b": `x\`, "c": "y"}},
		"escapes":      {`a\ b\=c=\t\u00e9\ud83d\ude00\q\\` + "\n", map[string]string{"a b=c": "\té😀q\\"}},
		"lone half":    {`a=\ud83d!`, map[string]string{"a": "\uFFFD!"}},
		"repeated":     {"a=1\na=2", map[string]string{"a": "2"}},
		"no expansion": {"a=${user.home}/x", map[string]string{"a": "${user.home}/x"}},
		"line ends":    {"a=1\rb=2\r\nc=3", map[string]string{"a": "1", "b": "2", "c": "3"}},
		"only blanks":  {strings.Repeat("\n \f", 300000), map[string]string{}},
	} {
		got, err := ParseProperties([]byte(c.text))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for _, bad := range []string{`a=\u12`, `a=\uzzzz`, `\u=1`, strings.Repeat(" ", MaxUpdate+1)} {
		_, err := ParseProperties([]byte(bad))
		require.Error(t, err)
	}
	for _, old := range []string{`a=\u`, "<!-- open"} {
		_, err := editProperties([]byte(old), map[string]string{"b": "-->"})
		require.Error(t, err, old)
	}
}

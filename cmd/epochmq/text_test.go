package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/client"
)

func TestEachLine(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
		long int
	}{
		"empty":       {"", nil, 0},
		"one":         {"a", []string{"a"}, 0},
		"ended":       {"a\n", []string{"a"}, 0},
		"blank":       {"\n\nb", []string{"", "", "b"}, 0},
		"cr stays":    {"a\r\n", []string{"a\r"}, 0},
		"too long":    {strings.Repeat("x", 101) + "\nb\n", []string{"", "b"}, 1},
		"at limit":    {strings.Repeat("x", 100) + "\n", []string{strings.Repeat("x", 100)}, 0},
		"far too big": {strings.Repeat("x", 200000), []string{""}, 1},
	} {
		var got []string
		long := 0
		require.NoError(t, eachLine(strings.NewReader(c.in), 1, 100, func(l line) bool {
			require.Equal(t, int64(len(got)+1), l.number, name)
			got = append(got, string(l.text))
			if l.long {
				long++
			}
			return true
		}), name)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.long, long, name)
	}
}

func FuzzEachLine(f *testing.F) {
	f.Add([]byte("a\n\nb"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out []byte
		n := 0
		if err := eachLine(bytes.NewReader(in), 1, 1<<20, func(l line) bool {
			out = append(append(out, l.text...), '\n')
			n++
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(in) > 0 && in[len(in)-1] != '\n' {
			in = append(bytes.Clone(in), '\n')
		}
		if !bytes.Equal(in, out) || n != bytes.Count(in, []byte{'\n'}) {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func TestFormat(t *testing.T) {
	m := &client.Received{Topic: "t", Queue: client.Queue{Topic: "t", Broker: "b", ID: 3}, QueueOffset: 17, Body: []byte("hello"), StoreTime: time.UnixMilli(5)}
	for format, want := range map[string]string{
		`%t/%q@%o`: "t/3@17", `%p`: "t/3@17", `%b\n`: "hello\n", `%s%%`: "5%", `\t\0\\\x41`: "\t\x00\\A", `%T`: "5", `%k%g%{X}`: "", `é%b`: "éhello",
	} {
		f, err := parseFormat(format)
		require.NoError(t, err, format)
		require.Equal(t, want, string(f.append(nil, m)), format)
	}
	for _, format := range []string{`%`, `%z`, `\`, `\q`, `\x4`, `\xzz`, `%{a`} {
		_, err := parseFormat(format)
		require.Error(t, err, format)
	}
}

func FuzzParseFormat(f *testing.F) {
	f.Add(`%t %b\n`)
	m := &client.Received{Body: []byte("x")}
	f.Fuzz(func(_ *testing.T, s string) {
		if p, err := parseFormat(s); err == nil {
			p.append(nil, m)
		}
	})
}

func TestJSONOfBinaryBody(t *testing.T) {
	b, err := appendJSON(nil, &client.Received{Topic: "t", Body: []byte{0xff, 0}})
	require.NoError(t, err)
	require.Contains(t, string(b), `"bodyBase64":"/wA="`)
	require.NotContains(t, string(b), `"body":`)
}

func TestPosition(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for text, want := range map[string]position{
		"first": {kind: 'f'}, "last": {kind: 'l'}, "offset:7": {kind: 'o', offset: 7}, "offset 7": {kind: 'o', offset: 7}, "offset=7": {kind: 'o', offset: 7},
		"time:10m": {kind: 't', time: now.Add(-10 * time.Minute)}, "time:-10m": {kind: 't', time: now.Add(-10 * time.Minute)},
		"time:1700000000001": {kind: 't', time: now.Add(time.Millisecond)},
	} {
		p, err := parsePosition(text, now)
		require.NoError(t, err, text)
		require.Equal(t, want, p, text)
	}
	p, err := parsePosition("time 2026-01-31T12:00:00Z", now)
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), p.time.UTC())
	p, err = parsePosition("time:2026-01-31 12:00:00", now)
	require.NoError(t, err)
	require.True(t, time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local).Equal(p.time))
	for _, text := range []string{"", "middle", "offset:-1", "offset:x", "time:soon", "first:1"} {
		_, err := parsePosition(text, now)
		require.Error(t, err, text)
	}
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a, b", oneLine("a\r\n\nb\n"))
}

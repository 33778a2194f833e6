package pull

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

func TestParseTagsGolden(t *testing.T) {
	f, err := os.Open("testdata/subscription.jsonl")
	require.NoError(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var row struct {
			Sub, Type, ExpressionType *string
			SubString, Error          string
			CodeSet                   []int32
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &row))
		if row.Type != nil && *row.Type != "TAG" {
			continue
		}
		sub := ""
		if row.Sub != nil {
			sub = *row.Sub
		}
		got, err := ParseTags(sub)
		if row.Error != "" {
			require.Error(t, err, "%q", sub)
			continue
		}
		require.NoError(t, err, "%q", sub)
		slices.Sort(row.CodeSet)
		if row.SubString == "*" {
			require.True(t, got.all, "%q", sub)
			continue
		}
		require.False(t, got.all, "%q", sub)
		require.Equal(t, len(row.CodeSet), len(got.codes), "%q", sub)
		for _, c := range row.CodeSet {
			require.True(t, got.MatchTags(int64(c)), "%q %d", sub, c)
		}
		require.False(t, got.MatchTags(77), "%q", sub)
	}
}

// CL-19: tags with equal hashes pass together; the client tells them apart.
func TestTagFilter(t *testing.T) {
	for _, c := range []struct {
		expr, tag string
		want      bool
	}{
		{"Aa", "Aa", true}, {"Aa", "BB", true}, {"Aa", "C", false}, {"Aa", "", false}, {"Aa || C", "C", true},
		{"*", "", true}, {"*", "x", true}, {"a||b||c||d||e||f||g||h||i||j", "j", true}, {"a||b||c||d||e||f||g||h||i||j", "k", false},
	} {
		f, err := ParseTags(c.expr)
		require.NoError(t, err)
		code := int64(0)
		if c.tag != "" {
			code = message.TagsCode([]byte(c.tag))
		}
		require.Equal(t, c.want, f.MatchTags(code), "%q %q", c.expr, c.tag)
	}
}

func TestFiltersRemember(t *testing.T) {
	var c filters
	a, err := c.get([]byte("TagA"))
	require.NoError(t, err)
	b, err := c.getText("TagA")
	require.NoError(t, err)
	require.Same(t, a, b)
	key := []byte("TagA")
	require.Zero(t, testing.AllocsPerRun(100, func() { c.get(key) }))
	for i := range 3 * maxFilters {
		_, err := c.getText(strings.Repeat("x", i+1))
		require.NoError(t, err)
		require.LessOrEqual(t, len(*c.m.Load()), maxFilters)
	}
	_, err = c.get([]byte("||"))
	require.Error(t, err)
}

func FuzzParseTags(f *testing.F) {
	for _, s := range []string{"", "*", "TagA||TagB", "||", " a ||| b", "标签||x", "\xff||"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		filter, err := ParseTags(s)
		if err == nil {
			for _, p := range strings.Split(s, "||") {
				if p = strings.TrimFunc(p, javaBlank); p != "" && !filter.MatchTags(int64(message.HashString(p))) {
					t.Fatalf("%q does not match its own tag %q", s, p)
				}
			}
		}
	})
}

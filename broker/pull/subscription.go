package pull

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/epochmq/epochmq/message"
)

// errEmptySubscription is an expression such as "||", that names no tag at all.
var errEmptySubscription = errors.New("subString split error")

// TagFilter is a parsed tag expression. It is immutable, and satisfies store.Filter without touching a record: tags are
// compared by their hash, and clients compare the text again.
type TagFilter struct {
	all   bool
	codes []int32 // sorted
}

// ParseTags reads "*" or "TagA || TagB". Empty means all. The hash is Java's, over UTF-16 units, whatever the client
// thinks it is.
func ParseTags(expr string) (*TagFilter, error) {
	if expr == "" || expr == "*" {
		return &TagFilter{all: true}, nil
	}
	f := &TagFilter{}
	parts := strings.Split(expr, "||")
	empty := true
	for _, p := range parts {
		if p != "" {
			empty = false // Java's split drops trailing empty parts; nothing left is an error
		}
		if tag := strings.TrimFunc(p, javaBlank); tag != "" {
			f.codes = append(f.codes, message.HashString(tag))
		}
	}
	if empty {
		return nil, errEmptySubscription
	}
	slices.Sort(f.codes)
	f.codes = slices.Compact(f.codes)
	return f, nil
}

// MatchTags reports whether a message with this tags code may be wanted.
func (f *TagFilter) MatchTags(code int64) bool {
	if f.all {
		return true
	}
	want := int32(code)
	if len(f.codes) <= 8 {
		for _, c := range f.codes {
			if c == want {
				return true
			}
		}
		return false
	}
	_, ok := slices.BinarySearch(f.codes, want)
	return ok
}

// NeedsRecord is false: the tags code decides.
func (f *TagFilter) NeedsRecord() bool { return false }

// MatchRecord is true for every record, see NeedsRecord.
func (f *TagFilter) MatchRecord(*message.Record) bool { return true }

// filters remembers parsed expressions by their text, so that a pull parses nothing and allocates nothing. Readers load
// one immutable map; a new text copies it. When it is full it starts again empty, which bounds what a peer can make it
// hold.
type filters struct {
	m atomic.Pointer[map[string]*TagFilter]
}

const (
	maxFilters    = 256
	maxFilterText = 16 << 10 // longer expressions are parsed each time
)

// get returns the filter of an expression as it stands in a frame.
func (c *filters) get(expr []byte) (*TagFilter, error) {
	if m := c.m.Load(); m != nil {
		if f, ok := (*m)[string(expr)]; ok {
			return f, nil
		}
	}
	return c.add(string(expr))
}

// getText is get for a string.
func (c *filters) getText(expr string) (*TagFilter, error) {
	if m := c.m.Load(); m != nil {
		if f, ok := (*m)[expr]; ok {
			return f, nil
		}
	}
	return c.add(expr)
}

func (c *filters) add(text string) (*TagFilter, error) {
	f, err := ParseTags(text)
	if err != nil || len(text) > maxFilterText {
		return f, err
	}
	for {
		old := c.m.Load()
		next := make(map[string]*TagFilter)
		if old != nil && len(*old) < maxFilters {
			for k, v := range *old {
				next[k] = v
			}
		}
		next[text] = f
		if c.m.CompareAndSwap(old, &next) {
			return f, nil
		}
	}
}

// isTagType reports whether an expression type means tags.
func isTagType(t string) bool { return t == "" || t == "TAG" }

// javaBlank is what Java's String.trim takes away: everything up to the space.
func javaBlank(r rune) bool { return r <= ' ' }

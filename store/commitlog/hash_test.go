package commitlog

import (
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/message"
)

// javaHash is String.hashCode as its documentation says it.
func javaHash(s string) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(u)
	}
	return h
}

func TestKeyHash(t *testing.T) {
	q := NewQueue("Thema", 0, 0)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(rapid.StringMatching(`[ -~]{0,40}`), rapid.String()).Draw(t, "key")
		require.Equal(t, javaHash("Thema#"+key), q.KeyHash([]byte(key)))
	})
}

func TestEntryOfAnyProperties(t *testing.T) {
	q := NewQueue("SCHEDULE_TOPIC_XXXX", 3, 0)
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"KEYS", "TAGS", "DELAY", "UNIQ_KEY", "WAIT", "KEYSX", "\x01", "\x02", "a", "3", " ", ""})
		var props []byte
		for range rapid.IntRange(0, 30).Draw(t, "pieces") {
			props = append(props, piece.Draw(t, "piece")...)
		}
		want := map[string][]byte{}
		message.EachProperty(props, func(name, value []byte) bool {
			want[string(name)] = value
			return true
		})
		e := Entry{Queue: q}
		e.properties(props)
		plain := Entry{Queue: q}
		if tags := want[message.PropTags]; len(tags) > 0 {
			plain.TagsCode = message.TagsCode(tags)
		}
		plain.addKey(want[message.PropUniqKey])
		message.EachKey(want[message.PropKeys], plain.addKey)
		plain.DelayLevel = parseLevel(want[message.PropDelay])
		require.Equal(t, plain, e)
	})
}

package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zlib"
	"github.com/stretchr/testify/require"
)

// registration compresses sections: texts get their length, numbers stand alone, raw bytes stand as they are.
func registration(t *testing.T, parts ...any) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			require.NoError(t, binary.Write(z, binary.BigEndian, int32(len(p))))
			_, err := z.Write([]byte(p))
			require.NoError(t, err)
		case int:
			require.NoError(t, binary.Write(z, binary.BigEndian, int32(p)))
		case []byte:
			_, err := z.Write(p)
			require.NoError(t, err)
		}
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

// A small compressed registration can not make the name server hold much.
func TestRegistrationsThatInflate(t *testing.T) {
	blanks := bytes.Repeat([]byte(" "), 100<<20)
	topic := "T 8 8 6 SINGLE_TAG {}"
	var many []any
	for range 3_000_000 {
		many = append(many, topic)
	}
	for name, c := range map[string]struct {
		parts []any
		err   string
	}{
		"good":                {[]any{"{}", 1, topic, "[]", 0}, ""},
		"without mappings":    {[]any{"{}", 1, topic, "[]"}, ""},
		"large version":       {[]any{100 << 20, blanks}, "bytes of data version"},
		"long version":        {[]any{maxRegisterSection, blanks[:1000]}, "1000 bytes into data version"},
		"large topic":         {[]any{"{}", 1, 100 << 20, blanks}, "bytes of topic"},
		"millions of topics":  {append([]any{"{}", 3_000_000}, many...), "3000000 topics"},
		"announced mappings":  {[]any{"{}", 1, topic, "[]", 1 << 30}, "1073741824 queue mappings"},
		"negative":            {[]any{"{}", -5}, "-5 topics"},
		"cut off":             {[]any{"{}", 2, topic}, "ends 0 bytes into"},
		"many large sections": {[]any{"{}", 20, maxRegisterSection, blanks[:maxRegisterSection]}, "parsing"},
	} {
		t.Run(name, func(t *testing.T) {
			body := registration(t, c.parts...)
			require.Less(t, len(body), 16<<20)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := DecodeRegisterBody(body, true, 479)
			runtime.ReadMemStats(&after)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Less(t, len(fmt.Sprint(err)), 300, "what it says")
			} else {
				require.NoError(t, err)
				require.Len(t, got.Topics.TopicConfigTable, 1)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		})
	}
}

package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEscapesAtEveryPlace puts characters that need an escape at every place of texts of every length around the eight bytes
// that are looked at together, in both directions.
func TestEscapesAtEveryPlace(t *testing.T) {
	specials := []string{"\x00", "\x01", "\x02", "\x1f", "\"", "\\", "\n", "\x7f", "\u0080", "\u009f", "\u00a0", "\u2028", "é", "世", "😀", "\x01\x02", "\"\"\\\\", "\x02é\x01"}
	check := func(text, quoted string) {
		t.Helper()
		header := `{"code":1,"extFields":{"k":` + quoted + `,"z":"behind"},"remark":` + quoted + `}`
		var h Header
		h.buf = []byte(header)
		require.NoError(t, h.scanJSON(), "%q", header)
		require.Equal(t, text, h.String("k"), header)
		require.Equal(t, "behind", h.String("z"), header)
		require.Equal(t, text, string(h.Remark), header)
	}
	for n := range 28 {
		for at := range n + 1 {
			for _, first := range specials {
				text := strings.Repeat("a", at) + first + strings.Repeat("b", n-at)
				for _, tail := range []string{"", "\x01", "c\x02d\x01" + strings.Repeat("e", 19) + "\"f"} {
					theirs, err := json.Marshal(text + tail)
					require.NoError(t, err)
					check(text+tail, string(theirs))
					ours := appendQuoted(nil, text+tail)
					require.Equal(t, ours, appendQuoted(nil, []byte(text+tail)))
					require.False(t, strings.ContainsFunc(string(ours), func(r rune) bool { return r < 0x20 || r >= 0x7F && r < 0xA0 || r == 0x2028 }), "%q", ours)
					check(text+tail, string(ours))
				}
			}
		}
	}
}

package index

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.OneOf(rapid.Int32Range(0, 7), rapid.Int32Range(0, 1<<22), rapid.Int32Range(0, 1<<31-1))
		var h heads
		for range 3 { // the table is used again
			want := map[int32]int32{}
			for i, s := range rapid.SliceOfN(slot, 0, 400).Draw(t, "slots") {
				require.Equal(t, want[s], h.swap(s, int32(i+1)))
				want[s] = int32(i + 1)
			}
			for s, n := range want {
				require.Equal(t, n, h.get(s))
			}
			for range 2 {
				require.Equal(t, slices.Sorted(maps.Keys(want)), append([]int32(nil), h.sorted()...))
			}
			h.clear()
			require.Empty(t, h.sorted())
		}
	})
}

package main

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTemplates(t *testing.T) {
	for name, tm := range map[string]*template{"single": single(2, 100), "batch": batchOf(1, 100, 32), "pull": pullFrame(0, 32)} {
		t.Run(name, func(t *testing.T) {
			tm.setOpaque(1234)
			if tm.offset > 0 {
				tm.setOffset(77)
			}
			require.EqualValues(t, len(tm.frame)-4, binary.BigEndian.Uint32(tm.frame))
			r, n, err := nextReply(tm.frame)
			require.NoError(t, err)
			require.Equal(t, len(tm.frame), n)
			var h struct {
				Opaque    int
				ExtFields map[string]string
			}
			require.NoError(t, json.Unmarshal(r.header, &h))
			require.Equal(t, 1_000_001_234, h.Opaque)
			switch name {
			case "single":
				require.Equal(t, "2", h.ExtFields["e"])
				require.Contains(t, h.ExtFields["i"], "TAGS\x01TagA\x02")
			case "batch":
				require.Equal(t, 32, r.records())
			case "pull":
				require.Equal(t, "0000000077", h.ExtFields["queueOffset"])
			}
		})
	}
}

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
}

func FuzzNextReply(f *testing.F) {
	f.Add(single(0, 10).frame)
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := nextReply(b)
		if err == nil && n > 0 && n <= len(b) {
			r.code()
			r.records()
		}
	})
}

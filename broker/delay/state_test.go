package delay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

func TestStateGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.delayOffset.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			s, err := decodeState(data)
			require.NoError(t, err)
			if filepath.Base(name) == "v4.9.4-clean.delayOffset.json" {
				require.Equal(t, map[int32]message.QueueOffset{1: 1, 3: 1}, s.offsets, "no version before 5.0")
				return
			}
			require.Equal(t, string(data), string(s.encode()))
		})
	}
}

func TestStateDamaged(t *testing.T) {
	for name, text := range map[string]string{
		"empty level":  `{"offsetTable":{"x":1}}`,
		"text offset":  `{"offsetTable":{1:"a"}}`,
		"cut":          `{"offsetTable":{1:`,
		"wrong type":   `{"offsetTable":[1]}`,
		"huge offset":  `{"offsetTable":{1:99999999999999999999}}`,
		"level beyond": `{"offsetTable":{99999999999:1}}`,
	} {
		_, err := decodeState([]byte(text))
		require.Error(t, err, name)
	}
}

func FuzzDecodeState(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.delayOffset.json")
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		again, err := decodeState(s.encode())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestLevels(t *testing.T) {
	l, err := ParseLevels("1s 2m 3h 1d")
	require.NoError(t, err)
	require.EqualValues(t, 4, l.Max())
	for level, want := range map[int32]string{0: "1s", 1: "1s", 2: "2m0s", 3: "3h0m0s", 4: "24h0m0s", 5: "1s"} {
		require.Equal(t, want, l.Delay(level).String(), "level %d", level)
	}
	_, err = ParseLevels("1s 2x")
	require.Error(t, err)
}

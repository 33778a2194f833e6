package offset

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
)

func golden(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", "java-"+name+"-consumerOffset.json"))
	require.NoError(t, err)
	return data
}

func TestFileForm(t *testing.T) {
	for _, name := range []string{"mixed-clean", "rolled-clean"} {
		want := golden(t, name)
		f, err := decode(want)
		require.NoError(t, err)
		tab := &Table{}
		tab.load(f)
		require.Equal(t, string(want), string(tab.Encode()))
	}
	f, err := decode(golden(t, "v4.9.4-clean"))
	require.NoError(t, err)
	require.NotEmpty(t, f.pairs)
	tab := &Table{}
	tab.load(f)
	require.NotEmpty(t, tab.TopicsOf(f.pairs[0].group))
}

func TestEmptyFileForm(t *testing.T) {
	want := "{\n\t\"dataVersion\":{\n\t\t\"counter\":0,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":0\n\t},\n\t\"groupTopicMap\":{},\n\t\"offsetTable\":{}\n}"
	require.Equal(t, want, string(encode(&file{})))
}

func TestOddNames(t *testing.T) {
	f := &file{pairs: []pair{{"g\"<\u6807", "t", map[int32]message.QueueOffset{0: 1}}}}
	back, err := decode(encode(f))
	require.NoError(t, err)
	require.Equal(t, f.pairs, back.pairs)
	once := encode(&file{pairs: []pair{{"g", "no\xff\xfeutf8", map[int32]message.QueueOffset{0: 1}}}})
	back, err = decode(once)
	require.NoError(t, err)
	require.Equal(t, string(once), string(encode(&file{version: back.version, pairs: back.pairs})))
}

func FuzzOffsetsFile(f *testing.F) {
	for _, name := range []string{"mixed-clean", "rolled-clean", "v4.9.4-clean"} {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in, err := decode(data)
		if err != nil {
			return
		}
		tab := &Table{}
		tab.load(in)
		once := tab.Encode()
		again, err := decode(once)
		require.NoError(t, err)
		tab.load(again)
		require.Equal(t, string(once), string(tab.Encode()))
	})
}

func FuzzJournal(f *testing.F) {
	var b []byte
	for _, r := range []record{{kind: kindCommit, queue: 3, offset: 9, group: []byte("g"), topic: []byte("t")},
		{kind: kindDropTopic, topic: []byte("t")}, {kind: kindDropGroup, group: []byte("g")},
		{kind: kindDropPair, group: []byte("g"), topic: []byte("t")}, {kind: kindIntent, id: identity{5, 6}}} {
		b = appendRecord(b, &r)
	}
	head := append(append([]byte(journalMagic), make([]byte, 20)...), 0, 0, 0, 0)
	f.Add(append(head, b...))
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r record
		for rest := data; len(rest) > 0; {
			n, err := parseRecord(rest, &r)
			if err != nil {
				break
			}
			if r.kind >= kindCommit && r.kind <= kindIntent {
				again := appendRecord(nil, &r)
				require.True(t, bytes.HasPrefix(rest, again) || n != len(again), "a record that was written is written again the same")
			}
			rest = rest[n:]
		}
		if err := parseJournal(data, func(uint64, identity) {}, func(*record) {}); err != nil {
			require.NotEmpty(t, err.Error())
		}
	})
}

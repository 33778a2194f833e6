package consumequeue

import (
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

const testFile = 10 * UnitSize // ten units a file

func open(t testing.TB, fsys mappedfile.FS, cfg Config) *Table {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = "/store/consumequeue"
	}
	if cfg.FileSize == 0 {
		cfg.FileSize = testFile
	}
	tab, err := Open(fsys, cfg)
	require.NoError(t, err)
	return tab
}

func load(t testing.TB, tab *Table, opt LoadOptions) Report {
	t.Helper()
	rep, err := tab.Load(opt)
	require.NoError(t, err)
	return rep
}

func queue(t testing.TB, tab *Table, topic string, id int32) *Queue {
	t.Helper()
	q, err := tab.GetOrCreate(topic, id)
	require.NoError(t, err)
	return q
}

// entry is the unit of offset at in a queue whose messages have 100 bytes each and no other queue in between.
func entry(at int64) Entry {
	return Entry{Offset: message.QueueOffset(at), Unit: Unit{Log: message.LogOffset(at * 100), Size: 100, Tags: at % 7}}
}

func entries(from, to int64) []Entry {
	var es []Entry
	for at := from; at < to; at++ {
		es = append(es, entry(at))
	}
	return es
}

// wantUnits checks that a queue holds exactly the units of entry in [low, high).
func wantUnits(t testing.TB, q *Queue, low, high int64) {
	t.Helper()
	require.Equal(t, message.QueueOffset(low), q.Min(), "min")
	require.Equal(t, message.QueueOffset(high), q.Max(), "max")
	got := readAll(t, q)
	require.Len(t, got, int(high-low))
	for i, u := range got {
		require.Equal(t, entry(low+int64(i)).Unit, u, "unit %d", low+int64(i))
	}
}

func readAll(t testing.TB, q *Queue) []Unit {
	t.Helper()
	var all []Unit
	var buf [7]Unit
	for at := q.Min(); at < q.Max(); {
		n, err := q.Range(at, buf[:])
		require.NoError(t, err)
		require.NotZero(t, n)
		all = append(all, buf[:n]...)
		at += message.QueueOffset(n)
	}
	return all
}

// countFS counts calls of OpenFile.
type countFS struct {
	mappedfile.FS
	opens atomic.Int64
}

func (c *countFS) OpenFile(name string, flag int, perm fs.FileMode) (mappedfile.File, error) {
	c.opens.Add(1)
	return c.FS.OpenFile(name, flag, perm)
}

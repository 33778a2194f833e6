package epoch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epochmq/epochmq/message"
)

func TestAppend(t *testing.T) {
	three := List{{1, 0}, {2, 203956}, {3, 297979}}
	tests := map[string]struct {
		list List
		add  Entry
		want List
		err  error
	}{
		"first":                         {nil, Entry{4, 100}, List{{4, 100}}, nil},
		"newer":                         {three, Entry{5, 300000}, List{{1, 0}, {2, 203956}, {3, 297979}, {5, 300000}}, nil},
		"empty predecessor is replaced": {three, Entry{4, 297979}, List{{1, 0}, {2, 203956}, {4, 297979}}, nil},
		"same epoch":                    {three, Entry{3, 300000}, three, ErrStale},
		"older epoch":                   {three, Entry{2, 300000}, three, ErrStale},
		"starts too low":                {three, Entry{4, 297978}, three, ErrOrder},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := append(List{}, tt.list...)
			got, err := tt.list.Append(tt.add)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.want, got)
			require.Equal(t, before, append(List{}, tt.list...), "a list is never changed")
		})
	}
	_, err := List(nil).Append(Entry{-1, 0})
	require.Error(t, err)
}

func TestBegin(t *testing.T) {
	two := List{{1, 0}, {2, 100}}
	tests := map[string]struct {
		list     List
		epoch    int32
		min, end message.LogOffset
		want     List
		fails    bool
	}{
		"new epoch":                        {two, 3, 0, 150, List{{1, 0}, {2, 100}, {3, 150}}, false},
		"the last one had no bytes":        {two, 3, 0, 100, List{{1, 0}, {3, 100}}, false},
		"the last one's bytes were lost":   {two, 3, 0, 80, List{{1, 0}, {3, 80}}, false},
		"the same epoch keeps its start":   {two, 2, 0, 150, two, false},
		"the same epoch, tail lost":        {two, 2, 0, 80, two, true},
		"older epoch":                      {two, 1, 0, 150, two, true},
		"log that never had an epoch":      {nil, 7, 4096, 9000, List{{7, 4096}}, false},
		"empty log":                        {nil, 1, 0, 0, List{{1, 0}}, false},
		"every entry is without its bytes": {List{{1, 0}}, 2, 0, 0, List{{2, 0}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.list.Begin(tt.epoch, tt.min, tt.end)
			require.Equal(t, tt.fails, err != nil, "%v", err)
			require.Equal(t, tt.want, got)
			require.NoError(t, got.Validate())
		})
	}
}

func TestCuts(t *testing.T) {
	l := List{{1, 0}, {2, 100}, {4, 300}}
	require.Equal(t, List{{1, 0}, {2, 100}}, l.CutOffset(300))
	require.Equal(t, l, l.CutOffset(301))
	require.Empty(t, l.CutOffset(0))
	require.Equal(t, List{{1, 0}, {2, 100}}, l.CutEpoch(3))
	require.Equal(t, List{{2, 100}, {4, 300}}, l.DropBefore(100))
	require.Equal(t, l, l.DropBefore(99))
	require.Equal(t, List{{4, 300}}, l.DropBefore(1<<40))

	e, end, ok := l.Find(299)
	require.True(t, ok)
	require.Equal(t, Entry{2, 100}, e)
	require.EqualValues(t, 300, end)
	e, end, _ = l.Find(300)
	require.Equal(t, Entry{4, 300}, e)
	require.Equal(t, Unbounded, end)
	_, _, ok = List{{2, 100}}.Find(99)
	require.False(t, ok)

	var long List
	for i := range int32(1500) {
		long = append(long, Entry{i, message.LogOffset(i) * 10})
	}
	require.Len(t, long.Limit(1<<40), MaxEntries)
	require.Equal(t, long[300:], long.Limit(3005), "an entry above confirmed stays")
	require.Equal(t, long[500:], long.Newest())
}

// replica is a log in which every byte tells who wrote it: the number of the write, unique in a run.
type replica struct {
	bytes  []int
	epochs List
}

func (r *replica) end() message.LogOffset { return message.LogOffset(len(r.bytes)) }

func (r *replica) cut(at message.LogOffset) {
	r.bytes = r.bytes[:at]
	r.epochs = r.epochs.CutOffset(at)
}

func commonPrefix(a, b []int) message.LogOffset {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return message.LogOffset(n)
}

// TestCommonPrefix lets any replica become master of the next epoch, as bad as an election can be, write, and be copied in
// part; some lose a tail, some hear of an epoch before its bytes. What Compare says is then the longest common prefix. (I12)
func TestCommonPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = &replica{}
		}
		master, writes := replicas[0], 0
		epoch := int32(0)
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0: // an election that anybody may win
				master = replicas[rapid.IntRange(0, 2).Draw(t, "master")]
				epoch++
				l, err := master.epochs.Begin(epoch, 0, master.end())
				require.NoError(t, err)
				master.epochs = l
			case 1:
				if master.epochs.LastEpoch() != epoch {
					continue
				}
				for range rapid.IntRange(1, 5).Draw(t, "write") {
					writes++
					master.bytes = append(master.bytes, writes)
				}
			case 2, 3:
				if master.epochs.LastEpoch() != epoch {
					continue
				}
				copyFrom(t, replicas[rapid.IntRange(0, 2).Draw(t, "slave")], master)
			case 4: // a crash that loses a tail
				r := replicas[rapid.IntRange(0, 2).Draw(t, "crash")]
				r.cut(message.LogOffset(rapid.IntRange(0, len(r.bytes)).Draw(t, "left")))
			}
			for _, r := range replicas {
				require.NoError(t, r.epochs.Validate())
			}
		}
	})
}

func copyFrom(t *rapid.T, slave, master *replica) {
	if slave == master {
		return
	}
	v := Compare(Local{slave.epochs, 0, slave.end(), None, false}, Master{master.epochs.Newest(), master.epochs.LastEpoch(), master.end()})
	want := commonPrefix(slave.bytes, master.bytes)
	switch v.Kind {
	case Blank:
		require.Zero(t, slave.end())
	case Keep, Cut:
		require.Equal(t, want, v.At, "slave %v %v, master %v %v", slave.bytes, slave.epochs, master.bytes, master.epochs)
		require.Equal(t, v.Kind == Cut, v.At < slave.end())
	default:
		t.Fatalf("%v for slave %v, master %v", v, slave.epochs, master.epochs)
	}
	slave.cut(want)
	at := want
	for range rapid.IntRange(0, 8).Draw(t, "copied") {
		e, end, ok := master.epochs.Find(at)
		require.True(t, ok)
		if e.Epoch != slave.epochs.LastEpoch() {
			l, err := slave.epochs.Append(e)
			require.NoError(t, err)
			slave.epochs = l
		}
		if at == master.end() || at == end {
			return
		}
		slave.bytes = append(slave.bytes, master.bytes[at])
		at++
	}
}

func TestCompare(t *testing.T) {
	three := List{{1, 0}, {2, 203956}, {3, 297979}}
	tests := map[string]struct {
		local  Local
		master Master
		want   Kind
		at     message.LogOffset
	}{
		"golden: killed master comes back":                 {Local{List{{1, 0}}, 0, 268978, None, false}, Master{three[:2], 2, 260473}, Cut, 203956},
		"golden: behind, next epoch":                       {Local{List{{1, 0}}, 0, 203360, None, false}, Master{three[:2], 2, 203956}, Keep, 203360},
		"blank":                                            {Local{nil, 0, 0, None, false}, Master{three, 3, 300000}, Blank, 0},
		"blank at a later segment":                         {Local{nil, 4096, 4096, None, false}, Master{three, 3, 300000}, Blank, 0},
		"announced, then cut in front of the announcement": {Local{List{{1, 0}, {3, 300}}, 0, 250, None, false}, Master{List{{1, 0}, {4, 200}}, 4, 900}, Cut, 200},
		"never above the local end":                        {Local{List{{1, 0}, {2, 300}}, 0, 250, None, false}, Master{List{{1, 0}, {2, 300}}, 2, 900}, Keep, 250},
		"master's list is older":                           {Local{three, 0, 300000, None, false}, Master{three[:2], 2, 400000}, Stale, 0},
		"controller knows a newer epoch":                   {Local{three, 0, 300000, 4, false}, Master{three, 3, 400000}, Stale, 0},
		"legacy master lags behind the controller":         {Local{three, 0, 300000, 4, true}, Master{three, 3, 400000}, Keep, 300000},
		"legacy does not excuse an older list":             {Local{three, 0, 300000, 4, true}, Master{three[:2], 2, 400000}, Stale, 0},
		"log without history":                              {Local{nil, 0, 500, None, false}, Master{three, 3, 400000}, Resync, 0},
		"same epoch, other start":                          {Local{List{{1, 0}, {2, 300}}, 0, 500, None, false}, Master{List{{1, 0}, {2, 200}, {3, 600}}, 3, 900}, Cut, 200},
		"nothing shared, same begin":                       {Local{List{{1, 0}}, 0, 500, None, false}, Master{List{{2, 0}}, 2, 900}, Cut, 0},
		"nothing shared":                                   {Local{List{{1, 50}}, 50, 500, None, false}, Master{List{{2, 0}}, 2, 900}, Resync, 0},
		"what is shared was deleted here":                  {Local{List{{1, 0}, {2, 300}}, 200, 500, None, false}, Master{List{{1, 0}, {3, 100}}, 3, 900}, Resync, 0},
		"master lost its tail":                             {Local{three, 0, 300000, None, false}, Master{three, 3, 299000}, Cut, 299000},
		"master has nothing":                               {Local{three, 0, 300000, None, false}, Master{nil, None, 0}, Stale, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := Compare(tt.local, tt.master)
			require.Equal(t, tt.want.String(), v.Kind.String(), v.Reason)
			require.Equal(t, tt.at, v.At)
			require.Equal(t, v.Kind == Stale || v.Kind == Resync, v.Reason != "")
		})
	}
}

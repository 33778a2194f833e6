package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/goldenstore"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func TestJavaCheckpoints(t *testing.T) {
	for _, name := range []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean"} {
		t.Run(name, func(t *testing.T) {
			root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
			v, found, err := Read(mappedfile.OS, filepath.Join(root, "checkpoint"))
			require.NoError(t, err)
			require.True(t, found)
			c := m.Checkpoint
			require.Equal(t, Values{PhysicTime: c.PhysicMsgTimestamp, LogicsTime: c.LogicsMsgTimestamp, IndexTime: c.IndexMsgTimestamp,
				MasterFlushed: message.LogOffset(c.MasterFlushedOffset), Confirm: message.LogOffset(c.ConfirmPhyOffset)}, v)
			exists, err := AbortExists(mappedfile.OS, filepath.Join(root, "abort"))
			require.NoError(t, err)
			require.Equal(t, m.AbortPresent, exists)
		})
	}
}

func TestFile(t *testing.T) {
	sim := mappedfile.NewSim(1)
	require.NoError(t, sim.MkdirAll("/s", 0o755))
	c, err := Open(sim, "/s/checkpoint")
	require.NoError(t, err)
	require.Zero(t, c.Values())
	want := Values{PhysicTime: 5000, LogicsTime: 4000, IndexTime: 300, MasterFlushed: 9, Confirm: 10}
	c.Set(want)
	require.Equal(t, int64(1000), want.MinTime())
	require.Equal(t, int64(300), want.MinTimeIndex())
	require.Zero(t, Values{PhysicTime: 2999, LogicsTime: math.MaxInt64}.MinTime())
	require.NoError(t, c.Flush())
	require.NoError(t, sim.SyncDir("/s"))
	c.Set(Values{})
	crashed := sim.Crash()
	c2, err := Open(crashed, "/s/checkpoint")
	require.NoError(t, err)
	require.Equal(t, want, c2.Values())
	b, err := crashed.ReadFile("/s/checkpoint")
	require.NoError(t, err)
	require.Len(t, b, FileSize)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, found, err := Read(sim, "/s/none")
	require.NoError(t, err)
	require.False(t, found)
}

func TestAbort(t *testing.T) {
	sim := mappedfile.NewSim(1)
	require.NoError(t, sim.MkdirAll("/s", 0o755))
	require.NoError(t, CreateAbort(sim, "/s/abort", 4711))
	sim = sim.Crash()
	b, err := sim.ReadFile("/s/abort")
	require.NoError(t, err)
	require.Equal(t, "4711", string(b))
	exists, err := AbortExists(sim, "/s/abort")
	require.NoError(t, err)
	require.True(t, exists)
	require.NoError(t, RemoveAbort(sim, "/s/abort"))
	require.NoError(t, RemoveAbort(sim, "/s/abort"))
	exists, err = AbortExists(sim.Crash(), "/s/abort")
	require.NoError(t, err)
	require.False(t, exists)
}

func sample(queues int) *Mark {
	m := &Mark{Kind: Durable, BootID: "a-b", Time: 17, LogEnd: 5000, Last: RecordRef{Log: 4900, Size: 100, CRC: 0xDEADBEEF}, Indexed: true,
		Index: index.State{File: "20261201091452795", Count: 7, EndLog: 4900, EndTime: 12, Last: -1}, Queues: []consumequeue.Summary{}}
	for i := range queues {
		m.Queues = append(m.Queues, consumequeue.Summary{Topic: fmt.Sprintf("T%02d", i/10), ID: int32(i % 10), Min: 3, Max: message.QueueOffset(i + 3),
			MinLog: math.MaxInt64, End: message.LogOffset(i), First: int64(i)})
	}
	return m
}

func TestMarkRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 35} {
		m := sample(n)
		b := m.Append([]byte("x"))[1:]
		back, err := DecodeMark(b)
		require.NoError(t, err)
		require.Equal(t, m, back)
		for i := range b {
			bad := slices.Clone(b)
			bad[i] ^= 0x40
			_, err := DecodeMark(bad)
			require.Error(t, err, "byte %d", i)
			_, err = DecodeMark(b[:i])
			require.Error(t, err, "first %d bytes", i)
		}
	}
}

func TestMarkMatches(t *testing.T) {
	rec := []byte("a record of the log")
	m := &Mark{LogEnd: 19, Last: RecordRef{Size: int32(len(rec)), CRC: RecordCRC(rec)}}
	require.True(t, m.Matches(rec))
	require.False(t, m.Matches(rec[1:]))
	require.False(t, m.Matches([]byte("b record of the log")))
	require.False(t, m.Matches(nil))
	require.True(t, (&Mark{}).Matches(nil))
	require.False(t, (&Mark{LogEnd: 1}).Matches(nil))
}

func TestMarkFiles(t *testing.T) {
	sim := mappedfile.NewSim(1)
	load := func(fsys mappedfile.FS, boot string) []message.LogOffset {
		marks, damage, err := LoadMarks(fsys, "/s", boot)
		require.NoError(t, err)
		require.Empty(t, damage)
		var ends []message.LogOffset
		for _, m := range marks {
			ends = append(ends, m.LogEnd)
		}
		return ends
	}
	require.Empty(t, load(sim, "a"))
	durable := sample(3)
	require.NoError(t, WriteMark(sim, "/s", durable))
	running := sample(3)
	running.Kind, running.BootID, running.LogEnd = Running, "a", 6000
	require.NoError(t, WriteMark(sim, "/s", running))
	require.Equal(t, []message.LogOffset{6000, 5000}, load(sim, "a"))
	require.Equal(t, []message.LogOffset{5000}, load(sim, "b"), "a running mark ends with its kernel")
	require.Equal(t, []message.LogOffset{5000}, load(sim, ""))
	require.Equal(t, []message.LogOffset{6000, 5000}, load(sim.Kill(), "a"))
	require.Equal(t, []message.LogOffset{5000}, load(sim.Crash(), "b"))
	require.NoError(t, sim.WriteFile("/s/epochmq/recovery.running", []byte("EMQMARK1 but not really"), 0o644))
	marks, damage, err := LoadMarks(sim, "/s", "a")
	require.NoError(t, err)
	require.Len(t, damage, 1)
	require.Len(t, marks, 1)
	require.NoError(t, RemoveMarks(sim, "/s"))
	require.NoError(t, RemoveMarks(sim, "/s"))
	require.Empty(t, load(sim.Crash(), "b"))
}

// A mark that is replaced is there in the old or the new form after a power cut at any moment.
func TestMarkIsReplacedAtomically(t *testing.T) {
	for seed := range uint64(50) {
		sim := mappedfile.NewSim(seed)
		sim.SetTorn(true)
		require.NoError(t, WriteMark(sim, "/s", sample(3)))
		next := sample(500)
		next.LogEnd = 9000
		ops := []mappedfile.Op{mappedfile.OpWrite, mappedfile.OpSync, mappedfile.OpRename, mappedfile.OpSyncDir}
		if i := int(seed) % (len(ops) + 1); i < len(ops) {
			sim.Fail(mappedfile.Fault{Op: ops[i], Pattern: "*", Err: errors.New("broken")})
		}
		err := WriteMark(sim, "/s", next)
		crashed := sim.Crash()
		m, rerr := ReadMark(crashed, "/s", Durable)
		require.NoError(t, rerr)
		require.NotNil(t, m)
		if err == nil {
			require.Equal(t, message.LogOffset(9000), m.LogEnd)
		}
	}
}

func FuzzDecodeMark(f *testing.F) {
	f.Add(sample(0).Append(nil))
	f.Add(sample(12).Append(nil))
	f.Add([]byte(markMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMark(b)
		if err != nil {
			// with a right checksum the inside is reached as well
			fixed := append([]byte(nil), sample(0).Append(nil)[:markHead]...)
			m, err = DecodeMark(fixChecksum(append(fixed, b...)))
		}
		if err == nil {
			again, err := DecodeMark(m.Append(nil))
			require.NoError(t, err)
			require.Equal(t, len(m.Queues), len(again.Queues))
		}
	})
}

// fixChecksum makes length and checksum of a mark fit its body.
func fixChecksum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-markHead))
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[markHead:], castagnoli))
	return b
}

func FuzzDecode(f *testing.F) {
	f.Add(Values{PhysicTime: 1, Confirm: 5}.Append(nil))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		v := Decode(b)
		require.Equal(t, v, Decode(v.Append(nil)))
		v.MinTime()
	})
}

func TestBootID(t *testing.T) {
	require.Equal(t, BootID(), BootID())
	dir := t.TempDir()
	require.Equal(t, BootID(dir), BootID(filepath.Join(dir, "not", "yet", "there")))
}

package store

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// TestJavaStores opens copies of stores that a Java broker left, compares everything with the manifests, closes, and opens
// again.
func TestJavaStores(t *testing.T) {
	for _, name := range []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean", "transaction", "timer", "pop"} {
		t.Run(name, func(t *testing.T) {
			dir, m := goldenDir(t, name), goldenManifest(t, name)
			cfg := goldenConfig(t, name, dir)
			before := fileSizes(t, dir, "commitlog", "consumequeue", "index")
			s := mustOpen(t, mappedfile.OS, cfg, testOptions())
			require.Equal(t, !m.AbortPresent, s.Recovery().Clean)
			s.Start()
			settle(t, s)
			compare(t, s, m)
			require.NoError(t, s.Close())
			after := fileSizes(t, dir, "commitlog", "consumequeue", "index")
			for f, n := range after {
				if was, ok := before[f]; ok {
					require.Equal(t, was, n, f)
				}
			}
			require.NoFileExists(t, filepath.Join(dir, "abort"))

			s = mustOpen(t, mappedfile.OS, cfg, testOptions())
			require.True(t, s.Recovery().Clean)
			require.Equal(t, "durable", s.Recovery().Mark)
			require.Zero(t, s.Recovery().Records, "a clean end leaves nothing to do")
			require.Zero(t, s.Recovery().Opened, "queues are known from the mark")
			s.Start()
			settle(t, s)
			compare(t, s, m)
			require.NoError(t, s.Close())
			require.Equal(t, after, fileSizes(t, dir, "commitlog", "consumequeue", "index"))
		})
	}
}

func compare(t *testing.T, s *Store, m *manifest) {
	t.Helper()
	require.EqualValues(t, m.JavaLoad.CommitLogMaxOffset, s.log.End())
	require.EqualValues(t, m.JavaLoad.CommitLogMinOffset, s.log.Min())
	for _, want := range m.Messages {
		v, err := s.View(message.LogOffset(want.PhysicalOffset))
		require.NoError(t, err)
		var rec message.Record
		require.NoError(t, message.Parse(v.Bytes(), &rec))
		require.Equal(t, want.Topic, string(rec.Topic))
		require.Equal(t, want.StoreSize, rec.Size)
		require.Equal(t, want.StoreTimestamp, rec.StoreTime)
		require.Equal(t, want.Properties, nonNil(message.DecodeProperties(rec.Properties)))
		sum := sha256.Sum256(rec.Body)
		require.Equal(t, want.BodySha256, hex.EncodeToString(sum[:]))
		v.Release()
	}
	compareQueues(t, s, m)
	for _, q := range m.IndexQueries {
		r, err := s.QueryKeys(q.Topic, q.Key, 64, 0, 1<<62, false)
		require.NoError(t, err)
		got := []int64{}
		for _, v := range r.Views {
			got = append(got, int64(v.Offset()))
		}
		r.Release()
		want := m.withKey(q.PhysicalOffsets, q.Key)
		require.Subset(t, got, want, "%s#%s", q.Topic, q.Key)
		require.LessOrEqual(t, len(got), 64)
	}
	for _, q := range m.TimeQueries {
		for _, c := range []struct {
			ms    int64
			upper bool
			want  int64
		}{{q.Timestamp, false, q.Lower}, {q.Timestamp, true, q.Upper}, {q.Timestamp + 1, false, q.LowerPlus1}} {
			got, err := s.OffsetByTime([]byte(q.Topic), q.QueueID, c.ms, c.upper)
			require.NoError(t, err)
			require.EqualValues(t, c.want, got, "%s/%d %d upper=%v", q.Topic, q.QueueID, c.ms, c.upper)
		}
	}
}

// withKey leaves out messages of another key with the same hash, which a Java broker hands out.
func (m *manifest) withKey(offs []int64, key string) []int64 {
	var out []int64
	for _, msg := range m.Messages {
		if p := msg.Properties; slices.Contains(offs, msg.PhysicalOffset) &&
			(p["UNIQ_KEY"] == key || slices.Contains(strings.Split(p["KEYS"], " "), key)) {
			out = append(out, msg.PhysicalOffset)
		}
	}
	return out
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func compareQueues(t *testing.T, s *Store, m *manifest) {
	t.Helper()
	seen := 0
	for _, q := range m.Queues {
		if q.CqType != "SimpleCQ" {
			continue
		}
		low, high, known := s.Bounds([]byte(q.Topic), q.QueueID)
		if q.MaxOffset == 0 && !known {
			continue
		}
		seen++
		require.EqualValues(t, q.MinOffset, low, "%s/%d", q.Topic, q.QueueID)
		require.EqualValues(t, q.MaxOffset, high, "%s/%d", q.Topic, q.QueueID)
		units := make([]consumequeue.Unit, len(q.Units))
		n := 0
		for n < len(units) {
			k, err := s.Units([]byte(q.Topic), q.QueueID, low+message.QueueOffset(n), units[n:])
			require.NoError(t, err)
			require.Positive(t, k)
			n += k
		}
		for i, u := range q.Units {
			require.Equal(t, u[1:4], []int64{int64(units[i].Log), int64(units[i].Size), units[i].Tags}, "%s/%d@%d", q.Topic, q.QueueID, u[0])
		}
		got := 0
		allRecords(t, s, q.Topic, q.QueueID, func(at message.QueueOffset, rec *message.Record) {
			require.EqualValues(t, units[got].Log, rec.LogOffset)
			require.Equal(t, q.Topic, string(rec.Topic))
			got++
		})
		require.Equal(t, len(q.Units), got)
	}
	require.LessOrEqual(t, len(s.Topics()), seen)
}

// javaVariant is what a Java broker made of a damaged copy of the killed store.
type javaVariant struct {
	Variant  string
	JavaLoad struct {
		LoadOk             bool
		CommitLogMaxOffset int64
	}
	QueuesAfterStart  map[string]struct{ Min, Max int64 }
	IndexQueriesFound int
}

func javaVariants(t *testing.T) (last struct{ PhysicalOffset, Size int64 }, logEnd int64, list []javaVariant) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "golden", "killed.recovery-variants.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	var all struct {
		LastRecord struct{ PhysicalOffset, Size int64 }
		LogEnd     int64
		Variants   []javaVariant
	}
	require.NoError(t, json.Unmarshal(data, &all))
	return all.LastRecord, all.LogEnd, all.Variants
}

// damage makes one of the variants out of a copy of the killed store; the log's files are 262144 bytes long.
func damage(t *testing.T, dir, variant string, lastAt, lastSize, logEnd int64) {
	t.Helper()
	const seg = 262144
	logFile := func(base int64) string { return filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", base)) }
	write := func(off int64, p []byte) {
		f, err := os.OpenFile(logFile(off/seg*seg), os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(p, off%seg)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	flip := func(off int64) {
		f, err := os.Open(logFile(off / seg * seg))
		require.NoError(t, err)
		var b [1]byte
		_, err = f.ReadAt(b[:], off%seg)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		b[0] ^= 0xFF
		write(off, b[:])
	}
	remove := func(names ...string) {
		for _, n := range names {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, n)))
		}
	}
	switch variant {
	case "as-is":
	case "tail-half-zero":
		write(lastAt+lastSize/2, make([]byte, lastSize-lastSize/2))
	case "tail-body-crc":
		flip(lastAt + 90)
	case "tail-garbage":
		write(logEnd, bytes.Repeat([]byte{0xA5}, 64))
	case "tail-valid-magic-bad-size":
		write(logEnd, []byte{0x7F, 0xFF, 0xFF, 0xFF, 0xDA, 0xA3, 0x20, 0xA7})
	case "middle-body-crc-last-file":
		flip(331379 + 90)
	case "tail-wrong-physical-offset":
		flip(lastAt + message.PosLogOffset + 7)
	case "no-consumequeue":
		remove("consumequeue")
	case "no-index":
		remove("index")
	case "no-checkpoint":
		remove("checkpoint")
	case "abort-removed":
		remove("abort")
	case "last-cq-file-truncated-to-zero-content":
		require.NoError(t, os.WriteFile(filepath.Join(dir, "consumequeue", "GoldenAlpha", "0", fmt.Sprintf("%020d", 0)), make([]byte, 6000), 0o644))
	case "no-consumequeue-no-checkpoint-no-index":
		remove("consumequeue", "checkpoint", "index")
	case "commitlog-last-file-missing":
		require.NoError(t, os.Remove(logFile(seg)))
	case "commitlog-first-file-missing":
		require.NoError(t, os.Remove(logFile(0)))
	case "commitlog-odd-size-file":
		require.NoError(t, os.Truncate(logFile(2*seg), 1000))
	default:
		t.Fatalf("unknown variant %s", variant)
	}
}

// TestRecoveryVariants recovers the damaged copies of the killed store. The outcome is Java's or better; the second table
// says where it differs and why.
func TestRecoveryVariants(t *testing.T) {
	last, logEnd, variants := javaVariants(t)
	better := map[string]int64{
		// A record that says it stands elsewhere is a leftover: it is cut like any other damage.
		"tail-wrong-physical-offset": last.PhysicalOffset,
	}
	for _, v := range variants {
		t.Run(v.Variant, func(t *testing.T) {
			dir := goldenDir(t, "killed")
			m := goldenManifest(t, "killed")
			damage(t, dir, v.Variant, last.PhysicalOffset, last.Size, logEnd)
			cfg := goldenConfig(t, "killed", dir)
			cfg.MappedFileSizeCommitLog = 262144
			s, err := Open(mappedfile.OS, cfg, testOptions())
			if !v.JavaLoad.LoadOk {
				require.ErrorContains(t, err, fmt.Sprintf("%020d", 2*262144), "the file is named")
				return
			}
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			s.Start()
			settle(t, s)
			wantEnd := v.JavaLoad.CommitLogMaxOffset
			if b, ok := better[v.Variant]; ok {
				wantEnd = b
			}
			require.EqualValues(t, wantEnd, s.log.End())
			cut := wantEnd < v.JavaLoad.CommitLogMaxOffset
			for name, q := range v.QueuesAfterStart {
				topic, id := filepath.Dir(name), filepath.Base(name)
				n, err := strconv.Atoi(id)
				require.NoError(t, err)
				low, high, _ := s.Bounds([]byte(topic), int32(n))
				require.EqualValues(t, q.Min, low, name)
				if !cut {
					require.EqualValues(t, q.Max, high, name)
				}
			}
			agree(t, s)
			if v.Variant == "commitlog-last-file-missing" {
				require.Len(t, s.Recovery().Gaps, 1, "the hole is named")
			}
			if v.IndexQueriesFound == len(m.IndexQueries) && s.log.Min() == 0 {
				for _, q := range m.IndexQueries {
					r, err := s.QueryKeys(q.Topic, q.Key, 64, 0, 1<<62, false)
					require.NoError(t, err)
					there := 0
					for _, off := range q.PhysicalOffsets {
						if off < wantEnd && !inGaps(s, off) {
							there++
						}
					}
					require.GreaterOrEqual(t, len(r.Views), min(there, 32), "%s#%s", q.Topic, q.Key)
					r.Release()
				}
			}
			require.NoError(t, s.Close())
			s = mustOpen(t, mappedfile.OS, cfg, testOptions())
			require.True(t, s.Recovery().Clean)
			require.EqualValues(t, wantEnd, s.log.End())
		})
	}
}

func inGaps(s *Store, off int64) bool {
	for _, g := range s.Recovery().Gaps {
		if off >= g.From && off < g.To {
			return true
		}
	}
	return false
}

// agree checks that queues and index hold what a full scan of the log says, and nothing else.
func agree(t testing.TB, s *Store) {
	t.Helper()
	type key struct {
		topic string
		id    int32
	}
	want := make(map[key]map[message.QueueOffset]message.LogOffset)
	_, err := s.log.Scan(s.log.Min(), message.LogOffset(s.d.done.Load()), func(rec *message.Record) error {
		if tx := rec.SysFlag & message.TransactionMask; tx != 0 && tx != message.TransactionCommit {
			return nil
		}
		k := key{string(rec.Topic), rec.QueueID}
		if want[k] == nil || rec.QueueOffset == 0 {
			want[k] = make(map[message.QueueOffset]message.LogOffset)
		}
		want[k][rec.QueueOffset] = rec.LogOffset
		return nil
	})
	require.NoError(t, err)
	for k, offs := range want {
		low, high, known := s.Bounds([]byte(k.topic), k.id)
		require.True(t, known, "%v", k)
		for at := low; at < high; at++ {
			var u [1]consumequeue.Unit
			n, err := s.Units([]byte(k.topic), k.id, at, u[:])
			require.NoError(t, err)
			require.Equal(t, 1, n)
			if off, ok := offs[at]; ok {
				require.Equal(t, off, u[0].Log, "%v@%d", k, at)
				delete(offs, at)
			} else if !u[0].Blank() {
				_, err := s.log.Record(u[0].Log)
				require.Error(t, err, "%v@%d points to a record that is not its own", k, at)
			}
		}
		require.Empty(t, offs, "%v lacks entries, it has %d to %d", k, low, high)
	}
	s.EachQueue(func(q QueueInfo) bool {
		if q.Max > q.Min && want[key{q.Topic, q.ID}] == nil && len(s.Recovery().Gaps) == 0 {
			t.Errorf("queue %s/%d has entries without messages", q.Topic, q.ID)
		}
		return true
	})
}

package inspect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/goldenstore"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/consumequeue"
	"github.com/epochmq/epochmq/store/index"
	"github.com/epochmq/epochmq/store/mappedfile"
)

var goldenNames = []string{"rolled-clean", "killed", "mixed-clean", "v4.9.4-clean"}

func look(t testing.TB, path string, opt Options) *Report {
	t.Helper()
	rep, err := Path(mappedfile.OS, path, opt)
	require.NoError(t, err)
	_, err = json.Marshal(rep)
	require.NoError(t, err)
	return rep
}

// sums maps every file below root to its content and time, to prove that nothing was touched.
func sums(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out[path] = info.ModTime().String()
		if d.IsDir() || info.Size() > 8<<20 {
			return nil
		}
		b, err := os.ReadFile(path)
		out[path] += fmt.Sprintf(" %x", sha256.Sum256(b))
		return err
	})
	require.NoError(t, err)
	return out
}

func TestGoldenStoresAreSound(t *testing.T) {
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			root, m := goldenstore.Unpack(t, name), goldenstore.Read(t, name)
			before := sums(t, root)
			rep := look(t, root, Options{Dump: 3})
			require.Equal(t, before, sums(t, root))
			require.True(t, rep.Sound, "%+v", rep.Findings)
			require.Equal(t, int64(len(m.Messages)), rep.Log.Records)
			require.Equal(t, message.LogOffset(m.JavaLoad.CommitLogMaxOffset), rep.Log.End)
			queues := 0
			for _, f := range rep.Files {
				if f.Kind == KindQueue {
					queues++
				}
			}
			require.Equal(t, len(m.Queues), queues)
			require.NotEmpty(t, rep.Rows)
			require.NotEmpty(t, rep.Recovery)
			for _, f := range rep.Findings {
				require.Equal(t, "abort", f.File)
				require.True(t, m.AbortPresent)
			}
		})
	}
}

// patch overwrites bytes of a file.
func patch(t testing.TB, path string, off int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestDamageIsFound(t *testing.T) {
	const last = 935829 // the last record of rolled-clean
	logFile := func(n int) string { return "commitlog/" + fmt.Sprintf("%020d", n*262144) }
	indexFile := "index/20261201091452795"
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, root string)
		file   string // of a damage finding; empty: only a note
		text   string
	}{
		{"body of a record in the middle", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, logFile(1)), 100, 0xFF, 0xFE, 0xFD)
		}, logFile(1), "later files have records"},
		{"last record torn", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, logFile(3)), last-786432+120, 0xFF, 0xFF)
		}, logFile(3), "ends at 935829 with a broken record"},
		{"hostile size", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, logFile(3)), last-786432, 0x7F, 0xFF, 0xFF, 0xFF)
		}, logFile(3), "size 2147483647"},
		{"record of another place", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, logFile(3)), last-786432+28, 1)
		}, logFile(3), "record says it stands at"},
		{"middle file gone", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, logFile(1))))
		}, logFile(2), "offsets 262144 to 524288 are missing"},
		{"odd length", func(t *testing.T, root string) {
			require.NoError(t, os.Truncate(filepath.Join(root, logFile(3)), 1000))
		}, logFile(3), "has 1000 bytes instead of 262144"},
		{"empty next file", func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, logFile(4)), nil, 0o644))
		}, "", "empty file"},
		{"unit points elsewhere", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, "consumequeue/GoldenAlpha/0/00000000000000000000"), 40*20+7, 0xEE)
		}, "consumequeue/GoldenAlpha/0", "offset 40: unit says"},
		{"tags code", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, "consumequeue/GoldenAlpha/0/00000000000000000000"), 41*20+19, 0xEE)
		}, "consumequeue/GoldenAlpha/0", "offset 41: tags code"},
		{"last units gone", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, "consumequeue/GoldenAlpha/1/00000000000000000000"), 250*20, make([]byte, 200)...)
		}, "consumequeue/GoldenAlpha/1", "7 messages of the log"},
		{"unit too many", func(t *testing.T, root string) {
			u := consumequeue.Unit{Log: last, Size: 497, Tags: 5}
			patch(t, filepath.Join(root, "consumequeue/GoldenBeta/0/00000000000000000000"), 267*20, u.Append(nil)...)
		}, "consumequeue/GoldenBeta/0", "1 units point to no message of this queue"},
		{"unit above the log", func(t *testing.T, root string) {
			u := consumequeue.Unit{Log: last + 100000, Size: 497, Tags: 5}
			patch(t, filepath.Join(root, "consumequeue/GoldenBeta/0/00000000000000000000"), 267*20, u.Append(nil)...)
		}, "consumequeue/GoldenBeta/0", "1 units point above the end"},
		{"bytes behind a queue", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, "consumequeue/GoldenBeta/0/00000000000000000000"), 290*20, 1)
		}, "consumequeue/GoldenBeta/0/00000000000000000000", "behind the end of the queue"},
		{"queue gone", func(t *testing.T, root string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, "consumequeue/GoldenAlpha/2")))
		}, "consumequeue/GoldenAlpha/2", "queue is missing, the log has 257"},
		{"index entry", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, indexFile), 40+4000+100*20, 0x11)
		}, indexFile, "entry 100: hash"},
		{"index chain", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, indexFile), 40+4000+3000*20+16, 0, 0, 0, 1)
		}, indexFile, "entry 3000: the one before it"},
		{"index slot", func(t *testing.T, root string) {
			var b [4]byte
			f, err := os.ReadFile(filepath.Join(root, indexFile))
			require.NoError(t, err)
			for slot := range 1000 { // a slot with more than one entry
				head := binary.BigEndian.Uint32(f[40+slot*4:])
				if prev := index.DecodeEntry(f[4040+head*20:]).Prev; prev > 0 {
					binary.BigEndian.PutUint32(b[:], uint32(prev))
					patch(t, filepath.Join(root, indexFile), int64(40+slot*4), b[:]...)
					return
				}
			}
		}, indexFile, "points to entry"},
		{"index count", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, indexFile), 36, 0x7F)
		}, "", "say them with --slots"},
		{"index gone", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, indexFile)))
		}, "", "are not in the index"},
		{"checkpoint", func(t *testing.T, root string) {
			patch(t, filepath.Join(root, "checkpoint"), 8, 0xFF)
		}, "checkpoint", "negative"},
		{"checkpoint gone", func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, "checkpoint")))
		}, "", "missing"},
		{"configuration", func(t *testing.T, root string) {
			require.NoError(t, os.Truncate(filepath.Join(root, "config/topics.json"), 1000))
		}, "config/topics.json", "not readable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := goldenstore.Unpack(t, "rolled-clean")
			c.damage(t, root)
			before := sums(t, root)
			rep := look(t, root, Options{})
			require.Equal(t, before, sums(t, root))
			require.Equal(t, c.file == "", rep.Sound, "%+v", rep.Findings)
			found := false
			for _, f := range rep.Findings {
				found = found || strings.Contains(f.Text, c.text) && (c.file == "" && f.Severity == Note || f.File == c.file && f.Severity == Damage)
			}
			require.True(t, found, "%+v", rep.Findings)
		})
	}
}

func TestNotAStore(t *testing.T) {
	_, err := Path(mappedfile.OS, t.TempDir(), Options{})
	require.ErrorIs(t, err, ErrNotStore)
	_, err = Path(mappedfile.OS, filepath.Join(t.TempDir(), "none"), Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	other := filepath.Join(t.TempDir(), "x.txt")
	require.NoError(t, os.WriteFile(other, []byte("x"), 0o644))
	_, err = Path(mappedfile.OS, other, Options{})
	require.Error(t, err)
}

func TestSingleFiles(t *testing.T) {
	root := goldenstore.Unpack(t, "killed")
	for _, c := range []struct {
		file string
		kind Kind
		rows bool
	}{
		{"commitlog/00000000000000262144", KindLog, true},
		{"consumequeue/GoldenAlpha/0/00000000000000000000", KindQueue, true},
		{"index/20261201091535020", KindIndex, true},
		{"checkpoint", KindCheckpoint, false},
		{"abort", KindAbort, false},
		{"lock", KindLock, false},
		{"config/topics.json", KindConfig, false},
	} {
		rep := look(t, filepath.Join(root, c.file), Options{Dump: 5})
		require.Equal(t, c.kind, rep.Kind, c.file)
		require.True(t, rep.Sound, "%s: %+v", c.file, rep.Findings)
		require.Len(t, rep.Files, 1)
		require.Equal(t, c.rows, len(rep.Rows) == 5, c.file)
	}
	moved := filepath.Join(t.TempDir(), "copy.bin")
	b, err := os.ReadFile(filepath.Join(root, "commitlog/00000000000000262144"))
	require.NoError(t, err)
	b[500] ^= 1
	require.NoError(t, os.WriteFile(moved, b, 0o644))
	rep := look(t, moved, Options{Kind: KindLog})
	require.False(t, rep.Sound)
}

// own adds files of ours to a golden store: marks as a running broker would write them, and a journal.
func own(t testing.TB, root string) *checkpoint.Mark {
	t.Helper()
	m := goldenstore.Read(t, "killed")
	msg := m.Messages[len(m.Messages)-10]
	in := &inspector{fs: mappedfile.OS, root: root, rep: &Report{}}
	require.NoError(t, in.listLog())
	rec, err := in.logBytes(msg.PhysicalOffset, int64(msg.StoreSize))
	require.NoError(t, err)
	mark := &checkpoint.Mark{Kind: checkpoint.Running, BootID: "boot", Time: 1796116539036, LogEnd: message.LogOffset(msg.PhysicalOffset) + message.LogOffset(msg.StoreSize),
		Last:    checkpoint.RecordRef{Log: message.LogOffset(msg.PhysicalOffset), Size: msg.StoreSize, CRC: checkpoint.RecordCRC(rec)},
		Indexed: true, Index: index.State{File: "20261201091535020", Count: 1500, EndLog: 390000, Last: message.LogOffset(msg.PhysicalOffset)},
		Queues: []consumequeue.Summary{{Topic: "GoldenAlpha", ID: 0, Max: 110, End: 390000}}}
	require.NoError(t, checkpoint.WriteMark(mappedfile.OS, root, mark))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "epochmq", "offsets"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "epochmq", "offsets", "offsets-0000000000000001.journal"), journalBytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "epochmq", "run"), []byte("22557"), 0o644))
	return mark
}

func journalBytes() []byte {
	b := append([]byte(journalMagic), make([]byte, 20)...)
	b[15] = 1
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	add := func(body ...byte) {
		rec := binary.BigEndian.AppendUint16(nil, uint16(len(body)))
		rec = append(rec, body...)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(rec, castagnoli))
		b = append(b, rec...)
	}
	add(1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 17, 2, 'C', 'G', 1, 'T')
	add(2, 1, 'T')
	add(3, 2, 'C', 'G')
	add(4, 2, 'C', 'G', 1, 'T')
	add(5, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4)
	return b
}

func TestOwnFiles(t *testing.T) {
	root := goldenstore.Unpack(t, "killed")
	mark := own(t, root)
	rep := look(t, root, Options{BootID: "boot", Dump: 10})
	require.True(t, rep.Sound, "%+v", rep.Findings)
	text := strings.Join(rep.Recovery, "\n")
	require.Contains(t, text, fmt.Sprintf("the running mark of"))
	require.Contains(t, text, fmt.Sprintf("from log offset %d to 403423", mark.LogEnd))
	require.Contains(t, text, "taken up to 1499 keys")
	require.Contains(t, strings.Join(look(t, root, Options{BootID: "other"}).Recovery, "\n"), "no recovery mark can be believed")
	commits := 0
	for _, r := range rep.Rows {
		if r.File == "epochmq/offsets/offsets-0000000000000001.journal" {
			commits++
		}
	}
	require.Equal(t, 5, commits)

	// a torn journal is to be expected after a kill, a queue that lacks what the mark promises is not
	path := filepath.Join(root, "epochmq", "offsets", "offsets-0000000000000001.journal")
	require.NoError(t, os.Truncate(path, int64(len(journalBytes())-3)))
	rep = look(t, root, Options{})
	require.True(t, rep.Sound)
	require.False(t, look(t, path, Options{}).Sound)
	patch(t, filepath.Join(root, "consumequeue/GoldenAlpha/0/00000000000000000000"), 100*20, make([]byte, 300)...)
	rep = look(t, root, Options{})
	require.False(t, rep.Sound)

	// a mark of another log
	m, err := checkpoint.ReadMark(mappedfile.OS, root, checkpoint.Running)
	require.NoError(t, err)
	m.Last.CRC++
	require.NoError(t, checkpoint.WriteMark(mappedfile.OS, root, m))
	rep = look(t, root, Options{BootID: "boot"})
	require.Contains(t, fmt.Sprint(rep.Findings), "does not fit the log")
}

func TestLiveFolder(t *testing.T) {
	root := goldenstore.Unpack(t, "killed")
	l, err := mappedfile.OS.Lock(filepath.Join(root, "lock"))
	require.NoError(t, err)
	// as if a record were being written, and queues and index not yet
	patch(t, filepath.Join(root, "commitlog/00000000000000262144"), 403423-262144, 0, 0, 1, 0, 0xDA, 0xA3, 0x20, 0xA7, 1, 2, 3)
	patch(t, filepath.Join(root, "consumequeue/GoldenAlpha/3/00000000000000000000"), 112*20, make([]byte, 20)...)
	rep := look(t, root, Options{})
	require.True(t, rep.Live)
	require.True(t, rep.Sound, "%+v", rep.Findings)
	require.NoError(t, l.Close())
	rep = look(t, root, Options{})
	require.False(t, rep.Live)
	require.False(t, rep.Sound)
	again, err := mappedfile.OS.Lock(filepath.Join(root, "lock"))
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestFindingsAreBounded(t *testing.T) {
	root := goldenstore.Unpack(t, "rolled-clean")
	for i := range 30 {
		require.NoError(t, os.WriteFile(filepath.Join(root, "index", fmt.Sprint("note", i)), nil, 0o644))
	}
	patch(t, filepath.Join(root, "checkpoint"), 8, 0xFF)
	rep := look(t, root, Options{Limit: 5})
	require.Len(t, rep.Findings, 5)
	require.Positive(t, rep.Omitted)
	require.False(t, rep.Sound)
}

func FuzzFile(f *testing.F) {
	root := goldenstore.Unpack(f, "killed")
	own(f, root)
	for i, name := range []string{"commitlog/00000000000000262144", "consumequeue/GoldenAlpha/0/00000000000000000000", "index/20261201091535020",
		"checkpoint", "abort", "config/consumerOffset.json", "epochmq/recovery.running", "epochmq/offsets/offsets-0000000000000001.journal"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(f, err)
		f.Add(byte(i), b[:min(len(b), 20000)])
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		sim := mappedfile.NewSim(1)
		require.NoError(t, sim.WriteFile("/00000000000000000000", b, 0o644))
		k := Kinds[int(kind)%len(Kinds)]
		if k == KindLock {
			return
		}
		_, err := Path(sim, "/00000000000000000000", Options{Kind: k, Dump: 3, Slots: 10, Entries: 30})
		require.NoError(t, err)
	})
}

func FuzzStore(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{4}, []byte{5}, true)
	root := goldenstore.Unpack(f, "v4.9.4-clean")
	var seeds [3][]byte
	for i, name := range []string{"commitlog/00000000000000000000", "consumequeue/GoldenT/0/00000000000000000000", "index/20261201094148486"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(f, err)
		seeds[i] = b[:min(len(b), 16384)]
	}
	f.Add(seeds[0], seeds[1], seeds[2], false)
	f.Fuzz(func(t *testing.T, log, queue, idx []byte, unclean bool) {
		sim := mappedfile.NewSim(1)
		write := func(name string, b []byte) {
			require.NoError(t, sim.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, sim.WriteFile(name, b, 0o644))
		}
		write("/s/commitlog/00000000000000000000", log)
		write("/s/consumequeue/GoldenT/0/00000000000000000000", queue)
		write("/s/index/20261201094148486", idx)
		if unclean {
			write("/s/abort", []byte("1"))
		}
		_, err := Path(sim, "/s", Options{Dump: 2, Slots: 1000, Entries: 600})
		require.NoError(t, err)
	})
}

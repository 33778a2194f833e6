package store

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// fuzzDisk is a store of every file kind on a simulated disk, with what a kill leaves when killed is set.
func fuzzDisk(t testing.TB, killed bool) *mappedfile.Sim {
	sim := mappedfile.NewSim(3)
	s, err := Open(sim, simConfig(AsyncFlush), testOptions())
	require.NoError(t, err)
	s.Start()
	put(t, s, "t", 0, numbered(60, 40)...)
	put(t, s, "other", 1, numbered(10, 40)...)
	require.NoError(t, s.saver.now())
	left := sim.Kill()
	require.NoError(t, s.Close())
	if !killed {
		return sim.Kill()
	}
	return left
}

func simFiles(t testing.TB, sim *mappedfile.Sim, dir string) (files []string) {
	entries, err := sim.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		name := filepath.ToSlash(filepath.Join(dir, e.Name()))
		if e.IsDir() {
			files = append(files, simFiles(t, sim, name)...)
		} else {
			files = append(files, name)
		}
	}
	return files
}

// FuzzDamagedStore changes bytes of any file of a store, opens it, and uses it. Whatever is on the disk: no panic, and what
// opens can be read, takes messages and closes.
func FuzzDamagedStore(f *testing.F) {
	f.Add(false, uint8(0), uint32(0), []byte{0x7F, 0xFF, 0xFF, 0xFF})
	f.Add(true, uint8(1), uint32(4), []byte{0xDA, 0xA3, 0x20, 0xA7})
	f.Add(true, uint8(9), uint32(88), []byte{0, 0, 0, 8})
	f.Add(true, uint8(14), uint32(20), []byte{0x80, 0, 0, 0, 0, 0, 0, 1})
	f.Add(false, uint8(40), uint32(36), []byte{0x7F, 0xFF, 0xFF, 0xFF})
	disks := map[bool]*mappedfile.Sim{true: fuzzDisk(f, true), false: fuzzDisk(f, false)}
	f.Fuzz(func(t *testing.T, killed bool, file uint8, off uint32, p []byte) {
		sim := disks[killed].Kill()
		files := simFiles(t, sim, "/store")
		name := files[int(file)%len(files)]
		info, err := sim.Stat(name)
		require.NoError(t, err)
		if info.Size() == 0 {
			return
		}
		at := int64(off) % info.Size()
		if err := sim.Damage(name, at, p[:min(int64(len(p)), info.Size()-at)]); err != nil {
			t.Skip(err)
		}
		s, err := Open(sim, simConfig(AsyncFlush), testOptions())
		if err != nil {
			return
		}
		s.Start()
		useAll(s)
		b := s.NewBatch()
		if err := b.Add(testMessage("t", 0, "more", "more")); err == nil {
			_, _ = s.Append(b)
		}
		_ = s.Close()
	})
}

// useAll reads everything in every way and takes errors as they come.
func useAll(s *Store) {
	var r Result
	s.EachQueue(func(q QueueInfo) bool {
		topic := []byte(q.Topic)
		for at, n := q.Min, 0; at < q.Max && n < 1000; n++ {
			if err := s.Get(&Query{Topic: topic, QueueID: q.ID, Offset: at, MaxMsgs: 32}, &r); err != nil {
				break
			}
			at = max(r.Next, at+1)
			r.Release()
		}
		_, _ = s.OffsetByTime(topic, q.ID, 1<<40, true)
		_ = s.Earliest(topic, q.ID)
		return true
	})
	for _, key := range numbered(60, 40) {
		if k, err := s.QueryKeys("t", key, 10, 0, 1<<62, false); err == nil {
			k.Release()
		}
	}
	for off := message.LogOffset(0); off < s.log.End(); off += 97 {
		if v, err := s.View(off); err == nil {
			v.Release()
		}
	}
}

// FuzzTexts reads the texts of configuration keys that have a form of their own.
func FuzzTexts(f *testing.F) {
	f.Add("1s 5s 10s 30s 1m 2h", "04;16")
	f.Add("", "")
	f.Add("s", ";;24")
	f.Fuzz(func(t *testing.T, levels, hours string) {
		if l, err := ParseDelayLevels(levels); err == nil {
			for _, ms := range l {
				require.GreaterOrEqual(t, ms, int64(0))
			}
		}
		_, _ = parseHours(hours)
		_ = splitPaths(levels)
	})
}

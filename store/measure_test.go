package store

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/store/mappedfile"
)

// TestMeasureRestart prints how long a start takes after a kill; set EPOCHMQ_MEASURE=1.
func TestMeasureRestart(t *testing.T) {
	if os.Getenv("EPOCHMQ_MEASURE") == "" {
		t.Skip("set EPOCHMQ_MEASURE=1 to measure restarts")
	}
	for _, queues := range []int{100, 10000} {
		dir := t.TempDir()
		cfg := Defaults()
		cfg.StorePathRootDir = dir
		s := mustOpen(t, mappedfile.OS, cfg, testOptions())
		s.Start()
		b := s.NewBatch()
		body := make([]byte, 1024)
		start := time.Now()
		n := 2 << 20
		if queues == 10000 {
			n = 200000
		}
		for i := range n {
			b.Reset()
			m := testMessage(fmt.Sprint("topic", i%queues), 0, string(body), fmt.Sprint("k", i))
			require.NoError(t, b.Add(m))
			p, err := s.Append(b)
			require.NoError(t, err)
			if i%64 == 0 {
				require.NoError(t, s.Write(p.End))
			}
		}
		require.NoError(t, s.Write(s.log.End()))
		t.Logf("%d queues: %d messages in %v, behind %d", queues, n, time.Since(start), s.Stats().DispatchBehind)
		end := s.log.End()
		// what a kill leaves: everything stops, nothing more is written
		close(s.d.stop)
		<-s.d.gone
		close(s.saver.stop)
		<-s.saver.gone
		close(s.cleaner.stop)
		<-s.cleaner.gone
		<-s.indexer.gone
		s.closed.Store(true)
		require.NoError(t, s.abandon())
		s.closing.Do(func() {})
		start = time.Now()
		again := mustOpen(t, mappedfile.OS, cfg, testOptions())
		t.Logf("%d queues: open %v of %d MB: %+v", queues, time.Since(start), end>>20, again.Recovery())
		again.Start()
		settle(t, again)
		t.Logf("index complete after %v", time.Since(start))
		require.NoError(t, os.RemoveAll(dir+"/epochmq"))
		require.NoError(t, again.Close())
		require.NoError(t, os.RemoveAll(dir+"/epochmq"))
		start = time.Now()
		again = mustOpen(t, mappedfile.OS, cfg, testOptions())
		t.Logf("%d queues, no mark: open %v", queues, time.Since(start))
		require.NoError(t, again.Close())
	}
}

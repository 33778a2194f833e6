package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// probeSync is the median time in us that the disk takes to flush 4 KiB, from a fifth of a second of trying.
func probeSync(dir string) float64 {
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	var took []float64
	for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
		t := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		took = append(took, float64(time.Since(t).Microseconds()))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// reserve gives a file its size and its blocks.
func reserve(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }

// flush writes the file's data to the disk, not its times.
func flush(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

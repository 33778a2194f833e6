//go:build !linux

package main

import "os"

// reserve gives a file its size.
func reserve(f *os.File, size int64) error { return f.Truncate(size) }

// flush writes the file to the disk.
func flush(f *os.File) error { return f.Sync() }

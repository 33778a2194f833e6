//go:build !linux

package store

func physicalRAM() int64 { return fallbackRAM }

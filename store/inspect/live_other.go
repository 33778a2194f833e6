//go:build !linux

package inspect

// locked cannot be told on this system without taking the lock.
func locked(string) bool { return false }

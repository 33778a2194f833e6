//go:build !linux

package checkpoint

// BootID is unknown on this system, so that running marks are never believed.
func BootID(...string) string { return "" }

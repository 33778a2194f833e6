//go:build race

package ha

func init() { raceEnabled = true }

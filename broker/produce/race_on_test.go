//go:build race

package produce

// raceOn: the race detector makes pools forget, so that allocations cannot be counted.
const raceOn = true

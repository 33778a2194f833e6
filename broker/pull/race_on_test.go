//go:build race

package pull

// raceOn: the race detector makes pools forget, so that allocations cannot be counted.
const raceOn = true

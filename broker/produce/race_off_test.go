//go:build !race

package produce

const raceOn = false

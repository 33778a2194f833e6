//go:build !race

package pull

const raceOn = false

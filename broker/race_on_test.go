//go:build race

package broker_test

// raceDetector: pools drop what they are given at random, so allocations are not those of the product.
const raceDetector = true

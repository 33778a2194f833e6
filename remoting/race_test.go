//go:build race

package remoting

func init() { raceEnabled = true }

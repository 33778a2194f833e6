package delay

import (
	"time"

	"github.com/epochmq/epochmq/store"
)

// Levels is the table of delay levels; level 1 is the first. It is immutable.
type Levels struct{ ms []int64 }

// ParseLevels reads messageDelayLevel: delays such as "1s 5s 10m 2h 1d", separated by blanks.
func ParseLevels(text string) (*Levels, error) {
	ms, err := store.ParseDelayLevels(text)
	if err != nil {
		return nil, err
	}
	return &Levels{ms: ms}, nil
}

// Max is the highest level, 0 when there is none.
func (l *Levels) Max() int32 { return int32(len(l.ms)) }

// Delay is the delay of a level from 1 to Max; another level counts as one second, as in RocketMQ.
func (l *Levels) Delay(level int32) time.Duration {
	if level < 1 || level > l.Max() {
		return time.Second
	}
	return time.Duration(l.ms[level-1]) * time.Millisecond
}

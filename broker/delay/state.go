package delay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
)

// File is where delayOffset.json is kept: Load hands the last whole content to parse (found is false when there never
// was one), Save replaces the content durably.
type File interface {
	Load(parse func([]byte) error) (found bool, err error)
	Save(data []byte) error
}

// state is the content of delayOffset.json: for each level the offset of the next message to look at in its queue.
//
// Format: docs/formats/config-json.md.
type state struct {
	version version
	offsets map[int32]message.QueueOffset
}

type version struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms since the epoch
}

// decodeState reads the file; the version is absent before RocketMQ 5.
func decodeState(data []byte) (state, error) {
	var raw struct {
		DataVersion version                    `json:"dataVersion"`
		OffsetTable map[string]json.RawMessage `json:"offsetTable"`
	}
	s := state{offsets: map[int32]message.QueueOffset{}}
	if err := fastjson.Unmarshal(data, &raw); err != nil {
		return s, fmt.Errorf("decode delay offsets: %w", err)
	}
	s.version = raw.DataVersion
	for key, value := range raw.OffsetTable {
		level, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return s, fmt.Errorf("decode delay offsets: level %q: %w", key, err)
		}
		off, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return s, fmt.Errorf("decode delay offsets: offset of level %d: %w", level, err)
		}
		s.offsets[int32(level)] = message.QueueOffset(off)
	}
	return s, nil
}

// encode writes the file as RocketMQ does: tabs, and the levels in one line.
func (s *state) encode() []byte {
	b := fmt.Appendf(nil, "{\n\t\"dataVersion\":{\n\t\t\"counter\":%d,\n\t\t\"stateVersion\":%d,\n\t\t\"timestamp\":%d\n\t},\n\t\"offsetTable\":{",
		s.version.Counter, s.version.StateVersion, s.version.Timestamp)
	for i, level := range slices.Sorted(maps.Keys(s.offsets)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%d:%d", level, s.offsets[level])
	}
	if len(s.offsets) > 0 {
		b = append(b, "\n\t"...)
	}
	return append(b, "}\n}"...)
}

// next makes the version of a changed table.
func (v version) next() version {
	return version{Counter: v.Counter + 1, StateVersion: v.StateVersion, Timestamp: time.Now().UnixMilli()}
}

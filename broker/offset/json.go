package offset

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
)

// file is the meaning of consumerOffset.json, in its order.
type file struct {
	version   topic.Version
	groupRank []groupTopics
	pairs     []pair
}

type groupTopics struct {
	name   string
	topics []string
}

type pair struct {
	group, topic string
	offsets      map[int32]message.QueueOffset
}

// decode reads consumerOffset.json and keeps its order. Keys that are not topic@group are passed over.
func decode(data []byte) (*file, error) {
	root, err := fastjson.Parse(data)
	if err != nil {
		return nil, err
	}
	if root.Kind != fastjson.Object {
		return nil, errors.New("consumerOffset.json is no object")
	}
	f := &file{version: topic.NewVersion()}
	for _, m := range root.Members {
		switch m.Key.Text {
		case "dataVersion":
			err = m.Value.Decode(&f.version)
		case "groupTopicMap":
			for _, g := range m.Value.Members {
				rank := groupTopics{name: g.Key.Text}
				if err := g.Value.Decode(&rank.topics); err != nil {
					return nil, err
				}
				f.groupRank = append(f.groupRank, rank)
			}
		case "offsetTable":
			err = f.decodePairs(m.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *file) decodePairs(n *fastjson.Node) error {
	for _, m := range n.Members {
		name, group, ok := strings.Cut(m.Key.Text, "@")
		if !ok || strings.Contains(group, "@") || len(name) > maxName || len(group) > maxName {
			continue
		}
		p := pair{group, name, map[int32]message.QueueOffset{}}
		if err := m.Value.Decode(&p.offsets); err != nil {
			return err
		}
		f.pairs = append(f.pairs, p)
	}
	return nil
}

// encode writes the Java broker's form, byte for byte.
func encode(f *file) []byte {
	b := append([]byte(nil), "{\n\t\"dataVersion\":{\n\t\t\"counter\":"...)
	b = strconv.AppendInt(b, f.version.Counter, 10)
	b = append(b, ",\n\t\t\"stateVersion\":"...)
	b = strconv.AppendInt(b, f.version.StateVersion, 10)
	b = append(b, ",\n\t\t\"timestamp\":"...)
	b = strconv.AppendInt(b, f.version.Timestamp, 10)
	b = append(b, "\n\t},\n\t\"groupTopicMap\":{"...)
	for i, g := range f.groupRank {
		b = appendItem(b, i)
		b = appendString(b, g.name)
		b = append(b, ":["...)
		for j, name := range g.topics {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, name)
		}
		b = append(b, ']')
	}
	b = appendEnd(b, len(f.groupRank))
	b = append(b, ",\n\t\"offsetTable\":{"...)
	for i, p := range f.pairs {
		b = appendItem(b, i)
		b = appendString(b, p.topic+"@"+p.group)
		b = append(b, ":{"...)
		for j, q := range slices.Sorted(maps.Keys(p.offsets)) {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(q), 10)
			b = append(b, ':')
			b = strconv.AppendInt(b, int64(p.offsets[q]), 10)
		}
		if len(p.offsets) > 0 {
			b = append(b, "\n\t\t"...)
		}
		b = append(b, '}')
	}
	b = appendEnd(b, len(f.pairs))
	return append(b, "\n}"...)
}

func appendItem(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return append(b, "\n\t\t"...)
}

func appendEnd(b []byte, n int) []byte {
	if n > 0 {
		b = append(b, "\n\t"...)
	}
	return append(b, '}')
}

// appendString quotes a name as RocketMQ does.
func appendString(b []byte, s string) []byte {
	quoted, err := fastjson.Marshal(s)
	if err != nil {
		panic("offset: a text does not encode: " + err.Error())
	}
	return append(b, quoted...)
}

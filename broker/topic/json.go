package topic

import (
	"errors"

	"github.com/epochmq/epochmq/internal/fastjson"
)

// decode reads topics.json and keeps its order. Fields that are absent keep their defaults.
func decode(data []byte) (*snapshot, error) {
	root, err := fastjson.Parse(data)
	if err != nil {
		return nil, err
	}
	if root.Kind != fastjson.Object {
		return nil, errors.New("topics.json is no object")
	}
	s := &snapshot{byName: map[string]*Config{}, version: NewVersion()}
	for _, m := range root.Members {
		switch m.Key.Text {
		case "dataVersion":
			err = m.Value.Decode(&s.version)
		case "topicConfigTable":
			err = s.decodeTopics(m.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *snapshot) decodeTopics(n *fastjson.Node) error {
	for _, m := range n.Members {
		c := NewConfig(m.Key.Text, 16)
		if m.Value.Kind != fastjson.Object {
			continue
		}
		if err := m.Value.Decode(c); err != nil {
			return err
		}
		if c.Name == "" {
			c.Name = m.Key.Text
		}
		if c.Attributes == nil {
			c.Attributes = map[string]string{}
		}
		if _, dup := s.byName[m.Key.Text]; !dup {
			s.order = append(s.order, m.Key.Text)
		}
		s.byName[m.Key.Text] = c
	}
	return nil
}

// encode writes the Java broker's form.
func encode(s *snapshot) ([]byte, error) {
	topics := make(fastjson.Pairs, 0, len(s.order))
	for _, name := range s.order {
		topics = append(topics, fastjson.Pair{Key: name, Value: s.byName[name]})
	}
	return fastjson.MarshalPretty(fastjson.Pairs{{Key: "dataVersion", Value: s.version}, {Key: "topicConfigTable", Value: topics}})
}

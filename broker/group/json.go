package group

import (
	"errors"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/internal/fastjson"
)

// decode reads subscriptionGroup.json and keeps its order.
func decode(data []byte) (*snapshot, error) {
	root, err := fastjson.Parse(data)
	if err != nil {
		return nil, err
	}
	if root.Kind != fastjson.Object {
		return nil, errors.New("subscriptionGroup.json is no object")
	}
	s := &snapshot{byName: map[string]*Config{}, forbidden: map[string]map[string]int32{}, version: topic.NewVersion()}
	for _, m := range root.Members {
		switch m.Key.Text {
		case "dataVersion":
			err = m.Value.Decode(&s.version)
		case "forbiddenTable":
			for _, g := range m.Value.Members {
				topics := map[string]int32{}
				if err := g.Value.Decode(&topics); err != nil {
					return nil, err
				}
				s.forbidden[g.Key.Text] = topics
				s.forbiddenOrder = append(s.forbiddenOrder, g.Key.Text)
			}
		case "subscriptionGroupTable":
			err = s.decodeGroups(m.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *snapshot) decodeGroups(n *fastjson.Node) error {
	for _, m := range n.Members {
		if m.Value.Kind != fastjson.Object {
			continue
		}
		c := NewConfig("")
		if err := m.Value.Decode(c); err != nil {
			return err
		}
		if c.Name == "" {
			c.Name = m.Key.Text
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
	groups := make(fastjson.Pairs, 0, len(s.order))
	for _, name := range s.order {
		groups = append(groups, fastjson.Pair{Key: name, Value: s.byName[name].Fields()})
	}
	forbidden := make(fastjson.Pairs, 0, len(s.forbiddenOrder))
	for _, name := range s.forbiddenOrder {
		forbidden = append(forbidden, fastjson.Pair{Key: name, Value: s.forbidden[name]})
	}
	return fastjson.MarshalPretty(fastjson.Pairs{{Key: "dataVersion", Value: s.version},
		{Key: "forbiddenTable", Value: forbidden}, {Key: "subscriptionGroupTable", Value: groups}})
}

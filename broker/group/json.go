package group

import (
	"encoding/json"

	"github.com/epochmq/epochmq/broker/topic"
)

// file is subscriptionGroup.json.
type file struct {
	Version   Version                     `json:"dataVersion"`
	Forbidden map[string]map[string]int32 `json:"forbiddenTable"`
	Groups    map[string]*Config          `json:"subscriptionGroupTable"`
}

func decode(data []byte) (*snapshot, error) {
	f := file{Version: topic.NewVersion()}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	s := &snapshot{byName: map[string]*Config{}, version: f.Version, forbidden: f.Forbidden}
	for name, c := range f.Groups {
		s.byName[name] = c
		s.order = append(s.order, name)
	}
	return s, nil
}

func encode(s *snapshot) ([]byte, error) {
	groups := map[string]any{}
	for name, c := range s.byName {
		groups[name] = c.Fields()
	}
	return json.Marshal(map[string]any{"dataVersion": s.version, "forbiddenTable": s.forbidden, "subscriptionGroupTable": groups})
}

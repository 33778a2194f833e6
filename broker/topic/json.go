package topic

import "encoding/json"

// file is topics.json.
type file struct {
	Version Version            `json:"dataVersion"`
	Topics  map[string]*Config `json:"topicConfigTable"`
}

func decode(data []byte) (*snapshot, error) {
	f := file{Version: NewVersion()}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	s := &snapshot{byName: map[string]*Config{}, version: f.Version}
	for name, c := range f.Topics {
		s.byName[name] = c
		s.order = append(s.order, name)
	}
	return s, nil
}

func encode(s *snapshot) ([]byte, error) {
	return json.Marshal(file{s.version, s.byName})
}

package conf

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/viper"
)

// codec lets viper read .properties files: it has no reader of its own for them.
type codec struct{}

func (codec) Decode(b []byte, into map[string]any) error {
	all, err := readProperties(b)
	for _, e := range all { // in the order of the file: of two spellings the later one counts
		into[strings.ToLower(e.key)] = e.value
	}
	return err
}

func (codec) Encode(m map[string]any) ([]byte, error) {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b bytes.Buffer
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%v\n", k, m[k])
	}
	return b.Bytes(), nil
}

// Load layers a property file (path may be empty) and the environment over the defaults. Run-time changes are written to the file.
// Unknown keys are kept in the file, warned of once, and are no error; so are values that do not parse.
func (s *Set) Load(path string) error {
	reg := viper.NewCodecRegistry()
	if err := reg.RegisterCodec("properties", codec{}); err != nil {
		return fmt.Errorf("register the properties codec: %w", err)
	}
	v := viper.NewWithOptions(viper.WithCodecRegistry(reg), viper.KeyDelimiter("::"))
	v.SetConfigType("properties")
	if path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		if err := v.ReadConfig(bytes.NewReader(b)); err != nil {
			return fmt.Errorf("read configuration %s: %w", path, err)
		}
		if err := s.noteUnknown(b); err != nil {
			return fmt.Errorf("read configuration %s: %w", path, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path = path
	for fold, all := range s.keys {
		// A key without a binding is invisible to viper in the environment.
		name := all[0].key.Name
		if err := v.BindEnv(fold, EnvPrefix+strings.ToUpper(fold), EnvPrefix+upperSnake(name)); err != nil {
			return fmt.Errorf("bind environment of %s: %w", name, err)
		}
		if v.IsSet(fold) {
			s.putLocked(fold, v.GetString(fold))
		}
	}
	return nil
}

// upperSnake turns brokerIP1 into BROKER_IP1.
func upperSnake(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; i > 0 && c >= 'A' && c <= 'Z' && (name[i-1] < 'A' || name[i-1] > 'Z') {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToUpper(b.String())
}

var plausibleKey = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.\-]*$`)

func (s *Set) noteUnknown(b []byte) error {
	all, err := readProperties(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		if len(s.keys[strings.ToLower(e.key)]) == 0 && plausibleKey.MatchString(e.key) {
			s.unknown = append(s.unknown, e.key)
		}
	}
	slices.Sort(s.unknown)
	s.unknown = slices.Compact(s.unknown)
	if len(s.unknown) > 0 {
		s.log.Warn("configuration keys that nothing here knows are kept and ignored", "keys", strings.Join(s.unknown, " "))
	}
	return nil
}

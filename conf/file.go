package conf

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/magiconair/properties"
	"github.com/spf13/viper"
)

// codec lets viper read .properties files: it has no reader of its own for them.
type codec struct{}

func (codec) Decode(b []byte, into map[string]any) error {
	p, err := parse(b)
	if err != nil {
		return err
	}
	for _, k := range p.Keys() { // in the order of the file: of two spellings the later one counts
		v, _ := p.Get(k)
		into[strings.ToLower(k)] = v
	}
	return nil
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

// xmlComment is how RocketMQ's own samples open, although they are property files.
var xmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)

func parse(b []byte) (*properties.Properties, error) {
	l := &properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := l.LoadBytes(xmlComment.ReplaceAll(b, nil))
	if err != nil {
		return nil, fmt.Errorf("parse properties: %w", err)
	}
	return p, nil
}

// ParseProperties reads the body of an update-config request: key=value lines with Java's escapes. Errors say what is malformed.
func ParseProperties(b []byte) (map[string]string, error) {
	p, err := parse(b)
	if err != nil {
		return nil, err
	}
	return p.Map(), nil
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
	p, err := parse(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range p.Keys() {
		if len(s.keys[strings.ToLower(k)]) == 0 && plausibleKey.MatchString(k) {
			s.unknown = append(s.unknown, k)
		}
	}
	slices.Sort(s.unknown)
	s.unknown = slices.Compact(s.unknown)
	if len(s.unknown) > 0 {
		s.log.Warn("configuration keys that nothing here knows are kept and ignored", "keys", strings.Join(s.unknown, " "))
	}
	return nil
}

// editProperties changes keys of a property file and leaves every other line as it is. The last line of a repeated key is the one that
// counts, so all are changed, in whatever case they are written. New keys go to the end, sorted.
func editProperties(old []byte, changes map[string]string) []byte {
	names := map[string]string{} // by lower case
	for key := range changes {
		names[strings.ToLower(key)] = key
	}
	var out []string
	done := map[string]bool{}
	lines := strings.Split(strings.TrimSuffix(string(old), "\n"), "\n")
	if len(old) == 0 {
		lines = nil
	}
	for i := 0; i < len(lines); i++ {
		first := i
		for continues(lines[i]) && i+1 < len(lines) {
			i++
		}
		key, ok := names[strings.ToLower(lineKey(lines[first]))]
		if !ok {
			out = append(out, lines[first:i+1]...)
			continue
		}
		out = append(out, key+"="+escape(changes[key]))
		done[key] = true
	}
	var fresh []string
	for key, value := range changes {
		if !done[key] {
			fresh = append(fresh, key+"="+escape(value))
		}
	}
	sort.Strings(fresh)
	if n := len(out); n > 0 && len(fresh) > 0 && continues(out[n-1]) {
		out[n-1] = strings.TrimSuffix(out[n-1], `\`) // the last line's backslash would take in the first new one
	}
	return []byte(strings.Join(append(out, fresh...), "\n") + "\n")
}

// lineKey returns the key of a line; empty for blanks and comments.
func lineKey(line string) string {
	line = strings.TrimLeft(line, " \t\f")
	if line == "" || line[0] == '#' || line[0] == '!' {
		return ""
	}
	if i := strings.IndexAny(line, "=: \t\f\r"); i >= 0 {
		line = line[:i]
	}
	return line
}

// continues tells whether a line ends with an odd number of backslashes.
func continues(line string) bool {
	if k := strings.TrimLeft(line, " \t\f"); k == "" || k[0] == '#' || k[0] == '!' {
		return false
	}
	n := 0
	for i := len(line) - 1; i >= 0 && line[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// escape keeps a value on its line and its leading blanks.
func escape(value string) string {
	value = strings.ReplaceAll(value, `\`, `\\`)
	if strings.HasPrefix(value, " ") {
		value = `\` + value
	}
	return value
}

// Package conf binds RocketMQ's property files to the Config structs of components.
//
// A component's struct names each key, in RocketMQ's spelling, in the tag `property`, with its default in `default`, whether a change at
// run time takes effect in `live` ("true"), and what the key does in `effect` ("honoured", or "none: why"). Set layers defaults, file,
// environment and flags over the structs, lists all values, and applies changes at run time. The binary's subcommands build a Set; the
// broker and the name server answer get-config and update-config requests from it. Only this package imports viper.
package conf

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/epochmq/epochmq/internal/statefile"
)

// EnvPrefix begins the environment variable of a key: EPOCHMQ_LISTENPORT or EPOCHMQ_LISTEN_PORT for listenPort.
const EnvPrefix = "EPOCHMQ_"

// Key describes one configuration key.
type Key struct {
	Name    string
	Value   string // in force
	Default string
	Live    bool   // a change at run time takes effect
	Effect  string // "honoured", or "none: why"
}

// ForbiddenError says that a change names a key that may not be changed at run time.
type ForbiddenError struct{ Key string }

func (e *ForbiddenError) Error() string {
	return "key " + e.Key + " may not be changed at run time; edit the configuration file and restart"
}

// Set is the configuration of one process's component group, for example a broker and its store. Safe for concurrent use once loaded.
type Set struct {
	log *slog.Logger

	changing sync.Mutex // held over a whole Apply, so that file and components see changes in one order; taken before mu

	mu        sync.Mutex
	parts     []*part
	keys      map[string][]*slot // by lower case; several when components share a key, the first one's tags count
	path      string             // file that changes are written to; empty: none
	blacklist []string
	given     map[string]bool // keys that file, environment or flags set
	unknown   []string
}

// part is one registered struct.
type part struct {
	value    reflect.Value // of the struct, owned by the Set
	onChange []func(any)
}

type slot struct {
	part *part
	key  Key
	at   int // field index
}

func (s *slot) text() string { return text(s.part.value.Field(s.at)) }

// New returns an empty set that warns through log.
func New(log *slog.Logger) *Set {
	if log == nil {
		log = slog.Default()
	}
	return &Set{log: log, keys: map[string][]*slot{}, given: map[string]bool{}}
}

// Register adds a component's struct, given by pointer, and fills it with its defaults. The Set keeps a copy; read values in force through
// Value. A key that two components name is kept in step in both, and the first one's default counts.
func (s *Set) Register(component any) error {
	v := reflect.ValueOf(component)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("register configuration: %T is not a pointer to a struct", component)
	}
	p := &part{value: reflect.New(v.Elem().Type()).Elem()}
	p.value.Set(v.Elem())
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.value.NumField() {
		f := p.value.Type().Field(i)
		name := f.Tag.Get("property")
		if name == "" {
			continue
		}
		k := Key{Name: name, Default: f.Tag.Get("default"), Live: f.Tag.Get("live") == "true", Effect: f.Tag.Get("effect")}
		if k.Default != "" || p.value.Field(i).Kind() == reflect.String && p.value.Field(i).String() == "" {
			if _, err := assign(p.value.Field(i), k.Default); err != nil {
				return fmt.Errorf("default of key %s: %w", name, err)
			}
		}
		fold := strings.ToLower(name)
		if all := s.keys[fold]; len(all) > 0 {
			if _, err := assign(p.value.Field(i), all[0].text()); err != nil {
				return fmt.Errorf("key %s, which two components share: %w", name, err)
			}
		}
		s.keys[fold] = append(s.keys[fold], &slot{p, k, i})
	}
	s.parts = append(s.parts, p)
	v.Elem().Set(p.value)
	return nil
}

// Value copies the values in force into component, a pointer to a struct type that was registered.
func (s *Set) Value(component any) {
	v := reflect.ValueOf(component).Elem()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.value.Type() == v.Type() {
			v.Set(p.value)
			return
		}
	}
	panic(fmt.Sprintf("conf: %T is not registered", component))
}

// OnChange calls fn with a new copy (of component's type, by value) after each applied change that touches the component. fn runs on the
// goroutine of Apply, outside of locks.
func (s *Set) OnChange(component any, fn func(value any)) {
	t := reflect.TypeOf(component).Elem()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.value.Type() == t {
			p.onChange = append(p.onChange, fn)
		}
	}
}

// Forbid names keys that Apply refuses. They may be listed in any spelling.
func (s *Set) Forbid(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blacklist = append(s.blacklist, keys...)
}

// Put sets a key in RocketMQ's spelling (case ignored). A value that does not parse keeps what was there, as in RocketMQ, with a warning.
// It reports whether the key is known.
func (s *Set) Put(key, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putLocked(key, value)
}

func (s *Set) putLocked(key, value string) bool {
	all := s.keys[strings.ToLower(key)]
	if len(all) == 0 {
		return false
	}
	for _, each := range all {
		if _, err := assign(each.part.value.Field(each.at), value); err != nil {
			s.log.Warn("configuration value is ignored", "key", all[0].key.Name, "value", value, "error", err)
		}
	}
	s.given[all[0].key.Name] = true
	return true
}

// Check tells what is wrong with a value for a key, without changing anything. An unknown key is not its business.
func (s *Set) Check(key, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, each := range s.keys[strings.ToLower(key)] {
		if _, err := assign(reflect.New(each.part.value.Field(each.at).Type()).Elem(), value); err != nil {
			return fmt.Errorf("key %s: %w", each.key.Name, err)
		}
	}
	return nil
}

// Given reports whether file, environment or flags set a key.
func (s *Set) Given(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given[key]
}

// Unknown returns the keys of the file that no component knows, sorted.
func (s *Set) Unknown() []string { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.unknown) }

// Keys lists every key with its value in force, sorted by name.
func (s *Set) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Key, 0, len(s.keys))
	for _, all := range s.keys {
		k := all[0].key
		k.Value = all[0].text()
		list = append(list, k)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Text lists every key as RocketMQ's get-config answers do: key=value lines, sorted, without escapes.
func (s *Set) Text() string {
	var b strings.Builder
	for _, k := range s.Keys() {
		b.WriteString(k.Name)
		b.WriteByte('=')
		b.WriteString(k.Value)
		b.WriteByte('\n')
	}
	return b.String()
}

// Apply changes keys at run time: all of them or none. Unknown keys are passed over, as in RocketMQ. The changes are checked by the
// components' Validate method (if they have one), written to the configuration file (the changed keys only; comments and order stay),
// and handed to OnChange. Keys that are not live take effect at the next start. Errors: *ForbiddenError, a value that does not parse, what
// Validate says, or the file's.
func (s *Set) Apply(changes map[string]string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	known, err := s.checkLocked(changes)
	path := s.path
	s.mu.Unlock()
	if err != nil || len(known) == 0 {
		return err
	}
	if path != "" {
		if err := persist(path, known); err != nil {
			return err
		}
	}
	for _, c := range s.take(known) {
		for _, fn := range c.fns {
			fn(c.value)
		}
	}
	return nil
}

// call is a component's new value and who waits for it.
type call struct {
	fns   []func(any)
	value any
}

// take makes checked changes the values in force.
func (s *Set) take(known map[string]string) (calls []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := map[*part]bool{}
	for key, value := range known {
		for _, each := range s.keys[strings.ToLower(key)] {
			if _, err := assign(each.part.value.Field(each.at), value); err != nil {
				s.log.Error("checked configuration value is refused", "key", key, "error", err)
			}
			touched[each.part] = true
		}
	}
	for _, p := range s.parts {
		if touched[p] {
			v := reflect.New(p.value.Type()).Elem()
			v.Set(p.value)
			calls = append(calls, call{slices.Clone(p.onChange), v.Interface()})
		}
	}
	return calls
}

// checkLocked tries changes on copies of the structs that they touch and returns them in the keys' own spelling, without unknown ones.
func (s *Set) checkLocked(changes map[string]string) (known map[string]string, err error) {
	for key := range changes {
		for _, no := range s.blacklist {
			if strings.EqualFold(key, strings.TrimSpace(no)) {
				return nil, &ForbiddenError{key}
			}
		}
	}
	copies := map[*part]reflect.Value{}
	known = map[string]string{}
	for key, value := range changes {
		all := s.keys[strings.ToLower(key)]
		if len(all) == 0 {
			continue
		}
		if strings.ContainsAny(value, "\n\r\x00") {
			return nil, fmt.Errorf("key %s: a value may not hold a line break", key)
		}
		for _, each := range all {
			v, ok := copies[each.part]
			if !ok {
				v = reflect.New(each.part.value.Type()).Elem()
				v.Set(each.part.value)
				copies[each.part] = v
			}
			if _, err := assign(v.Field(each.at), value); err != nil {
				return nil, fmt.Errorf("key %s: %w", each.key.Name, err)
			}
		}
		known[all[0].key.Name] = value
	}
	for _, v := range copies {
		if c, ok := v.Addr().Interface().(interface{ Validate() error }); ok {
			if err := c.Validate(); err != nil {
				return nil, err
			}
		}
	}
	return known, nil
}

// persist changes keys in the configuration file.
func persist(path string, changes map[string]string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep the changed configuration: %w", err)
	}
	edited, err := editProperties(old, changes)
	if err != nil {
		return fmt.Errorf("keep the changed configuration in %s: %w", path, err)
	}
	if err := statefile.Write(statefile.OS, path, edited); err != nil {
		return fmt.Errorf("keep the changed configuration: %w", err)
	}
	return nil
}

// assign parses a value as RocketMQ does: text is trimmed, only "true" in any case is true, numbers are not trimmed.
func assign(v reflect.Value, value string) (changed bool, err error) {
	before := v.Interface()
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.TrimSpace(value))
	case reflect.Bool:
		v.SetBool(strings.EqualFold(strings.TrimSpace(value), "true"))
	case reflect.Int, reflect.Int32, reflect.Int64:
		if value == "" {
			return false, errors.New("an empty value is not a number")
		}
		n, err := strconv.ParseInt(value, 10, v.Type().Bits())
		if err != nil {
			return false, fmt.Errorf("%q is not an integer of %d bits", value, v.Type().Bits())
		}
		v.SetInt(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return false, fmt.Errorf("%q is not a number", value)
		}
		v.SetFloat(f)
	default:
		return false, fmt.Errorf("a field of kind %s cannot hold a configuration value", v.Kind())
	}
	return before != v.Interface(), nil
}

// text writes a value as Java would.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		t := strconv.FormatFloat(v.Float(), 'f', -1, 64)
		if !strings.Contains(t, ".") {
			t += ".0"
		}
		return t
	default:
		return fmt.Sprint(v.Interface())
	}
}

package topic

import (
	"maps"
	"strconv"
	"strings"
)

// AttributeError refuses a change of attributes; Remark is what the admin client sees, in RocketMQ's words.
type AttributeError struct{ Remark string }

func (e *AttributeError) Error() string { return e.Remark }

// attribute describes a key that a topic may carry.
type attribute struct {
	fixed bool     // set at creation only
	oneOf []string // allowed values
	isInt bool     // a number from -1
}

var attributes = map[string]attribute{
	"queue.type":     {fixed: true, oneOf: []string{"BatchCQ", "SimpleCQ"}},
	"cleanup.policy": {fixed: true, oneOf: []string{"DELETE", "COMPACTION"}},
	"message.type":   {oneOf: []string{"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}},
	"reserve.time":   {isInt: true},
}

// ParseAttributes reads "+k=v,-k" into a map whose keys keep their sign.
func ParseAttributes(s string) (map[string]string, error) {
	out := map[string]string{}
	if s == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		key, rest, hasValue := strings.Cut(part, "=")
		value := ""
		if hasValue {
			value, _, _ = strings.Cut(rest, "=")
			if !strings.HasPrefix(key, "+") {
				return nil, &AttributeError{"add/alter attribute format is wrong: " + key}
			}
		} else if !strings.HasPrefix(key, "-") {
			return nil, &AttributeError{"delete attribute format is wrong: " + key}
		}
		if _, dup := out[key]; dup {
			return nil, &AttributeError{"key duplication: " + key}
		}
		out[key] = value
	}
	return out, nil
}

// alterAttributes merges signed keys into have and returns a new map.
func alterAttributes(create bool, have, signed map[string]string) (map[string]string, error) {
	next := maps.Clone(have)
	if next == nil {
		next = map[string]string{}
	}
	seen := map[string]bool{}
	for signedKey, value := range signed {
		if len(signedKey) == 0 || signedKey[0] != '+' && signedKey[0] != '-' {
			return nil, &AttributeError{"wrong format key: " + signedKey}
		}
		key := signedKey[1:]
		if seen[key] {
			return nil, &AttributeError{"alter duplication key. key: " + key}
		}
		seen[key] = true
		if key == "" || strings.Contains(key, "+") || strings.Contains(key, "-") {
			return nil, &AttributeError{"kv string format wrong."}
		}
		a, known := attributes[key]
		if !known {
			return nil, &AttributeError{"unsupported key: " + key}
		}
		if signedKey[0] == '-' {
			if err := mayDelete(create, key, a, have); err != nil {
				return nil, err
			}
			delete(next, key)
			continue
		}
		if err := mayAdd(create, key, value, a); err != nil {
			return nil, err
		}
		next[key] = value
	}
	return next, nil
}

func mayDelete(create bool, key string, a attribute, have map[string]string) error {
	if create {
		return &AttributeError{"only add attribute is supported while creating topic. key: " + key}
	}
	if a.fixed {
		return &AttributeError{"attempt to update an unchangeable attribute. key: " + key}
	}
	if _, ok := have[key]; !ok {
		return &AttributeError{"attempt to delete a nonexistent key: " + key}
	}
	return nil
}

func mayAdd(create bool, key, value string, a attribute) error {
	if !create && a.fixed {
		return &AttributeError{"attempt to update an unchangeable attribute. key: " + key}
	}
	if a.isInt {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < -1 {
			return &AttributeError{"value is not in range: " + key}
		}
		return nil
	}
	for _, v := range a.oneOf {
		if v == value {
			return nil
		}
	}
	return &AttributeError{"value is not in set: [" + strings.Join(a.oneOf, ", ") + "]"}
}

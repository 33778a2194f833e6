package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epochmq/epochmq/client"
)

// formatHelp lists what may stand in --format.
const formatHelp = `%t topic, %q queue, %o offset, %p topic/queue@offset, %k keys, %g tags, %b body, %s size of the body, %i message id,
%B time of birth, %T time of storage (ms), %h birth host, %r deliveries before this one, %{NAME} a property, %% a percent sign;
\n \t \r \0 \\ \xHH as usual`

// formatter writes messages by a format that was parsed once.
type formatter []func(dst []byte, m *client.Received) []byte

// parseFormat reads a format string. See formatHelp.
func parseFormat(s string) (formatter, error) {
	var f formatter
	var text []byte
	flush := func() {
		if len(text) > 0 {
			t := text
			f = append(f, func(dst []byte, _ *client.Received) []byte { return append(dst, t...) })
			text = nil
		}
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			c, n, err := escaped(s[i+1:])
			if err != nil {
				return nil, err
			}
			text = append(text, c)
			i += n
		case s[i] != '%':
			text = append(text, s[i])
		case i+1 == len(s):
			return nil, errors.New("format ends with a lone %")
		case s[i+1] == '%':
			text = append(text, '%')
			i++
		case s[i+1] == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return nil, errors.New("%{ in format has no }")
			}
			name := s[i+2 : i+end]
			flush()
			f = append(f, func(dst []byte, m *client.Received) []byte { return append(dst, m.Property(name)...) })
			i += end
		default:
			field, ok := formatFields[s[i+1]]
			if !ok {
				return nil, fmt.Errorf("%%%c is unknown in format", s[i+1])
			}
			flush()
			f = append(f, field)
			i++
		}
	}
	flush()
	return f, nil
}

// escaped reads what follows a backslash and returns the byte and the length read.
func escaped(s string) (byte, int, error) {
	if s == "" {
		return 0, 0, errors.New(`format ends with a lone \`)
	}
	switch s[0] {
	case 'n':
		return '\n', 1, nil
	case 't':
		return '\t', 1, nil
	case 'r':
		return '\r', 1, nil
	case '0':
		return 0, 1, nil
	case '\\':
		return '\\', 1, nil
	case 'x':
		if len(s) >= 3 {
			if n, err := strconv.ParseUint(s[1:3], 16, 8); err == nil {
				return byte(n), 3, nil
			}
		}
	}
	return 0, 0, fmt.Errorf(`\%c is unknown in format`, s[0])
}

var formatFields = map[byte]func([]byte, *client.Received) []byte{
	't': func(d []byte, m *client.Received) []byte { return append(d, m.Topic...) },
	'q': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, int64(m.Queue.ID), 10) },
	'o': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, m.QueueOffset, 10) },
	'p': func(d []byte, m *client.Received) []byte { return append(d, m.String()...) },
	'k': func(d []byte, m *client.Received) []byte { return append(d, strings.Join(m.Keys(), " ")...) },
	'g': func(d []byte, m *client.Received) []byte { return append(d, m.Tags()...) },
	'b': func(d []byte, m *client.Received) []byte { return append(d, m.Body...) },
	's': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, int64(len(m.Body)), 10) },
	'i': func(d []byte, m *client.Received) []byte { return append(d, m.ID()...) },
	'B': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, m.BornTime.UnixMilli(), 10) },
	'T': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, m.StoreTime.UnixMilli(), 10) },
	'h': func(d []byte, m *client.Received) []byte { return append(d, m.BornHost.String()...) },
	'r': func(d []byte, m *client.Received) []byte { return strconv.AppendInt(d, int64(m.ReconsumeTimes), 10) },
}

// append writes one message.
func (f formatter) append(dst []byte, m *client.Received) []byte {
	for _, field := range f {
		dst = field(dst, m)
	}
	return dst
}

// messageJSON is a message as consume -o json prints it, one a line. A body that is not UTF-8 is in bodyBase64 instead of body.
type messageJSON struct {
	Place      string            `json:"place"`
	Topic      string            `json:"topic"`
	Queue      int32             `json:"queue"`
	Offset     int64             `json:"offset"`
	Broker     string            `json:"broker"`
	ID         string            `json:"id"`
	Keys       []string          `json:"keys,omitempty"`
	Tags       string            `json:"tags,omitempty"`
	BornTime   time.Time         `json:"bornTime"`
	StoreTime  time.Time         `json:"storeTime"`
	BornHost   string            `json:"bornHost"`
	Deliveries int               `json:"deliveriesBefore,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Body       *string           `json:"body,omitempty"`
	BodyBase64 []byte            `json:"bodyBase64,omitempty"`
}

// appendJSON writes one message as a line of JSON.
func appendJSON(dst []byte, m *client.Received) ([]byte, error) {
	j := messageJSON{Place: m.String(), Topic: m.Topic, Queue: m.Queue.ID, Offset: m.QueueOffset, Broker: m.Queue.Broker, ID: m.ID(), Keys: m.Keys(),
		Tags: m.Tags(), BornTime: m.BornTime.UTC(), StoreTime: m.StoreTime.UTC(), BornHost: m.BornHost.String(), Deliveries: m.ReconsumeTimes,
		Properties: m.Properties()}
	if utf8.Valid(m.Body) {
		body := string(m.Body)
		j.Body = &body
	} else {
		j.BodyBase64 = m.Body
	}
	b, err := json.Marshal(j)
	return append(append(dst, b...), '\n'), err
}

package group

import (
	"strconv"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// heartbeat is the body of request 34, as lenient as clients of several languages and ages need.
type heartbeat struct {
	ClientID    string          `json:"clientID"`
	Consumers   []consumerEntry `json:"consumerDataSet"`
	Producers   []producerEntry `json:"producerDataSet"`
	Fingerprint int32           `json:"heartbeatFingerprint"`
	WithoutSub  bool            `json:"withoutSub"`
	IsWithout   bool            `json:"isWithoutSub"`
}

type producerEntry struct {
	Group string `json:"groupName"`
}

type consumerEntry struct {
	Group string              `json:"groupName"`
	Type  consumeType         `json:"consumeType"`
	Model messageModel        `json:"messageModel"`
	From  fromWhere           `json:"consumeFromWhere"`
	Subs  []subscriptionEntry `json:"subscriptionDataSet"`
	Unit  bool                `json:"unitMode"`
}

type subscriptionEntry struct {
	Topic       string   `json:"topic"`
	Expression  string   `json:"subString"`
	Type        string   `json:"expressionType"`
	Tags        []string `json:"tagsSet"`
	Codes       []int32  `json:"codeSet"`
	Version     int64    `json:"subVersion"`
	ClassFilter bool     `json:"classFilterMode"`
}

// subscription completes what a client left out.
func (s *subscriptionEntry) subscription() *Subscription {
	out := &Subscription{Topic: s.Topic, Expression: s.Expression, Type: s.Type, Tags: s.Tags, Codes: s.Codes, Version: s.Version,
		ClassFilter: s.ClassFilter}
	if out.Type == "" {
		out.Type = ExpressionTag
	}
	if out.Type == ExpressionTag && len(out.Tags) == 0 && out.Expression != "" && out.Expression != "*" {
		out.Tags = splitTags(out.Expression)
	}
	if out.Type == ExpressionTag && len(out.Codes) == 0 {
		for _, tag := range out.Tags {
			out.Codes = append(out.Codes, message.HashString(tag))
		}
	}
	return out
}

// splitTags reads "A || B".
func splitTags(s string) []string {
	var out []string
	for len(s) > 0 {
		i := 0
		for i < len(s) && !(s[i] == '|' && i+1 < len(s) && s[i+1] == '|') {
			i++
		}
		if tag := trimBlanks(s[:i]); tag != "" {
			out = append(out, tag)
		}
		s = s[min(len(s), i+2):]
	}
	return out
}

func trimBlanks(s string) string {
	for len(s) > 0 && s[0] <= ' ' {
		s = s[1:]
	}
	for len(s) > 0 && s[len(s)-1] <= ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// enum reads a constant by name or by ordinal. Other spellings are in also; what is unknown is an error of the request.
func enum(n *fastjson.Node, what string, names []string, also map[string]string) (string, error) {
	switch n.Kind {
	case fastjson.Null:
		return "", nil
	case fastjson.Number:
		if i, err := strconv.Atoi(n.Text); err == nil && i >= 0 && i < len(names) {
			return names[i], nil
		}
	case fastjson.String:
		for _, name := range names {
			if name == n.Text {
				return name, nil
			}
		}
		if name, ok := also[n.Text]; ok {
			return name, nil
		}
	}
	return "", protocol.Errorf(protocol.InvalidParameter, "%s %q is unknown", what, n.Text)
}

type consumeType string

// UnmarshalFastJSON reads the constant by name or ordinal.
func (t *consumeType) UnmarshalFastJSON(n *fastjson.Node) error {
	s, err := enum(n, "consumeType", []string{ConsumeActively, ConsumePassively, ConsumePop},
		map[string]string{"PULL": ConsumeActively, "PUSH": ConsumePassively, "POP": ConsumePop})
	*t = consumeType(s)
	return err
}

type messageModel string

// UnmarshalFastJSON reads the constant by name or ordinal.
func (t *messageModel) UnmarshalFastJSON(n *fastjson.Node) error {
	s, err := enum(n, "messageModel", []string{Broadcasting, Clustering},
		map[string]string{"BroadCasting": Broadcasting, "Clustering": Clustering})
	*t = messageModel(s)
	return err
}

type fromWhere string

// UnmarshalFastJSON reads the constant by name or ordinal.
func (t *fromWhere) UnmarshalFastJSON(n *fastjson.Node) error {
	s, err := enum(n, "consumeFromWhere", []string{"CONSUME_FROM_LAST_OFFSET",
		"CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET",
		"CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"}, nil)
	*t = fromWhere(s)
	return err
}

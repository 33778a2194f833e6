package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// SQL marks a subscription's expression as SQL92 instead of tags, for example SQL("price > 3 AND region = 'eu'").
func SQL(expression string) string { return sqlPrefix + expression }

const sqlPrefix = "sql92:"

const (
	typeTag = "TAG"
	typeSQL = "SQL92"
)

// subscription is what a group wants of a topic.
type subscription struct {
	topic   string
	expr    string
	kind    string
	tags    []string // empty: all
	version int64
}

// parseSubscription reads "", "*", tags joined by two bars, or the result of SQL.
func parseSubscription(topic, expr string) (*subscription, error) {
	s := &subscription{topic: topic, expr: expr, kind: typeTag, version: time.Now().UnixMilli()}
	if sql, ok := strings.CutPrefix(expr, sqlPrefix); ok {
		if strings.TrimSpace(sql) == "" {
			return nil, fmt.Errorf("client: subscription to %s: empty SQL92 expression", topic)
		}
		s.expr, s.kind = sql, typeSQL
		return s, nil
	}
	if strings.TrimSpace(expr) == "" || strings.TrimSpace(expr) == "*" {
		s.expr = "*"
		return s, nil
	}
	for tag := range strings.SplitSeq(expr, "||") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(s.tags, tag) {
			s.tags = append(s.tags, tag)
		}
	}
	if len(s.tags) == 0 {
		return nil, fmt.Errorf("client: subscription to %s: %q names no tag", topic, expr)
	}
	return s, nil
}

// matches compares tags exactly; the broker compares hashes only.
func (s *subscription) matches(tags []byte) bool {
	if len(s.tags) == 0 {
		return true
	}
	for _, t := range s.tags {
		if t == string(tags) {
			return true
		}
	}
	return false
}

func (s *subscription) wire() protocol.SubscriptionData {
	d := protocol.SubscriptionData{Topic: s.topic, SubString: s.expr, ExpressionType: s.kind, SubVersion: s.version, TagsSet: s.tags,
		CodeSet: []int32{}}
	if d.TagsSet == nil {
		d.TagsSet = []string{}
	}
	for _, t := range s.tags {
		d.CodeSet = append(d.CodeSet, message.HashString(t))
	}
	return d
}

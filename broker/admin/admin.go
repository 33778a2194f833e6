// Package admin answers the requests of operators and their tools: what topics and groups there are and changes of them,
// how far consumers are, who is connected, configuration, counters and the state of the store.
//
// Each family of requests is one type in one file (Topics, Groups, Progress, Reset, Clients, Settings, Runtime, Files);
// broker registers their methods to run apart from the connections' loops, where they may take time. They see the rest
// of the broker through small interfaces and keep no state. They never write a message.
//
// Contracts: what RocketMQ 5.3.3 answers; exceptions are in docs/formats/extensions.md.
package admin

import (
	"strings"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// Self is who the broker is. The address is asked at each answer: it is known when the listener is.
type Self struct {
	Name    string
	Cluster string
	Addr    func() string // ip:port that clients use
}

// put encodes v as the body of the answer.
func put(resp *remoting.Response, v any) error {
	b, err := fastjson.Marshal(v)
	if err != nil {
		return err
	}
	resp.Body.Bytes = b
	return nil
}

// required returns a field that must be there.
func required(req *remoting.Request, name string) (string, error) {
	v, ok := req.Get(name)
	if !ok {
		return "", protocol.Missing(name)
	}
	return string(v), nil
}

// optionalInt returns a number that may be missing.
func optionalInt(req *remoting.Request, name string, missing int64) (int64, error) {
	v, ok, err := req.Int64(name)
	if err != nil || !ok {
		return missing, err
	}
	return v, nil
}

// optionalBool returns a truth value that may be missing.
func optionalBool(req *remoting.Request, name string, missing bool) (bool, error) {
	v, ok, err := req.Bool(name)
	if err != nil || !ok {
		return missing, err
	}
	return v, nil
}

// topicError turns a bad topic name into code 29.
func topicError(name string) error {
	if strings.TrimSpace(name) == "" {
		return protocol.Errorf(protocol.InvalidParameter, "The specified topic is blank.")
	}
	if err := message.ValidateTopic(name); err != nil {
		return protocol.Errorf(protocol.InvalidParameter, "%s", err)
	}
	return nil
}

// groupError turns a bad group name into code 29.
func groupError(name string) error {
	if strings.TrimSpace(name) == "" {
		return protocol.Errorf(protocol.InvalidParameter, "The specified group is blank.")
	}
	if err := message.ValidateGroup(name); err != nil {
		return protocol.Errorf(protocol.InvalidParameter, "%s", err)
	}
	return nil
}

func noTopic(name string) error {
	return protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist", name)
}

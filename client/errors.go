package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// ErrClosed says that the client, producer or consumer was closed.
var ErrClosed = errors.New("client: closed")

// RouteError says that no server is known for a topic.
type RouteError struct {
	Topic string
	Err   error // why, may be nil
}

func (e *RouteError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("no route to topic %s: no broker offers a queue for it", e.Topic)
	}
	return fmt.Sprintf("no route to topic %s: %v", e.Topic, e.Err)
}

func (e *RouteError) Unwrap() error { return e.Err }

// MessageError says why a message cannot be sent at all.
type MessageError struct {
	Topic  string
	Reason string
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("message for topic %q: %s", e.Topic, e.Reason)
}

// ServerError is an answer other than success.
type ServerError struct {
	Addr   string
	Code   int32 // one of protocol's response codes
	Remark string
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("%s: code %d %s: %s", e.Addr, e.Code, protocol.ResponseName(e.Code), e.Remark)
}

func (e *ServerError) Unwrap() error { return &protocol.Error{Code: e.Code, Remark: e.Remark} }

// Attempt is one try to send a message.
type Attempt struct {
	Queue Queue
	Err   error
}

// SendError says that a message was not acknowledged, with all that was tried.
type SendError struct {
	Topic    string
	Attempts []Attempt
	Err      error // why it was given up: the last attempt's, or the context's
}

// Error tells why sending was given up, the number of attempts, and once each other way in which they failed. Attempts has them all.
func (e *SendError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "send to topic %s: %v", e.Topic, e.Err)
	n := len(e.Attempts)
	if n < 2 {
		return b.String()
	}
	fmt.Fprintf(&b, " (attempt %d", n)
	said := map[string]bool{fmt.Sprint(e.Err): true} // attempts mostly fail in the same way: each way is told once
	for _, a := range e.Attempts[:n-1] {
		if text := fmt.Sprint(a.Err); !said[text] {
			said[text] = true
			fmt.Fprintf(&b, "; before: %s: %s", a.Queue, text)
		}
	}
	b.WriteByte(')')
	return b.String()
}

func (e *SendError) Unwrap() error { return e.Err }

// Unknown tells whether the message may have been stored in spite of the error: an attempt was lost without an answer.
func (e *SendError) Unknown() bool {
	for _, a := range e.Attempts {
		if outcomeUnknown(a.Err) {
			return true
		}
	}
	return false
}

// outcomeUnknown tells whether a request may have been executed although it has no answer.
func outcomeUnknown(err error) bool {
	var server *ServerError
	var connect *remoting.ConnectError
	var large *remoting.TooLargeError
	var busy *remoting.BusyError
	var route *RouteError
	switch {
	case err == nil, errors.As(err, &server), errors.As(err, &connect), errors.As(err, &large), errors.As(err, &busy), errors.As(err, &route),
		errors.Is(err, ErrClosed):
		return false
	}
	return true
}

// unreachable tells whether the server itself could not be reached or went away, so that its address is worth asking for again.
func unreachable(err error) bool {
	var connect *remoting.ConnectError
	var closed *remoting.ClosedError
	var late *remoting.TimeoutError
	return errors.As(err, &connect) || errors.As(err, &closed) || errors.As(err, &late)
}

// code returns the answer's code in err, or -1.
func code(err error) int32 {
	var server *ServerError
	if errors.As(err, &server) {
		return server.Code
	}
	return -1
}

// notServing tells whether a server says that it is not the one to ask, or not now: a new master may be elsewhere.
func notServing(err error) bool {
	switch code(err) {
	case protocol.ServiceNotAvailable, protocol.SystemBusy, protocol.GoAway, protocol.NotLeaderForQueue, protocol.TopicNotExist,
		protocol.NoPermission:
		return true
	}
	return false
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

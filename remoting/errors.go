package remoting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// ErrClosed says that a connection, client or server is closed. A *ClosedError matches it too.
var ErrClosed = errors.New("connection closed")

// Later is what a handler returns when it has called Request.Defer and the answer comes from elsewhere.
var Later = errors.New("answered later")

// ClosedError says that a connection was closed before an answer came.
type ClosedError struct {
	Addr string
	Err  error // why, never nil
	Sent bool  // the request may have been executed; false when it was certainly not sent
}

func (e *ClosedError) Error() string { return "connection to " + e.Addr + " closed: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *ClosedError) Unwrap() error { return e.Err }

// Is matches ErrClosed.
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// ConnectError says that no connection could be made: the request was not sent.
type ConnectError struct {
	Addr string
	Err  error
}

func (e *ConnectError) Error() string { return "connect to " + e.Addr + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// TimeoutError says that no answer came in time: the request may have been executed.
type TimeoutError struct {
	Addr  string
	Code  int32 // of the request
	After time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s did not answer %s within %s", e.Addr, protocol.RequestName(e.Code), e.After.Round(time.Millisecond))
}

// Timeout is true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// Is matches context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// TooLargeError says that a frame is larger than the limit. Received ones end the connection, own ones are not sent.
type TooLargeError struct{ Size, Max int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("frame of %d bytes is larger than %d", e.Size, e.Max)
}

// BusyError says that a limit of this process, not of the peer, is reached.
type BusyError struct {
	Resource   string
	Have, Most int64
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %d of at most %d", e.Resource, e.Have, e.Most)
}

// ForeignError says that the peer speaks another protocol.
type ForeignError struct{ What string }

func (e *ForeignError) Error() string { return e.What }

// Reasons of closing.
var (
	errPeerClosed = errors.New("closed by the peer")
	errIdle       = errors.New("idle for too long")
	errShutdown   = errors.New("this side shuts down")
	errSlowFrame  = errors.New("the peer takes too long for a frame")
	errNotReading = errors.New("the peer does not read")
	errLocalClose = errors.New("closed by this side")
	errRetired    = errors.New("the server asked to go away")
)

package broker

import (
	"errors"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
	"github.com/epochmq/epochmq/store"
)

// mapError turns the error of any handler into the code and remark that clients and operators know. It is the only place
// that does, beside the refusals that a feature words itself as a *protocol.Error.
func mapError(err error) (code int32, remark string) {
	var own *protocol.Error
	var attr *topic.AttributeError
	var name *message.NameError
	switch {
	case errors.As(err, &own):
		return own.Code, own.Remark
	case errors.As(err, &attr):
		return protocol.SystemError, attr.Remark
	case errors.As(err, &name):
		return protocol.InvalidParameter, name.Remark
	case errors.Is(err, store.ErrIllegal), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrPropertiesTooLong):
		return protocol.MessageIllegal, "the message is illegal, maybe msg body or properties length not matched. " + err.Error()
	case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrDiskFull),
		errors.Is(err, store.ErrNotWritable), errors.Is(err, store.ErrNotMaster), errors.Is(err, store.ErrNotReadable):
		return protocol.ServiceNotAvailable, "service not available now. It may be caused by one of the following reasons: the broker's disk is full, the store has failed or is closing: " + err.Error()
	}
	return protocol.SystemError, err.Error()
}

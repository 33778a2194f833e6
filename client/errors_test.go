package client

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSendErrorTellsEachReasonOnce(t *testing.T) {
	gone, late := errors.New("no broker"), errors.New("too late")
	q := Queue{Topic: "t", Broker: "b", ID: 1}
	e := &SendError{Topic: "t", Err: gone}
	for _, err := range []error{gone, late, gone, late, gone} {
		e.Attempts = append(e.Attempts, Attempt{q, err})
	}
	require.Equal(t, "send to topic t: no broker (attempt 5; before: t/1(b): too late)", e.Error())
	e.Attempts = e.Attempts[:1]
	require.Equal(t, "send to topic t: no broker", e.Error())
}

func TestNoMessage(t *testing.T) {
	var refused *MessageError
	require.ErrorAs(t, (*Message)(nil).check(), &refused)
	_, _, err := new(Producer).encodeBatch([]*Message{{Topic: "t", Body: []byte("x")}, nil})
	require.ErrorAs(t, err, &refused)
}

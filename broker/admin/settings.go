package admin

import (
	"errors"

	"github.com/epochmq/epochmq/broker/topic"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// BlackListError refuses a change of a setting that may not be changed from afar.
type BlackListError struct{ Key string }

func (e *BlackListError) Error() string { return "Can not update config in black list." }

// ValueError refuses a value.
type ValueError struct{ Err error }

func (e *ValueError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ValueError) Unwrap() error { return e.Err }

// Settings reads and changes the configuration.
type Settings struct {
	// Text is every setting as key=value lines, sorted by key.
	Text func() ([]byte, error)
	// Change applies the key=value lines of a body: all or nothing. *BlackListError, *ValueError.
	Change  func(text []byte) error
	Version func() topic.Version // of the configuration
}

// Update is request 25.
func (h *Settings) Update(req *remoting.Request, _ *remoting.Response) error {
	if len(req.Body) == 0 {
		return nil
	}
	err := h.Change(req.Body)
	var black *BlackListError
	var value *ValueError
	switch {
	case errors.As(err, &black):
		return protocol.Errorf(protocol.NoPermission, "%s", black)
	case errors.As(err, &value):
		return protocol.Errorf(protocol.InvalidParameter, "%s", value)
	}
	return err
}

// Get is request 26.
func (h *Settings) Get(_ *remoting.Request, resp *remoting.Response) error {
	text, err := h.Text()
	if err != nil {
		return err
	}
	version, err := versionText(h.Version())
	if err != nil {
		return err
	}
	resp.Ext.Add("version", version)
	resp.Body.Bytes = text
	return nil
}

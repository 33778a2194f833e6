package controller

import (
	"errors"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func (c *Controller) getConfig(_ *remoting.Request, resp *remoting.Response) error {
	resp.Body.Bytes = []byte(c.settings.Text())
	return nil
}

func (c *Controller) updateConfig(req *remoting.Request, _ *remoting.Response) error {
	if len(req.Body) == 0 {
		return nil
	}
	changes, err := conf.ParseProperties(req.Body)
	if err != nil {
		return protocol.Errorf(protocol.SystemError, "string2Properties error: %v", err)
	}
	err = c.settings.Apply(changes)
	var no *conf.ForbiddenError
	if errors.As(err, &no) {
		return &protocol.Error{Code: protocol.NoPermission, Remark: "Can not update config in black list."}
	}
	return err
}

package client

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/epochmq/epochmq/remoting/protocol"
)

// nameServers asks one of several equal servers, and the next one when it cannot be reached.
type nameServers struct {
	addrs   []string
	current atomic.Uint32
}

// CallNameServer sends a request to a name server; when it cannot be reached the others are tried. Errors: *ServerError, or the transport's.
func (c *Client) CallNameServer(ctx context.Context, cmd *protocol.Command) (*protocol.Command, error) {
	var errs []error
	start := c.ns.current.Load()
	for i := range c.ns.addrs {
		n := (start + uint32(i)) % uint32(len(c.ns.addrs))
		try := *cmd
		answer, err := c.Call(ctx, c.ns.addrs[n], &try)
		if err == nil || code(err) >= 0 {
			if i > 0 {
				c.ns.current.Store(n)
			}
			return answer, err
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

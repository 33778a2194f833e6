package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// explainPort names the process that holds the port which a listener wanted, and what to do instead.
func explainPort(err error, next string) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return advise(err, "%s", next)
	}
	addr, ok := op.Addr.(*net.TCPAddr)
	if !ok {
		return advise(err, "%s", next)
	}
	who := portOwner(addr.Port)
	if who == "" {
		who = "another process"
	}
	return advise(fmt.Errorf("port %d is taken by %s", addr.Port, who), "stop it, or %s", next)
}

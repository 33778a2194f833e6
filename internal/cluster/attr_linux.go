package cluster

import "syscall"

// sysProcAttr lets the kernel kill the program when the test process dies.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

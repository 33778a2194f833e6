package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// portOwner describes the process that listens on a TCP port, from /proc; empty when it cannot be told.
func portOwner(port int) string {
	inodes := map[string]bool{}
	uid := ""
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			// sl local_address rem_address st queues timer retransmits uid timeout inode ...
			c := strings.Fields(s.Text())
			if len(c) < 10 || c[3] != "0A" || !strings.HasSuffix(c[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			inodes["socket:["+c[9]+"]"], uid = true, c[7]
		}
		_ = f.Close()
	}
	if len(inodes) == 0 {
		return ""
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || !inodes[target] {
			continue
		}
		pid := strings.Split(link, "/")[2]
		return "process " + pid + " (" + commandLine(pid) + ")"
	}
	if n, err := strconv.Atoi(uid); err == nil {
		return fmt.Sprintf("a process of user id %d", n)
	}
	return ""
}

// commandLine is how a process was started, cut to a readable length.
func commandLine(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return "unknown"
	}
	const most = 80
	text := strings.Join(strings.Fields(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))), " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return printable(text)
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaunchers runs the scripts of bin/ with a stand-in for the binary that prints what it was given.
func TestLaunchers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the launchers are shell scripts")
	}
	home := filepath.Join(t.TempDir(), "with blank")
	bin := filepath.Join(home, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	for _, name := range []string{"mqnamesrv", "mqbroker", "mqcontroller", "mqshutdown"} {
		b, err := os.ReadFile(filepath.Join("../../bin", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), b, 0o755))
	}
	sh := func(dir, name string, args ...string) (string, error) {
		cmd := exec.Command("sh", append([]string{name}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := sh(home, "bin/mqbroker")
	require.Error(t, err)
	require.Contains(t, out, "run 'make build'")

	require.NoError(t, os.WriteFile(filepath.Join(bin, "epochmq"), []byte("#!/bin/sh\necho \"$ROCKETMQ_HOME\"\nfor a; do echo \"[$a]\"; done\n"), 0o755))
	real, err := filepath.EvalSymlinks(home)
	require.NoError(t, err)
	out, err = sh(home, "bin/mqbroker", "-n", "a:1;b:2", "-c", "my file")
	require.NoError(t, err, out)
	require.Equal(t, real+"\n[broker]\n[-n]\n[a:1;b:2]\n[-c]\n[my file]\n", out)
	link := filepath.Join(t.TempDir(), "mq")
	require.NoError(t, os.Symlink(filepath.Join(bin, "mqnamesrv"), link))
	out, err = sh(t.TempDir(), link, "-p")
	require.NoError(t, err, out)
	require.Equal(t, real+"\n[namesrv]\n[-p]\n", out)

	out, err = sh(home, "bin/mqcontroller", "-c", "f")
	require.NoError(t, err, out)
	require.Equal(t, real+"\n[controller]\n[-c]\n[f]\n", out)

	out, err = sh(home, "bin/mqshutdown", "controller")
	require.Error(t, err)
	require.Equal(t, "No mqcontroller running.\n", out)
	out, err = sh(home, "bin/mqshutdown", "broker")
	require.Error(t, err)
	require.Equal(t, "No mqbroker running.\n", out)
	out, err = sh(home, "bin/mqshutdown", "all")
	require.Error(t, err)
	require.Contains(t, out, "usage")
}

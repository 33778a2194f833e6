package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/goldenstore"
)

// runInspect returns what the command prints and its exit code.
func runInspect(args ...string) (out string, code int) {
	cmd := newInspectCommand()
	cmd.SilenceErrors = true
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(args)
	err := cmd.Execute()
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) {
		return b.String(), exit.ExitCode()
	}
	if err != nil {
		return err.Error(), -1
	}
	return b.String(), 0
}

func TestInspect(t *testing.T) {
	root := goldenstore.Unpack(t, "killed")
	out, code := runInspect(root)
	require.Zero(t, code, out)
	require.Contains(t, out, "GoldenAlpha/3")
	require.Contains(t, out, "what a start would do")
	require.Contains(t, out, "sound")

	out, code = runInspect("-o", "json", root)
	require.Zero(t, code)
	var rep struct {
		Sound bool
		Log   struct{ Records int }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &rep))
	require.True(t, rep.Sound)
	require.Equal(t, 752, rep.Log.Records)

	out, code = runInspect("--dump", "2", filepath.Join(root, "commitlog", "00000000000000000000"))
	require.Zero(t, code)
	require.Contains(t, out, "GoldenBeta/1@0")

	ck := filepath.Join(root, "checkpoint")
	require.NoError(t, os.Truncate(ck, 100))
	out, code = runInspect(root)
	require.Equal(t, 1, code)
	require.Contains(t, out, "DAMAGED")

	for _, args := range [][]string{{}, {root, root}, {"--nonsense", root}, {"-o", "xml", root}, {filepath.Join(root, "none")}, {t.TempDir()}} {
		_, code = runInspect(args...)
		require.Equal(t, 2, code, "%q", args)
	}
}

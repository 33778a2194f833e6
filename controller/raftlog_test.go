package controller

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRaftLog(t *testing.T) {
	var b bytes.Buffer
	l := raftLog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})))
	l.Info("entering follower state")
	l.Error("failed to heartbeat to", "peer", "n1", "error", errors.New("refused"))
	require.Empty(t, b.String(), "what repeats itself is for debugging")
	l.Warn("failed to contact", "server-id", "n1")
	l.Error("failed to take snapshot", "error", errors.New("disk full"))
	require.Regexp(t, `(?s)level=WARN msg="raft: failed to contact" server-id=n1.*level=ERROR msg="raft: failed to take snapshot" error="disk full"`, b.String())
}

package controller

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// raftLog hands Raft's log lines to ours.
func raftLog(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Debug})
	l.RegisterSink(sink{log})
	return l
}

type sink struct{ log *slog.Logger }

// repeated are lines that Raft writes for every attempt to reach a controller that is down, and for every connection that
// such a one leaves behind. That it is down is said by another line, once.
var repeated = []string{"failed to appendEntries to", "failed to heartbeat to", "failed to pipeline appendEntries", "failed to start pipeline replication to",
	"failed to make requestVote RPC", "failed to flush response", "failed to decode incoming command"}

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	at := slog.LevelDebug // of what Raft tells at info, an operator needs little
	switch level {
	case hclog.Warn:
		at = slog.LevelWarn
	case hclog.Error:
		if at = slog.LevelError; slices.ContainsFunc(repeated, func(s string) bool { return strings.HasPrefix(msg, s) }) {
			at = slog.LevelDebug
		}
	}
	if !s.log.Enabled(context.Background(), at) {
		return
	}
	clean := make([]any, 0, len(args))
	for i, a := range args {
		if i%2 == 0 {
			if _, ok := a.(string); !ok {
				a = "value"
			}
		}
		clean = append(clean, a)
	}
	s.log.Log(context.Background(), at, "raft: "+msg, clean...)
}

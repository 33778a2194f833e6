package controller

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLog hands Raft's log lines to ours.
func raftLog(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Debug})
	l.RegisterSink(sink{log})
	return l
}

type sink struct{ log *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	at := slog.LevelDebug // of what Raft tells at info, an operator needs little
	switch level {
	case hclog.Warn:
		at = slog.LevelWarn
	case hclog.Error:
		at = slog.LevelError
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

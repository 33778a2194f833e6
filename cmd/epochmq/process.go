package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
	"gopkg.in/natefinch/lumberjack.v2"
)

// stopTimeout bounds the orderly stop of a server.
const stopTimeout = 15 * time.Second

// gcPercent trades memory for CPU: the live heap of a server is small.
const gcPercent = 300

// serverFlags are what every server command has beside its configuration.
type serverFlags struct {
	level string
	file  string
	pprof string
}

func (f *serverFlags) add(fl *pflag.FlagSet, level string) {
	fl.StringVar(&f.level, "log-level", envOr("EPOCHMQ_LOG_LEVEL", level), "debug, info, warn or error (environment EPOCHMQ_LOG_LEVEL)")
	fl.StringVar(&f.file, "log-file", os.Getenv("EPOCHMQ_LOG_FILE"), "write the log to this file, rotated at 128 MiB, ten kept; standard error when empty (environment EPOCHMQ_LOG_FILE)")
	fl.StringVar(&f.pprof, "pprof", "", "serve Go's profiles at this address, for example 127.0.0.1:6060; none when empty")
}

func envOr(name, value string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return value
}

// start prepares the process for a server and returns its log; stop ends what start began.
func (f *serverFlags) start(stderr io.Writer) (log *slog.Logger, stop func(), err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, nil, misuse("use debug, info, warn or error", "log level %q is unknown", f.level)
	}
	var w = stderr
	stop = func() {}
	if f.file != "" {
		file := &lumberjack.Logger{Filename: f.file, MaxSize: 128, MaxBackups: 10}
		if _, err := file.Write(nil); err != nil {
			return nil, nil, advise(fmt.Errorf("open log file: %w", err), "choose another --log-file")
		}
		w, stop = file, func() { _ = file.Close() }
	}
	log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	closeLog, endTrim := stop, trimWhenIdle()
	stop = func() { endTrim(); closeLog() }
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if f.pprof != "" {
		end, err := serveProfiles(f.pprof, log)
		if err != nil {
			stop()
			return nil, nil, advise(fmt.Errorf("serve profiles: %w", err), "choose another --pprof address")
		}
		rest := stop
		stop = func() { end(); rest() }
	}
	return log, stop, nil
}

// serveProfiles serves Go's profiles until the returned function is called.
func serveProfiles(addr string, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("profiles are no longer served", "err", err)
		}
	}()
	log.Info("profiles are served", "url", "http://"+l.Addr().String()+"/debug/pprof/")
	return func() { _ = s.Close(); <-done }, nil
}

// untilStopped waits for the end of ctx and then closes a server, within stopTimeout.
func untilStopped(ctx context.Context, log *slog.Logger, stop func() error) error {
	<-ctx.Done()
	log.Info("stopping; a second signal ends the process at once")
	done := make(chan error, 1)
	go func() { done <- stop() }()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return advise(fmt.Errorf("not stopped after %s", stopTimeout), "the next start recovers what was not closed")
	}
}

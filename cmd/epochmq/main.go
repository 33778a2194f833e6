// Command epochmq is the whole product in one binary: name server, broker, controller, a development server that is both, tools to produce, consume
// and administrate, and the inspector of store folders. This package parses flags, loads configuration, constructs and waits; the work is
// in the packages that it joins. Each subcommand has a file of its own. Only this package touches signals and the garbage collector.
//
// Exit codes: 0 done, 1 failed (a server that had to fence its store, a message that was not acknowledged, damage found), 2 wrong usage.
// Every failure is one line on standard error: "epochmq: <cause>; <next step>".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// Exit codes of the process.
const (
	exitOK = iota
	exitFailure
	exitUsage
)

func main() {
	ctx, stop := withSignals(context.Background())
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// withSignals returns a context that ends with the first SIGINT or SIGTERM. A second one ends the process at once. A write to a closed pipe
// becomes an error of that write instead of a signal.
func withSignals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	stops := make(chan os.Signal, 2)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-stops
		cancel()
		if s, ok := (<-stops).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
		os.Exit(exitFailure)
	}()
	return ctx, func() { signal.Stop(stops); cancel() }
}

// execute runs one command line and returns the exit code. Tests call it in process.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var coded interface{ ExitCode() int }
	var said *inspectExit
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, syscall.EPIPE): // the reader of our output has had enough
		return exitOK
	case errors.As(err, &said) && said.err == nil:
		return said.code
	}
	fmt.Fprintln(stderr, "epochmq: "+oneLine(err.Error()))
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return exitFailure
}

func oneLine(s string) string { return strings.Join(strings.FieldsFunc(s, isBreak), ", ") }

func isBreak(r rune) bool { return r == '\n' || r == '\r' }

// failure is an error with an exit code and what the user may do.
type failure struct {
	err  error
	next string
	code int
}

func (f *failure) Error() string {
	if f.next == "" {
		return f.err.Error()
	}
	return f.err.Error() + "; " + f.next
}

func (f *failure) Unwrap() error { return f.err }

// ExitCode is what the process ends with.
func (f *failure) ExitCode() int { return f.code }

// advise adds a next step to an error.
func advise(err error, next string, args ...any) error {
	if err == nil {
		return nil
	}
	return &failure{err, fmt.Sprintf(next, args...), exitFailure}
}

// misuse is an error of the command line.
func misuse(next, format string, args ...any) error {
	return &failure{fmt.Errorf(format, args...), next, exitUsage}
}

func newRootCommand() *cobra.Command {
	root := family("epochmq", "A message broker that speaks RocketMQ's protocol and keeps RocketMQ's files")
	root.Long = root.Short + `.

Start with:  epochmq dev              a name server and a broker on this machine, without configuration
Exit codes:  0 done, 1 failed, 2 wrong usage`
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Version = shownVersion()
	root.SetVersionTemplate("epochmq {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return misuse("run '"+cmd.CommandPath()+" --help'", "%w", err)
	})
	root.AddCommand(newDevCommand(), newNamesrvCommand(), newBrokerCommand(), newControllerCommand(), newProduceCommand(), newConsumeCommand(), newTopicCommand(), newGroupCommand(), newInspectCommand(), newDemoCommand(), newVersionCommand())
	return root
}

// family is a command that only has subcommands.
func family(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("run '"+cmd.CommandPath()+" --help' for the list", "%s has no command %q", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(subs...)
	return cmd
}

// noArgs refuses words that belong to no flag.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misuse("run '"+cmd.CommandPath()+" --help'", "%q is not expected here", args[0])
	}
	return nil
}

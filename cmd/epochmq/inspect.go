package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/store/checkpoint"
	"github.com/epochmq/epochmq/store/inspect"
	"github.com/epochmq/epochmq/store/mappedfile"
)

// Exit codes of inspect.
const (
	inspectDamaged = 1
	inspectUsage   = 2
)

// inspectExit is an end of inspect with an exit code; the process's main function asks for ExitCode.
type inspectExit struct {
	code int
	err  error // nil: everything was said already
}

func (e *inspectExit) Error() string {
	if e.err == nil {
		return "damage found"
	}
	return e.err.Error()
}
func (e *inspectExit) Unwrap() error { return e.err }
func (e *inspectExit) ExitCode() int { return e.code }

// shownQueues is how many queues a table lists unless all are asked for.
const shownQueues = 30

type inspectFlags struct {
	output string
	kind   string
	logs   string
	all    bool
	opt    inspect.Options
}

func newInspectCommand() *cobra.Command {
	var f inspectFlags
	kinds := make([]string, len(inspect.Kinds))
	for i, k := range inspect.Kinds {
		kinds[i] = string(k)
	}
	cmd := &cobra.Command{
		Use:   "inspect FILE|FOLDER",
		Short: "Check a store, or decode one of its files, without changing anything",
		Long: `Inspect reads a store folder (storePathRootDir) or a single file of one. It verifies checksums, compares
queues and index with the commit log, and says what a start of the broker would do. It changes nothing
and takes no lock, so that it may look at a running broker's folder.

Exit code: 0 sound, 1 damage found, 2 wrong usage or unreadable.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &inspectExit{inspectUsage, fmt.Errorf("inspect wants one file or folder, here are %d; run 'epochmq inspect --help'", len(args))}
			}
			return nil
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args[0])
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &inspectExit{inspectUsage, err} })
	fl := cmd.Flags()
	fl.StringVarP(&f.output, "output", "o", "table", "table or json")
	fl.StringVar(&f.kind, "kind", "", "kind of a single file: "+strings.Join(kinds, ", ")+"; told from its name when absent")
	fl.StringVar(&f.logs, "commitlog", "", "folders of the commit log, separated by commas, when not FOLDER/commitlog")
	fl.Int32Var(&f.opt.Slots, "slots", 0, "maxHashSlotNum of the broker, when not the default")
	fl.Int32Var(&f.opt.Entries, "entries", 0, "maxIndexNum of the broker, when not the default")
	fl.IntVar(&f.opt.Dump, "dump", -1, "items shown of each file; by default 20 of a single file and none of a folder")
	fl.IntVar(&f.opt.Limit, "limit", 100, "findings shown")
	fl.BoolVarP(&f.all, "all", "a", false, "list every queue")
	return cmd
}

func (f *inspectFlags) run(cmd *cobra.Command, path string) error {
	if f.output != "table" && f.output != "json" {
		return &inspectExit{inspectUsage, fmt.Errorf("output %q: use table or json", f.output)}
	}
	opt := f.opt
	opt.Kind = inspect.Kind(f.kind)
	if f.kind != "" && !slices.Contains(inspect.Kinds, opt.Kind) {
		return &inspectExit{inspectUsage, fmt.Errorf("kind %q is unknown; see 'epochmq inspect --help' for the kinds", f.kind)}
	}
	if f.logs != "" {
		opt.LogDirs = strings.Split(f.logs, ",")
	}
	logs := opt.LogDirs
	if len(logs) == 0 {
		logs = []string{filepath.Join(path, "commitlog")}
	}
	opt.BootID = checkpoint.BootID(append([]string{path}, logs...)...)
	if opt.Dump < 0 {
		opt.Dump = 20
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			opt.Dump = 0
		}
	}
	stderr := cmd.ErrOrStderr()
	if isatty.IsTerminal(os.Stderr.Fd()) && stderr == io.Writer(os.Stderr) {
		opt.Progress = showProgress(stderr)
	}
	rep, err := inspect.Path(mappedfile.OS, path, opt)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = advise(err, "give a store folder (storePathRootDir) or a file of one that you may read")
	}
	if err != nil {
		return &inspectExit{inspectUsage, err}
	}
	out := cmd.OutOrStdout()
	if f.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		err = printReport(out, rep, f.all)
	}
	if err != nil {
		return err
	}
	if !rep.Sound {
		return &inspectExit{code: inspectDamaged}
	}
	return nil
}

// showProgress says once in two seconds how far the log is read.
func showProgress(w io.Writer) func(done, total int64) {
	next := time.Now().Add(2 * time.Second)
	shown := false
	return func(done, total int64) {
		now := time.Now()
		if done == total && shown {
			fmt.Fprint(w, "\r\x1b[K")
		}
		if now.Before(next) || done == total {
			return
		}
		next, shown = now.Add(2*time.Second), true
		fmt.Fprintf(w, "\r%d of %d MB of the log read", done>>20, total>>20)
	}
}

func printReport(w io.Writer, rep *inspect.Report, all bool) error {
	p := &printer{w: w}
	p.line("%s: %s", rep.Path, rep.Kind)
	if rep.Live {
		p.line("a broker is running on it")
	}
	if l := rep.Log; l != nil {
		p.line("log: %d segments of %d bytes, offsets %d to %d, %d records, stored %s to %s", l.Segments, l.SegmentSize, l.Min, l.End, l.Records,
			clock(l.FirstTime), clock(l.LastTime))
	}
	p.files(rep.Files, all)
	p.rows(rep.Rows)
	if len(rep.Recovery) > 0 {
		p.line("\nwhat a start would do:")
		for i, s := range rep.Recovery {
			p.line("%3d. %s", i+1, s)
		}
	}
	p.findings(rep)
	if rep.Sound {
		p.line("\nsound")
	} else {
		p.line("\nDAMAGED")
	}
	return p.err
}

// printer keeps the first error of its writer.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// table prints rows under a head, columns aligned.
func (p *printer) table(head []any, rows [][]any) {
	p.line("")
	if p.err != nil {
		return
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]any{head}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = printable(fmt.Sprint(c))
		}
		if _, p.err = fmt.Fprintln(t, strings.Join(cells, "\t")); p.err != nil {
			return
		}
	}
	p.err = t.Flush()
}

// printable keeps what comes from damaged bytes from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '.'
	}, s)
}

// files prints one table for the queues and one for everything else.
func (p *printer) files(files []inspect.File, all bool) {
	var other, queues [][]any
	more := 0
	for _, f := range files {
		if f.Kind != inspect.KindQueue || len(files) == 1 {
			other = append(other, []any{f.Kind, f.Path, f.Size, fieldText(f.Fields)})
			continue
		}
		if !all && len(queues) >= shownQueues {
			more++
			continue
		}
		row := []any{}
		for _, x := range f.Fields {
			row = append(row, x.Value)
		}
		queues = append(queues, row)
	}
	if len(other) > 0 {
		p.table([]any{"kind", "file", "bytes", "content"}, other)
	}
	if len(queues) > 0 {
		p.table([]any{"queue", "min", "max", "units", "log end", "files"}, queues)
	}
	if more > 0 {
		p.line("… and %d queues more (-a lists them)", more)
	}
}

func fieldText(fields inspect.Fields) string {
	parts := make([]string, len(fields))
	for i, x := range fields {
		parts[i] = fmt.Sprintf("%s=%v", x.Name, x.Value)
	}
	return strings.Join(parts, " ")
}

// rows prints a table for each run of rows with the same columns.
func (p *printer) rows(rows []inspect.Row) {
	for len(rows) > 0 {
		head, n := columns(rows[0]), 1
		for n < len(rows) && rows[n].File == rows[0].File && columns(rows[n]) == head {
			n++
		}
		var title []any
		for _, x := range rows[0].Fields {
			title = append(title, x.Name)
		}
		var body [][]any
		for _, r := range rows[:n] {
			var row []any
			for _, x := range r.Fields {
				row = append(row, x.Value)
			}
			body = append(body, row)
		}
		p.line("\n%s", rows[0].File)
		p.table(title, body)
		rows = rows[n:]
	}
}

func columns(r inspect.Row) string {
	names := make([]string, len(r.Fields))
	for i, x := range r.Fields {
		names[i] = x.Name
	}
	return strings.Join(names, " ")
}

func (p *printer) findings(rep *inspect.Report) {
	var rows [][]any
	for _, f := range rep.Findings {
		at := "-"
		if f.Offset >= 0 {
			at = fmt.Sprint(f.Offset)
		}
		rows = append(rows, []any{f.Severity, f.File, at, f.Text})
	}
	if len(rows) > 0 {
		p.table([]any{"", "file", "byte", "finding"}, rows)
	}
	if rep.Omitted > 0 {
		p.line("… and %d findings more (--limit shows more)", rep.Omitted)
	}
}

func clock(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).Format(time.RFC3339)
}

// Driver is a load generator that speaks the remoting protocol by itself, without a client library. It starts the floor
// server and the broker, drives both in interleaved pairs within one run, and prints rates, the ratio of each pair and the
// CPU time that a message costs in the server. A ratio is the result; rates depend on the machine and its neighbours.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type options struct {
	broker   string
	floor    string
	peers    []string
	rounds   int
	length   time.Duration
	size     int
	only     string
	dir      string
	out      string
	keepLogs bool
}

func main() {
	var o options
	smoke := flag.Bool("smoke", false, "one short round: checks that everything answers, judges no speed")
	flag.StringVar(&o.broker, "broker", "bin/epochmq", "binary of the broker; empty: floor and -peer only")
	flag.StringVar(&o.floor, "floor", "", "binary of the floor; empty: it is built with go build")
	flag.Func("peer", "name=host:port[,pid] of a server that runs already; may be repeated", func(s string) error {
		o.peers = append(o.peers, s)
		return nil
	})
	flag.IntVar(&o.rounds, "rounds", 5, "pairs per scenario")
	flag.DurationVar(&o.length, "time", 3*time.Second, "length of one run")
	flag.IntVar(&o.size, "size", 1024, "body of a message in bytes")
	flag.StringVar(&o.only, "only", "", "run scenarios whose name contains this")
	flag.StringVar(&o.dir, "dir", "", "folder for the stores; empty: the system's temporary folder")
	flag.StringVar(&o.out, "out", "", "file to which one JSON line per run is appended")
	flag.BoolVar(&o.keepLogs, "v", false, "show what the servers print")
	flag.Parse()
	if *smoke {
		o.rounds, o.length = 1, 300*time.Millisecond
	}
	if err := drive(o); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// result is one run of one server in one scenario.
type result struct {
	Scenario  string  `json:"scenario"`
	Server    string  `json:"server"`
	Round     int     `json:"round"`
	Seconds   float64 `json:"seconds"`
	Messages  int64   `json:"messages"`
	PerSecond float64 `json:"msgPerSecond"`
	CPU       float64 `json:"serverMicrosPerMsg"` // 0: unknown
	P50       float64 `json:"p50Micros"`          // 0: not measured
	P99       float64 `json:"p99Micros"`
	Failed    int64   `json:"failed"`
	Foreign   float64 `json:"foreignCores"` // CPU of other processes
	Sync      float64 `json:"fdatasyncMicros"`
	Body      int     `json:"bodyBytes"`
}

func drive(o options) error {
	tmp, err := os.MkdirTemp(o.dir, "epochmq-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if o.floor == "" {
		o.floor = filepath.Join(tmp, "floor")
		if err := build(o.floor); err != nil {
			return err
		}
	}
	fmt.Printf("%d CPUs, %s, body %d bytes, %d rounds of %s, load average %s\n\n", runtime.NumCPU(), kernel(), o.size, o.rounds, o.length, loadAverage())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tserver\tmsg/s\t[min - max]\tx floor\t[min - max]\tCPU us/msg\tp50 us\tp99 us\tfailed\tforeign\t")
	var all []result
	for _, s := range scenarios {
		if !strings.Contains(s.name, o.only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", s.name)
		rs, err := measure(o, s, tmp)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, rs...)
		report(w, s, rs)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("\nx floor: this server's rate divided by the floor's in the same pair, median of the pairs. foreign: cores used by other processes.")
	return save(o.out, all)
}

func measure(o options, s scenario, tmp string) ([]result, error) {
	dir, err := os.MkdirTemp(tmp, "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	servers, err := startAll(o, s, dir)
	defer func() {
		for _, sv := range servers {
			sv.stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, sv := range servers {
		if err := s.prepare(sv.addr, o.size); err != nil {
			return nil, fmt.Errorf("%s: %w", sv.name, err)
		}
		if _, err := s.run(sv, o.size, o.length/2); err != nil {
			return nil, fmt.Errorf("%s: %w", sv.name, err)
		}
	}
	var rs []result
	for round := range o.rounds {
		for _, i := range rand.Perm(len(servers)) {
			sync := probeSync(dir)
			r, err := s.run(servers[i], o.size, o.length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", servers[i].name, err)
			}
			r.Round, r.Sync = round, sync
			rs = append(rs, r)
		}
	}
	return rs, nil
}

func report(w *tabwriter.Writer, s scenario, rs []result) {
	var names []string
	base := map[int]float64{}
	for _, r := range rs {
		if !slices.Contains(names, r.Server) {
			names = append(names, r.Server)
		}
		if r.Server == floorName {
			base[r.Round] = r.PerSecond
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var rate, ratio, cpu, p50, p99, foreign []float64
		var failed int64
		for _, r := range rs {
			if r.Server != name {
				continue
			}
			rate, cpu = append(rate, r.PerSecond), append(cpu, r.CPU)
			p50, p99, foreign = append(p50, r.P50), append(p99, r.P99), append(foreign, r.Foreign)
			failed += r.Failed
			if b := base[r.Round]; b > 0 {
				ratio = append(ratio, r.PerSecond/b)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t[%.0f - %.0f]\t%s\t%s\t%.2f\t%s\t%s\t%d\t%.2f\t\n", s.name, name,
			median(rate), slices.Min(rate), slices.Max(rate), number(median(ratio), "%.2f"), span(ratio),
			median(cpu), number(median(p50), "%.0f"), number(median(p99), "%.0f"), failed, slices.Max(foreign))
	}
}

func number(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func span(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("[%.2f - %.2f]", slices.Min(v), slices.Max(v))
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func save(name string, rs []result) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	for _, r := range rs {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return f.Close()
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/admin"
	"github.com/epochmq/epochmq/message"
)

const (
	demoTopic    = "demo-lines"
	demoGroup    = "demo-readers"
	demoQueues   = 8
	demoInFlight = 256 // sends without an answer, so that the kill hits some
	demoMaxLine  = 4 << 20
	demoPatience = 30 * time.Second // without any progress
)

// demoOptions are the flags of demo.
type demoOptions struct {
	file      string
	consumers int
	flush     string
	noKill    bool
	keep      bool
	output    string
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Produce a text file, consume it, kill the broker on the way, and compare",
		Long: `Start a server process on free ports in a temporary folder, produce every line of a text file, consume the lines with a group, kill the
server with SIGKILL once half of the lines are acknowledged, start it again, and compare what was received with what was acknowledged.

Exit codes: 0 nothing that was acknowledged is missing, 1 something is, 2 wrong usage.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text", "json"); err != nil {
				return err
			}
			if o.file == "" {
				return misuse("give one with --file", "no text file")
			}
			if o.consumers < 1 || o.consumers > 64 {
				return misuse("choose 1 to 64", "%d consumers", o.consumers)
			}
			return runDemo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.file, "file", "", "text file to produce, of any size")
	fl.IntVar(&o.consumers, "consumers", 3, "members of the group")
	fl.StringVar(&o.flush, "flush", "ASYNC_FLUSH", "flushDiskType of the broker: ASYNC_FLUSH or SYNC_FLUSH")
	fl.BoolVar(&o.noKill, "no-kill", false, "let the broker live")
	fl.BoolVar(&o.keep, "keep", false, "keep the data folder and say where it is")
	fl.StringVarP(&o.output, "output", "o", "text", "text, or json for one line with the figures")
	return cmd
}

// demoReport is what a run found. Times are in milliseconds.
type demoReport struct {
	Lines           int     `json:"lines"`
	Acknowledged    int     `json:"acknowledged"`
	Repeated        int     `json:"sendsRepeated"`
	Received        int     `json:"received"` // different lines
	Lost            int     `json:"lost"`     // acknowledged and not received
	Duplicated      int     `json:"duplicated"`
	OutOfOrder      int     `json:"outOfOrder"`
	Seconds         float64 `json:"seconds"`
	LinesPerSecond  float64 `json:"linesPerSecond"`
	AckP50          float64 `json:"ackP50Ms"`
	AckP99          float64 `json:"ackP99Ms"`
	AckMax          float64 `json:"ackMaxMs"`
	DeliverP50      float64 `json:"deliverP50Ms"`
	DeliverP99      float64 `json:"deliverP99Ms"`
	Killed          bool    `json:"killed"`
	KilledAt        int     `json:"killedAtAcknowledged"`
	RestartReady    float64 `json:"restartReadyMs"`
	RestartFirstAck float64 `json:"restartFirstAckMs"`
	Durability      string  `json:"durability"`
}

// demoBook keeps what happened to every line. Line numbers start at 0.
type demoBook struct {
	mu        sync.Mutex
	acked     []bool
	received  []uint8
	nAcked    int
	nReceived int
	repeated  int
	doubles   int
	disorder  int
	newest    map[client.Queue]int64 // newest queue offset seen first
	ack       *hdrhistogram.Histogram
	deliver   *hdrhistogram.Histogram
	progress  time.Time
	killAt    int
	reached   chan struct{} // closed when killAt lines are acknowledged
	killed    time.Time
	firstAck  time.Time // after the kill
	restarted time.Time // instant at which the killed server was started again
	allAcked  chan struct{}
	complete  chan struct{} // every line was acknowledged and received
}

func newDemoBook(lines int) *demoBook {
	return &demoBook{acked: make([]bool, lines), received: make([]uint8, lines), newest: map[client.Queue]int64{},
		ack: hdrhistogram.New(1, 600_000_000, 3), deliver: hdrhistogram.New(1, 600_000_000, 3), progress: time.Now(),
		killAt: lines / 2, reached: make(chan struct{}), allAcked: make(chan struct{}), complete: make(chan struct{})}
}

// acknowledged notes that a line is stored.
func (b *demoBook) acknowledged(line int, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.acked[line] {
		return
	}
	b.acked[line] = true
	b.nAcked++
	b.progress = now
	_ = b.ack.RecordValue(max(now.Sub(sent).Microseconds(), 1)) // above ten minutes it does not matter
	if !b.restarted.IsZero() && b.firstAck.IsZero() {
		b.firstAck = now
	}
	if b.nAcked == b.killAt {
		close(b.reached)
	}
	if b.nAcked == len(b.acked) {
		close(b.allAcked)
	}
	b.completeLocked()
}

func (b *demoBook) completeLocked() {
	if b.nAcked == len(b.acked) && b.nReceived == len(b.acked) {
		select {
		case <-b.complete:
		default:
			close(b.complete)
		}
	}
}

// again counts sends that were repeated.
func (b *demoBook) again(n int) {
	if n <= 0 {
		return
	}
	b.mu.Lock()
	b.repeated += n
	b.mu.Unlock()
}

// got notes that a consumer was handed a line.
func (b *demoBook) got(line int, m *client.Received) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress = time.Now()
	if b.received[line] > 0 {
		b.doubles++
		if b.received[line] < 255 {
			b.received[line]++
		}
		return
	}
	b.received[line] = 1
	b.nReceived++
	_ = b.deliver.RecordValue(max(time.Since(m.StoreTime).Microseconds(), 1))
	if last, ok := b.newest[m.Queue]; ok && m.QueueOffset < last {
		b.disorder++
	} else {
		b.newest[m.Queue] = m.QueueOffset
	}
	b.completeLocked()
}

// idle tells how long nothing has happened.
func (b *demoBook) idle() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.progress)
}

func (b *demoBook) report(began time.Time) demoReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	ms := func(h *hdrhistogram.Histogram, q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	took := time.Since(began).Seconds()
	r := demoReport{Lines: len(b.acked), Acknowledged: b.nAcked, Repeated: b.repeated, Received: b.nReceived, Duplicated: b.doubles, OutOfOrder: b.disorder,
		Seconds: took, LinesPerSecond: float64(b.nAcked) / took, AckP50: ms(b.ack, 50), AckP99: ms(b.ack, 99), AckMax: float64(b.ack.Max()) / 1000,
		DeliverP50: ms(b.deliver, 50), DeliverP99: ms(b.deliver, 99)}
	for i, ok := range b.acked {
		if ok && b.received[i] == 0 {
			r.Lost++
		}
	}
	if !b.firstAck.IsZero() {
		r.RestartFirstAck = float64(b.firstAck.Sub(b.restarted).Microseconds()) / 1000
	}
	return r
}

func tooLong(line int, file string) error {
	return advise(fmt.Errorf("line %d of %s is longer than %d bytes, the limit of a message", line+1, file, demoMaxLine), "give a file of shorter lines with --file")
}

func runDemo(ctx context.Context, o demoOptions, out, progress io.Writer) (err error) {
	lines, size, err := countLines(o.file)
	if errors.As(err, new(*failure)) {
		return err
	}
	if err != nil {
		return advise(err, "give a readable text file with --file")
	}
	if lines == 0 {
		return misuse("give another with --file", "%s has no line", o.file)
	}
	dir, err := os.MkdirTemp("", "epochmq-demo")
	if err != nil {
		return advise(err, "name a folder that you may write in the environment variable TMPDIR")
	}
	if o.keep {
		fmt.Fprintln(progress, "data folder:", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	srv := &demoServer{dir: dir, flush: o.flush}
	if err := srv.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	say("server ready in %d ms: name server %s, broker %s, %s", srv.info.ReadyMS, srv.info.Namesrv, srv.info.Broker, srv.info.Durability)
	say("producing %d lines (%.1f MB) of %s, consuming with a group of %d", lines, float64(size)/1e6, filepath.Base(o.file), o.consumers)

	book := newDemoBook(lines)
	began := time.Now()
	var report demoReport
	report, err = driveDemo(ctx, o, srv, book, say, began)
	report.Durability = srv.info.Durability
	if perr := report.print(out, o.output); perr != nil {
		return errors.Join(err, perr)
	}
	if err != nil {
		return err
	}
	if report.Lost > 0 || report.Acknowledged < report.Lines {
		return fmt.Errorf("%d acknowledged lines are missing, %d were not acknowledged", report.Lost, report.Lines-report.Acknowledged)
	}
	return nil
}

// driveDemo runs producer, consumers and the kill, and waits until every line came back or nothing happens any more.
func driveDemo(ctx context.Context, o demoOptions, srv *demoServer, book *demoBook, say func(string, ...any), began time.Time) (demoReport, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler) // the kill is meant: reconnects are not news
	c, err := client.New(client.Config{NameServers: []string{srv.info.Namesrv}, Logger: quiet})
	if err != nil {
		return demoReport{}, err
	}
	defer c.Close()
	p, err := client.NewProducer(c, client.ProducerConfig{Group: "demo-writer", MaxInFlight: demoInFlight, DeliveryTimeout: time.Minute})
	if err != nil {
		return demoReport{}, err
	}
	if err := admin.New(c).PutTopic(ctx, admin.Target{Addr: srv.info.Broker}, admin.NewTopic(demoTopic, demoQueues)); err != nil {
		return demoReport{}, fmt.Errorf("create topic %s: %w", demoTopic, err)
	}
	stopConsumers, err := consumeDemo(ctx, o.consumers, srv.info.Namesrv, quiet, book)
	if err != nil {
		return demoReport{}, err
	}
	var wg sync.WaitGroup
	failed := make(chan error, 2)
	began = time.Now()
	wg.Go(func() {
		if err := produceDemo(ctx, p, o.file, book); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	killed, killedAt, ready := false, 0, time.Duration(0)
	if !o.noKill {
		wg.Go(func() {
			select {
			case <-book.reached:
			case <-ctx.Done():
				return
			}
			at, took, err := srv.killAndRestart(book)
			if err != nil {
				failed <- err
				return
			}
			killed, killedAt, ready = true, at, took
			say("killed with SIGKILL after %d acknowledged lines, started again: ready in %d ms", at, took.Milliseconds())
		})
	}
	err = awaitDemo(ctx, book, failed)
	report := book.report(began)
	cancel()
	stopConsumers()
	wg.Wait()
	closing, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	if cerr := p.Close(closing); cerr != nil && err == nil && report.Lost > 0 {
		err = cerr
	}
	report.Killed, report.KilledAt, report.RestartReady = killed, killedAt, float64(ready.Microseconds())/1000
	return report, err
}

// awaitDemo returns when every line is acknowledged and received, a part failed, or nothing has happened for a while.
func awaitDemo(ctx context.Context, book *demoBook, failed <-chan error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-book.complete:
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if book.idle() > demoPatience {
				return nil // the report shows what is missing
			}
		}
	}
}

// produceDemo sends every line of a file, again and again until it is acknowledged.
func produceDemo(ctx context.Context, p *client.Producer, file string, book *demoBook) error {
	again := make(chan func(), 2*demoInFlight)
	send := func(line int, body []byte) error {
		sent := time.Now()
		m := &client.Message{Topic: demoTopic, Body: body, Keys: []string{strconv.Itoa(line)}}
		var done func(client.Result, error)
		done = func(r client.Result, err error) {
			if err == nil {
				book.again(r.Attempts - 1)
				book.acknowledged(line, sent)
				return
			}
			book.again(1)
			// Not from here: this is the connection's goroutine.
			retry := func() {
				if err := p.SendAsync(ctx, m, done); err != nil && ctx.Err() == nil {
					done(client.Result{}, err)
				}
			}
			select {
			case again <- retry:
			case <-ctx.Done():
			}
		}
		if err := p.SendAsync(ctx, m, done); err != nil {
			done(client.Result{}, err)
		}
		return ctx.Err()
	}
	err := eachDemoLine(file, func(line int, body []byte) error {
		for {
			select {
			case retry := <-again:
				retry()
				continue
			default:
			}
			return send(line, bytes.Clone(body))
		}
	})
	if err != nil {
		return err
	}
	for {
		select {
		case retry := <-again:
			retry()
		case <-book.allAcked:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// consumeDemo starts the members of the group, each with connections of its own.
func consumeDemo(ctx context.Context, n int, namesrv string, log *slog.Logger, book *demoBook) (stop func(), err error) {
	var clients []*client.Client
	var consumers []*client.Consumer
	stop = func() {
		closing, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		for _, c := range consumers {
			if err := c.Close(closing); err != nil {
				log.Warn("close a consumer", "error", err)
			}
		}
		for _, c := range clients {
			if err := c.Close(); err != nil {
				log.Warn("close a client", "error", err)
			}
		}
	}
	for i := 0; i < n; i++ {
		c, err := client.New(client.Config{NameServers: []string{namesrv}, Name: "demo-" + strconv.Itoa(i), Logger: log})
		if err != nil {
			stop()
			return nil, err
		}
		clients = append(clients, c)
		m, err := client.NewConsumer(c, client.ConsumerConfig{Group: demoGroup, Subscriptions: map[string]string{demoTopic: "*"}, From: client.FromFirst, Workers: 1, BatchSize: 32},
			func(_ context.Context, ms []*client.Received) error {
				for _, m := range ms {
					line, err := strconv.Atoi(m.Property(message.PropKeys))
					if err != nil || line < 0 || line >= len(book.acked) {
						return fmt.Errorf("line number %q: %w", m.Property(message.PropKeys), err)
					}
					book.got(line, m)
				}
				return nil
			})
		if err != nil {
			stop()
			return nil, err
		}
		consumers = append(consumers, m)
		if err := m.Start(ctx); err != nil {
			stop()
			return nil, fmt.Errorf("start consumer %d: %w", i, err)
		}
	}
	// The members share the queues out among themselves; until then there is nothing to measure.
	for end := time.Now().Add(demoPatience); shares(consumers) < demoQueues && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(2 * time.Millisecond)
	}
	return stop, ctx.Err()
}

// shares returns how many queues have a consumer; 0 while a member has none although there are enough.
func shares(consumers []*client.Consumer) (n int) {
	for _, c := range consumers {
		mine := len(c.Queues())
		if mine == 0 && len(consumers) <= demoQueues {
			return 0
		}
		n += mine
	}
	return n
}

// demoServer is the server process of a demo.
type demoServer struct {
	dir   string
	flush string
	info  devInfo

	cmd    *exec.Cmd
	stderr *bytes.Buffer
	gone   chan error // the process's end
}

// start runs `epochmq dev` on free ports, or on the ports it had before, and returns once it is ready.
func (s *demoServer) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ns, br := "0", "0"
	if s.info.Namesrv != "" {
		if _, ns, err = net.SplitHostPort(s.info.Namesrv); err != nil {
			return err
		}
		if _, br, err = net.SplitHostPort(s.info.Broker); err != nil {
			return err
		}
	}
	s.cmd = exec.Command(self, "dev", "--data", s.dir, "--namesrv-port", ns, "--broker-port", br, "--set", "flushDiskType="+s.flush, "-o", "json")
	s.stderr = &bytes.Buffer{}
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	line, rerr := bufio.NewReader(out).ReadBytes('\n')
	s.gone = make(chan error, 1)
	go func(c *exec.Cmd, gone chan error) { gone <- c.Wait() }(s.cmd, s.gone)
	if rerr != nil {
		return fmt.Errorf("the server did not start: %w: %s", <-s.gone, oneLine(s.stderr.String()))
	}
	if err := json.Unmarshal(line, &s.info); err != nil {
		return errors.Join(fmt.Errorf("the server says %q: %w", line, err), s.stop())
	}
	return nil
}

// killAndRestart ends the process without a warning and starts it again. It returns how many lines were acknowledged at the kill and how
// long the new process took to be ready.
func (s *demoServer) killAndRestart(book *demoBook) (acked int, ready time.Duration, err error) {
	if err := s.cmd.Process.Kill(); err != nil {
		return 0, 0, fmt.Errorf("kill the server: %w", err)
	}
	<-s.gone
	book.mu.Lock()
	acked = book.nAcked
	book.killed = time.Now()
	book.restarted = book.killed
	book.mu.Unlock()
	begun := time.Now()
	if err := s.start(); err != nil {
		return acked, 0, err
	}
	return acked, time.Since(begun), nil
}

// stop ends the process in good order, by force when that takes too long.
func (s *demoServer) stop() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(os.Interrupt) // an error says that it has ended already
	select {
	case err := <-s.gone:
		if err != nil {
			return fmt.Errorf("the server ended with an error: %w: %s", err, oneLine(s.stderr.String()))
		}
		return nil
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.gone
		return fmt.Errorf("the server did not stop within %s and was killed", stopTimeout)
	}
}

// eachDemoLine calls fn with every line of a file, with its line break. The bytes are valid during the call.
func eachDemoLine(file string, fn func(line int, body []byte) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var long []byte
	for n := 0; ; {
		part, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > demoMaxLine {
				return tooLong(n, file)
			}
			continue
		case err != nil && err != io.EOF:
			return err
		}
		body := part
		if len(long) > 0 {
			long = append(long, part...)
			body = long
		}
		if len(body) > demoMaxLine {
			return tooLong(n, file)
		}
		if len(body) > 0 {
			if ferr := fn(n, body); ferr != nil {
				return ferr
			}
			n++
		}
		long = long[:0]
		if err == io.EOF {
			return nil
		}
	}
}

func countLines(file string) (lines int, size int64, err error) {
	err = eachDemoLine(file, func(_ int, body []byte) error {
		lines++
		size += int64(len(body))
		return nil
	})
	return lines, size, err
}

func (r *demoReport) print(w io.Writer, form string) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("sent", "%d lines, %d sends repeated", r.Lines, r.Repeated)
	row("acknowledged", "%d", r.Acknowledged)
	row("received", "%d", r.Received)
	row("lost", "%d", r.Lost)
	row("duplicated", "%d", r.Duplicated)
	row("out of order", "%d", r.OutOfOrder)
	row("rate", "%.0f lines/s over %.2f s, the kill included", r.LinesPerSecond, r.Seconds)
	row("send to acknowledgement", "p50 %.2f ms, p99 %.1f ms, longest %.1f ms", r.AckP50, r.AckP99, r.AckMax)
	row("stored to received", "p50 %.2f ms, p99 %.1f ms", r.DeliverP50, r.DeliverP99)
	if r.Killed {
		row("broker killed", "SIGKILL after %d acknowledged lines", r.KilledAt)
		row("restart", "ready after %.0f ms, first acknowledgement after %.0f ms", r.RestartReady, r.RestartFirstAck)
	} else {
		row("broker killed", "no")
	}
	row("durability", "%s", r.Durability)
	verdict := "PASS: every acknowledged line was received"
	if r.Lost > 0 || r.Acknowledged < r.Lines {
		verdict = "FAIL"
	}
	row("verdict", "%s", verdict)
	return t.Flush()
}

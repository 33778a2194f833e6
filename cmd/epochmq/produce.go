package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/epochmq/epochmq/client"
)

// maxLine is the longest line that is sent.
const maxLine = 4 << 20

// produceFlags are the flags of produce.
type produceFlags struct {
	clientFlags
	topic, group, tag, delimiter, compression, output string
	batch, inFlight                                   int
	perSecond                                         float64
	ordered, keepGoing, acks, quiet                   bool
	delivery                                          time.Duration
}

func newProduceCommand() *cobra.Command {
	var f produceFlags
	cmd := &cobra.Command{
		Use:   "produce -t TOPIC [FILE...]",
		Short: "Send each line of files or of standard input as a message",
		Long: `Send each line of the files, or of standard input, as one message. Empty lines are passed over: a message has a body.
It ends once every line is acknowledged, with a summary on standard error.

Exit code: 1 when a line was not acknowledged; what was not sent any more is counted too.`,
		Example: `  seq 1 1000 | epochmq produce -t numbers
  epochmq produce -t orders --key-delimiter ';' --ordered orders.csv`,
		RunE: func(cmd *cobra.Command, files []string) error { return f.explain(f.run(cmd, files)) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.topic, "topic", "t", "", "topic, created by the first message unless the broker forbids it")
	fl.StringVar(&f.group, "producer-group", "epochmq_produce", "producer group")
	fl.StringVar(&f.tag, "tag", "", "tag of all messages")
	fl.StringVar(&f.delimiter, "key-delimiter", "", "what stands before it in a line is the message's key, what follows is its body")
	fl.BoolVar(&f.ordered, "ordered", false, "send lines of the same key, or all if there are no keys, to one queue in their order")
	fl.IntVar(&f.batch, "batch", 1, "send up to so many lines as one request; all of them go to one queue")
	fl.StringVar(&f.compression, "compression", "none", "of bodies above 4096 bytes: none, zlib, lz4, zstd")
	fl.Float64Var(&f.perSecond, "rate", 0, "lines per second, 0 for no limit")
	fl.IntVar(&f.inFlight, "in-flight", 512, "requests that wait for their answer at the same time")
	fl.DurationVar(&f.delivery, "delivery-timeout", 30*time.Second, "try so long to send a message before it counts as not acknowledged")
	fl.BoolVar(&f.keepGoing, "keep-going", false, "do not stop at the first line that is not acknowledged")
	fl.BoolVar(&f.acks, "acks", false, "print the place of each acknowledged line, topic/queue@offset, as answers come")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no summary")
	fl.StringVarP(&f.output, "output", "o", "text", "summary as text on standard error, or as json on standard output")
	return cmd
}

func (f *produceFlags) check(cmd *cobra.Command) (client.Compression, error) {
	if err := checkTopic(cmd, f.topic); err != nil {
		return 0, err
	}
	if err := checkOutput(f.output, "text", "json"); err != nil {
		return 0, err
	}
	codec, ok := client.ParseCompression(f.compression)
	switch {
	case !ok:
		return 0, misuse("use none, zlib, lz4 or zstd", "compression %q is unknown", f.compression)
	case f.batch < 1 || f.batch > 10000:
		return 0, misuse("use 1 to 10000", "--batch %d is out of range", f.batch)
	case f.inFlight < 1 || f.inFlight > 100000:
		return 0, misuse("use 1 to 100000", "--in-flight %d is out of range", f.inFlight)
	case f.batch > 1 && f.ordered && f.delimiter != "":
		return 0, misuse("leave one of them out", "--ordered by key and --batch exclude each other: a batch goes to one queue")
	}
	return codec, nil
}

func (f *produceFlags) run(cmd *cobra.Command, files []string) error {
	codec, err := f.check(cmd)
	if err != nil {
		return err
	}
	c, info, err := f.connect(cmd)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	if len(masters(info, "")) == 0 {
		return advise(fmt.Errorf("no broker is registered at name server %s", f.nameServers), "start one with 'epochmq broker -n %s'", f.nameServers)
	}
	p, err := client.NewProducer(c, client.ProducerConfig{Group: f.group, Timeout: f.timeout, DeliveryTimeout: f.delivery,
		MaxInFlight: f.inFlight, Compression: codec, MaxMessageSize: maxLine})
	if err != nil {
		return misuse("choose another --producer-group", "%w", err)
	}
	if r, err := c.Route(cmd.Context(), f.topic); err == nil && len(r.Write) == 0 {
		return advise(fmt.Errorf("topic %s takes no messages: no broker lets it be written", f.topic), "'epochmq topic create -t %s --perm rw' changes that", f.topic)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	s := &sender{f: f, p: p, out: cmd.OutOrStdout(), stop: cancel, begun: time.Now(), ends: map[client.Queue]int64{}}
	if f.perSecond > 0 {
		s.limit = rate.NewLimiter(rate.Limit(f.perSecond), max(1, int(f.perSecond/10)))
	}
	bar := startProgress(cmd.ErrOrStderr(), f.quiet, s.progress)
	err = s.sendAll(ctx, files, cmd.InOrStdin())
	closing, end := context.WithTimeout(context.WithoutCancel(ctx), f.delivery+time.Second)
	defer end()
	cerr := p.Close(closing)
	s.wg.Wait()
	took := time.Since(s.begun)
	s.awaitReadable(cmd.Context(), c)
	bar.close()
	if err == nil {
		err = cerr
	}
	return s.finish(cmd, took, err)
}

// sender sends lines and counts what becomes of them.
type sender struct {
	f     *produceFlags
	p     *client.Producer
	limit *rate.Limiter
	begun time.Time
	stop  func() // ends reading

	lines, empty, bytes int64 // of the reading goroutine
	sent, acked, failed atomic.Int64
	wg                  sync.WaitGroup // messages in flight

	mu    sync.Mutex
	ends  map[client.Queue]int64 // guarded by mu: behind the last acknowledged message
	out   io.Writer              // guarded by mu
	first error                  // guarded by mu: of the line that failed first
	werr  error                  // guarded by mu: of out
}

// readableTimeout bounds awaitReadable.
const readableTimeout = 3 * time.Second

// awaitReadable waits until what was acknowledged can be read: brokers let consumers see a message, and name servers learn of a new topic,
// a moment after the answer. Whoever reads the topic to its end after this command finds every line.
func (s *sender) awaitReadable(ctx context.Context, c *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, readableTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock() // nothing is in flight any more
	for q, end := range s.ends {
		for {
			most, err := c.MaxOffset(ctx, q)
			if err == nil && most >= end {
				break
			}
			if err != nil { // the route at hand is of before the topic was created at this broker
				_, _ = c.RefreshRoute(ctx, q.Topic, time.Time{})
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
}

// acknowledged counts n messages from a place on.
func (s *sender) acknowledged(r client.Result, n int) {
	s.acked.Add(int64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[r.Queue] = max(s.ends[r.Queue], r.Offset+int64(n))
	for i := range int64(n) {
		if s.f.acks && s.werr == nil {
			_, s.werr = fmt.Fprintf(s.out, "%s/%d@%d\n", r.Queue.Topic, r.Queue.ID, r.Offset+i)
		}
	}
}

// sendAll sends every line of the files, or of stdin when there are none.
func (s *sender) sendAll(ctx context.Context, files []string, stdin io.Reader) error {
	if len(files) == 0 {
		return s.sendLines(ctx, stdin)
	}
	for _, name := range files {
		if name == "-" {
			if err := s.sendLines(ctx, stdin); err != nil {
				return err
			}
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return advise(err, "give readable files, or - for standard input")
		}
		err = s.sendLines(ctx, file)
		_ = file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// sendLines sends the lines of one input. A batch that is not full goes when no line is ready.
func (s *sender) sendLines(ctx context.Context, r io.Reader) error {
	lines, failed := readLines(ctx, r, s.lines+1, maxLine)
	var batch []*client.Message
	var numbers []int64
	size := 0
	flush := func() {
		s.send(ctx, batch, numbers)
		batch, numbers, size = nil, nil, 0
	}
	for {
		l, ok, ready := line{}, false, true
		select {
		case l, ok = <-lines:
		default:
			ready = false
		}
		if !ready {
			flush()
			select {
			case l, ok = <-lines:
			case <-ctx.Done():
			}
		}
		if !ok || ctx.Err() != nil {
			flush()
			select {
			case err := <-failed:
				return advise(fmt.Errorf("read input: %w", err), "what was read before is sent")
			default:
				return nil
			}
		}
		s.lines = l.number
		m := s.message(l)
		if m == nil {
			continue
		}
		if s.limit != nil {
			if err := s.limit.Wait(ctx); err != nil {
				flush()
				return nil // interrupted
			}
		}
		if size += len(m.Body) + 256; size > maxLine && len(batch) > 0 {
			flush()
			size = len(m.Body) + 256
		}
		batch, numbers = append(batch, m), append(numbers, l.number)
		if len(batch) >= s.f.batch {
			flush()
		}
	}
}

// message makes a message of a line; nil when there is nothing to send.
func (s *sender) message(l line) *client.Message {
	m := &client.Message{Topic: s.f.topic, Body: l.text, Tags: s.f.tag}
	if l.long {
		s.note(l.number, 1, fmt.Errorf("longer than %d bytes", maxLine))
		return nil
	}
	if s.f.delimiter != "" {
		if key, body, ok := bytes.Cut(l.text, []byte(s.f.delimiter)); ok {
			m.Body = body
			if k := strings.Fields(string(key)); len(k) > 0 { // RocketMQ separates keys by blanks
				m.Keys = k
			}
		}
	}
	if len(m.Body) == 0 {
		s.empty++
		return nil
	}
	if s.f.ordered {
		if m.ShardKey = strings.Join(m.Keys, " "); m.ShardKey == "" {
			m.ShardKey = s.f.topic
		}
	}
	s.bytes += int64(len(m.Body))
	return m
}

// send sends messages as one request and returns once it is on its way.
func (s *sender) send(ctx context.Context, batch []*client.Message, numbers []int64) {
	if len(batch) == 0 {
		return
	}
	s.sent.Add(int64(len(batch)))
	s.wg.Add(1)
	done := func(r client.Result, err error) {
		defer s.wg.Done()
		if err != nil {
			s.note(numbers[0], len(batch), err)
			return
		}
		s.acknowledged(r, len(batch))
	}
	// What was read is sent also when reading ends: only the delivery timeout gives up.
	ctx = context.WithoutCancel(ctx)
	var err error
	if len(batch) == 1 {
		err = s.p.SendAsync(ctx, batch[0], done)
	} else {
		err = s.p.SendBatchAsync(ctx, batch, done)
	}
	if err != nil {
		done(client.Result{}, err)
	}
}

// note counts lines that were not acknowledged.
func (s *sender) note(number int64, n int, err error) {
	s.failed.Add(int64(n))
	var tried *client.SendError
	if errors.As(err, &tried) && len(tried.Attempts) > 1 {
		err = fmt.Errorf("%w (%d attempts)", tried.Err, len(tried.Attempts))
	}
	s.mu.Lock()
	if s.first == nil {
		s.first = fmt.Errorf("line %d was not acknowledged: %w", number, err)
	}
	s.mu.Unlock()
	if !s.f.keepGoing {
		s.stop()
	}
}

func (s *sender) progress() string {
	n := s.acked.Load()
	return fmt.Sprintf("%d of %d lines acknowledged, %d/s", n, s.sent.Load(), rateOf(n, time.Since(s.begun)))
}

// produceSummary is what produce -o json prints.
type produceSummary struct {
	Topic        string  `json:"topic"`
	Lines        int64   `json:"lines"`
	Empty        int64   `json:"empty"`
	Acknowledged int64   `json:"acknowledged"`
	Failed       int64   `json:"failed"`
	Bytes        int64   `json:"bytes"`
	Seconds      float64 `json:"seconds"`
	PerSecond    int64   `json:"perSecond"`
}

// finish prints the summary and turns lines that were not acknowledged into an error.
func (s *sender) finish(cmd *cobra.Command, took time.Duration, err error) error {
	sum := produceSummary{s.f.topic, s.lines, s.empty, s.acked.Load(), s.failed.Load(), s.bytes, took.Seconds(), rateOf(s.acked.Load(), took)}
	switch {
	case s.f.output == "json":
		if werr := json.NewEncoder(cmd.OutOrStdout()).Encode(sum); err == nil {
			err = werr
		}
	case !s.f.quiet && (s.lines > 0 || err == nil):
		text := fmt.Sprintf("%d lines acknowledged in topic %s%s", sum.Acknowledged, s.f.topic, pace(sum.Acknowledged, took))
		if sum.Empty > 0 {
			text += fmt.Sprintf(", %d empty lines passed over", sum.Empty)
		}
		if sum.Failed > 0 {
			text += fmt.Sprintf(", %d NOT acknowledged", sum.Failed)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.first != nil && s.f.keepGoing:
		return s.first
	case s.first != nil:
		return advise(s.first, "nothing was read behind line %d; --keep-going does not stop", s.lines)
	case err != nil:
		return err
	case cmd.Context().Err() != nil:
		return advise(fmt.Errorf("interrupted after line %d", s.lines), "every line up to there is acknowledged")
	}
	return s.werr
}

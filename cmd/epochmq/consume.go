package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/admin"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// toolsGroup exists on every broker; consume reads under its name when it is given no group.
const toolsGroup = "TOOLS_CONSUMER"

// consumeFlags are the flags of consume.
type consumeFlags struct {
	clientFlags
	topic, group, from, expr, format, output string
	atEnd, quiet                             bool
	max                                      int64
}

func newConsumeCommand() *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume -t TOPIC [-g GROUP]",
		Short: "Print the messages of a topic, as a member of a group or just so",
		Long: `Print the messages of a topic, each as a line, until SIGINT, --max or --exit-at-end.

Without -g all queues are read from --from on (first) and nothing is remembered. With -g the queues are shared with the other
members of the group, and reading goes on where the group is; what was printed counts as consumed. --from moves a group that has
no members; a new group begins at the first message.

Format: ` + formatHelp,
		Example: `  epochmq consume -t numbers --from first --exit-at-end
  epochmq consume -t orders -g billing --format '%p %k %b\n'
  epochmq consume -t orders --from time:10m -o json | jq .body`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.explain(f.run(cmd)) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.topic, "topic", "t", "", "topic")
	fl.StringVarP(&f.group, "group", "g", "", "consumer group to be a member of")
	fl.StringVar(&f.from, "from", "", positionHelp)
	fl.StringVar(&f.expr, "tags", "", "only messages with these tags: 'TagA || TagB'")
	fl.BoolVar(&f.atEnd, "exit-at-end", false, "end once everything is read that was there at the start")
	fl.Int64Var(&f.max, "max", 0, "end after so many messages, 0 for no limit")
	fl.StringVar(&f.format, "format", `%b\n`, "how a message is printed")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no summary")
	fl.StringVarP(&f.output, "output", "o", "text", "text, or json for a line of JSON per message")
	return cmd
}

func (f *consumeFlags) run(cmd *cobra.Command) error {
	if err := checkTopic(cmd, f.topic); err != nil {
		return err
	}
	if err := checkOutput(f.output, "text", "json"); err != nil {
		return err
	}
	format, err := parseFormat(f.format)
	if err != nil {
		return misuse("see --help for what may stand in it", "%w", err)
	}
	var from *position
	if f.from != "" {
		p, err := parsePosition(f.from, time.Now())
		if err != nil {
			return err
		}
		from = &p
	}
	if f.max < 0 {
		return misuse("use a positive number", "--max %d is out of range", f.max)
	}
	c, _, err := f.connect(cmd)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	route, err := f.await(ctx, c, cmd.ErrOrStderr())
	if err != nil {
		return untilInterrupt(cmd, err)
	}
	ends := map[client.Queue]int64{}
	if f.atEnd {
		for _, q := range route.Read {
			if ends[q], err = c.MaxOffset(ctx, q); err != nil {
				return untilInterrupt(cmd, err)
			}
		}
	}
	p := &sink{w: bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10), format: format, json: f.output == "json", max: f.max}
	begun := time.Now()
	bar := startProgress(cmd.ErrOrStderr(), f.quiet, func() string {
		return fmt.Sprintf("%d messages, %d/s", p.count.Load(), rateOf(p.count.Load(), time.Since(begun)))
	})
	if f.group == "" {
		err = f.readAll(ctx, c, route, ends, from, p)
	} else {
		err = f.readGroup(ctx, cmd, c, route, ends, from, p)
	}
	bar.close()
	if errors.Is(err, errEnough) {
		err = nil
	}
	if ferr := p.w.Flush(); err == nil {
		err = ferr
	}
	if !f.quiet && !errors.Is(err, syscall.EPIPE) {
		took := time.Since(begun)
		fmt.Fprintf(cmd.ErrOrStderr(), "%d messages of topic %s%s\n", p.count.Load(), f.topic, pace(p.count.Load(), took))
	}
	return untilInterrupt(cmd, err)
}

// untilInterrupt forgets an error that is only the consequence of a signal, the normal end of reading.
func untilInterrupt(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}

// await returns the route of the topic; unless reading ends at the end it waits for a topic that does not exist yet.
func (f *consumeFlags) await(ctx context.Context, c *client.Client, stderr io.Writer) (*client.Route, error) {
	said := false
	for {
		r, err := c.RefreshRoute(ctx, f.topic, time.Time{})
		var server *client.ServerError
		if err == nil || f.atEnd || !errors.As(err, &server) || server.Code != protocol.TopicNotExist {
			return r, err
		}
		if !said && !f.quiet {
			fmt.Fprintf(stderr, "topic %s does not exist yet; waiting for it\n", f.topic)
			said = true
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errEnough ends reading after --max messages.
var errEnough = errors.New("enough messages")

// sink prints messages. Only count may be used by other goroutines.
type sink struct {
	w      *bufio.Writer
	format formatter
	json   bool
	max    int64
	buf    []byte
	count  atomic.Int64
}

// left is how many messages may still be printed, at most limit.
func (p *sink) left(limit int) int {
	if p.max > 0 {
		return int(min(int64(limit), p.max-p.count.Load()))
	}
	return limit
}

// print writes a message; errEnough with the last one.
func (p *sink) print(m *client.Received) error {
	p.buf = p.buf[:0]
	if p.json {
		var err error
		if p.buf, err = appendJSON(p.buf, m); err != nil {
			return err
		}
	} else {
		p.buf = p.format.append(p.buf, m)
	}
	if _, err := p.w.Write(p.buf); err != nil {
		return err
	}
	if n := p.count.Add(1); p.max > 0 && n >= p.max {
		return errEnough
	}
	return nil
}

// chunk is what one pull brought.
type chunk struct {
	messages []client.Received
	err      error
	ended    bool // this queue is read to its end
}

// pullHold is how long a broker may hold a pull while there is nothing.
const pullHold = 10 * time.Second

// readAll reads every queue without a group. One goroutine per queue pulls, this one prints.
func (f *consumeFlags) readAll(ctx context.Context, c *client.Client, route *client.Route, ends map[client.Queue]int64, from *position, p *sink) error {
	if from == nil {
		from = &position{kind: 'f'}
	}
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan chunk)
	open := 0
	defer func() { // no goroutine outlives the call
		cancel()
		for ; open > 0; open-- {
			for ch := range chunks {
				if ch.ended {
					break
				}
			}
		}
	}()
	for _, q := range route.Read {
		at, err := from.resolve(ctx, c, q)
		if err != nil {
			return err
		}
		end, limited := ends[q]
		if limited && at >= end {
			continue
		}
		if !limited {
			end = -1
		}
		open++
		go f.pullQueue(ctx, c, q, at, end, chunks)
	}
	for open > 0 {
		var ch chunk
		select {
		case ch = <-chunks:
		default: // nothing is ready: show what there is
			if err := p.w.Flush(); err != nil {
				return err
			}
			ch = <-chunks
		}
		if ch.ended {
			open--
		}
		if ch.err != nil {
			return ch.err
		}
		for i := range ch.messages {
			if err := p.print(&ch.messages[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullQueue reads a queue from at to end (-1: for ever) and sends what comes. Its last chunk is the only one with ended set.
func (f *consumeFlags) pullQueue(ctx context.Context, c *client.Client, q client.Queue, at, end int64, out chan<- chunk) {
	failures := 0
	for {
		r, err := c.Pull(ctx, client.PullRequest{Group: toolsGroup, Queue: q, Offset: at, Expr: f.expr, Hold: pullHold, Max: 256})
		switch {
		case ctx.Err() != nil:
			out <- chunk{err: ctx.Err(), ended: true}
			return
		case err != nil:
			if failures++; failures > 5 {
				out <- chunk{err: fmt.Errorf("read %s: %w", q, err), ended: true}
				return
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		failures = 0
		at = r.Next
		for end >= 0 && len(r.Messages) > 0 && r.Messages[len(r.Messages)-1].QueueOffset >= end {
			r.Messages = r.Messages[:len(r.Messages)-1]
		}
		ended := end >= 0 && at >= end
		if len(r.Messages) > 0 || ended {
			out <- chunk{messages: r.Messages, ended: ended}
		}
		if ended {
			return
		}
	}
}

// idle is how long a member waits for messages before it looks whether the group is at the end.
const idle = 100 * time.Millisecond

// readGroup reads as a member of a group. What is printed and flushed counts as consumed.
func (f *consumeFlags) readGroup(ctx context.Context, cmd *cobra.Command, c *client.Client, route *client.Route, ends map[client.Queue]int64, from *position, p *sink) (err error) {
	if err := f.place(ctx, c, route, from, cmd.ErrOrStderr()); err != nil {
		return err
	}
	m, err := client.NewPuller(c, client.PullerConfig{Group: f.group, Subscriptions: map[string]string{f.topic: f.expr}, From: client.FromFirst,
		CommitInterval: time.Second})
	if err != nil {
		return misuse("choose another group", "%w", err)
	}
	if err := m.Start(ctx); err != nil {
		return err
	}
	defer func() {
		closing, end := context.WithTimeout(context.WithoutCancel(ctx), f.timeout)
		defer end()
		if cerr := m.Close(closing); err == nil {
			err = cerr
		}
	}()
	for {
		wait, done := context.WithTimeout(ctx, idle)
		got, perr := m.Poll(wait, p.left(256))
		done()
		if ctx.Err() != nil && len(got) == 0 {
			return ctx.Err()
		}
		if perr != nil && !errors.Is(perr, context.DeadlineExceeded) {
			return perr
		}
		for _, r := range got {
			if err = p.print(r); err != nil {
				break
			}
		}
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if len(got) > 0 { // before the next Poll, which counts these as consumed
			if ferr := p.w.Flush(); ferr != nil {
				return ferr
			}
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return errors.Join(err, m.Commit(context.WithoutCancel(ctx)))
		}
		if len(got) == 0 && f.atEnd {
			if at, err := f.groupAtEnd(ctx, m, ends); err != nil || at {
				return err // Close stores where we are
			}
		}
	}
}

// groupAtEnd tells whether the group has consumed everything below ends: by this member's positions, for queues of other members by what
// they have committed.
func (f *consumeFlags) groupAtEnd(ctx context.Context, m *client.Puller, ends map[client.Queue]int64) (bool, error) {
	for q, end := range ends {
		if end == 0 {
			continue
		}
		at, err := m.Position(q)
		if errors.Is(err, client.ErrNotAssigned) {
			at, _, err = m.Committed(ctx, q)
			if err != nil {
				return false, err
			}
		}
		if err != nil || at < end {
			return false, nil // the position of a new queue is not known yet
		}
	}
	return true, nil
}

// place moves a group to --from, if it has no members whose reading that would disturb.
func (f *consumeFlags) place(ctx context.Context, c *client.Client, route *client.Route, from *position, stderr io.Writer) error {
	if from == nil {
		return nil
	}
	for _, broker := range route.Brokers() {
		members, err := groupMembers(ctx, c, route.Master(broker), f.group)
		if err != nil {
			return err
		}
		if len(members) > 0 {
			if !f.quiet {
				fmt.Fprintf(stderr, "group %s has members already: --from is not applied\n", f.group)
			}
			return nil
		}
	}
	for _, q := range route.Read {
		at, err := from.resolve(ctx, c, q)
		if err != nil {
			return err
		}
		// A reset also replaces one before it of which no reader has heard yet. Brokers that tell connected members only refuse it, and know
		// groups by use: there the offset is committed.
		_, err = admin.New(c).ResetOffsetAt(ctx, route.Master(q.Broker), admin.Reset{Group: f.group, Topic: q.Topic, Queue: q.ID, Offset: &at, Force: true})
		var server *client.ServerError
		if errors.As(err, &server) {
			err = commitOffset(ctx, c, route.Master(q.Broker), f.group, q, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// groupMembers lists the client ids of a group that a broker knows; none when it knows no member.
func groupMembers(ctx context.Context, c *client.Client, addr, group string) ([]string, error) {
	answer, err := c.Call(ctx, addr, protocol.NewRequest(protocol.ReqGetConsumerListByGroup, map[string]string{"consumerGroup": group}, nil))
	var server *client.ServerError
	if errors.As(err, &server) && server.Code == protocol.SystemError { // RocketMQ's answer for a group without members
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var body struct {
		ConsumerIDList []string `json:"consumerIdList"`
	}
	if err := unmarshalBody(answer.Body, &body); err != nil {
		return nil, fmt.Errorf("read members of group %s: %w", group, err)
	}
	return body.ConsumerIDList, nil
}

// commitOffset stores where a group is in a queue. The group is created by asking for its settings, where brokers allow that.
func commitOffset(ctx context.Context, c *client.Client, addr, group string, q client.Queue, at int64) error {
	commit := func() error {
		_, err := c.Call(ctx, addr, protocol.NewRequest(protocol.ReqUpdateConsumerOffset, map[string]string{"consumerGroup": group, "topic": q.Topic,
			"queueId": fmt.Sprint(q.ID), "commitOffset": fmt.Sprint(at), "bname": q.Broker}, nil))
		return err
	}
	err := commit()
	var server *client.ServerError
	if !errors.As(err, &server) || server.Code != protocol.SubscriptionGroupNotExist {
		return err
	}
	settings := protocol.NewRequest(protocol.ReqGetSubscriptionGroupConfig, map[string]string{"group": group}, nil)
	if _, err := c.Call(ctx, addr, settings); err != nil {
		return err
	}
	return commit()
}

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/admin"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func newTopicCommand() *cobra.Command {
	return family("topic", "List, inspect, create and delete topics", newTopicListCommand(), newTopicStatusCommand(), newTopicCreateCommand(), newTopicDeleteCommand())
}

// adminFlags are what every administrative command has.
type adminFlags struct {
	clientFlags
	output string
}

func (f *adminFlags) add(cmd *cobra.Command) {
	f.clientFlags.add(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "table or json")
}

// with runs fn on a connected client and explains its error.
func (f *adminFlags) with(cmd *cobra.Command, fn func(a *admin.Admin, c *client.Client, info *protocol.ClusterInfo) error) error {
	if err := checkOutput(f.output, "table", "json"); err != nil {
		return err
	}
	c, info, err := f.connect(cmd)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	return f.explain(fn(admin.New(c), c, info))
}

// show prints rows as a table, or v as JSON.
func (f *adminFlags) show(w io.Writer, v any, head []any, rows [][]any) error {
	if f.output == "json" {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	p := &printer{w: w}
	p.plainTable(head, rows)
	return p.err
}

// targetFlags choose the brokers of a change.
type targetFlags struct{ broker, cluster string }

func (f *targetFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.broker, "broker", "", "only at the broker of this name")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "only at the brokers of this cluster")
}

func (f *targetFlags) target(info *protocol.ClusterInfo) (admin.Target, error) {
	if f.broker == "" {
		return admin.Target{Cluster: f.cluster}, nil
	}
	addr, ok := masters(info, f.cluster)[f.broker]
	if !ok {
		return admin.Target{}, misuse("'epochmq topic list' shows names of brokers", "no master broker is called %q", f.broker)
	}
	return admin.Target{Addr: addr}, nil
}

// topicRow is a topic at one broker.
type topicRow struct {
	Topic       string `json:"topic"`
	Broker      string `json:"broker"`
	ReadQueues  int32  `json:"readQueues"`
	WriteQueues int32  `json:"writeQueues"`
	Perm        string `json:"perm"`
}

func newTopicListCommand() *cobra.Command {
	var f adminFlags
	var all, names bool
	var cluster string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, info *protocol.ClusterInfo) error {
				var rows []topicRow
				for broker, addr := range masters(info, cluster) {
					topics, err := a.BrokerTopics(cmd.Context(), addr)
					if err != nil {
						return err
					}
					for _, t := range topics {
						if all || !internalTopic(t.Name, info) {
							rows = append(rows, topicRow{t.Name, broker, t.ReadQueues, t.WriteQueues, permText(t.Perm)})
						}
					}
				}
				slices.SortFunc(rows, func(x, y topicRow) int {
					return cmp.Or(strings.Compare(x.Topic, y.Topic), strings.Compare(x.Broker, y.Broker))
				})
				if names {
					return printNames(cmd.OutOrStdout(), rows)
				}
				table := make([][]any, len(rows))
				for i, r := range rows {
					table[i] = []any{r.Topic, r.Broker, r.ReadQueues, r.WriteQueues, r.Perm}
				}
				return f.show(cmd.OutOrStdout(), rows, []any{"TOPIC", "BROKER", "READ QUEUES", "WRITE QUEUES", "PERM"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also the topics that brokers make for themselves")
	cmd.Flags().BoolVar(&names, "names", false, "print names only, one a line")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	return cmd
}

func printNames(w io.Writer, rows []topicRow) error {
	last := ""
	for _, r := range rows {
		if r.Topic == last {
			continue
		}
		last = r.Topic
		if _, err := fmt.Fprintln(w, r.Topic); err != nil {
			return err
		}
	}
	return nil
}

// internalTopic tells whether a topic is one that brokers make for themselves.
func internalTopic(name string, info *protocol.ClusterInfo) bool {
	_, cluster := info.ClusterAddrTable[name]
	_, broker := info.BrokerAddrTable[name]
	return cluster || broker || message.IsSystemTopic(name) || message.IsRetryTopic(name) || strings.HasSuffix(name, "_REPLY_TOPIC")
}

// permText is r, w and x (new topics inherit from it), as RocketMQ's permission bits say.
func permText(perm int32) string {
	s := ""
	for _, p := range []struct {
		bit  int32
		text string
	}{{admin.PermRead, "r"}, {admin.PermWrite, "w"}, {admin.PermInherit, "x"}} {
		if perm&p.bit != 0 {
			s += p.text
		} else {
			s += "-"
		}
	}
	return s
}

// queueRow is where a queue begins and ends.
type queueRow struct {
	Queue    string `json:"queue"`
	Broker   string `json:"broker"`
	Begin    int64  `json:"begin"`
	End      int64  `json:"end"`
	Messages int64  `json:"messages"`
	LastMS   int64  `json:"lastStored,omitempty"`
}

func newTopicStatusCommand() *cobra.Command {
	var f adminFlags
	var topic string
	cmd := &cobra.Command{
		Use:   "status -t TOPIC",
		Short: "Show where each queue of a topic begins and ends",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTopic(cmd, topic); err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, _ *protocol.ClusterInfo) error {
				list, err := a.TopicStatus(cmd.Context(), topic)
				if err != nil {
					return err
				}
				rows, table, total := make([]queueRow, len(list)), make([][]any, len(list)), int64(0)
				for i, q := range list {
					r := queueRow{queueName(q.Queue), q.Queue.Broker, q.MinOffset, q.MaxOffset, q.MaxOffset - q.MinOffset, q.LastUpdateTimestamp}
					rows[i], table[i] = r, []any{r.Queue, r.Broker, r.Begin, r.End, r.Messages, clock(r.LastMS)}
					total += r.Messages
				}
				table = append(table, []any{"total", "", "", "", total, ""})
				return f.show(cmd.OutOrStdout(), rows, []any{"QUEUE", "BROKER", "BEGIN", "END", "MESSAGES", "LAST STORED"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic")
	return cmd
}

// queueName is topic/queue.
func queueName(q client.Queue) string { return fmt.Sprintf("%s/%d", q.Topic, q.ID) }

func newTopicCreateCommand() *cobra.Command {
	var f adminFlags
	var to targetFlags
	var topic, perm string
	var queues int32
	var ordered bool
	cmd := &cobra.Command{
		Use:   "create -t TOPIC",
		Short: "Create a topic, or change its queues and permission",
		Long:  "Create a topic, or change the queues, permission or order of one that exists; of that, what no flag says stays as it is.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTopic(cmd, topic); err != nil {
				return err
			}
			if queues < 1 || queues > 1<<14 {
				return misuse("use 1 to 16384", "--queues %d is out of range", queues)
			}
			bits, err := parsePerm(perm)
			if err != nil {
				return err
			}
			given := cmd.Flags().Changed
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, info *protocol.ClusterInfo) error {
				target, err := to.target(info)
				if err != nil {
					return err
				}
				addrs, err := a.Masters(cmd.Context(), target)
				if err != nil {
					return err
				}
				rows := []topicRow{}
				for _, addr := range addrs {
					t, before := admin.NewTopic(topic, queues), "created"
					t.Perm, t.Order = bits, ordered
					switch old, err := a.GetTopic(cmd.Context(), addr, topic); {
					case err == nil: // what no flag says stays as it is
						before, old.Attributes = "changed", nil // attributes are changes
						if given("queues") {
							old.ReadQueues, old.WriteQueues = queues, queues
						}
						if given("perm") {
							old.Perm = old.Perm&^(admin.PermRead|admin.PermWrite) | bits
						}
						old.Order = old.Order && !given("ordered") || ordered
						t = old
					case !admin.NotFound(err):
						return err
					}
					if err := a.PutTopic(cmd.Context(), admin.Target{Addr: addr}, t); err != nil {
						return err
					}
					r := topicRow{topic, brokerAt(info, addr), t.ReadQueues, t.WriteQueues, permText(t.Perm)}
					rows = append(rows, r)
					if err := f.done(cmd, "topic %s is %s at %s: %d queues, %s", topic, before, r.Broker, t.WriteQueues, r.Perm); err != nil {
						return err
					}
				}
				return f.doneJSON(cmd, rows)
			})
		},
	}
	f.add(cmd)
	to.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&topic, "topic", "t", "", "topic")
	fl.Int32VarP(&queues, "queues", "q", 8, "queues at each broker")
	fl.StringVar(&perm, "perm", "rw", "r, w or rw")
	fl.BoolVar(&ordered, "ordered", false, "mark the topic as ordered")
	return cmd
}

func parsePerm(s string) (int32, error) {
	p := int32(0)
	for _, c := range s {
		switch c {
		case 'r':
			p |= admin.PermRead
		case 'w':
			p |= admin.PermWrite
		case '-':
		default:
			return 0, misuse("use r, w or rw", "permission %q is unknown", s)
		}
	}
	return p, nil
}

// brokerAt is the name of the broker at an address.
func brokerAt(info *protocol.ClusterInfo, addr string) string {
	for name, master := range masters(info, "") {
		if master == addr {
			return name
		}
	}
	return addr
}

// doneJSON prints what was made when JSON is wanted.
func (f *adminFlags) doneJSON(cmd *cobra.Command, v any) error {
	if f.output != "json" {
		return nil
	}
	return f.show(cmd.OutOrStdout(), v, nil, nil)
}

// done says that a change was made, on standard error so that standard output stays for data.
func (f *adminFlags) done(cmd *cobra.Command, format string, args ...any) error {
	if f.output == "json" {
		return nil
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	return err
}

func newTopicDeleteCommand() *cobra.Command {
	var f adminFlags
	var to targetFlags
	var topic string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete -t TOPIC --yes",
		Short: "Delete a topic with its messages",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTopic(cmd, topic); err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, info *protocol.ClusterInfo) error {
				list, err := a.TopicStatus(cmd.Context(), topic)
				if err != nil {
					return err
				}
				n, last := int64(0), int64(0)
				for _, q := range list {
					n += q.MaxOffset - q.MinOffset
					last = max(last, q.LastUpdateTimestamp)
				}
				switch {
				case !yes && n == 0:
					return misuse("repeat it with --yes to delete it", "topic %s holds no messages", topic)
				case !yes:
					return misuse("repeat it with --yes to delete them", "topic %s holds %d messages, the last of %s", topic, n, age(last))
				}
				target, err := to.target(info)
				if err != nil {
					return err
				}
				if err := a.DeleteTopic(cmd.Context(), target, topic); err != nil {
					return err
				}
				return f.done(cmd, "topic %s is deleted with %d messages", topic, n)
			})
		},
	}
	f.add(cmd)
	to.add(cmd)
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete")
	return cmd
}

func age(ms int64) string {
	if ms <= 0 {
		return "an unknown time"
	}
	return time.Since(time.UnixMilli(ms)).Round(time.Second).String() + " ago"
}

// plainTable prints rows under a head.
func (p *printer) plainTable(head []any, rows [][]any) {
	body := &strings.Builder{}
	t := &printer{w: body}
	t.table(head, rows)
	if p.err = t.err; p.err == nil {
		_, p.err = io.WriteString(p.w, strings.TrimPrefix(body.String(), "\n"))
	}
}

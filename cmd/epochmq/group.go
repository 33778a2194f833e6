package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/admin"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting/protocol"
)

func newGroupCommand() *cobra.Command {
	return family("group", "List, inspect, create, move and delete consumer groups", newGroupListCommand(), newGroupStatusCommand(), newGroupProgressCommand(),
		newGroupResetCommand(), newGroupCreateCommand(), newGroupDeleteCommand())
}

// systemGroups exist on every broker from the start.
var systemGroups = map[string]bool{"TOOLS_CONSUMER": true, "FILTERSRV_CONSUMER": true, "SELF_TEST_C_GROUP": true, "CID_ONS-HTTP-PROXY": true,
	"CID_ONSAPI_PULL": true, "CID_ONSAPI_PERMISSION": true, "CID_ONSAPI_OWNER": true, "CID_RMQ_SYS_TRANS": true, "CID_SYS_RMQ_TRANS": true}

func checkGroup(cmd *cobra.Command, name string) error {
	if err := required(cmd, "group", name); err != nil {
		return err
	}
	if err := message.ValidateGroup(name); err != nil {
		return misuse("choose another name", "group %q: %w", name, err)
	}
	return nil
}

// groupRow is one line of group list.
type groupRow struct {
	Group      string `json:"group"`
	Members    int    `json:"members"`
	Lag        int64  `json:"lag"`
	MaxRetries int32  `json:"maxRetries"`
}

func newGroupListCommand() *cobra.Command {
	var f adminFlags
	var all, names bool
	var cluster string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List consumer groups with their members and how far they lag",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(a *admin.Admin, c *client.Client, info *protocol.ClusterInfo) error {
				groups := map[string]*groupRow{}
				for _, addr := range masters(info, cluster) {
					list, err := a.BrokerGroups(cmd.Context(), addr)
					if err != nil {
						return err
					}
					for _, g := range list {
						if !all && (systemGroups[g.GroupName] || strings.HasPrefix(g.GroupName, "CID_RMQ_SYS_")) {
							continue
						}
						if groups[g.GroupName] == nil {
							groups[g.GroupName] = &groupRow{Group: g.GroupName, MaxRetries: g.RetryMaxTimes}
						}
						members, err := groupMembers(cmd.Context(), c, addr, g.GroupName)
						if err != nil {
							return err
						}
						groups[g.GroupName].Members = max(groups[g.GroupName].Members, len(members))
					}
				}
				rows := []groupRow{}
				for _, r := range groups {
					p, err := a.Progress(cmd.Context(), r.Group, "")
					if err != nil && !admin.NotFound(err) {
						return err
					}
					if err == nil {
						r.Lag = p.Lag()
					}
					rows = append(rows, *r)
				}
				slices.SortFunc(rows, func(x, y groupRow) int { return strings.Compare(x.Group, y.Group) })
				table := make([][]any, len(rows))
				for i, r := range rows {
					table[i] = []any{r.Group, r.Members, r.Lag, r.MaxRetries}
					if names {
						if _, err := fmt.Fprintln(cmd.OutOrStdout(), r.Group); err != nil {
							return err
						}
					}
				}
				if names {
					return nil
				}
				return f.show(cmd.OutOrStdout(), rows, []any{"GROUP", "MEMBERS", "LAG", "MAX RETRIES"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also RocketMQ's own groups")
	cmd.Flags().BoolVar(&names, "names", false, "print names only, one a line")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	return cmd
}

// groupStatus is what group status -o json prints.
type groupStatus struct {
	Group         string            `json:"group"`
	Lag           int64             `json:"lag"`
	Model         string            `json:"model,omitempty"`
	Subscriptions map[string]string `json:"subscriptions,omitempty"`
	Members       []memberRow       `json:"members"`
}

type memberRow struct {
	Client   string `json:"client"`
	Address  string `json:"address"`
	Language string `json:"language"`
	Version  string `json:"version"`
}

func newGroupStatusCommand() *cobra.Command {
	var f adminFlags
	var group string
	cmd := &cobra.Command{
		Use:   "status -g GROUP",
		Short: "Show the members of a group and what they read",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGroup(cmd, group); err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, info *protocol.ClusterInfo) error {
				if err := groupExists(cmd, a, info, group); err != nil {
					return err
				}
				s := groupStatus{Group: group, Members: []memberRow{}, Subscriptions: map[string]string{}}
				p, err := a.Progress(cmd.Context(), group, "")
				switch {
				case err == nil:
					s.Lag = p.Lag()
				case !admin.NotFound(err):
					return err
				}
				conn, err := a.Consumers(cmd.Context(), group)
				switch {
				case err == nil:
					s.Model = string(conn.MessageModel)
					for _, m := range conn.ConnectionSet {
						s.Members = append(s.Members, memberRow{m.ClientID, m.ClientAddr, m.Language, protocol.VersionName(m.Version)})
					}
					for topic, sub := range conn.SubscriptionTable {
						s.Subscriptions[topic] = sub.SubString
					}
				case !admin.NotFound(err):
					return err
				}
				return f.showStatus(cmd, &s)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&group, "group", "g", "", "consumer group")
	return cmd
}

func (f *adminFlags) showStatus(cmd *cobra.Command, s *groupStatus) error {
	w := cmd.OutOrStdout()
	slices.SortFunc(s.Members, func(a, b memberRow) int { return strings.Compare(a.Client, b.Client) })
	if f.output == "json" {
		return f.show(w, s, nil, nil)
	}
	p := &printer{w: w}
	p.line("group %s: members %d, lag %d", printable(s.Group), len(s.Members), s.Lag)
	for topic, expr := range s.Subscriptions {
		p.line("reads %s, tags %s", printable(topic), printable(expr))
	}
	if len(s.Members) > 0 {
		rows := make([][]any, len(s.Members))
		for i, m := range s.Members {
			rows[i] = []any{m.Client, m.Address, m.Language, m.Version}
		}
		p.table([]any{"MEMBER", "ADDRESS", "LANGUAGE", "VERSION"}, rows)
	}
	return p.err
}

// groupExists refuses a group that no broker knows.
func groupExists(cmd *cobra.Command, a *admin.Admin, info *protocol.ClusterInfo, group string) error {
	for _, addr := range masters(info, "") {
		list, err := a.BrokerGroups(cmd.Context(), addr)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(g *protocol.SubscriptionGroupConfig) bool { return g.GroupName == group }) {
			return nil
		}
	}
	return advise(fmt.Errorf("no broker knows group %s", group), "'epochmq group list' shows the groups")
}

// progressRow is one line of group progress.
type progressRow struct {
	Queue     string `json:"queue"`
	Broker    string `json:"broker"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	LastMS    int64  `json:"lastConsumed,omitempty"`
}

func newGroupProgressCommand() *cobra.Command {
	var f adminFlags
	var group, topic string
	cmd := &cobra.Command{
		Use:   "progress -g GROUP [-t TOPIC]",
		Short: "Show how far a group is in each queue that it reads",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGroup(cmd, group); err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, _ *client.Client, info *protocol.ClusterInfo) error {
				if err := groupExists(cmd, a, info, group); err != nil {
					return err
				}
				p, err := a.Progress(cmd.Context(), group, topic)
				if err != nil && !admin.NotFound(err) {
					return err
				}
				if topic == "" && (err != nil || len(p.Queues) == 0) {
					return advise(fmt.Errorf("group %s has not read anything yet", group), "'epochmq consume -g %s -t TOPIC' reads", group)
				}
				if err != nil || len(p.Queues) == 0 {
					return advise(fmt.Errorf("group %s does not read topic %s", group, topic), "'epochmq group progress -g %s' shows what it reads, 'epochmq topic list' the topics", group)
				}
				rows, table := make([]progressRow, 0, len(p.Queues)), [][]any{}
				for i := range p.Queues {
					q := &p.Queues[i]
					r := progressRow{queueName(q.Queue), q.Queue.Broker, q.ConsumerOffset, q.BrokerOffset, q.Lag(), q.LastTimestamp}
					rows = append(rows, r)
					table = append(table, []any{r.Queue, r.Broker, r.Committed, r.End, r.Lag, clock(r.LastMS)})
				}
				table = append(table, []any{"total", "", "", "", p.Lag(), ""})
				return f.show(cmd.OutOrStdout(), rows, []any{"QUEUE", "BROKER", "COMMITTED", "END", "LAG", "LAST CONSUMED STORED"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&group, "group", "g", "", "consumer group")
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "only this topic")
	return cmd
}

func newGroupResetCommand() *cobra.Command {
	var f adminFlags
	var group, topic, to string
	var queue int32
	cmd := &cobra.Command{
		Use:   "reset -g GROUP -t TOPIC --to POSITION",
		Short: "Move a group to another place in a topic",
		Long:  "Move a group in the queues of a topic. Members that are connected go on at the new place.\n\nPosition: " + positionHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkGroup(cmd, group), checkTopic(cmd, topic), required(cmd, "to", to)); err != nil {
				return err
			}
			at, err := parsePosition(to, time.Now())
			if err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, c *client.Client, info *protocol.ClusterInfo) error {
				if err := groupExists(cmd, a, info, group); err != nil {
					return err
				}
				route, err := c.Route(cmd.Context(), topic)
				if err != nil {
					return err
				}
				var rows []progressRow
				var table [][]any
				for _, q := range route.Read {
					if queue >= 0 && q.ID != queue {
						continue
					}
					off, err := at.resolve(cmd.Context(), c, q)
					if err != nil {
						return err
					}
					if _, err := a.ResetOffsetAt(cmd.Context(), route.Master(q.Broker), admin.Reset{Group: group, Topic: topic, Queue: q.ID, Offset: &off, Force: true}); err != nil {
						return err
					}
					end, err := c.MaxOffset(cmd.Context(), q)
					if err != nil {
						return err
					}
					rows = append(rows, progressRow{Queue: queueName(q), Broker: q.Broker, Committed: off, End: end, Lag: end - off})
					table = append(table, []any{queueName(q), q.Broker, off, end, end - off})
				}
				if len(rows) == 0 {
					return misuse("'epochmq topic status' lists the queues", "topic %s has no queue %d", topic, queue)
				}
				return f.show(cmd.OutOrStdout(), rows, []any{"QUEUE", "BROKER", "COMMITTED", "END", "LAG"}, table)
			})
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&group, "group", "g", "", "consumer group")
	fl.StringVarP(&topic, "topic", "t", "", "topic")
	fl.StringVar(&to, "to", "", positionHelp)
	fl.Int32Var(&queue, "queue", -1, "only this queue")
	return cmd
}

func newGroupCreateCommand() *cobra.Command {
	var f adminFlags
	var to targetFlags
	var group string
	var retries int32
	var disabled bool
	cmd := &cobra.Command{
		Use:   "create -g GROUP",
		Short: "Create a group, or change its settings",
		Long:  "Create a group, or change the settings of one that exists; of those, what no flag says stays as it is.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGroup(cmd, group); err != nil {
				return err
			}
			if retries < 0 || retries > 1000 {
				return misuse("use 0 to 1000", "--max-retries %d is out of range", retries)
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
				rows := []groupSettings{}
				for _, addr := range addrs {
					g, before, err := groupAt(cmd, a, addr, group)
					if err != nil {
						return err
					}
					if given("max-retries") || before == "created" {
						g.RetryMaxTimes = retries
					}
					if given("disabled") {
						g.ConsumeEnable = !disabled
					}
					if err := a.PutGroup(cmd.Context(), admin.Target{Addr: addr}, g); err != nil {
						return err
					}
					r := groupSettings{group, brokerAt(info, addr), g.RetryMaxTimes, g.ConsumeEnable}
					rows = append(rows, r)
					reads := "may read"
					if !r.Enabled {
						reads = "may not read"
					}
					if err := f.done(cmd, "group %s is %s at %s: max retries %d, %s", group, before, r.Broker, r.MaxRetries, reads); err != nil {
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
	fl.StringVarP(&group, "group", "g", "", "consumer group")
	fl.Int32Var(&retries, "max-retries", 16, "after so many failed deliveries a message goes to the dead letter topic")
	fl.BoolVar(&disabled, "disabled", false, "let nobody read as this group")
	return cmd
}

// groupSettings is what group create -o json prints for each broker.
type groupSettings struct {
	Group      string `json:"group"`
	Broker     string `json:"broker"`
	MaxRetries int32  `json:"maxRetries"`
	Enabled    bool   `json:"enabled"`
}

// groupAt reads the settings of a group at a broker, or makes the default ones. It does not ask for the one group: brokers create what is
// asked for.
func groupAt(cmd *cobra.Command, a *admin.Admin, addr, group string) (g *protocol.SubscriptionGroupConfig, before string, err error) {
	list, err := a.BrokerGroups(cmd.Context(), addr)
	if err != nil {
		return nil, "", err
	}
	for _, g := range list {
		if g.GroupName == group {
			return g, "changed", nil
		}
	}
	return protocol.NewSubscriptionGroupConfig(group), "created", nil
}

func newGroupDeleteCommand() *cobra.Command {
	var f adminFlags
	var to targetFlags
	var group string
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete -g GROUP --yes",
		Short: "Delete a group with its offsets, its retry topic and its dead letters",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGroup(cmd, group); err != nil {
				return err
			}
			return f.with(cmd, func(a *admin.Admin, c *client.Client, info *protocol.ClusterInfo) error {
				if err := groupExists(cmd, a, info, group); err != nil {
					return err
				}
				for _, addr := range masters(info, "") {
					members, err := groupMembers(cmd.Context(), c, addr, group)
					if err != nil {
						return err
					}
					if len(members) > 0 {
						return advise(fmt.Errorf("group %s is in use, members: %d", group, len(members)), "stop them first, 'epochmq group status -g %s' lists them", group)
					}
				}
				if !yes {
					return misuse("repeat it with --yes to delete it", "group %s would lose its offsets and its dead letters", group)
				}
				target, err := to.target(info)
				if err != nil {
					return err
				}
				if err := a.DeleteGroup(cmd.Context(), target, group, true); err != nil {
					return err
				}
				return f.done(cmd, "group %s is deleted", group)
			})
		},
	}
	f.add(cmd)
	to.add(cmd)
	cmd.Flags().StringVarP(&group, "group", "g", "", "consumer group")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete")
	return cmd
}

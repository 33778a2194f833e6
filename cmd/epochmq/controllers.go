package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/client/admin"
	"github.com/epochmq/epochmq/remoting"
)

// defaultController is asked when no flag names one.
const defaultController = "127.0.0.1:9878"

// controllerFlags are what every command has that asks controllers.
type controllerFlags struct {
	adminFlags
	addrs string
}

func (f *controllerFlags) add(cmd *cobra.Command) {
	f.adminFlags.add(cmd)
	cmd.Flags().StringVarP(&f.addrs, "controller", "a", defaultController, "controllers, host:port;host:port")
}

// ask runs fn on a client that has asked nobody yet.
func (f *controllerFlags) ask(cmd *cobra.Command, fn func(a *admin.Admin, c *client.Client, addrs []string) error) error {
	if err := checkOutput(f.output, "table", "json"); err != nil {
		return err
	}
	addrs := addressList(f.addrs)
	if len(addrs) == 0 {
		return misuse("give -a host:port", "no controller is named")
	}
	c, err := f.dial(cmd)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	err = fn(admin.New(c), c, addrs)
	var connect *remoting.ConnectError
	if errors.As(err, &connect) && slices.Contains(addrs, connect.Addr) {
		return advise(fmt.Errorf("no controller answers at %s (%w)", connect.Addr, connect.Err), "start one with 'epochmq controller -c FILE', or give its address with -a")
	}
	return f.explain(err)
}

// controllerRow is a controller as it describes itself.
type controllerRow struct {
	ID     string `json:"id"`
	Addr   string `json:"addr"`
	Group  string `json:"group,omitempty"`
	Leader string `json:"leader,omitempty"` // address that it takes for the leader's
	State  string `json:"state"`            // leader, follower or down
}

func newControllerMetadataCommand() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "metadata",
		Short: "List the controllers of a group and say who leads",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, func(a *admin.Admin, _ *client.Client, addrs []string) error {
				var first *admin.ControllerInfo
				var errs []error
				for _, addr := range addrs {
					info, err := a.Controller(cmd.Context(), addr)
					if err == nil {
						first = info
						break
					}
					errs = append(errs, err)
				}
				if first == nil {
					return errors.Join(errs...)
				}
				rows := []controllerRow{}
				for _, p := range first.Peers {
					row := controllerRow{ID: p.ID, Addr: p.Addr, State: "down"}
					if info, err := a.Controller(cmd.Context(), p.Addr); err == nil { // one that does not answer is down, as the row says
						row.Group, row.Leader, row.State = info.Group, info.LeaderAddr, "follower"
						if info.Leads {
							row.State = "leader"
						}
					}
					rows = append(rows, row)
				}
				table := make([][]any, len(rows))
				for i, r := range rows {
					table[i] = []any{dash(r.ID), r.Addr, dash(r.Group), r.State, dash(r.Leader)}
				}
				return f.show(cmd.OutOrStdout(), rows, []any{"ID", "ADDRESS", "GROUP", "STATE", "LEADER"}, table)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func dash(s string) string { return cmp.Or(s, "-") }

// replicaRow is a broker of a set as the leading controller sees it.
type replicaRow struct {
	Broker      string `json:"broker"`
	ID          int64  `json:"id"`
	Addr        string `json:"addr"`
	Master      bool   `json:"master"`
	InSync      bool   `json:"inSync"`
	Alive       bool   `json:"alive"`
	MasterEpoch int32  `json:"masterEpoch"`
	SyncEpoch   int32  `json:"syncStateSetEpoch"`
}

func newControllerStatusCommand() *cobra.Command {
	var f controllerFlags
	var names []string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show masters, in-sync replicas and epochs of broker sets",
		Long:  "Show masters, in-sync replicas and epochs of broker sets: of those named with --broker, else of all that the name server knows.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd, func(a *admin.Admin, c *client.Client, addrs []string) error {
				if len(names) == 0 {
					info, err := clusterInfo(cmd.Context(), c)
					if err != nil {
						return err
					}
					names = slices.Sorted(maps.Keys(info.BrokerAddrTable))
				}
				leader, err := a.ControllerLeader(cmd.Context(), addrs)
				if err != nil {
					return err
				}
				sets, err := a.ReplicaSets(cmd.Context(), leader, names)
				if err != nil {
					return err
				}
				rows := replicaRows(sets)
				table := make([][]any, len(rows))
				for i, r := range rows {
					table[i] = []any{r.Broker, r.ID, r.Addr, yes(r.Master), yes(r.InSync), yes(r.Alive), r.MasterEpoch, r.SyncEpoch}
				}
				return f.show(cmd.OutOrStdout(), rows, []any{"BROKER", "ID", "ADDRESS", "MASTER", "IN SYNC", "ALIVE", "MASTER EPOCH", "SYNC EPOCH"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&names, "broker", "b", nil, "only the set of this name; may be repeated")
	return cmd
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func replicaRows(sets map[string]admin.ReplicaSet) []replicaRow {
	rows := []replicaRow{}
	for name, s := range sets {
		for i, r := range slices.Concat(s.InSync, s.NotInSync) {
			rows = append(rows, replicaRow{name, r.BrokerID, r.Addr, r.BrokerID == s.MasterID, i < len(s.InSync), r.Alive, s.MasterEpoch, s.SyncEpoch})
		}
	}
	slices.SortFunc(rows, func(x, y replicaRow) int {
		return cmp.Or(strings.Compare(x.Broker, y.Broker), cmp.Compare(x.ID, y.ID))
	})
	return rows
}

func newControllerConfigCommand() *cobra.Command {
	var f controllerFlags
	var pairs []string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the settings of controllers, or change some with --set",
		Long:  "Show the settings of the first controller named with -a, or change settings of all of them with --set. Each writes changes to its file.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changes := map[string]string{}
			for _, pair := range pairs {
				key, value, ok := strings.Cut(pair, "=")
				if !ok {
					return misuse("write --set KEY=VALUE", "--set %s has no value", pair)
				}
				changes[key] = value
			}
			return f.ask(cmd, func(a *admin.Admin, _ *client.Client, addrs []string) error {
				have, err := a.ControllerConfig(cmd.Context(), addrs[0])
				if err != nil {
					return err
				}
				for key := range changes {
					if _, ok := have[key]; !ok {
						return misuse("'epochmq controller --keys' lists the keys", "--set %s names no key", key)
					}
				}
				if len(changes) > 0 {
					for _, addr := range addrs {
						if err := a.UpdateControllerConfig(cmd.Context(), addr, changes); err != nil {
							return err
						}
					}
					if have, err = a.ControllerConfig(cmd.Context(), addrs[0]); err != nil {
						return err
					}
					maps.DeleteFunc(have, func(key, _ string) bool { _, changed := changes[key]; return !changed })
				}
				table := [][]any{}
				for _, key := range slices.Sorted(maps.Keys(have)) {
					table = append(table, []any{key, have[key]})
				}
				return f.show(cmd.OutOrStdout(), have, []any{"KEY", "VALUE"}, table)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVar(&pairs, "set", nil, "change a key, KEY=VALUE; may be repeated")
	return cmd
}

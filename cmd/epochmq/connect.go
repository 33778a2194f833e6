package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/client"
	"github.com/epochmq/epochmq/message"
	"github.com/epochmq/epochmq/remoting"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// defaultNameServer is asked when neither a flag nor the environment names one.
const defaultNameServer = "127.0.0.1:9876"

// clientFlags are what every command has that talks to servers.
type clientFlags struct {
	nameServers string
	timeout     time.Duration
	verbose     bool
}

func (f *clientFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.nameServers, "namesrv", "n", envOr("NAMESRV_ADDR", defaultNameServer), "name servers, host:port;host:port (environment NAMESRV_ADDR)")
	fl.DurationVar(&f.timeout, "timeout", 5*time.Second, "limit of one request")
	fl.BoolVar(&f.verbose, "verbose", false, "say on standard error what happens in the background")
}

// connect makes a client and asks a name server for the brokers once, so that a wrong address is said at once and clearly.
func (f *clientFlags) connect(cmd *cobra.Command) (*client.Client, *protocol.ClusterInfo, error) {
	c, err := f.dial(cmd)
	if err != nil {
		return nil, nil, err
	}
	info, err := clusterInfo(cmd.Context(), c)
	if err != nil {
		return nil, nil, errors.Join(f.explain(err), c.Close())
	}
	return c, info, nil
}

// addressList takes host:port;host:port apart.
func addressList(text string) (list []string) {
	for a := range strings.SplitSeq(text, ";") {
		if a = strings.TrimSpace(a); a != "" {
			list = append(list, a)
		}
	}
	return list
}

// dial makes a client, which asks nobody yet.
func (f *clientFlags) dial(cmd *cobra.Command) (*client.Client, error) {
	level := slog.LevelError + 4 // nothing: what matters is returned
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	c, err := client.New(client.Config{NameServers: addressList(f.nameServers), RequestTimeout: f.timeout, Logger: log})
	if err != nil {
		return nil, misuse("give -n host:port", "%w", err)
	}
	return c, nil
}

func clusterInfo(ctx context.Context, c *client.Client) (*protocol.ClusterInfo, error) {
	answer, err := c.CallNameServer(ctx, protocol.NewRequest(protocol.ReqGetBrokerClusterInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	var info protocol.ClusterInfo
	if err := unmarshalBody(answer.Body, &info); err != nil {
		return nil, fmt.Errorf("read the list of brokers: %w", err)
	}
	return &info, nil
}

// explain says what to do about an error of talking to servers.
func (f *clientFlags) explain(err error) error {
	var connect *remoting.ConnectError
	var server *client.ServerError
	var name *message.NameError
	var route *client.RouteError
	switch {
	case err == nil, errors.As(err, new(*failure)):
		return err
	case errors.As(err, &connect) && strings.Contains(f.nameServers, connect.Addr):
		return advise(fmt.Errorf("no name server answers at %s (%w)", connect.Addr, connect.Err), "start one with 'epochmq dev', or give its address with -n")
	case errors.As(err, &server) && server.Code == protocol.RequestCodeNotSupported && strings.Contains(f.nameServers, server.Addr):
		return advise(fmt.Errorf("%s is no name server, perhaps a broker", server.Addr), "give the address of a name server with -n, its port is mostly 9876")
	case errors.As(err, &connect):
		return advise(err, "check that the broker runs and that its address can be reached from here")
	case errors.As(err, &route) && errors.As(err, &server) && server.Code == protocol.TopicNotExist:
		return advise(fmt.Errorf("topic %s does not exist", route.Topic), "'epochmq topic list' shows what exists, 'epochmq topic create' makes one")
	case errors.As(err, &server) && server.Code == protocol.TopicNotExist:
		return advise(err, "'epochmq topic list' shows what exists, 'epochmq topic create' makes one")
	case errors.As(err, &server) && server.Code == protocol.SubscriptionGroupNotExist:
		return advise(err, "'epochmq group list' shows what exists, 'epochmq group create' makes one")
	case errors.As(err, &name):
		return advise(err, "choose another name")
	case errors.As(err, &server) && server.Code == protocol.InvalidParameter:
		return advise(fmt.Errorf("%s refuses: %s", server.Addr, server.Remark), "choose another name or value")
	}
	return err
}

// masters lists the addresses of the brokers that take writes, by broker name; of one cluster or broker when given.
func masters(info *protocol.ClusterInfo, cluster string) map[string]string {
	out := map[string]string{}
	for name, b := range info.BrokerAddrTable {
		if addr, ok := b.BrokerAddrs[0]; ok && (cluster == "" || b.Cluster == cluster) {
			out[name] = addr
		}
	}
	return out
}

// required refuses an empty flag.
func required(cmd *cobra.Command, flag, value string) error {
	if value == "" {
		return misuse("run '"+cmd.CommandPath()+" --help'", "--%s is missing", flag)
	}
	return nil
}

// checkTopic refuses a name that no topic can have.
func checkTopic(cmd *cobra.Command, name string) error {
	if err := required(cmd, "topic", name); err != nil {
		return err
	}
	if err := message.ValidateTopic(name); err != nil && !message.IsRetryTopic(name) && !strings.HasPrefix(name, "%DLQ%") {
		return misuse("choose another name", "topic %q: %w", name, err)
	}
	return nil
}

// closeQuietly closes a client whose work is done; what it says no longer matters.
func closeQuietly(c *client.Client) {
	if err := c.Close(); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Debug("close client", "error", err)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/broker"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/namesrv"
	"github.com/epochmq/epochmq/store"
)

// Ports of a development server, as RocketMQ's.
const (
	defaultNamesrvPort = 9876
	defaultBrokerPort  = 10911
)

// devOptions are the flags of dev.
type devOptions struct {
	data                    string
	offset                  int
	namesrvPort, brokerPort int
	set                     []string
	output                  string
}

// devServer is a name server and a broker in this process, on loopback.
type devServer struct {
	ns   *namesrv.Server
	b    *broker.Broker
	log  *slog.Logger
	info devInfo
}

// devInfo is what dev -o json prints once it is ready.
type devInfo struct {
	Namesrv    string `json:"namesrv"`
	Broker     string `json:"broker"`
	BrokerName string `json:"brokerName"`
	Cluster    string `json:"cluster"`
	Data       string `json:"data"`
	Durability string `json:"durability"`
	PID        int    `json:"pid"`
	ReadyMS    int64  `json:"readyMs"`
}

func newDevCommand() *cobra.Command {
	var sf serverFlags
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a name server and a broker on this machine, without configuration",
		Long: `Run a name server and a broker in one process, on loopback, until SIGTERM or SIGINT. Topics are created by the first message.
Files are small; everything else is as in a real broker, and --set changes any of a broker's keys.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begun := time.Now()
			if err := checkOutput(o.output, "text", "json"); err != nil {
				return err
			}
			log, stop, err := sf.start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			s, err := startDev(cmd.Context(), o, log)
			if err != nil {
				if cmd.Context().Err() != nil {
					return nil
				}
				return explainPort(err, fmt.Sprintf("use --port-offset %d", suggestOffset(o.offset)))
			}
			s.info.ReadyMS = time.Since(begun).Milliseconds()
			if err := s.info.print(cmd.OutOrStdout(), o.output); err != nil {
				return errors.Join(err, s.close())
			}
			return untilStopped(cmd.Context(), log, s.close)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.data, "data", "", "folder of all data (default "+defaultData(0)+")")
	fl.IntVar(&o.offset, "port-offset", 0, "add this to both ports, for a second server")
	fl.IntVar(&o.namesrvPort, "namesrv-port", defaultNamesrvPort, "port of the name server, 0 for a free one")
	fl.IntVar(&o.brokerPort, "broker-port", defaultBrokerPort, "port of the broker, 0 for a free one")
	fl.StringArrayVar(&o.set, "set", nil, "set a key of the broker, for example --set flushDiskType=SYNC_FLUSH; may be repeated")
	fl.StringVarP(&o.output, "output", "o", "text", "text, or json for one line with the addresses once it is ready")
	sf.add(fl, "warn")
	return cmd
}

// suggestOffset is another offset to try, one that leaves both default ports in range.
func suggestOffset(used int) int { return (max(used, 0)/10000 + 1) % 5 * 10000 }

// defaultData is where a development server keeps its data; each port offset has a folder of its own.
func defaultData(offset int) string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" && runtime.GOOS != "darwin" {
		if home, err := os.UserHomeDir(); err == nil {
			base = filepath.Join(home, ".local", "share")
		}
	}
	if base == "" {
		var err error
		if base, err = os.UserConfigDir(); err != nil {
			base = "."
		}
	}
	name := "dev"
	if offset != 0 {
		name += "-" + strconv.Itoa(offset)
	}
	return filepath.Join(base, "epochmq", name)
}

// devDefaults are the broker's keys in which dev differs: loopback, and files that do not take a laptop's disk.
func devDefaults(data string) map[string]string {
	return map[string]string{
		"brokerName": "dev", "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "storePathRootDir": filepath.Join(data, "store"),
		"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000", "maxHashSlotNum": "100000", "maxIndexNum": "400000",
	}
}

// startDev starts both and returns once the name server knows the broker. When it fails nothing is left running.
func startDev(ctx context.Context, o devOptions, log *slog.Logger) (_ *devServer, err error) {
	if o.data == "" {
		o.data = defaultData(o.offset)
	}
	if o.data, err = filepath.Abs(o.data); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &devServer{log: log}
	defer func() {
		if err != nil {
			if cerr := s.close(); cerr != nil {
				err = errors.Join(err, cerr)
			}
		}
	}()
	if s.ns, err = startDevNamesrv(o, log); err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ns.Port()))
	set, err := broker.NewSettings(log)
	if err != nil {
		return nil, err
	}
	if err := set.Load(""); err != nil {
		return nil, err
	}
	for key, value := range devDefaults(o.data) {
		if !set.Given(key) {
			set.Put(key, value)
		}
	}
	set.Put("namesrvAddr", addr)
	set.Put("listenPort", strconv.Itoa(withOffset(o.brokerPort, o.offset)))
	for _, pair := range o.set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, misuse("write --set KEY=VALUE", "--set %s has no value", pair)
		}
		if err := set.Check(key, value); err != nil {
			return nil, misuse("'epochmq broker --keys' lists the keys and their values", "--set %s: %w", pair, err)
		}
		if !set.Put(key, value) {
			return nil, misuse("'epochmq broker --keys' lists the keys", "--set %s names no key of a broker", pair)
		}
	}
	if err = checkSettings(set); err != nil {
		return nil, err
	}
	if s.b, err = broker.New(set, broker.Options{Log: log}); err != nil {
		return nil, explainStore(err)
	}
	if err = s.b.Start(ctx); err != nil {
		return nil, err
	}
	select {
	case <-s.b.Registered():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var bc broker.Config
	var sc store.Config
	set.Value(&bc)
	set.Value(&sc)
	s.info = devInfo{Namesrv: addr, Broker: s.b.Addresses().Advertised, BrokerName: bc.BrokerName, Cluster: bc.BrokerClusterName,
		Data: o.data, Durability: sc.FlushDiskType, PID: os.Getpid()}
	return s, nil
}

// check refuses ports that do not exist and a folder that cannot be made, before anything starts.
func (o *devOptions) check() error {
	for _, p := range []struct {
		flag string
		port int
	}{{"--namesrv-port", o.namesrvPort}, {"--broker-port", o.brokerPort}} {
		if n := withOffset(p.port, o.offset); n < 0 || n > 65535 || n == 0 && p.port != 0 {
			return misuse("a port is between 1 and 65535, or 0 for any free one", "%s %d with --port-offset %d is port %d", p.flag, p.port, o.offset, n)
		}
	}
	return advise(os.MkdirAll(o.data, 0o755), "name a folder that you may write with --data")
}

func startDevNamesrv(o devOptions, log *slog.Logger) (*namesrv.Server, error) {
	set := conf.New(log)
	if err := set.Register(new(namesrv.Config)); err != nil {
		return nil, err
	}
	set.Put("bindAddress", "127.0.0.1")
	set.Put("listenPort", strconv.Itoa(withOffset(o.namesrvPort, o.offset)))
	set.Put("kvConfigPath", filepath.Join(o.data, "namesrv", "kvConfig.json"))
	s, err := namesrv.New(namesrv.Options{Settings: set, Log: log})
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// withOffset leaves 0, any free port, as it is.
func withOffset(port, offset int) int {
	if port == 0 {
		return 0
	}
	return port + offset
}

// close stops the broker, then the name server.
func (s *devServer) close() error {
	var errs []error
	if s.b != nil {
		errs = append(errs, closeBroker(s.b, s.log))
	}
	if s.ns != nil {
		errs = append(errs, s.ns.Close())
	}
	return errors.Join(errs...)
}

// durability says in words what an acknowledged message survives.
func durability(flushDiskType string) string {
	if flushDiskType == store.SyncFlush {
		return "an acknowledged message is on disk: it survives a killed process and a power loss"
	}
	return "an acknowledged message survives a killed process; a power loss may cost the last 500 ms"
}

func (i *devInfo) print(w io.Writer, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(i)
	}
	at := ""
	if i.Namesrv != defaultNameServer {
		at = " -n " + i.Namesrv
	}
	_, err := fmt.Fprintf(w, `EpochMQ is ready after %d ms.

  name server  %s
  broker       %s  (name %s, cluster %s)
  data         %s
  durability   %s: %s

Next, in a second terminal:

  seq 1 1000 | epochmq produce%s -t numbers
  epochmq consume%s -t numbers --from first --exit-at-end
  epochmq topic list%s

Ctrl-C stops it.
`, i.ReadyMS, i.Namesrv, i.Broker, i.BrokerName, i.Cluster, i.Data, i.Durability, durability(i.Durability), at, at, at)
	return err
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/broker"
	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/store"
	"github.com/epochmq/epochmq/store/mappedfile"
)

func newBrokerCommand() *cobra.Command {
	var sf serverFlags
	var cf configFlags
	var nameServers string
	var proxyProtocol bool
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker",
		Long: `Run a broker until SIGTERM or SIGINT. Keys of the file given with -c are those of RocketMQ's broker; --keys says which of
them act here. Name servers come from -n, else from namesrvAddr in the file, else from NAMESRV_ADDR; without any the broker
serves those who know its address. An environment variable EPOCHMQ_LISTENPORT (EPOCHMQ_ and the key in capitals) overrides the file.

Exit code: 1 also when the store had to stop taking messages after a failed write or flush.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, stop, err := sf.start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			set, err := broker.NewSettings(log)
			if err != nil {
				return err
			}
			if err := cf.load(set); err != nil {
				return err
			}
			if nameServers != "" {
				set.Put("namesrvAddr", nameServers)
			}
			if cf.listing() {
				if err := broker.Resolve(set, broker.Options{Log: log}); err != nil {
					return err
				}
				return cf.print(cmd.OutOrStdout(), set)
			}
			if err := checkSettings(set); err != nil {
				return err
			}
			b, err := broker.New(set, broker.Options{Log: log, ProxyProtocol: proxyProtocol})
			if err != nil {
				return explainStore(err)
			}
			if err := b.Start(cmd.Context()); err != nil {
				return explainPort(err, "set listenPort in the file given with -c, or EPOCHMQ_LISTENPORT")
			}
			if len(b.Addresses().NameServers) == 0 {
				log.Warn("no name server is configured: clients find this broker only by its address; use -n or namesrvAddr")
			}
			return untilStopped(cmd.Context(), log, func() error { return closeBroker(b, log) })
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&nameServers, "namesrvAddr", "n", "", "name servers, for example 192.168.0.1:9876;192.168.0.2:9876")
	fl.StringVarP(&cf.file, "configFile", "c", "", "property file")
	fl.BoolVarP(&cf.all, "printConfigItem", "p", false, "print every setting as key=value and exit")
	fl.BoolVarP(&cf.important, "printImportantConfig", "m", false, "print the important settings as key=value and exit")
	fl.BoolVar(&cf.keys, "keys", false, "print every key with its default and what it does here, and exit")
	fl.BoolVar(&proxyProtocol, "proxy-protocol", false, "believe PROXY headers of a load balancer")
	sf.add(fl, "info")
	return cmd
}

// closeBroker stops a broker and reports a store that was fenced, also when the stop itself went well.
func closeBroker(b *broker.Broker, log *slog.Logger) error {
	fenced := b.Err()
	err := b.Close()
	if fenced != nil && !errors.Is(fenced, store.ErrClosed) {
		return advise(fmt.Errorf("the store stopped taking messages: %w", fenced), "check the disk, then start again; what was acknowledged is recovered")
	}
	if err == nil {
		log.Info("broker stopped")
	}
	return err
}

// checkSettings refuses values that a broker cannot run with, before it touches its folder.
func checkSettings(set *conf.Set) error {
	var bc broker.Config
	var sc store.Config
	set.Value(&bc)
	set.Value(&sc)
	for _, err := range []error{bc.Validate(), sc.Validate()} {
		var no *store.UnsupportedError
		if errors.As(err, &no) {
			return err // says what to do
		}
		if err != nil {
			return advise(err, "'epochmq broker --keys' lists the keys and their values")
		}
	}
	return nil
}

// explainStore adds what to do to an error of opening a store.
func explainStore(err error) error {
	var no *store.UnsupportedError
	switch {
	case errors.As(err, &no):
		return err // says what to do
	case errors.Is(err, mappedfile.ErrLocked):
		return advise(err, "stop the process that has it, or use another folder")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		return advise(err, "storePathRootDir (dev: --data) must name a folder that this user may write, on a disk with space")
	}
	return advise(err, "'epochmq inspect' on storePathRootDir says what is there")
}

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/namesrv"
)

func newNamesrvCommand() *cobra.Command {
	var sf serverFlags
	var cf configFlags
	var ignored string
	cmd := &cobra.Command{
		Use:   "namesrv",
		Short: "Run a name server",
		Long: `Run a name server until SIGTERM or SIGINT. Keys of the file given with -c are those of RocketMQ's name server.
An environment variable EPOCHMQ_LISTENPORT (EPOCHMQ_ and the key in capitals) overrides the file.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, stop, err := sf.start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			set := conf.New(log)
			if err := set.Register(new(namesrv.Config)); err != nil {
				return err
			}
			if err := cf.load(set); err != nil {
				return err
			}
			if cf.listing() {
				return cf.print(cmd.OutOrStdout(), set)
			}
			s, err := namesrv.New(namesrv.Options{Settings: set, Log: log})
			if err != nil {
				return advise(err, "change the configuration file or the file it names")
			}
			if err := s.Start(); err != nil {
				err = errors.Join(err, s.Close())
				return explainPort(err, "set listenPort in the file given with -c, or EPOCHMQ_LISTENPORT")
			}
			return untilStopped(cmd.Context(), log, s.Close)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&cf.file, "configFile", "c", "", "property file")
	fl.BoolVarP(&cf.all, "printConfigItem", "p", false, "print every setting as key=value and exit")
	fl.BoolVarP(&cf.important, "printImportantConfig", "m", false, "print the important settings as key=value and exit")
	fl.BoolVar(&cf.keys, "keys", false, "print every key with its default and what it does here, and exit")
	fl.StringVarP(&ignored, "namesrvAddr", "n", "", "accepted as by mqnamesrv; has no effect")
	_ = fl.MarkHidden("namesrvAddr")
	sf.add(fl, "info")
	return cmd
}

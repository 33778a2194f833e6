package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/controller"
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
With enableControllerInNamesrv=true a controller runs in the same process, with the controller's keys of the same file.
An environment variable EPOCHMQ_LISTENPORT (EPOCHMQ_ and the key in capitals) overrides the file.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, stop, err := sf.start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			set, both, err := namesrvSettings(&cf, log)
			if err != nil {
				return err
			}
			if cf.listing() {
				return cf.print(cmd.OutOrStdout(), set)
			}
			var c *controller.Controller
			if both {
				if c, err = newController(set, log); err != nil {
					return err
				}
			}
			s, err := namesrv.New(namesrv.Options{Settings: set, Log: log})
			if err != nil {
				return advise(err, "change the configuration file or the file it names")
			}
			if err := s.Start(); err != nil {
				err = errors.Join(err, s.Close())
				return explainPort(err, "set listenPort in the file given with -c, or EPOCHMQ_LISTENPORT")
			}
			if !both {
				return untilStopped(cmd.Context(), log, s.Close)
			}
			if err := startController(c); err != nil {
				return errors.Join(err, s.Close())
			}
			ctx, failed := untilFailed(cmd.Context(), c)
			return untilStopped(ctx, log, func() error { return errors.Join(failed(), c.Close(), s.Close()) })
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

// namesrvSettings loads the settings of a name server; both says that they are those of a controller too, in the same process.
func namesrvSettings(cf *configFlags, log *slog.Logger) (set *conf.Set, both bool, err error) {
	load := func(log *slog.Logger, components ...any) error {
		set = conf.New(log)
		for _, c := range components {
			if err := set.Register(c); err != nil {
				return err
			}
		}
		return cf.load(set)
	}
	// What the first look warns of may be a key of the controller.
	var cfg namesrv.Config
	if err := load(slog.New(slog.DiscardHandler), &cfg); err != nil {
		return nil, false, err
	}
	set.Value(&cfg)
	components := []any{new(namesrv.Config)}
	if both = cfg.EnableControllerInNamesrv; both {
		components = append(components, new(controller.Config))
	}
	err = load(log, components...)
	return set, both, err
}

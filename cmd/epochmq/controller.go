package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/epochmq/epochmq/conf"
	"github.com/epochmq/epochmq/controller"
)

func newControllerCommand() *cobra.Command {
	var sf serverFlags
	var cf configFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run a controller, which elects the masters of broker sets, or ask one",
		Long: `Run a controller until SIGTERM or SIGINT. It elects the masters of broker sets and keeps what it decides in a group of one
or more controllers, of which a majority must run. Keys of the file given with -c are those of RocketMQ's controller:
controllerDLegerGroup names the group, controllerDLegerPeers lists it (n0-127.0.0.1:9878;n1-...), and controllerDLegerSelfId
says which of them this one is. Brokers and administrators use the same port. One that leads hands over when it is stopped.
An environment variable EPOCHMQ_CONTROLLERSTOREPATH (EPOCHMQ_ and the key in capitals) overrides the file.

Exit code: 1 also when the controller had to stop because it cannot read what the group decided.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, stop, err := sf.start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer stop()
			set := conf.New(log)
			if err := set.Register(new(controller.Config)); err != nil {
				return err
			}
			if err := cf.load(set); err != nil {
				return err
			}
			if cf.listing() {
				return cf.print(cmd.OutOrStdout(), set)
			}
			c, err := newController(set, log)
			if err != nil {
				return err
			}
			if err := startController(c); err != nil {
				return err
			}
			ctx, failed := untilFailed(cmd.Context(), c)
			return untilStopped(ctx, log, func() error { return errors.Join(failed(), c.Close()) })
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&cf.file, "configFile", "c", "", "property file")
	fl.BoolVarP(&cf.all, "printConfigItem", "p", false, "print every setting as key=value and exit")
	fl.BoolVarP(&cf.important, "printImportantConfig", "m", false, "print the important settings as key=value and exit")
	fl.BoolVar(&cf.keys, "keys", false, "print every key with its default and what it does here, and exit")
	sf.add(fl, "info")
	cmd.AddCommand(newControllerStatusCommand(), newControllerMetadataCommand(), newControllerConfigCommand())
	return cmd
}

// newController makes a controller, and says what to do about settings that it cannot run with.
func newController(set *conf.Set, log *slog.Logger) (*controller.Controller, error) {
	c, err := controller.New(controller.Options{Settings: set, Log: log})
	return c, advise(err, "change the file given with -c; conf/controller has samples")
}

// startController starts a controller, and closes it and says what to do when that is not possible.
func startController(c *controller.Controller) error {
	err := c.Start()
	if err == nil {
		return nil
	}
	err = errors.Join(err, c.Close())
	var damage *controller.DamageError
	switch {
	case errors.As(err, &damage):
		return advise(err, "bring the folder back from a copy; or move it away, but only while the other controllers of the group run and agree: this one then begins empty")
	case errors.Is(err, controller.ErrInUse):
		return advise(err, "stop that process, or set controllerStorePath")
	}
	return explainPort(err, "change the address of this controller in controllerDLegerPeers, on every controller")
}

// untilFailed is a context that also ends when the controller ends by itself; failed tells why, nil if it did not.
func untilFailed(parent context.Context, c *controller.Controller) (ctx context.Context, failed func() error) {
	ctx, cancel := context.WithCancel(parent)
	reason := make(chan error, 1)
	go func() {
		defer cancel()
		select {
		case err := <-c.Failed():
			reason <- err
		case <-ctx.Done():
			reason <- nil
		}
	}()
	return ctx, func() error {
		return advise(<-reason, "if a newer version wrote it, run that version on this controller")
	}
}

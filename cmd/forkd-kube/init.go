package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/kube/supervisor"
)

// initOptions are the flags of forkd-kube init.
type initOptions struct {
	start, watchdog, grace time.Duration
	logs                   daemonlog.Flags
}

func newInitCommand() *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init [flags] -- PROGRAM [ARG...]",
		Short: "Keep the daemon of a node running as the first process of its container",
		Long: "Keep the daemon of a node running as the first process of its container. A container ends with its\n" +
			"first process, and so would all VMs. With init, VMs outlive a crash of the daemon: init starts it\n" +
			"again, with pauses from 1 s to 30 s, and the new daemon adopts them.\n\n" +
			"The daemon is also killed and started again if it is not ready after --start-timeout, or if it does\n" +
			"not report for --watchdog. init ends with the daemon's exit code if that is 2 or 3 before it was\n" +
			"ever ready: a wrong configuration, and a host without KVM.\n\n" +
			"Signals: SIGHUP restarts the daemon, and VMs run on. SIGTERM stops it and ends init: the container\n" +
			"ends with its VMs. Drain the daemon before.",
		Example: "  forkd-kube init -- forkd serve --config /etc/forkd/config.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *initOptions) addFlags(f *pflag.FlagSet) {
	f.SetInterspersed(false)
	f.DurationVar(&o.start, "start-timeout", 5*time.Minute, "give the daemon this `TIME` to become ready; it adopts its VMs before")
	f.DurationVar(&o.watchdog, "watchdog", time.Minute, "expect a report of the daemon each `TIME`")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "give the daemon this `TIME` after SIGTERM, then kill it")
	o.logs.Add(f)
}

func (o *initOptions) complete() error {
	var wrong []error
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--start-timeout", o.start}, {"--watchdog", o.watchdog}, {"--grace", o.grace}} {
		if d.value < time.Second {
			wrong = append(wrong, fmt.Errorf("%s is %s, want at least 1s", d.flag, d.value))
		}
	}
	if len(wrong) > 0 {
		return exit.UsageError{Err: errors.Join(wrong...)}
	}
	return nil
}

// run runs the daemon until ctx ends, at SIGTERM.
func (o *initOptions) run(ctx context.Context, argv []string) error {
	log, err := o.logs.Logger(os.Stderr)
	if err != nil {
		return err
	}
	s, err := supervisor.New(supervisor.Config{Argv: argv, StartTimeout: o.start, Watchdog: o.watchdog, Grace: o.grace,
		BackOff: time.Second, BackOffMax: 30 * time.Second, Log: log})
	if err != nil {
		return err
	}
	exit.OnHangup(ctx, func() {})
	hangups := make(chan os.Signal, 1) // also if whoever started init ignores them, as nohup does
	signal.Notify(hangups, syscall.SIGHUP)
	defer func() { signal.Stop(hangups); close(hangups) }()
	go func() {
		for range hangups {
			s.Restart()
		}
	}()
	code, err := s.Run(ctx)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	if code != 0 {
		return exit.Code(code)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// lifeFlags are the flags for the lifetime of sandboxes.
type lifeFlags struct {
	ttl, idle      time.Duration
	atEnd          string
	autoResume     bool
	filesystemOnly bool
	restartOnHang  bool
}

func (l *lifeFlags) addFlags(cmd *cobra.Command) {
	section(cmd.Flags(), "Lifetime", func(f *pflag.FlagSet) {
		f.DurationVar(&l.ttl, "ttl", 0,
			"end or pause each sandbox after `DURATION`, such as 2h, by the host's clock (default: never)")
		f.DurationVar(&l.idle, "idle", 0, "end or pause each sandbox after `DURATION` without use (default: never)")
		f.StringVar(&l.atEnd, "at-end", "", "at --ttl or --idle, take `ACTION`: kill or pause (default: kill)")
		f.BoolVar(&l.autoResume, "auto-resume", false, "resume a paused sandbox on the next request")
		f.BoolVar(&l.filesystemOnly, "filesystem-only", false,
			"with --at-end pause: keep the disk without memory; the sandbox boots when resumed")
		f.BoolVar(&l.restartOnHang, "restart-on-hang", false,
			"roll a sandbox back to its snapshot when the guest's kernel hangs")
	})
}

func (l *lifeFlags) life() api.SandboxLife {
	return api.SandboxLife{TTLSecs: l.ttl.Seconds(), IdleSecs: l.idle.Seconds(), AtEnd: api.AtEnd(l.atEnd),
		AutoResume: l.autoResume, FilesystemOnly: l.filesystemOnly, RestartOnHang: l.restartOnHang}
}

// change returns the change for the given flags.
func (l *lifeFlags) change(cmd *cobra.Command) (req api.LifeRequest, err error) {
	given := cmd.Flags().Changed
	if given("ttl") {
		s := l.ttl.Seconds()
		req.TTLSecs = &s
	}
	if given("idle") {
		s := l.idle.Seconds()
		req.IdleSecs = &s
	}
	if given("at-end") {
		e := api.AtEnd(l.atEnd)
		req.AtEnd = &e
	}
	if given("auto-resume") {
		req.AutoResume = &l.autoResume
	}
	if given("filesystem-only") {
		req.FilesystemOnly = &l.filesystemOnly
	}
	if given("restart-on-hang") {
		req.RestartOnHang = &l.restartOnHang
	}
	if req == (api.LifeRequest{}) {
		return req, errors.New("give --ttl, --idle, --at-end, --auto-resume, --filesystem-only or --restart-on-hang")
	}
	return req, nil
}

func newPauseCommand(a *app) *cobra.Command {
	var req api.PauseRequest
	cmd := &cobra.Command{
		Use:   "pause ID",
		Short: "Pause a sandbox: turn it into a snapshot under its own ID",
		Long: "Pause a sandbox. A paused sandbox uses no process and no memory. It survives a restart of the\n" +
			"daemon and a reboot of the host, and continues with `forkd resume`. Its connections are closed. If\n" +
			"pausing fails, the sandbox keeps running.\n\n" +
			"With --filesystem-only only its disk is kept. Its processes end, and it boots when it is resumed.",
		Example:           "  forkd pause sb-5f3a-0001\n  forkd pause sb-5f3a-0001 --filesystem-only",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := client.Life{Client: c}.Pause(ctx, args[0], req)
			return printID(a, info, whatBecame(ctx, err, c, args[0]))
		}),
	}
	cmd.Flags().BoolVar(&req.FilesystemOnly, "filesystem-only", false,
		"keep the disk without memory; the sandbox boots when resumed")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	var peers []string
	cmd := &cobra.Command{
		Use:   "resume ID",
		Short: "Resume a paused sandbox",
		Long: "Resume a paused sandbox with its ID, processes and identity. It gets a new clock and new\n" +
			"randomness. Earlier connections are reset. After a pause with --filesystem-only it boots from its\n" +
			"disk, without its processes. A running sandbox is left unchanged.\n\n" +
			"With --from-peer a sandbox paused at another daemon goes on here, with the same ID. The other daemon\n" +
			"gives it up. The operator of this daemon allows peers with `forkd serve --peer`.",
		Example:           "  forkd resume sb-5f3a-0001\n  forkd resume sb-5f3a-0001 --from-peer https://10.0.0.2:8889",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			life := client.Life{Client: c}
			if len(peers) > 0 {
				info, err := life.ResumeFrom(ctx, args[0], peers)
				return printID(a, info, err)
			}
			info, err := life.Resume(ctx, args[0])
			return printID(a, info, whatBecame(ctx, err, c, args[0]))
		}),
	}
	cmd.Flags().StringArrayVar(&peers, "from-peer", nil,
		"take a sandbox paused at the daemon at `URL`; may be repeated")
	return cmd
}

func newExtendCommand(a *app) *cobra.Command {
	var life lifeFlags
	cmd := &cobra.Command{
		Use:   "extend ID",
		Short: "Change a sandbox's lifetime, and the action at its end",
		Long: "Change a sandbox's lifetime. New times count from now, and 0 removes a limit. Values that are not\n" +
			"given stay.",
		Example:           "  forkd extend sb-5f3a-0001 --ttl 2h\n  forkd extend sb-5f3a-0001 --idle 10m --at-end pause",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
	}
	life.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := life.change(cmd)
		if err != nil {
			return exit.UsageError{Err: err}
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			info, err := client.Life{Client: c}.SetLife(ctx, args[0], req)
			return printID(a, info, err)
		})
	}
	return cmd
}

// printID prints the ID of a changed sandbox.
func printID(a *app, info api.SandboxInfo, err error) error {
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.Value(info)
	}
	return a.Line("%s", info.ID)
}

// endOf describes the action and the time of a sandbox's deadline. It is empty without a deadline.
func endOf(sb api.SandboxInfo) string {
	l := sb.Life
	if l == nil || l.DeadlineUnix == nil || sb.Status == api.SandboxFailed ||
		sb.Status == api.SandboxPaused && l.AtEnd == api.AtEndPause {
		return ""
	}
	left := max(0, time.Until(time.Unix(*l.DeadlineUnix, 0)))
	return atEnd(l) + " in " + left.Round(time.Second).String()
}

// atEnd returns the action at a sandbox's end, in the words of its status afterwards.
func atEnd(l *api.SandboxLifeInfo) string {
	if l.FilesystemOnly {
		return string(l.AtEnd) + " (cold)"
	}
	return string(l.AtEnd)
}

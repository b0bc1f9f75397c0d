package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// drainEvery is the interval of progress checks.
const drainEvery = time.Second

// drainOptions are the flags of drain.
type drainOptions struct {
	pause, wait, cancel, status, detach bool
	untilRestart                        bool
	timeout                             time.Duration
}

func newDrainCommand(a *app) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Take no new sandboxes, and pause the running ones or wait for them",
		Long: "Empty the daemon for maintenance. It refuses forks, branches, resumes and new snapshots until\n" +
			"--cancel, also after a restart unless --until-restart is given. Running sandboxes are paused with\n" +
			"their memory and processes, or run on until they end (--wait). Requests to running sandboxes are\n" +
			"served.\n\n" +
			"The command ends when no sandbox has a VM, with exit code 0, or after --timeout with exit code 8.\n" +
			"The drain stays on in both cases. Sandboxes that cannot be paused are listed with the reason and\n" +
			"tried again. Only the operator's keys may drain.",
		Example: "  forkd drain\n  forkd drain --wait --timeout 30m\n  forkd drain --status\n  forkd drain --cancel",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout < 0 {
				return exit.UsageError{Err: fmt.Errorf("--timeout is %s, want at least 0", o.timeout)}
			}
			c, _, err := a.connect(cmd.Context(), endpoint.Options{ // no daemon is started for it
				Notice: func(line string) { a.Note("forkd: %s", line) }})
			if err != nil {
				return err
			}
			defer c.Close()
			d := &draining{app: a, c: c, told: map[string]string{}}
			return d.run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.pause, "pause", false, "pause running sandboxes with their memory and processes (default)")
	f.BoolVar(&o.wait, "wait", false, "let running sandboxes run until they end")
	f.BoolVar(&o.cancel, "cancel", false, "end the drain; paused sandboxes stay paused")
	f.BoolVar(&o.status, "status", false, "only show the state")
	f.BoolVar(&o.untilRestart, "until-restart", false,
		"end the drain when the daemon restarts, as for a stop of its container")
	f.BoolVarP(&o.detach, "detach", "d", false, "return at once")
	f.DurationVar(&o.timeout, "timeout", 0, "give up waiting after `DURATION`; 0: never")
	cmd.MarkFlagsMutuallyExclusive("pause", "wait", "cancel", "status")
	for _, other := range []string{"cancel", "status"} {
		cmd.MarkFlagsMutuallyExclusive(other, "detach")
		cmd.MarkFlagsMutuallyExclusive(other, "timeout")
		cmd.MarkFlagsMutuallyExclusive(other, "until-restart")
	}
	cmd.MarkFlagsMutuallyExclusive("detach", "timeout")
	return cmd
}

// draining is one run of the command.
type draining struct {
	app  *app
	c    *client.Client
	left int               // the number last noted
	told map[string]string // errors of pauses that were noted, by sandbox
}

func (d *draining) run(ctx context.Context, o drainOptions) error {
	switch {
	case o.status:
		return d.finish(d.c.DrainStatus(ctx))
	case o.cancel:
		return d.finish(d.c.CancelDrain(ctx))
	}
	req := api.DrainRequest{Mode: api.DrainPause, UntilRestart: o.untilRestart}
	if o.wait {
		req.Mode = api.DrainWait
	}
	state, err := d.c.Drain(ctx, req)
	if err != nil || o.detach {
		return d.finish(state, err)
	}
	return d.await(ctx, state, o.timeout)
}

// await waits until no sandbox has a VM.
func (d *draining) await(ctx context.Context, state api.Drain, timeout time.Duration) error {
	untilRestart := state.UntilRestart
	limited, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	d.left = -1
	for state.Draining && !state.Empty {
		d.progress(state)
		_ = sleep(limited, drainEvery)
		next, err := d.check(limited)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() != nil:
			late := &client.Error{Code: api.CodeTimeout, Message: fmt.Sprintf(
				"not empty after %s: %d sandboxes have a VM, %d requests are in progress; the drain stays on",
				timeout, len(state.Left), state.Coming)}
			if err := d.finish(state, nil); err != nil {
				return err
			}
			return late
		case err != nil:
			return err
		}
		state = next
	}
	if !state.Draining {
		why := "another client cancelled the drain"
		if untilRestart {
			why += ", or the daemon restarted"
		}
		return &client.Error{Code: api.CodeConflict, Message: why}
	}
	return d.finish(state, nil)
}

// check reads the state. A daemon that is being restarted gets some time.
func (d *draining) check(ctx context.Context) (api.Drain, error) {
	var lost time.Time // since then the daemon does not answer
	for {
		state, err := d.c.DrainStatus(ctx)
		if err == nil || ctx.Err() != nil {
			return state, err
		}
		code := client.CodeOf(err)
		if !client.IsUnreachable(err) && code != api.CodeBroken && code != api.CodeClosing {
			return state, err
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > restartPatience {
			return state, err
		}
		_ = sleep(ctx, drainEvery)
	}
}

// progress notes changes.
func (d *draining) progress(s api.Drain) {
	for _, l := range s.Left {
		if l.Error != "" && d.told[l.ID] != l.Error {
			d.told[l.ID] = l.Error
			d.app.Note("sandbox %s was not paused: %s", ui.Clean(l.ID), ui.Clean(l.Error))
		}
	}
	if n := len(s.Left) + s.Coming; n != d.left {
		d.left = n
		d.app.Note("left: %d sandboxes and %d requests; paused: %d", len(s.Left), s.Coming, s.Paused)
	}
}

// finish prints a state.
func (d *draining) finish(s api.Drain, err error) error {
	if err != nil {
		return err
	}
	if d.app.JSON {
		return d.app.Value(s)
	}
	if len(s.Left) > 0 {
		var rows [][]string
		for _, l := range s.Left {
			rows = append(rows, []string{l.ID, ui.Clean(l.Tenant), ui.Clean(l.Status), ui.Clean(l.Error)})
		}
		if err := d.app.Table([]string{"SANDBOX", "TENANT", "STATUS", "ERROR"}, rows); err != nil {
			return err
		}
	}
	if !s.Draining {
		d.app.Note("no drain is on; sandboxes with a VM: %d, paused: %d", len(s.Left), s.Paused)
		return nil
	}
	d.app.Note("draining (%s) since %s; sandboxes with a VM: %d, requests in progress: %d, paused: %d",
		ui.Clean(string(s.Mode)), time.Unix(s.SinceUnix, 0).Format(time.RFC3339), len(s.Left), s.Coming, s.Paused)
	return nil
}

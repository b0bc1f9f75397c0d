package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// checkEvery is the time after which wait asks for the states again, without an event. Events of an
// owner that has very many may be gone before they are read.
const checkEvery = 5 * time.Second

// restartPatience limits how long wait accepts a daemon that does not answer.
const restartPatience = 30 * time.Second

// ending is the end of a sandbox. Its JSON form is part of the CLI's contract.
type ending struct {
	ID     string `json:"id"`
	State  string `json:"state"` // ended or failed
	Reason string `json:"reason,omitempty"`
}

func newWaitCommand(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait ID...",
		Short: "Wait until sandboxes end",
		Long: "Wait until sandboxes end, and print each with its state: ended after a kill or at the end of its\n" +
			"lifetime, or failed with the reason. A paused sandbox has not ended. The exit code is 0, also for\n" +
			"failed sandboxes, and 8 after --timeout.",
		Example:           "  forkd wait sb-5f3a-0001\n  forkd wait --timeout 10m sb-5f3a-0001 sb-5f3a-0002",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return exit.UsageError{Err: fmt.Errorf("--timeout is %s, want at least 0", timeout)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				w := &waiting{app: a, c: c, ids: args, ended: map[string]ending{}}
				return w.run(ctx, timeout)
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after `DURATION`; 0: never")
	return cmd
}

// waiting is one run of the command.
type waiting struct {
	app   *app
	c     *client.Client
	ids   []string // as typed
	ended map[string]ending
	after uint64 // last event
}

// errAllEnded ends the stream of events.
var errAllEnded = errors.New("all sandboxes have ended")

func (w *waiting) run(ctx context.Context, timeout time.Duration) error {
	for _, id := range w.ids { // a misspelled ID is an error
		if _, err := w.c.Sandbox(ctx, id); err != nil && !w.existed(ctx, id, err) {
			return err
		}
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	err := w.follow(limited)
	if ctx.Err() == nil && limited.Err() != nil && err != nil {
		err = &client.Error{Code: api.CodeTimeout,
			Message: fmt.Sprintf("not ended after %s: %s", timeout, strings.Join(w.pending(), ", "))}
	}
	if w.app.JSON {
		out := []ending{}
		for _, id := range w.ids {
			if e, ok := w.ended[id]; ok {
				out = append(out, e)
			}
		}
		return errors.Join(err, w.app.Value(out))
	}
	return err
}

// existed reports whether a missing sandbox has a receipt: it has ended before.
func (w *waiting) existed(ctx context.Context, id string, err error) bool {
	if !client.IsNotFound(err) {
		return false
	}
	_, err = w.c.SandboxReceipt(ctx, id)
	return err == nil
}

func (w *waiting) pending() []string {
	return slices.DeleteFunc(slices.Clone(w.ids), func(id string) bool { _, ok := w.ended[id]; return ok })
}

// follow checks the sandboxes after each of their events, until all have ended. The stream begins
// with old events, so that none is lost between a check and the stream.
func (w *waiting) follow(ctx context.Context) error {
	var lost time.Time // since then the daemon does not answer
	for {
		err := w.check(ctx)
		if err == nil && len(w.pending()) == 0 {
			return nil
		}
		if err == nil {
			lost = time.Time{}
			err = w.events(ctx)
		}
		switch {
		case errors.Is(err, errAllEnded):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			continue
		case !client.IsUnreachable(err) && client.CodeOf(err) != api.CodeBroken && client.CodeOf(err) != api.CodeClosing:
			return err
		case lost.IsZero():
			lost = time.Now()
		case time.Since(lost) > restartPatience:
			return err
		}
		_ = sleep(ctx, time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// events follows events for a while.
func (w *waiting) events(ctx context.Context) error {
	brief, cancel := context.WithTimeout(ctx, checkEvery)
	defer cancel()
	req := client.EventsRequest{After: w.after, All: w.after == 0, Kinds: []string{"sandbox.ended", "sandbox.failed"}}
	err := w.c.Events(brief, req, func(e api.Event) error {
		w.after = e.ID
		about := func(id string) bool { return dashless(id) == dashless(e.Sandbox) }
		if e.Kind != api.EventGap && !slices.ContainsFunc(w.pending(), about) {
			return nil
		}
		if err := w.check(ctx); err != nil {
			return err
		}
		if len(w.pending()) == 0 {
			return errAllEnded
		}
		return nil
	})
	if client.CodeOf(err) == api.CodeUnsupported { // a daemon without events
		err = sleep(brief, time.Second)
	}
	if brief.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func dashless(id string) string { return strings.ReplaceAll(id, "-", "") }

// check asks for the states of the sandboxes, and prints the ends.
func (w *waiting) check(ctx context.Context) error {
	for _, id := range w.pending() {
		sb, err := w.c.Sandbox(ctx, id)
		e := ending{ID: id, State: "ended"}
		switch {
		case client.IsNotFound(err):
		case err != nil:
			return err
		case sb.Status == api.SandboxFailed:
			e.State, e.Reason = string(sb.Status), sb.Reason
		default:
			continue
		}
		w.ended[id] = e
		if err := w.print(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiting) print(e ending) error {
	switch {
	case w.app.JSON:
		return nil
	case w.app.Quiet:
		return w.app.Line("%s", e.ID)
	case e.Reason != "":
		return w.app.Line("%s %s: %s", e.ID, e.State, ui.Clean(e.Reason))
	}
	return w.app.Line("%s %s", e.ID, e.State)
}

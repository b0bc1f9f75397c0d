//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// machineEnd handles the running sandboxes of a machine before its end.
type machineEnd struct {
	app        *app
	yes, pause bool
	paused     []string // by settle, in its order
}

// addFlags adds --yes and --pause.
func (e *machineEnd) addFlags(cmd *cobra.Command, pause bool, more string) {
	f := cmd.Flags()
	f.BoolVarP(&e.yes, "yes", "y", false, "end running sandboxes without asking"+more)
	f.BoolVar(&e.pause, "pause", pause, "pause running sandboxes first"+more)
}

// lookAtDaemon limits the time for a machine's daemon to list its sandboxes.
const lookAtDaemon = 10 * time.Second

// settle pauses the running sandboxes of the machine, or gets permission to end them. Otherwise it
// returns an error.
func (e *machineEnd) settle(ctx context.Context, cmd *cobra.Command, m *appliance.Appliance) error {
	c, err := machineClient(m)
	if errors.Is(err, appliance.ErrNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	ids, err := runningIn(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		return e.mayEnd(cmd, m, fmt.Sprintf("the daemon in machine %s does not list its sandboxes (%v)",
			m.Name, err), false)
	case len(ids) == 0:
		return nil
	case !e.pause:
		if err := e.mayEnd(cmd, m, running(ids)+" in machine "+m.Name, true); err != nil || !e.pause {
			return err
		}
	}
	failed := e.pauseAll(ctx, c, ids)
	if failed == nil {
		return nil
	}
	if ctx.Err() == nil && e.yes {
		e.app.Note("forkd: %v; it ends", failed)
		return nil
	}
	e.resumeAll(context.WithoutCancel(ctx), c)
	return hints.With(fmt.Errorf("%w; machine %s was left running", failed, m.Name),
		"--yes ends sandboxes that cannot be paused")
}

// machineClient returns a client of the machine's daemon.
func machineClient(m *appliance.Appliance) (*client.Client, error) {
	at, err := m.API()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{URL: "http://" + at.Addr, Token: at.Token, UserAgent: "forkd-cli/" + version})
}

// runningIn returns the sandboxes with a process, which end with the machine.
func runningIn(ctx context.Context, c *client.Client) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookAtDaemon)
	defer cancel()
	list, err := c.ListSandboxes(ctx)
	for _, sb := range list {
		if sb.Status != api.SandboxPaused && sb.Status != api.SandboxFailed {
			ids = append(ids, sb.ID)
		}
	}
	return ids, err
}

// mayEnd asks the user whether sandboxes may end. The user may choose to pause them instead.
func (e *machineEnd) mayEnd(cmd *cobra.Command, m *appliance.Appliance, what string, pausable bool) error {
	if e.yes {
		return nil
	}
	refused := codedError{fmt.Errorf("%s; machine %s was left running", what, m.Name), api.CodeConflict}
	if in := cmd.InOrStdin(); isTerminal(in) {
		question := "end them? [y/N] "
		if pausable {
			question = "end them (y), pause them first (p), or leave the machine running (N)? "
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s", what, question)
		answer, _ := bufio.NewReader(in).ReadString('\n')
		return e.answered(answer, pausable, refused)
	}
	hint := "--yes ends them"
	if pausable {
		hint = "--pause pauses them first, --yes ends them"
	}
	return hints.With(refused, hint)
}

func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && ui.Terminal(f)
}

// answered applies the user's answer.
func (e *machineEnd) answered(answer string, pausable bool, refused error) error {
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	case "p", "pause":
		if pausable {
			e.pause = true
			return nil
		}
	}
	return refused
}

func running(ids []string) string {
	if len(ids) == 1 {
		return "1 sandbox runs"
	}
	return fmt.Sprintf("%d sandboxes run", len(ids))
}

// pauseAll pauses sandboxes one after another, because each writes its memory to the same disk. It
// skips ended and already paused sandboxes.
func (e *machineEnd) pauseAll(ctx context.Context, c *client.Client, ids []string) (failed error) {
	for i, id := range ids {
		e.app.Note("pausing sandbox %s (%d of %d) ...", id, i+1, len(ids))
		_, err := client.Life{Client: c}.Pause(ctx, id, api.PauseRequest{})
		switch {
		case err == nil:
			e.paused = append(e.paused, id)
		case client.IsNotFound(err) || client.ReasonOf(err) == api.ReasonSandboxPaused:
		case ctx.Err() != nil:
			return err
		default:
			failed = errors.Join(failed, fmt.Errorf("pause %s: %w", id, err))
		}
	}
	return failed
}

// resumeAll resumes the sandboxes that settle paused, and names the ones left paused.
func (e *machineEnd) resumeAll(ctx context.Context, c *client.Client) {
	var left []string
	for _, id := range e.paused {
		if _, err := (client.Life{Client: c}).Resume(ctx, id); err != nil {
			e.app.Note("forkd: resume %s: %v", id, err)
			left = append(left, id)
		}
	}
	e.paused = left
}

// after resumes the paused sandboxes in the restarted machine, and reports the ones left paused.
func (e *machineEnd) after(ctx context.Context, m *appliance.Appliance) {
	if len(e.paused) == 0 {
		return
	}
	before := len(e.paused)
	if c, err := machineClient(m); err == nil {
		e.resumeAll(ctx, c)
		c.Close()
	}
	if went := before - len(e.paused); went > 0 {
		e.app.Note("resumed %d of %d sandboxes", went, before)
	}
	e.tellPaused(m)
}

// tellPaused names the sandboxes left paused.
func (e *machineEnd) tellPaused(m *appliance.Appliance) {
	if len(e.paused) == 0 {
		return
	}
	with := ""
	if m.Name != appliance.DefaultName {
		with = " --machine-name " + m.Name
	}
	e.app.Note("paused: %s; `forkd resume%s ID` resumes a sandbox", strings.Join(e.paused, ", "), with)
}

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// guest is the sandbox in which steps run.
type guest struct {
	id    string
	agent *agentclient.Client
	limit time.Duration // for one command
}

// fork starts a guest from a snapshot. end ends the guest, even if ctx has ended. fork records the
// sandbox before any command runs in it. If the daemon ends, the next daemon ends the sandbox. If
// no daemon follows, its own deadline ends it.
func (j *job) fork(ctx context.Context, tag string) (g *guest, end func(), err error) {
	cfg := j.b.cfg
	req := sandbox.ForkRequest{Tag: tag, N: 1, Network: cfg.Network,
		Env:  map[string]string{"E2B_SANDBOX": "true", "E2B_TEMPLATE_ID": j.template},
		Life: sandbox.Life{TTL: cfg.StepTimeout + cfg.ReadyTimeout + time.Hour, AtEnd: sandbox.AtEndKill}}
	id, err := forkOne(ctx, cfg.Engine, req)
	if err != nil {
		return nil, nil, err
	}
	g = &guest{id: id, limit: cfg.StepTimeout, agent: agentclient.New(func(ctx context.Context) (net.Conn, error) {
		return cfg.Engine.DialAgent(ctx, id)
	})}
	end = func() { j.endGuest(ctx, g) }
	if err := j.note(func(_ *Template, b *Build) { b.Sandbox = id }); err != nil {
		end()
		return nil, nil, err
	}
	return g, end, nil
}

func (j *job) endGuest(ctx context.Context, g *guest) {
	g.agent.Close()
	err := j.b.cfg.Engine.Kill(context.WithoutCancel(ctx), g.id)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		j.b.cfg.Log.Error("end the sandbox of a build", "sandbox", g.id, "error", err)
		return // its record stays for the next daemon
	}
	if err := j.note(func(_ *Template, b *Build) { b.Sandbox = "" }); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		j.b.cfg.Log.Warn("note the end of a build's sandbox", "sandbox", g.id, "error", err)
	}
}

func forkOne(ctx context.Context, e Engine, req sandbox.ForkRequest) (string, error) {
	res, err := e.Fork(ctx, req)
	switch {
	case err != nil:
		return "", err
	case len(res.Children) != 1:
		return "", fmt.Errorf("fork %s: %d children, want one", req.Tag, len(res.Children))
	}
	return res.Children[0].Info.ID, res.Children[0].Err
}

// quiesce prepares the guest for its snapshot. It leaves no connection to the guest.
func (g *guest) quiesce(ctx context.Context) error {
	if _, err := g.agent.Quiesce(ctx, &agentv1.QuiesceRequest{}); err != nil {
		return fmt.Errorf("quiesce: %w", err)
	}
	return g.agent.Close()
}

// command is a program to run in a guest.
type command struct {
	args  []string
	as    Context
	input io.Reader
	// said receives each line of output. If nil, the lines are discarded.
	said func(stream, line string)
}

// loginShell runs its argument in a login shell: bash, or sh in images without it.
const loginShell = `[ ! -x /bin/bash ] || exec /bin/bash -l -c "$0"; exec /bin/sh -l -c "$0"`

// shell returns the command for a client's command line.
func shell(line string, as Context, said func(stream, line string)) command {
	return command{args: []string{"/bin/sh", "-c", loginShell, line}, as: as, said: said}
}

// script returns one of our own scripts, as root, with arguments.
func script(text string, args ...string) command {
	return command{args: append([]string{"/bin/sh", "-c", text, "sh"}, args...),
		as: Context{User: "root", Workdir: "/"}}
}

// maxOutput limits the part of a command's output that is read, in bytes.
const maxOutput = 256 << 10

// run runs a command to its end and returns its standard output. If the command fails, run returns
// a *failure.
func (g *guest) run(ctx context.Context, c command) (string, error) {
	said := c.said
	if said == nil {
		said = func(string, string) {}
	}
	out := lines{to: func(l string) { said("stdout", l) }}
	errs := lines{to: func(l string) { said("stderr", l) }}
	r, err := g.agent.Exec(ctx, agentclient.ExecRequest{
		Args: c.args, Env: c.as.Env, Cwd: c.as.Workdir, User: c.as.User, Input: c.input,
		Timeout: g.limit, MaxOutput: maxOutput,
		OnOutput: func(stderr bool, chunk []byte) {
			if stderr {
				errs.add(chunk)
			} else {
				out.add(chunk)
			}
		},
	})
	out.end()
	errs.end()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", refusal(err)
	case r.TimedOut, r.ExitCode != 0:
		return "", &failure{status: r.Status, stderr: string(r.Stderr), stdout: string(r.Stdout)}
	}
	return string(r.Stdout), nil
}

// refusal returns the agent's own reason for not running a command: a code and a text.
func refusal(err error) error {
	var c *connect.Error
	if errors.As(err, &c) {
		return &failure{status: guesttext.Error(c).Error()}
	}
	return err
}

// failure is a command that did not succeed.
type failure struct {
	status         string
	stderr, stdout string
}

func (f *failure) Error() string { return "command failed: " + f.status }

// lastLines is the number of output lines in the error of a failed command.
const lastLines = 10

// told returns the error with the end of the command's output.
func (f *failure) told() string {
	text := strings.TrimSpace(f.stderr)
	if text == "" {
		text = strings.TrimSpace(f.stdout)
	}
	if text == "" {
		return f.Error()
	}
	all := strings.Split(text, "\n")
	return f.Error() + "\n" + guesttext.Tail(strings.Join(all[max(0, len(all)-lastLines):], "\n")).String()
}

// explain returns the text of a command's error with its output.
func explain(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.told()
	}
	return err.Error()
}

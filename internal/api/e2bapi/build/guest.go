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

// guest is the sandbox that steps run in.
type guest struct {
	id    string
	agent *agentclient.Client
	limit time.Duration // of one command
}

// fork makes a guest of a snapshot; end ends it, whatever became of ctx. It is written down
// before anything runs in it: should the daemon end, the next one ends it, and if that does not
// come either, its own time.
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
		return // its note stays for who comes next
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

// quiesce readies the guest for its snapshot. No connection to it is left.
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
	// said gets each line of output; nil drops them.
	said func(stream, line string)
}

// shell is a command line as clients mean it.
func shell(line string, as Context, said func(stream, line string)) command {
	return command{args: []string{"/bin/bash", "-l", "-c", line}, as: as, said: said}
}

// script is one of ours, as root, with arguments.
func script(text string, args ...string) command {
	return command{args: append([]string{"/bin/bash", "-c", text, "bash"}, args...),
		as: Context{User: "root", Workdir: "/"}}
}

// maxOutput is how much of a command's output is looked at.
const maxOutput = 256 << 10

// run runs a command to its end, and gives what it wrote to its standard output. One that
// fails is a *failure.
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

// refusal is the agent's own word for why a command did not run: a code and a text.
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

// lastLines is how many of a failed command's output its error has.
const lastLines = 10

// told is the error with the end of what the command printed.
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

// explain is an error of a command's with what it printed.
func explain(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.told()
	}
	return err.Error()
}

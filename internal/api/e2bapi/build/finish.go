package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
	"github.com/forkd/forkd/internal/guest/execclient"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// finish prepares the guest for the template's snapshot: it sets the defaults, starts the start
// command and waits until it is ready.
func (j *job) finish(ctx context.Context, g *guest, c Context) error {
	if !c.empty() {
		err := g.agent.ChangeDefaults(ctx, agentclient.Defaults{Env: c.Env, User: c.User, Workdir: c.Workdir})
		if err != nil {
			return err
		}
	}
	failed := make(chan error, 1)
	if j.plan.start != "" {
		j.log.say(LevelInfo, finalizeStep, "Running start command: "+j.plan.start)
		stop, err := j.startProgram(ctx, g, c, failed)
		if err != nil {
			return fmt.Errorf("failed to run start command '%s': %s", j.plan.start, explain(refusal(err)))
		}
		defer stop()
	}
	return j.awaitReady(ctx, g, c, failed)
}

// startProgram starts the start command. The program outlives its caller and continues in every
// clone. An end with an error is sent to failed. stop releases the program.
func (j *job) startProgram(ctx context.Context, g *guest, c Context, failed chan<- error) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	no := false
	cmd := shell(j.plan.start, c, nil)
	req := connect.NewRequest(&process.StartRequest{Stdin: &no,
		Process: &process.ProcessConfig{Cmd: cmd.args[0], Args: cmd.args[1:], Envs: c.Env}})
	if c.Workdir != "" {
		req.Msg.Process.Cwd = &c.Workdir
	}
	agentclient.SetUser(req.Header(), c.User)
	p := &program{}
	if err := p.begin(ctx, cancel, g, req); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.follow(p, failed)
	}()
	return func() {
		cancel()
		<-done
		p.stream.Close()
	}, nil
}

// startLimit limits the start of a program. The agent answers before the program does any work.
const startLimit = time.Minute

// program is a program that outlives its caller.
type program struct {
	stream *connect.ServerStreamForClient[process.StartResponse]
	order  execclient.Order
}

// begin starts the program. If the agent does not answer in time, begin calls cancel.
func (p *program) begin(ctx context.Context, cancel func(), g *guest,
	req *connect.Request[process.StartRequest]) error {
	slow := time.AfterFunc(startLimit, cancel)
	defer slow.Stop()
	var err error
	if p.stream, err = g.agent.Process().Start(ctx, req); err != nil {
		return err
	}
	_, ok, err := p.next()
	if err == nil && !ok {
		err = errors.New("it was not started")
	}
	if err != nil {
		cancel()
		p.stream.Close()
	}
	return err
}

// next returns the program's next event. ok is false when the stream has ended.
func (p *program) next() (_ *process.ProcessEvent, ok bool, _ error) {
	if !p.stream.Receive() {
		return nil, false, p.stream.Err()
	}
	ev := p.stream.Msg().GetEvent()
	return ev, true, p.order.Check(ev, time.Now())
}

// follow logs the start command's output until the program ends or is released.
func (j *job) follow(p *program, failed chan<- error) {
	say := func(name string) *lines {
		return &lines{to: func(l string) { j.log.output(finalizeStep, "[start] ["+name+"]: "+l) }}
	}
	out, errs := say("stdout"), say("stderr")
	defer out.end()
	defer errs.end()
	for {
		ev, ok, err := p.next()
		var broke *agentproto.Violation
		if errors.As(err, &broke) {
			failed <- fmt.Errorf("failed to run start command '%s': %w", j.plan.start, broke)
			return
		}
		if err != nil || !ok {
			return
		}
		out.add(ev.GetData().GetStdout())
		errs.add(ev.GetData().GetStderr())
		end := ev.GetEnd()
		if end == nil {
			continue
		}
		if end.GetExitCode() != 0 || !end.GetExited() {
			failed <- fmt.Errorf("failed to run start command '%s': command failed: %s",
				j.plan.start, guesttext.Of(end.GetStatus()))
		}
		return
	}
}

// awaitReady runs the ready command until it succeeds.
func (j *job) awaitReady(ctx context.Context, g *guest, c Context, failed <-chan error) error {
	cfg := j.b.cfg
	if j.plan.ready == "" {
		if j.plan.start == "" {
			return nil
		}
		return pause(ctx, cfg.StartWait, failed)
	}
	j.log.say(LevelInfo, finalizeStep, "Waiting for template to be ready: "+j.plan.ready)
	late := sandbox.Errorf(sandbox.ErrTimeout, "",
		"ready command '%s' did not succeed within %s", j.plan.ready, cfg.ReadyTimeout)
	limited, cancel := context.WithTimeoutCause(ctx, cfg.ReadyTimeout, late)
	defer cancel()
	for {
		_, err := g.run(limited, shell(j.plan.ready, c, func(stream, line string) {
			j.log.output(finalizeStep, "[ready] ["+stream+"]: "+line)
		}))
		var not *failure
		switch {
		case err == nil:
			j.log.say(LevelInfo, finalizeStep, "Template is ready")
			return nil
		case !errors.As(err, &not):
			return err
		}
		j.log.say(LevelDebug, finalizeStep, "Template is not ready yet: "+not.Error())
		if err := pause(limited, cfg.ReadyEvery, failed); err != nil {
			return err
		}
	}
}

// pause waits, unless an error arrives first.
func pause(ctx context.Context, d time.Duration, failed <-chan error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

package guest

import (
	"context"
	"errors"
	"net"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sandboxes"
	"github.com/forkd/forkd/internal/engine/vmproc"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/guesttext"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Limits on the agent's answers. The host waits AnswerGrace longer than the guest's own limit, so
// that the guest's report of a timeout arrives.
const (
	pingTimeout = 10 * time.Second
	AnswerGrace = 10 * time.Second
)

// Ping checks that the sandbox's agent answers.
func (c *Calls) Ping(ctx context.Context, id string) (sandbox.Pong, error) {
	ctx, done, m, err := c.enter(ctx, id, pingTimeout)
	if err != nil {
		return sandbox.Pong{}, err
	}
	defer done()
	a, err := m.Agent.Ping(ctx)
	if err != nil {
		return sandbox.Pong{}, Error(ctx, m, id, err)
	}
	p := sandbox.Pong{PID: int(a.GetPid()), Uptime: time.Duration(a.GetUptimeNs())}
	for _, i := range a.GetInterpreters() {
		if v := i.GetModules()["numpy"]; v != "" {
			p.NumpyVersion = v
		}
	}
	return p, nil
}

// Exec runs a program in the sandbox and waits for its end.
func (c *Calls) Exec(ctx context.Context, id string, req sandbox.ExecRequest) (r sandbox.ExecResult, err error) {
	if len(req.Args) == 0 {
		return r, sandbox.Errorf(sandbox.ErrInvalid, "", "no program to run")
	}
	if err := sandbox.CheckEnv(req.Env); err != nil {
		return r, err
	}
	if req.Timeout <= 0 {
		req.Timeout = sandbox.DefaultExecTimeout
	}
	c.beforeExec(ctx, id)
	ctx, done, m, err := c.enter(ctx, id, req.Timeout+AnswerGrace)
	if err != nil {
		return r, err
	}
	defer done()
	start := c.cfg.Now()
	defer func() { c.cfg.Observer.Observe(sandbox.OpExec, c.cfg.Now().Sub(start), err) }()
	a, err := m.Agent.Exec(ctx, agentclient.ExecRequest{
		Args: req.Args, Env: req.Env, Cwd: req.Cwd, User: req.User, Stdin: req.Stdin,
		Timeout: req.Timeout, MaxOutput: sandbox.MaxOutput, Keep: req.Keep,
	})
	if err != nil {
		return r, Error(ctx, m, id, err)
	}
	return sandbox.ExecResult{
		Stdout: a.Stdout, Stderr: a.Stderr, DroppedBytes: a.DroppedStdout + a.DroppedStderr,
		ExitCode: a.ShellCode, TimedOut: a.TimedOut, KilledBy: a.KilledBy,
	}, nil
}

// Eval runs code in the sandbox's warm interpreter. An exception in the code is a result; a timeout
// is an error.
func (c *Calls) Eval(ctx context.Context, id string, req sandbox.EvalRequest) (r sandbox.EvalResult, err error) {
	if req.Timeout <= 0 {
		req.Timeout = sandbox.DefaultExecTimeout
	}
	if req.Language == "" {
		req.Language = "python"
	}
	ctx, done, m, err := c.enter(ctx, id, req.Timeout+AnswerGrace)
	if err != nil {
		return r, err
	}
	defer done()
	var before vmm.Status
	if req.Measure {
		if before, err = m.Proc.Status(ctx); err != nil {
			return r, Error(ctx, m, id, err)
		}
	}
	defer c.beforeEval(ctx, id, m)()
	start := c.cfg.Now()
	defer func() { c.cfg.Observer.Observe(sandbox.OpEval, c.cfg.Now().Sub(start), err) }()
	trace := req.Trace.Environ()
	a, err := m.Agent.EvalWithin(ctx,
		&agentv1.EvalRequest{Language: req.Language, Code: req.Code, TimeoutNs: int64(req.Timeout),
			Traceparent: trace[tracecontext.EnvParent], Tracestate: trace[tracecontext.EnvState]}, req.Keep)
	switch {
	case errors.Is(err, agentclient.ErrNoRoom):
		return r, sandbox.Errorf(sandbox.ErrNoMemory, sandbox.ReasonAnswerNoRoom, "eval in sandbox %s: the code has "+
			"run, but its response exceeds the daemon's memory for the tenant's requests: read open "+
			"responses, or print less", id)
	case err != nil:
		return r, Error(ctx, m, id, err)
	case a.GetTimedOut():
		return r, sandbox.Errorf(sandbox.ErrTimeout, sandbox.ReasonEvalTimeout, "eval in sandbox %s timed out after %s",
			id, req.Timeout)
	}
	r = sandbox.EvalResult{
		Result: a.GetResult(), Stdout: output(a.GetStdout(), a.GetStdoutRaw()),
		Stderr: output(a.GetStderr(), a.GetStderrRaw()),
		Error:  a.GetTraceback(), ExitCode: int(a.GetExitCode()), DroppedBytes: a.GetDropped(),
		Took: c.cfg.Now().Sub(start), Guest: time.Duration(a.GetTookNs()),
	}
	if r.Error == "" {
		r.Error = a.GetError()
	}
	if req.Measure {
		after, err := m.Proc.Status(ctx)
		if err != nil {
			return r, Error(ctx, m, id, err)
		}
		r.Guest = after.Guest - before.Guest
	}
	return r, nil
}

// output returns the output of a stream, raw if it is not text.
func output(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// DialAgent opens a raw stream to the agent's HTTP port, for proxying. The caller closes it. It
// breaks if the sandbox stalls for lack of disk space, or when its VM ends.
func (c *Calls) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	return redial(func() (net.Conn, error) { return c.dialAgent(ctx, id) })
}

func (c *Calls) dialAgent(ctx context.Context, id string) (net.Conn, error) {
	c.beforeExec(ctx, id) // the first request is usually a program
	ctx, done, m, err := c.enter(ctx, id, pingTimeout)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := client.DialVsock(ctx, m.Proc.VsockPath(), agentproto.AgentPort)
	if err != nil {
		return nil, Error(ctx, m, id, err)
	}
	return m.WhileRoomConn(conn, id), nil
}

// enter admits a request to a running sandbox and bounds its time.
func (c *Calls) enter(ctx context.Context, id string,
	limit time.Duration) (_ context.Context, done func(), _ *vmproc.VM, _ error) {
	s, m, err := c.awake(ctx, id)
	if err == nil {
		err = m.HasRoom("sandbox " + id)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, leave, err := c.cfg.Begin(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		sandbox.Errorf(sandbox.ErrTimeout, "", "sandbox %s did not answer within %s", id, limit))
	ctx, calm := m.WhileRoom(ctx, "sandbox "+id)
	return ctx, func() { s.Touch(); calm(); cancel(); leave() }, m, nil
}

// awake returns a running sandbox. It resumes a paused one if calls may wake it. The sandbox counts
// as used from now on: a pause of an idle sandbox checks the idle time again after it has blocked
// new calls.
func (c *Calls) awake(ctx context.Context, id string) (*sandboxes.Sandbox, *vmproc.VM, error) {
	if s := c.cfg.Sandboxes.Lookup(id); s != nil {
		s.Touch()
	}
	for range wakeTries {
		s, m, err := c.cfg.Sandboxes.Running(id)
		if c.cfg.Wake == nil || !isPaused(err) {
			return s, m, err
		}
		if woken, err := c.cfg.Wake(ctx, id); err != nil {
			return nil, nil, err
		} else if !woken {
			break
		}
	}
	return c.cfg.Sandboxes.Running(id)
}

// wakeTries limits how often a request wakes a sandbox that is paused again right after it was
// woken.
const wakeTries = 5

// isPaused reports whether an error means that a sandbox is paused, or was paused during the
// request.
func isPaused(err error) bool {
	var told *sandbox.Error
	return errors.As(err, &told) && told.Reason() == sandbox.ReasonSandboxPaused
}

// redial calls dial. It retries if the sandbox was paused before the connection was made: the guest
// has then seen no request.
func redial(dial func() (net.Conn, error)) (conn net.Conn, err error) {
	for range wakeTries {
		conn, err = dial()
		if !isPaused(err) || !errors.Is(err, sandbox.ErrGuestGone) {
			break
		}
	}
	return conn, err
}

// Error converts an agent's error: the VM is gone or was replaced, time is up, the request was
// wrong, or the guest misbehaves.
func Error(ctx context.Context, m *vmproc.VM, id string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return sandbox.Ended(ctx, cause)
	}
	if err := m.ReplacedError(id); err != nil {
		return err
	}
	var broke *agentproto.Violation
	if errors.As(err, &broke) {
		return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonAgentSilent, "sandbox %s: %w", id, broke)
	}
	switch connect.CodeOf(err) {
	case connect.CodeDeadlineExceeded:
		return sandbox.Errorf(sandbox.ErrTimeout, "", "sandbox %s: %w", id, err)
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodePermissionDenied,
		// unauthenticated: there is no such user
		connect.CodeUnauthenticated, connect.CodeUnimplemented, connect.CodeOutOfRange:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "sandbox %s: %s", id, message(err))
	case connect.CodeDataLoss: // its user removed files that commands need
		return sandbox.Detailed(sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxBroken, "sandbox %s: %s", id,
			message(err)), "sandbox", id)
	}
	// The connection breaks a moment before the end of the process is noticed, longer on a busy
	// host.
	if m.WaitEnd(time.Second) {
		return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonSandboxEnded, "sandbox %s: %w: %s",
			id, vmproc.ErrNoVM, m.EndReason())
	}
	return sandbox.Errorf(sandbox.ErrGuestGone, sandbox.ReasonAgentSilent, "sandbox %s: %w", id, err)
}

func message(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) {
		return guesttext.Lines(ce.Message()).String()
	}
	return guesttext.Error(err).Error()
}

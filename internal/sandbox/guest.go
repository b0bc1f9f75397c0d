package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/agentproto/agentv1"
	"github.com/forkd/forkd/internal/vmmctl"
)

// Limits on the agent's answers. answerGrace is how much longer than the guest's
// own limit the host waits, so that the guest's account of a timeout arrives.
const (
	pingTimeout = 10 * time.Second
	answerGrace = 10 * time.Second
)

// Ping asks the sandbox's agent for a sign of life.
func (e *Engine) Ping(ctx context.Context, id string) (Pong, error) {
	ctx, done, m, err := e.enter(ctx, id, pingTimeout)
	if err != nil {
		return Pong{}, err
	}
	defer done()
	a, err := m.agent.Ping(ctx)
	if err != nil {
		return Pong{}, guestError(ctx, m, id, err)
	}
	p := Pong{PID: int(a.GetPid()), Uptime: time.Duration(a.GetUptimeNs())}
	for _, i := range a.GetInterpreters() {
		if v := i.GetModules()["numpy"]; v != "" {
			p.NumpyVersion = v
		}
	}
	return p, nil
}

// Exec runs a program in the sandbox and waits for its end.
func (e *Engine) Exec(ctx context.Context, id string, req ExecRequest) (r ExecResult, err error) {
	if len(req.Args) == 0 {
		return r, problem(ErrInvalid, "", "no program to run")
	}
	if req.Timeout <= 0 {
		req.Timeout = DefaultExecTimeout
	}
	ctx, done, m, err := e.enter(ctx, id, req.Timeout+answerGrace)
	if err != nil {
		return r, err
	}
	defer done()
	start := e.cfg.Now()
	defer func() { e.cfg.Observer.Observe(OpExec, e.cfg.Now().Sub(start), err) }()
	a, err := m.agent.Exec(ctx, agentclient.ExecRequest{
		Args: req.Args, Env: req.Env, Cwd: req.Cwd, User: req.User, Stdin: req.Stdin,
		Timeout: req.Timeout, MaxOutput: MaxOutput,
	})
	if err != nil {
		return r, guestError(ctx, m, id, err)
	}
	return ExecResult{
		Stdout: a.Stdout, Stderr: a.Stderr, DroppedBytes: a.DroppedStdout + a.DroppedStderr,
		ExitCode: exitCode(a), TimedOut: a.TimedOut,
	}, nil
}

// exitCode follows the shells: 128+n for signal n. The agent names the signal.
func exitCode(a agentclient.ExecResult) int {
	if a.TimedOut {
		return 128 + int(syscall.SIGKILL)
	}
	name, signaled := strings.CutPrefix(a.Status, "signal: ")
	if !signaled {
		return a.ExitCode
	}
	name = strings.TrimSuffix(name, " (core dumped)")
	for n := syscall.Signal(1); n < 65; n++ {
		if n.String() == name {
			return 128 + int(n)
		}
	}
	return 128
}

// Eval runs code in the sandbox's warmed interpreter. What the code raises is a
// result; running out of time is an error.
func (e *Engine) Eval(ctx context.Context, id string, req EvalRequest) (r EvalResult, err error) {
	if req.Timeout <= 0 {
		req.Timeout = DefaultExecTimeout
	}
	if req.Language == "" {
		req.Language = "python"
	}
	ctx, done, m, err := e.enter(ctx, id, req.Timeout+answerGrace)
	if err != nil {
		return r, err
	}
	defer done()
	var before vmmctl.Status
	if req.Measure {
		if before, err = m.proc.Status(ctx); err != nil {
			return r, guestError(ctx, m, id, err)
		}
	}
	start := e.cfg.Now()
	defer func() { e.cfg.Observer.Observe(OpEval, e.cfg.Now().Sub(start), err) }()
	a, err := m.agent.Eval(ctx, &agentv1.EvalRequest{Language: req.Language, Code: req.Code, TimeoutNs: int64(req.Timeout)})
	switch {
	case err != nil:
		return r, guestError(ctx, m, id, err)
	case a.GetTimedOut():
		return r, problem(ErrTimeout, "what was defined before may be lost; raise the timeout", "eval in sandbox %s did not end within %s", id, req.Timeout)
	}
	r = EvalResult{
		Result: a.GetResult(), Stdout: a.GetStdout(), Stderr: a.GetStderr(), Error: a.GetTraceback(),
		Took: e.cfg.Now().Sub(start), Guest: time.Duration(a.GetTookNs()),
	}
	if r.Error == "" {
		r.Error = a.GetError()
	}
	if req.Measure {
		after, err := m.proc.Status(ctx)
		if err != nil {
			return r, guestError(ctx, m, id, err)
		}
		r.Guest = time.Duration(after.GuestNanos - before.GuestNanos)
	}
	return r, nil
}

// DialAgent opens a raw stream to the agent's HTTP port, for proxying. The
// caller closes it.
func (e *Engine) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	ctx, done, m, err := e.enter(ctx, id, pingTimeout)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := vmmctl.DialVsock(ctx, m.proc.VsockPath(), agentproto.AgentPort)
	if err != nil {
		return nil, guestError(ctx, m, id, err)
	}
	return c, nil
}

// enter admits a request to a running sandbox and bounds its time.
func (e *Engine) enter(ctx context.Context, id string, limit time.Duration) (_ context.Context, done func(), _ *machine, _ error) {
	_, m, err := e.running(id)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, leave, err := e.begin(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, problem(ErrTimeout, "", "sandbox %s did not answer within %s", id, limit))
	return ctx, func() { cancel(); leave() }, m, nil
}

// guestError says what an agent's error means: the VM is gone or was replaced,
// time is up, the request was wrong, or the guest misbehaves.
func guestError(ctx context.Context, m *machine, id string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return ended(ctx, cause)
	}
	if how := m.replaced.Load(); how != nil {
		return problem(ErrGuestGone, "what ran in it has ended; run it again", "sandbox %s %s", id, *how)
	}
	switch connect.CodeOf(err) {
	case connect.CodeDeadlineExceeded:
		return problem(ErrTimeout, "", "sandbox %s: %w", id, err)
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodePermissionDenied,
		connect.CodeUnauthenticated, connect.CodeUnimplemented, connect.CodeOutOfRange: // unauthenticated: there is no such user
		return problem(ErrInvalid, "", "sandbox %s: %s", id, message(err))
	}
	// The connection breaks a moment before the process is seen to be gone.
	if waitEnd(m, 200*time.Millisecond) {
		return problem(ErrGuestGone, "fork another", "sandbox %s: %w: %s", id, errNoVM, endReason(m))
	}
	return problem(ErrGuestGone, "look at its console", "sandbox %s: %w", id, err)
}

func message(err error) string {
	var ce *connect.Error
	if errors.As(err, &ce) {
		return ce.Message()
	}
	return fmt.Sprint(err)
}

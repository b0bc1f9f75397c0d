package fakeengine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

// guests has the engine's methods for running guests.
type guests struct{ e *Engine }

// Ping implements sandbox.Guests.
func (g guests) Ping(_ context.Context, id string) (sandbox.Pong, error) {
	if _, err := g.e.live(id); err != nil {
		return sandbox.Pong{}, err
	}
	return sandbox.Pong{PID: 1, NumpyVersion: "1.24.2", Uptime: 3 * time.Second}, nil
}

// Exec runs the programs of the fake guest.
func (g guests) Exec(ctx context.Context, id string, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	b, err := g.e.live(id)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	if len(req.Args) == 0 {
		return sandbox.ExecResult{}, fmt.Errorf("no program to run: %w", sandbox.ErrInvalid)
	}
	if err := sandbox.CheckEnv(req.Env); err != nil {
		return sandbox.ExecResult{}, err
	}
	if req.Args[0] == "wait" { // runs until the request ends
		<-ctx.Done()
		return sandbox.ExecResult{}, context.Cause(ctx)
	}
	run, ok := programs()[req.Args[0]]
	if !ok {
		return sandbox.ExecResult{}, fmt.Errorf("exec in %s: %s: no such program: %w", id, req.Args[0], sandbox.ErrInvalid)
	}
	if req.Args[0] == "sleep" { // the fake returns without waiting
		return sandbox.ExecResult{TimedOut: true, ExitCode: 124}, nil
	}
	var out, errOut bytes.Buffer
	code := run(&proc{
		ctx: ctx, disk: b.guest.disk, args: req.Args[1:], user: req.User, cwd: req.Cwd,
		env:   merged(merged(b.env, b.secrets), req.Env),
		stdin: bytes.NewReader(req.Stdin), stdout: &out, stderr: &errOut,
	})
	r := sandbox.ExecResult{Stdout: out.Bytes(), Stderr: errOut.Bytes(), ExitCode: code}
	for _, kept := range []*[]byte{&r.Stdout, &r.Stderr} {
		if n := len(*kept); req.Keep != nil && n > 0 {
			*kept = (*kept)[:req.Keep(n)]
			r.DroppedBytes += int64(n - len(*kept))
		}
	}
	return r, nil
}

// Eval knows a few expressions. The code "raise" raises an exception.
func (g guests) Eval(_ context.Context, id string, req sandbox.EvalRequest) (sandbox.EvalResult, error) {
	b, err := g.e.live(id)
	if err != nil {
		return sandbox.EvalResult{}, err
	}
	switch req.Code {
	case "raise":
		return sandbox.EvalResult{Error: "Traceback (most recent call last):\nRuntimeError: raised"}, nil
	case "exit(3)":
		return sandbox.EvalResult{Stderr: "leaving\n", ExitCode: 3}, nil
	case "noise":
		const n = 8 << 20
		if req.Keep != nil && req.Keep(n) < n {
			return sandbox.EvalResult{}, sandbox.Errorf(sandbox.ErrNoMemory, sandbox.ReasonAnswerNoRoom,
				"eval in sandbox %s: the code has run, but there is no room for its answer", id)
		}
		return sandbox.EvalResult{Stdout: strings.Repeat("\xff\x00", n/2)}, nil
	case "flood":
		return sandbox.EvalResult{Stdout: "the begin\n", DroppedBytes: 1 << 20}, nil
	case "bytes":
		return sandbox.EvalResult{Stdout: "\x00\xff\n", Stderr: "\xfe"}, nil
	case "print('hi')":
		return sandbox.EvalResult{Stdout: "hi\n"}, nil
	case "index":
		return sandbox.EvalResult{Result: fmt.Sprint(b.info.Index)}, nil
	case "trace":
		env := req.Trace.Environ()
		return sandbox.EvalResult{Result: env[tracecontext.EnvParent] + "|" + env[tracecontext.EnvState]}, nil
	}
	return sandbox.EvalResult{Result: "42", Took: 3 * time.Millisecond, Guest: 2 * time.Millisecond}, nil
}

// DialAgent connects to the fake agent's HTTP server.
func (g guests) DialAgent(_ context.Context, id string) (net.Conn, error) {
	b, err := g.e.live(id)
	if err != nil {
		return nil, err
	}
	return b.guest.dial()
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

package enginefake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/vm/vmm"
)

type fakeAgent struct {
	agentv1connect.UnimplementedAgentHandler
	f *fake
}

func (a *fakeAgent) Ping(
	context.Context, *connect.Request[agentv1.PingRequest],
) (*connect.Response[agentv1.PingResponse], error) {
	return connect.NewResponse(&agentv1.PingResponse{
		Pid: 1, Version: "fake", UptimeNs: int64(time.Second),
		Interpreters: []*agentv1.Interpreter{{Language: "python", Modules: map[string]string{"numpy": "2.0"}}},
		Capabilities: a.f.capabilities(),
	}), nil
}

// capabilities returns the capabilities of a current or older agent.
func (f *fake) capabilities() []string {
	f.mu.Lock()
	updated := f.updated
	f.mu.Unlock()
	switch {
	case updated || f.faulty("agent-of-now"):
		return agentproto.Capabilities()
	case f.faulty("agent-to-update"):
		return []string{agentproto.CanIdentityPort, agentproto.CanUpdate}
	case f.faulty("agent-without-liveness"):
		return []string{agentproto.CanIdentityPort, agentproto.CanServices}
	case f.faulty("agent-of-before"):
		return nil
	case f.faulty("agent-without-inventory"):
		return []string{agentproto.CanIdentityPort}
	case f.faulty("agent-that-lies"):
		return []string{agentproto.CanIdentityPort, "a name\x1b[31m", strings.Repeat("x", 1<<16)}
	}
	return []string{agentproto.CanIdentityPort, agentproto.CanInventory, agentproto.CanIdentityTokens}
}

func (a *fakeAgent) Identity(
	ctx context.Context, r *connect.Request[agentv1.IdentityRequest],
) (*connect.Response[agentv1.IdentityResponse], error) {
	out, err := a.f.identity(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// shout returns bytes that must not appear in errors, events or logs.
func shout(n int) string { return strings.Repeat("\x1b\u202e\x00", n/5) }

func (f *fake) identity(ctx context.Context, m *agentv1.IdentityRequest) (*agentv1.IdentityResponse, error) {
	switch {
	case f.faulty("identity-full"):
		f.fill()
		<-ctx.Done()
		return nil, ctx.Err()
	case f.faulty("identity-hang"):
		<-ctx.Done()
		return nil, ctx.Err()
	case f.faulty("identity-die"):
		fmt.Fprintln(f.console, "Kernel panic - not syncing: out of luck")
		f.ended <- vmm.Exit{Kind: vmm.ExitReset, Reason: "reset"}
		time.Sleep(time.Hour)
	case f.faulty("identity-shout"):
		return &agentv1.IdentityResponse{KernelReseeded: true, Steps: []*agentv1.IdentityStep{
			{Name: shout(1 << 20), Error: shout(1 << 20)}, {Name: "a\x1b[2J", Error: shout(1 << 20)}}}, nil
	case f.faulty("identity-shout-error"):
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New(shout(1<<20)))
	case f.faulty("identity-clone"):
		return &agentv1.IdentityResponse{}, nil
	case len(m.GetEntropy()) < 32:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("too little entropy"))
	}
	sum := sha256.Sum256(m.GetEntropy())
	f.mu.Lock()
	f.agent.SandboxId, f.agent.Index, f.agent.Parent = m.GetSandboxId(), m.GetIndex(), m.GetParent()
	f.agent.MachineId, f.agent.Env, f.agent.Entropy = m.GetMachineId(), m.GetEnv(), sum[:]
	f.agent.ForkToken, f.agent.SameMachine = m.GetForkToken(), m.GetSameMachine()
	f.mu.Unlock()
	told := []*agentv1.IdentityStep{{Name: "entropy", Done: true, TookNs: 1000},
		{Name: "clock", Done: true, TookNs: int64(time.Hour)}} // longer than the call
	return &agentv1.IdentityResponse{KernelReseeded: true, RandomDigest: sum[:], Steps: told}, nil
}

func (a *fakeAgent) Warm(
	ctx context.Context, r *connect.Request[agentv1.WarmRequest],
) (*connect.Response[agentv1.WarmResponse], error) {
	if a.f.faulty("warm-full") {
		a.f.fill()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a.f.faulty("warm-hang") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var out agentv1.WarmResponse
	for _, s := range r.Msg.GetSteps() {
		res := &agentv1.WarmResult{Language: s.GetLanguage()}
		if strings.Contains(s.GetCode(), "raise") {
			res.Error, res.Traceback = "ValueError", "Traceback: line 1"
		}
		out.Results = append(out.Results, res)
	}
	return connect.NewResponse(&out), nil
}

// Eval returns the identity's fields by name, and performs a few actions.
func (a *fakeAgent) Eval(
	ctx context.Context, r *connect.Request[agentv1.EvalRequest],
) (*connect.Response[agentv1.EvalResponse], error) {
	a.f.mu.Lock()
	id := &a.f.agent
	answers := map[string]string{
		"entropy": fmt.Sprintf("%x", id.GetEntropy()), "machine_id": id.GetMachineId(), "sandbox_id": id.GetSandboxId(),
		"index": fmt.Sprint(id.GetIndex()), "token": id.GetForkToken(), "env": fmt.Sprint(id.GetEnv()),
		"same_machine": fmt.Sprint(id.GetSameMachine()),
		"trace":        r.Msg.GetTraceparent() + "|" + r.Msg.GetTracestate(),
	}
	a.f.mu.Unlock()
	code := r.Msg.GetCode()
	if request, is := strings.CutPrefix(code, "call "); is {
		return callHost(a.f, ctx, []byte(request))
	}
	if request, is := strings.CutPrefix(code, "token "); is {
		return askToken(a.f, ctx, request)
	}
	if n, is := strings.CutPrefix(code, "hammer "); is {
		return connect.NewResponse(&agentv1.EvalResponse{Result: hammer(a.f, ctx, n)}), nil
	}
	switch code {
	case "scribble":
		return connect.NewResponse(&agentv1.EvalResponse{Result: scribble(a.f)}), nil
	case "raise":
		return connect.NewResponse(&agentv1.EvalResponse{
			Error: "ValueError", Traceback: "Traceback: ValueError", ExitCode: 1}), nil
	case "exit":
		return connect.NewResponse(&agentv1.EvalResponse{
			ExitCode: 3, Stdout: "\uFFFD", StdoutRaw: []byte("\xff"), Stderr: "text"}), nil
	case "flood":
		return connect.NewResponse(&agentv1.EvalResponse{Stdout: "begin", Dropped: 7}), nil
	case "slow":
		return connect.NewResponse(&agentv1.EvalResponse{TimedOut: true}), nil
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "fill":
		a.f.fill()
		<-ctx.Done()
		return nil, ctx.Err()
	case "spin":
		a.f.setDisks(func(h *vmm.Health) { h.Hang = "vCPU 0 spins at 0xffffffff81c3b4e8" })
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	case "oom":
		oom(a.f, 1)
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	case "flood of kills":
		oom(a.f, 20)
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	case "broken":
		return nil, connect.NewError(connect.CodeDataLoss, errors.New("the sandbox's system files are gone"))
	case "long":
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("argument 1 is 131072 bytes"))
	case "lose":
		a.f.setDisks(func(h *vmm.Health) { h.Lost = "disk 1: flush: input/output error" })
		return connect.NewResponse(&agentv1.EvalResponse{}), nil
	case "panic":
		fmt.Fprint(a.f.console, "[    7.1] BUG: kernel NULL pointer dereference, address: 0\x1b[31m\n"+
			"[    7.2] Kernel panic - not syncing: Fatal exception\n")
		a.f.ended <- vmm.Exit{Kind: vmm.ExitReset, Reason: "reset"}
		time.Sleep(time.Hour)
		return nil, nil
	case "poweroff":
		a.f.ended <- vmm.Exit{Kind: vmm.ExitPowerOff, Reason: "power off"}
		time.Sleep(time.Hour)
		return nil, nil
	default:
		return connect.NewResponse(&agentv1.EvalResponse{Result: answers[code], Stdout: "out"}), nil
	}
}

func (a *fakeAgent) Quiesce(
	_ context.Context, r *connect.Request[agentv1.QuiesceRequest],
) (*connect.Response[agentv1.QuiesceResponse], error) {
	var out agentv1.QuiesceResponse
	if r.Msg.GetSyncOnly() { // a file written a moment ago
		if err := a.f.writeLate(); err != nil {
			return nil, err
		}
	}
	frozen := filepath.Join(a.f.tokens, "frozen-"+filepath.Base(a.f.dir))
	switch {
	case r.Msg.GetThaw():
		_ = os.Remove(frozen)
		return connect.NewResponse(&out), nil
	case r.Msg.GetFreeze():
		if err := os.WriteFile(frozen, nil, 0o600); err != nil {
			return nil, err
		}
		out.Steps = []*agentv1.IdentityStep{{Name: "sync"}, {Name: "freeze"}}
	}
	if a.f.faulty("freeze-unknown") {
		out.Steps = nil
	}
	if a.f.faulty("quiesce-fail") {
		out.Steps = []*agentv1.IdentityStep{{Name: "sync", Error: "the disk hums"}}
	}
	return connect.NewResponse(&out), nil
}

// oom writes the kernel's lines about n killed processes.
func oom(f *fake, n int) {
	var text strings.Builder
	for range n {
		fmt.Fprintf(&text, "[%9.6f] Out of memory: Killed process 41 (py\x1bthon) total-vm:1kB\n", float64(f.kills.Add(1)))
	}
	fmt.Fprint(f.console, text.String())
}

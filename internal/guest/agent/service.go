package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/command"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/identity"
	"github.com/forkd/forkd/internal/guest/agent/interp"
	"github.com/forkd/forkd/internal/guest/agent/quiet"
	"github.com/forkd/forkd/internal/guest/agent/volumes"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/leaf/tracecontext"
)

const (
	defaultLanguage = "python"
	defaultEval     = 60 * time.Second
	defaultWarm     = 5 * time.Minute
)

// service implements forkd.agent.v1.Agent.
type service struct{ a *Agent }

var _ agentv1connect.AgentHandler = (*service)(nil)

// Ping implements forkd.agent.v1.Agent.
func (s *service) Ping(context.Context,
	*connect.Request[agentv1.PingRequest]) (*connect.Response[agentv1.PingResponse], error) {
	clone := s.a.rec.Clone()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	resp := &agentv1.PingResponse{
		Pid:        uint32(os.Getpid()),
		Version:    s.a.cfg.Version,
		UptimeNs:   time.Since(s.a.started).Nanoseconds(),
		WallUnixNs: time.Now().UnixNano(),
		BootId:     strings.TrimSpace(string(boot)),
		SandboxId:  clone.SandboxID,
		Index:      clone.Index,
		Parent:     clone.Parent,

		Capabilities: s.a.capabilities(),
	}
	for _, i := range s.a.interp.About() {
		resp.Interpreters = append(resp.Interpreters, &agentv1.Interpreter{
			Language: i.Language, Pid: uint32(i.Pid), Version: text(i.Version), Modules: texts(i.Modules),
		})
	}
	return connect.NewResponse(resp), nil
}

// capabilities returns the abilities of this agent that not every agent has.
func (a *Agent) capabilities() []string {
	return slices.DeleteFunc(agentproto.Capabilities(), func(c string) bool {
		return c == agentproto.CanIdentityPort && !a.cfg.IdentityPort || c == agentproto.CanUpdate && a.cfg.Update == nil ||
			slices.Contains(a.cfg.Withheld, c)
	})
}

// Identity implements forkd.agent.v1.Agent.
func (s *service) Identity(ctx context.Context,
	req *connect.Request[agentv1.IdentityRequest]) (*connect.Response[agentv1.IdentityResponse], error) {
	r, err := s.a.become(ctx, req.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return connect.NewResponse(r), nil
}

// whole reports whether all steps have succeeded.
func whole(rep identity.Report) bool {
	return !slices.ContainsFunc(rep.Steps, func(s identity.Step) bool { return s.Err != nil })
}

func identityRequest(m *agentv1.IdentityRequest) identity.Request {
	n := m.GetNetwork()
	r := identity.Request{
		Clone:     defaults.Clone{SandboxID: m.GetSandboxId(), Index: m.GetIndex(), Parent: m.GetParent()},
		Hostname:  m.GetHostname(),
		MachineID: m.GetMachineId(),
		Entropy:   m.GetEntropy(),
		Env:       m.GetEnv(),
		Network: identity.Network{
			Interface: n.GetInterface(), MAC: n.GetHardwareAddress(), Addresses: n.GetAddresses(),
			Gateway: n.GetGateway(), DNS: n.GetDns(), MTU: n.GetMtu(),
		},
		Token:       m.GetAccessToken(),
		HookTimeout: time.Duration(m.GetHookTimeoutNs()),
		SameMachine: m.GetSameMachine(),
	}
	for _, v := range m.GetVolumes() {
		r.Volumes = append(r.Volumes, volumes.Volume{Device: v.GetDevice(), Serial: v.GetSerial(), Bytes: v.GetBytes(),
			Path: v.GetPath(), ReadOnly: v.GetReadOnly()})
	}
	if m.GetWallUnixNs() != 0 {
		r.Wall = time.Unix(0, m.GetWallUnixNs())
	}
	return r
}

func identityResponse(rep identity.Report) *agentv1.IdentityResponse {
	out := &agentv1.IdentityResponse{
		ClockStepNs:    rep.ClockStep.Nanoseconds(),
		KernelReseeded: rep.Reseeded,
		RandomDigest:   rep.Digest[:],
		BootId:         rep.BootID,
		TookNs:         rep.Took.Nanoseconds(),
		Steps:          steps(rep.Steps),
	}
	for _, h := range rep.Hooks {
		out.Hooks = append(out.Hooks, &agentv1.HookResult{
			Name: text(h.Name), ExitCode: int32(h.ExitCode), Error: errText(h.Err), Output: text(h.Output),
			TookNs: h.Took.Nanoseconds(),
		})
	}
	for _, i := range rep.Interpreters {
		out.Interpreters = append(out.Interpreters, &agentv1.InterpreterReseed{
			Language: i.Language, Reseeded: i.What, Later: i.Later, Error: errText(i.Err), TookNs: i.Took.Nanoseconds(),
		})
	}
	return out
}

func steps(in []identity.Step) []*agentv1.IdentityStep {
	out := make([]*agentv1.IdentityStep, 0, len(in))
	for _, s := range in {
		out = append(out, &agentv1.IdentityStep{Name: s.Name, Done: s.Done, Error: errText(s.Err),
			TookNs: s.Took.Nanoseconds()})
	}
	return out
}

// Warm implements forkd.agent.v1.Agent. It stops at the first failed step.
func (s *service) Warm(ctx context.Context,
	req *connect.Request[agentv1.WarmRequest]) (*connect.Response[agentv1.WarmResponse], error) {
	out := &agentv1.WarmResponse{}
	for _, step := range req.Msg.GetSteps() {
		r := s.warm(ctx, step)
		out.Results = append(out.Results, r)
		if r.GetError() != "" {
			break
		}
	}
	return connect.NewResponse(out), nil
}

func (s *service) warm(ctx context.Context, step *agentv1.WarmStep) *agentv1.WarmResult {
	began := time.Now()
	lang := cmp.Or(step.GetLanguage(), defaultLanguage)
	out := &agentv1.WarmResult{Language: text(lang)}
	limit := cmp.Or(time.Duration(step.GetTimeoutNs()), defaultWarm)
	res, err := s.a.interp.Eval(ctx, lang, interp.Code{Text: step.GetCode()}, limit)
	if err != nil {
		out.Error = errText(err)
	} else {
		out.Error, out.Traceback = text(res.Error), text(res.Traceback)
		out.Stdout, out.Stderr = text(res.Stdout), text(res.Stderr)
		if out.Error == "" && res.ExitCode != 0 {
			out.Error = fmt.Sprintf("the code exited with status %d", res.ExitCode)
		}
	}
	out.TookNs = time.Since(began).Nanoseconds()
	return out
}

// Eval implements forkd.agent.v1.Agent.
func (s *service) Eval(ctx context.Context,
	req *connect.Request[agentv1.EvalRequest]) (*connect.Response[agentv1.EvalResponse], error) {
	began := time.Now()
	r, err := s.a.eval(ctx, req.Msg)
	s.a.evaluated(time.Since(began))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(r), nil
}

// eval evaluates a request from any transport. Its errors are Connect's.
func (a *Agent) eval(ctx context.Context, m *agentv1.EvalRequest) (*agentv1.EvalResponse, error) {
	began := time.Now()
	limit := cmp.Or(time.Duration(m.GetTimeoutNs()), defaultEval)
	if limit < 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("timeout is negative"))
	}
	trace := tracecontext.FromHeader(map[string][]string{"Traceparent": {m.GetTraceparent()},
		"Tracestate": {m.GetTracestate()}})
	code := interp.Code{Text: m.GetCode(), Env: trace.Environ()}
	res, err := a.interp.Eval(ctx, cmp.Or(m.GetLanguage(), defaultLanguage), code, limit)
	if err != nil {
		return nil, a.evalError(err)
	}
	stdout, rawOut := output(res.Stdout)
	stderr, rawErr := output(res.Stderr)
	return &agentv1.EvalResponse{
		Result: text(res.Result), Stdout: stdout, Stderr: stderr, StdoutRaw: rawOut, StderrRaw: rawErr,
		Error: text(res.Error), Traceback: text(res.Traceback), ExitCode: int32(res.ExitCode),
		StateLost: res.StateLost, TimedOut: res.TimedOut, Dropped: res.Dropped,
		TookNs: time.Since(began).Nanoseconds(),
	}, nil
}

// maxTwice limits output that is sent both as text and as bytes, so that both streams fit into a
// message.
const maxTwice = 1 << 20

// output returns a stream's text, and also its bytes if it is not valid UTF-8.
func output(s string) (string, []byte) {
	switch {
	case utf8.ValidString(s):
		return s, nil
	case len(s) > maxTwice:
		return "", []byte(s)
	}
	return text(s), []byte(s)
}

func (a *Agent) evalError(err error) error {
	var unknown *interp.UnknownLanguageError
	var spec *command.Error
	switch {
	case errors.As(err, &unknown):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &spec): // the image has no such interpreter
		return a.broken.Explain(connect.NewError(connect.CodeFailedPrecondition, err))
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return a.broken.Explain(connect.NewError(connect.CodeInternal, err))
}

// Quiesce implements forkd.agent.v1.Agent.
func (s *service) Quiesce(ctx context.Context,
	req *connect.Request[agentv1.QuiesceRequest]) (*connect.Response[agentv1.QuiesceResponse], error) {
	s.a.identMu.Lock()
	defer s.a.identMu.Unlock()
	began := time.Now()
	var done []identity.Step
	for _, st := range s.quiesceSteps(ctx, req.Msg) {
		at := time.Now()
		err := st.do()
		done = append(done, identity.Step{Name: st.name, Done: err == nil, Err: err, Took: time.Since(at)})
	}
	return connect.NewResponse(&agentv1.QuiesceResponse{
		Steps: steps(done), Processes: uint32(s.a.procs.Count()), TookNs: time.Since(began).Nanoseconds(),
	}), nil
}

type quiesceStep struct {
	name string
	do   func() error
}

// quiesceSteps ends with the agent's own memory, after all other work.
func (s *service) quiesceSteps(ctx context.Context, req *agentv1.QuiesceRequest) []quiesceStep {
	flush := quiesceStep{"sync", func() error { unix.Sync(); return nil }}
	switch {
	case req.GetThaw():
		return []quiesceStep{{"thaw", s.a.freezer.Thaw}}
	case req.GetSyncOnly() && req.GetFreeze():
		return []quiesceStep{flush, {"freeze", s.a.freezer.Freeze}}
	case req.GetSyncOnly():
		return []quiesceStep{flush}
	}
	return []quiesceStep{
		{"interpreters", func() error {
			if req.GetStopInterpreters() {
				s.a.interp.Stop()
				return nil
			}
			return s.a.interp.Quiesce(ctx)
		}},
		{"identity files", s.a.ident.Prepare},
		{"disks", func() error { volumes.Prepare(); return nil }},
		flush,
		{"free page reports", s.a.reportsOff},
		{"wipe-on-fork", func() error { return s.a.cfg.System.PrepareWipeOnFork(ctx) }},
		{"agent memory", func() error { quiet.Settle(); return nil }},
	}
}

// text replaces invalid UTF-8 in bytes of the guest, because messages need valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[text(k)] = text(v)
	}
	return out
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return text(err.Error())
}

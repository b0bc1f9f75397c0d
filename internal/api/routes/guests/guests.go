package guests

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

type execInput struct {
	routing.IDPath
	Body api.ExecRequest
}

type evalInput struct {
	routing.IDPath
	Body api.EvalRequest
}

// guestRoutes are requests to a sandbox's agent that the daemon answers itself.
type guestRoutes struct {
	engine  routing.Part[sandbox.Guests]
	metrics *metrics.Metrics
}

func (s *guestRoutes) add(rt *routing.Router) {
	tags := []string{"guests"}
	errors := []int{400, 401, 404, 409, 502, 503, 504, 507} // 409: it is paused; 503: it cannot be resumed now
	routing.Route(rt, huma.Operation{
		OperationID: "ping", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/ping", Tags: tags,
		Summary: "Ask the agent in the guest for a sign of life", Errors: errors,
	}, s.ping)
	routing.Route(rt, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/exec", Tags: tags,
		Summary: "Run a program to its end and collect its output", Errors: errors,
		Responses: map[string]*huma.Response{"200": rt.JSONResponse("OK", api.ExecResponse{})},
	}, s.exec)
	routing.Route(rt, huma.Operation{
		OperationID: "eval", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/eval", Tags: tags,
		Summary: "Run code in the warm interpreter, which keeps its state", Errors: errors,
		Responses: map[string]*huma.Response{"200": rt.JSONResponse("OK", api.EvalResponse{})},
	}, s.eval)
}

func (s *guestRoutes) ping(ctx context.Context, in *routing.IDPath) (*routing.Body[api.PingResponse], error) {
	pong, err := s.engine(ctx).Ping(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return routing.Answer(api.PingResponse{
		Pong: true, PID: pong.PID, NumpyVersion: wire.Optional(pong.NumpyVersion), UptimeMS: wire.Milliseconds(pong.Uptime),
	}), nil
}

// execRest has the fields of api.ExecResponse without the outputs.
type execRest struct {
	ExitCode     int    `json:"exit_code"`
	TimedOut     bool   `json:"timed_out,omitempty"`
	KilledBy     string `json:"killed_by,omitempty"`
	DroppedBytes int64  `json:"dropped_bytes,omitempty"`
}

func (s *guestRoutes) exec(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	if len(in.Body.Args) == 0 || in.Body.Args[0] == "" { // null passes the schema
		return nil, apierror.New(api.CodeInvalid, "", "args: want the program and its arguments, got no program")
	}
	account := membudget.From(ctx)
	if account.Full(routing.LeastOutput) {
		return nil, reply.Full()
	}
	req := sandbox.ExecRequest{
		Args: in.Body.Args, Env: traced(ctx, in.Body.Env), Cwd: in.Body.Cwd, User: in.Body.User,
		Timeout: wire.Seconds(in.Body.TimeoutSecs),
		Keep:    func(n int) int { return int(account.ChargeUpTo(int64(n))) },
	}
	if in.Body.Stdin != nil {
		req.Stdin = []byte(*in.Body.Stdin)
	}
	began := time.Now()
	res, err := s.engine(ctx).Exec(ctx, in.ID, req)
	s.metrics.Execed(in.ID, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	stdout, stderr := wire.Text(res.Stdout), wire.Text(res.Stderr)
	dropped := res.DroppedBytes + fit(account, &stdout, &stderr)
	res.Stdout, res.Stderr = nil, nil // the answer holds copies
	return answerOutputs(execRest{res.ExitCode, res.TimedOut, res.KilledBy, dropped},
		printed("stdout", stdout), printed("stderr", stderr)), nil
}

// printed is the output of a program.
func printed(name, value string) output {
	return output{name: name, raw: name + "_base64", value: value}
}

// evalRest has the fields of api.EvalResponse without the outputs.
type evalRest struct {
	ExitCode     int     `json:"exit_code"`
	Truncated    bool    `json:"truncated,omitempty"`
	DroppedBytes int64   `json:"dropped_bytes,omitempty"`
	TookMS       float64 `json:"took_ms,omitempty"`
	GuestMS      float64 `json:"guest_ms,omitempty"`
}

func (s *guestRoutes) eval(ctx context.Context, in *evalInput) (*huma.StreamResponse, error) {
	account := membudget.From(ctx)
	if account.Full(routing.LeastOutput) {
		return nil, reply.Full()
	}
	began := time.Now()
	res, err := s.engine(ctx).Eval(ctx, in.ID, sandbox.EvalRequest{
		Language: in.Body.Language, Code: in.Body.Code, Timeout: wire.Seconds(in.Body.TimeoutSecs), Measure: in.Body.Measure,
		Trace: requestinfo.From(ctx).Trace,
		Keep: func(n int) int {
			if !account.Charge(int64(n) * routing.BodyCost) { // the message, and the texts decoded from it
				return 0
			}
			return n
		},
	})
	s.metrics.Evaled(in.ID, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	rest := evalRest{ExitCode: res.ExitCode & 0xff, TookMS: wire.Milliseconds(res.Took),
		GuestMS: wire.Milliseconds(res.Guest)}
	if res.Error != "" && rest.ExitCode == 0 {
		rest.ExitCode = 1
	}
	rest.DroppedBytes = res.DroppedBytes + fit(account, &res.Error, &res.Result, &res.Stdout, &res.Stderr)
	rest.Truncated = rest.DroppedBytes > 0
	outputs := []output{{name: "result", value: res.Result, null: true}, {name: "error", value: res.Error, null: true}}
	for _, o := range []output{printed("stdout", res.Stdout), printed("stderr", res.Stderr)} {
		if o.value != "" {
			outputs = append(outputs, o)
		}
	}
	return answerOutputs(rest, outputs...), nil
}

// traced adds the request's trace context to a program's environment, unless the client set it there or the
// environment is full.
func traced(ctx context.Context, env map[string]string) map[string]string {
	added := requestinfo.From(ctx).Trace.AddTo(env)
	if environ.Check(added) != nil {
		return env
	}
	return added
}

package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type pauseInput struct {
	IDPath
	Body *api.PauseRequest `required:"false"`
}

type resumeInput struct {
	IDPath
	Body *api.ResumeRequest `required:"false"`
}

type lifeInput struct {
	IDPath
	Body api.LifeRequest
}

func (s *sandboxRoutes) addLife(rt *router) {
	tags := []string{"sandboxes"}
	route(rt, huma.Operation{
		OperationID: "pause", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/pause", Tags: tags,
		Summary: "Pause a sandbox",
		Description: "It becomes a snapshot under its own id, without process and memory, until it is resumed; with " +
			"filesystem_only its disk alone is kept. After an error it runs on as it was. 409: it is paused already.",
		Errors: []int{400, 401, 404, 409, 501, 502, 503, 504, 507},
	}, s.pause)
	route(rt, huma.Operation{
		OperationID: "resume", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/resume", Tags: tags,
		Summary: "Let a paused sandbox go on",
		Description: "It keeps its ID, processes and identity. Clock and randomness are new, connections are reset. " +
			"After a pause without memory it boots, without its processes. A running sandbox is returned " +
			"unchanged. After an error it stays paused. With peers, a sandbox that is not here is taken from the " +
			"first of them that has it paused.",
		Errors: []int{400, 401, 403, 404, 409, 501, 502, 503, 504, 507},
	}, s.resume)
	route(rt, huma.Operation{
		OperationID: "handover-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/handover", Tags: tags,
		Summary: "Give a paused sandbox to another daemon; for daemons",
		Description: "Without a claim it is only described. With one, this daemon gives it up for good, and does not " +
			"resume it again. The same claim can be repeated.",
		Errors: []int{400, 401, 403, 404, 409, 501, 503, 507},
	}, s.handover)
	route(rt, huma.Operation{
		OperationID: "set-life", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/life", Tags: tags,
		Summary: "Change a sandbox's lifetime", Errors: []int{400, 401, 404, 409, 502, 507},
	}, s.setLife)
}

func (s *sandboxRoutes) pause(ctx context.Context, in *pauseInput) (*body[api.SandboxInfo], error) {
	var opt sandbox.PauseOptions
	if in.Body != nil {
		opt.FilesystemOnly = in.Body.FilesystemOnly
	}
	info, err := s.engine(ctx).Pause(ctx, in.ID, opt)
	return sandboxBody(ctx, info, err)
}

func (s *sandboxRoutes) resume(ctx context.Context, in *resumeInput) (*body[api.SandboxInfo], error) {
	var from []string
	if in.Body != nil {
		from = in.Body.Peers
	}
	if err := s.mover.fetch(ctx, s.engine(ctx), in.ID, from); err != nil {
		return nil, err
	}
	info, err := s.engine(ctx).Resume(ctx, in.ID)
	return sandboxBody(ctx, info, err)
}

func (s *sandboxRoutes) setLife(ctx context.Context, in *lifeInput) (*body[api.SandboxInfo], error) {
	info, err := s.engine(ctx).Get(in.ID)
	if err != nil {
		return nil, err
	}
	info, err = s.engine(ctx).SetLife(ctx, in.ID, changedLife(info.Life, in.Body))
	return sandboxBody(ctx, info, err)
}

func sandboxBody(ctx context.Context, info sandbox.Info, err error) (*body[api.SandboxInfo], error) {
	if err != nil {
		return nil, err
	}
	return &body[api.SandboxInfo]{wireSandbox(ctx, info)}, nil
}

// changedLife returns a lifetime with the changes of a request.
func changedLife(l sandbox.Life, in api.LifeRequest) sandbox.Life {
	if in.TTLSecs != nil {
		l.Deadline, l.TTL = sandbox.Life{}.Deadline, seconds(*in.TTLSecs)
	}
	if in.IdleSecs != nil {
		l.Idle = seconds(*in.IdleSecs)
	}
	if in.AtEnd != nil {
		l.AtEnd = sandbox.AtEnd(*in.AtEnd)
		l.FilesystemOnly = l.FilesystemOnly && l.AtEnd == sandbox.AtEndPause
	}
	if in.AutoResume != nil {
		l.AutoResume = *in.AutoResume
	}
	if in.FilesystemOnly != nil {
		l.FilesystemOnly = *in.FilesystemOnly
	}
	if in.RestartOnHang != nil {
		l.RestartOnHang = *in.RestartOnHang
	}
	return l
}

// domainLife converts the lifetime in a request for a fork.
func domainLife(in api.SandboxLife) sandbox.Life {
	return sandbox.Life{TTL: seconds(in.TTLSecs), Idle: seconds(in.IdleSecs), AtEnd: sandbox.AtEnd(in.AtEnd),
		AutoResume: in.AutoResume, FilesystemOnly: in.FilesystemOnly, RestartOnHang: in.RestartOnHang}
}

// wireLife returns nil for a sandbox without limits of its lifetime.
func wireLife(i sandbox.Info) *api.SandboxLifeInfo {
	l := i.Life
	if l == (sandbox.Life{}) {
		return nil
	}
	out := &api.SandboxLifeInfo{IdleSecs: l.Idle.Seconds(), AtEnd: api.AtEnd(l.AtEnd), AutoResume: l.AutoResume,
		FilesystemOnly: l.FilesystemOnly, RestartOnHang: l.RestartOnHang,
		UnusedSecs: i.Unused.Seconds()}
	if !l.Deadline.IsZero() {
		out.DeadlineUnix = optional(l.Deadline.Unix())
	}
	return out
}

package sandboxes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

type pauseInput struct {
	routing.IDPath
	Body *api.PauseRequest `required:"false"`
}

type resumeInput struct {
	routing.IDPath
	Body *api.ResumeRequest `required:"false"`
}

type lifeInput struct {
	routing.IDPath
	Body api.LifeRequest
}

func (s *sandboxRoutes) addLife(rt *routing.Router) {
	tags := []string{"sandboxes"}
	routing.Route(rt, huma.Operation{
		OperationID: "pause", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/pause", Tags: tags,
		Summary: "Pause a sandbox",
		Description: "It becomes a snapshot under its own id, without process and memory, until it is resumed; with " +
			"filesystem_only its disk alone is kept. After an error it runs on as it was. 409: it is paused already.",
		Errors: []int{400, 401, 404, 409, 501, 502, 503, 504, 507},
	}, s.pause)
	routing.Route(rt, huma.Operation{
		OperationID: "resume", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/resume", Tags: tags,
		Summary: "Let a paused sandbox go on",
		Description: "It keeps its ID, processes and identity. Clock and randomness are new, connections are reset. " +
			"After a pause without memory it boots, without its processes. A running sandbox is returned " +
			"unchanged. After an error it stays paused. With peers, a sandbox that is not here is taken from the " +
			"first of them that has it paused.",
		Errors: []int{400, 401, 403, 404, 409, 501, 502, 503, 504, 507},
	}, s.resume)
	routing.Route(rt, huma.Operation{
		OperationID: "handover-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/handover", Tags: tags,
		Summary: "Give a paused sandbox to another daemon; for daemons",
		Description: "Without a claim it is only described. With one, this daemon gives it up for good, and does not " +
			"resume it again. The same claim can be repeated.",
		Errors: []int{400, 401, 403, 404, 409, 501, 503, 507},
	}, s.handover)
	routing.Route(rt, huma.Operation{
		OperationID: "set-life", Method: http.MethodPatch, Path: "/v1/sandboxes/{id}/life", Tags: tags,
		Summary: "Change a sandbox's lifetime", Errors: []int{400, 401, 404, 409, 502, 507},
	}, s.setLife)
}

func (s *sandboxRoutes) pause(ctx context.Context, in *pauseInput) (*routing.Body[api.SandboxInfo], error) {
	var opt sandbox.PauseOptions
	if in.Body != nil {
		opt.FilesystemOnly = in.Body.FilesystemOnly
	}
	info, err := s.engine(ctx).Pause(ctx, in.ID, opt)
	return sandboxBody(ctx, info, err)
}

func (s *sandboxRoutes) resume(ctx context.Context, in *resumeInput) (*routing.Body[api.SandboxInfo], error) {
	var from []string
	if in.Body != nil {
		from = in.Body.Peers
	}
	if err := s.mover.Fetch(ctx, s.engine(ctx), in.ID, from); err != nil {
		return nil, err
	}
	info, err := s.engine(ctx).Resume(ctx, in.ID)
	return sandboxBody(ctx, info, err)
}

func (s *sandboxRoutes) setLife(ctx context.Context, in *lifeInput) (*routing.Body[api.SandboxInfo], error) {
	info, err := s.engine(ctx).Get(in.ID)
	if err != nil {
		return nil, err
	}
	info, err = s.engine(ctx).SetLife(ctx, in.ID, changedLife(info.Life, in.Body))
	return sandboxBody(ctx, info, err)
}

func sandboxBody(ctx context.Context, info sandbox.Info, err error) (*routing.Body[api.SandboxInfo], error) {
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Sandbox(ctx, info)), nil
}

// changedLife returns a lifetime with the changes of a request.
func changedLife(l sandbox.Life, in api.LifeRequest) sandbox.Life {
	if in.TTLSecs != nil {
		l.Deadline, l.TTL = sandbox.Life{}.Deadline, wire.Seconds(*in.TTLSecs)
	}
	if in.IdleSecs != nil {
		l.Idle = wire.Seconds(*in.IdleSecs)
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

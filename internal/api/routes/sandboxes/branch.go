package sandboxes

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// branchInput has an optional body: no field of the original's is required.
type branchInput struct {
	routing.IDPath
	Body *api.BranchRequest
}

// branchRoutes serve branch, rollback and promotion of sandboxes.
type branchRoutes struct {
	engine routing.Part[roles.Branches]
}

func (s *branchRoutes) add(rt *routing.Router) {
	op := huma.Operation{
		OperationID: "branch", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/branch", Tags: []string{"sandboxes"},
		Summary: "Make a snapshot of a running sandbox, which keeps running, and fork children of it",
		Description: "With wait false the response is sent as soon as the sandbox runs again, and the snapshot's " +
			"status is writing. A failed child is an entry of children with status failed, error and code; " +
			"the branch is kept. 409: the tag exists, or max_pause_ms cannot be met.",
		DefaultStatus: http.StatusCreated, Errors: []int{400, 401, 404, 409, 502, 503, 507},
	}
	routing.Route(rt, op, s.branch)
	rt.Document().Paths[op.Path].Post.Responses["503"].Headers = map[string]*huma.Param{
		"Retry-After": {Description: "Seconds after which to try again; with code busy",
			Schema: &huma.Schema{Type: "integer"}},
	}
	s.addRollback(rt)
	s.addPromote(rt)
	s.addForkGroup(rt)
}

func (s *branchRoutes) branch(ctx context.Context, in *branchInput) (*routing.Body[api.BranchResult], error) {
	req := sandbox.BranchRequest{SandboxID: in.ID}
	if in.Body != nil {
		requestinfo.From(ctx).Snapshot, requestinfo.From(ctx).Count = in.Body.Tag, in.Body.N
		var err error
		if req, err = branchRequest(in.ID, *in.Body); err != nil {
			return nil, err
		}
	}
	res, err := s.engine(ctx).Branch(ctx, req)
	if err != nil {
		return nil, err
	}
	requestinfo.From(ctx).Snapshot = res.Tag
	return routing.Answer(wireBranch(ctx, res)), nil
}

// branchRequest checks the combination of fields.
func branchRequest(id string, b api.BranchRequest) (sandbox.BranchRequest, error) {
	mode := b.Mode
	switch {
	case (isTrue(b.Diff) || isTrue(b.Live)) && b.Mode != "", isTrue(b.Diff) && isTrue(b.Live):
		return sandbox.BranchRequest{}, apierror.New(api.CodeInvalid, "",
			"mode, diff and live exclude each other: omit diff and live")
	case isTrue(b.Diff):
		mode = api.BranchDiff
	case isTrue(b.Live):
		mode = api.BranchLive
	}
	policy, err := wire.PolicyOf(b.Net, b.Network)
	if err != nil {
		return sandbox.BranchRequest{}, err
	}
	noWait := b.Wait != nil && !*b.Wait
	if noWait && b.N > 0 {
		return sandbox.BranchRequest{}, apierror.New(api.CodeInvalid, api.ReasonWaitForChildren,
			"n and wait false exclude each other: children need the complete snapshot")
	}
	return sandbox.BranchRequest{
		SandboxID: id, Tag: b.Tag, Mode: sandbox.BranchMode(mode), N: b.N, NoWait: noWait, Force: b.Force,
		Network: policy, Labels: b.Labels, Secrets: wire.SecretRefs(b.Secrets),
		MaxPause: time.Duration(b.MaxPauseMS * float64(time.Millisecond)),
	}, nil
}

// isTrue reports whether a field is present and true. The original's clients may send false.
func isTrue(b *bool) bool { return b != nil && *b }

func wireBranch(ctx context.Context, r sandbox.BranchResult) api.BranchResult {
	out := api.BranchResult{
		SnapshotInfo: wire.Snapshot(r.Snapshot),
		Mechanism:    r.Mechanism, Rounds: r.Rounds,
		BytesWritten: r.Bytes, PausedBytes: r.PausedBytes, TotalMS: wire.Milliseconds(r.Total),
		AfterResumeMS: wire.Milliseconds(r.AfterResume),
	}
	// The snapshot's own field is in whole milliseconds, and absent below one.
	pause := wire.Milliseconds(r.Pause)
	out.Tag, out.PauseMS = r.Tag, &pause
	if r.Fork == nil {
		return out
	}
	for _, child := range r.Fork.Children {
		out.Children = append(out.Children, wire.Child(ctx, child, sandbox.ForkRequest{Tag: r.Tag}))
	}
	slices.SortFunc(out.Children, func(a, b api.SandboxInfo) int { return cmp.Compare(a.Index, b.Index) })
	out.PoolReady = r.Fork.PoolReady
	out.ArmedWallMS, out.ReadyWallMS = wire.Milliseconds(r.Fork.ArmedWall), wire.Milliseconds(r.Fork.ReadyWall)
	return out
}

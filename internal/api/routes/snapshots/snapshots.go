package snapshots

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
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

type createSnapshotInput struct {
	Accept string `header:"Accept" doc:"application/x-ndjson streams the progress, a Step per line"`
	Body   api.CreateSnapshotRequest
}

type deleteSnapshotInput struct {
	routing.TagPath
	Cascade bool `query:"cascade" doc:"Delete the snapshots built on it too"`
	Force   bool `query:"force" doc:"Delete it although others are built on it"`
}

// snapshotRoutes make, list and delete snapshots.
type snapshotRoutes struct {
	engine  routing.Part[roles.Snapshots]
	files   *GuestFiles // may be nil
	created *creations
}

func (s *snapshotRoutes) add(rt *routing.Router) {
	tags := []string{"snapshots"}
	routing.Route(rt, huma.Operation{
		OperationID: "create-snapshot", Method: http.MethodPost, Path: "/v1/snapshots", Tags: tags,
		Summary:       "Make a snapshot: boot an image and warm it up, or run a program in a child of a snapshot",
		DefaultStatus: http.StatusCreated, Responses: s.created.responses(),
		Errors: []int{400, 401, 404, 409, 500, 504, 507},
	}, s.createSnapshot)
	routing.Route(rt, huma.Operation{
		OperationID: "list-snapshots", Method: http.MethodGet, Path: "/v1/snapshots", Tags: tags,
		Summary: "List the snapshots", Errors: []int{400, 401},
	}, s.listSnapshots)
	routing.Route(rt, huma.Operation{
		OperationID: "delete-snapshot", Method: http.MethodDelete, Path: "/v1/snapshots/{tag}", Tags: tags,
		Summary: "Delete a snapshot", DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404, 409},
	}, s.deleteSnapshot)
	routing.Route(rt, huma.Operation{
		OperationID: "snapshot-info", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/info", Tags: tags,
		Summary: "Describe a snapshot, its size and its lineage", Errors: []int{400, 401, 404},
	}, s.snapshotInfo)
	routing.Route(rt, huma.Operation{
		OperationID: "verify-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/verify", Tags: tags,
		Summary: "Read all of a snapshot and compare it with its digests", Errors: []int{400, 401, 404, 409},
		Responses: verifyResponses(rt),
	}, s.verifySnapshot)
}

func (s *snapshotRoutes) createSnapshot(ctx context.Context, in *createSnapshotInput) (*huma.StreamResponse, error) {
	requestinfo.From(ctx).Snapshot, requestinfo.From(ctx).Image = in.Body.Tag, in.Body.Image
	create, err := s.creator(in.Body)
	if err != nil {
		return nil, err
	}
	return s.created.answer(ctx, in.Accept, create)
}

// creator returns the creator for a request: a snapshot of an image, or on top of another snapshot.
func (s *snapshotRoutes) creator(b api.CreateSnapshotRequest) (creator, error) {
	if b.From == "" {
		req, err := createRequest(b)
		return func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
			if req.Image != "" {
				return s.engine(ctx).CreateSnapshot(ctx, req, progress)
			}
			return s.createFromPaths(ctx, req, progress)
		}, err
	}
	req, err := deriveRequest(b)
	return func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
		return s.engine(ctx).DeriveSnapshot(ctx, req, progress)
	}, err
}

// createFromPaths boots a kernel and a root file system of the daemon's host.
func (s *snapshotRoutes) createFromPaths(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if !principal.From(ctx).Operator() { // before a file is looked up
		return sandbox.SnapshotInfo{}, apierror.New(api.CodeForbidden, api.ReasonOperatorOnly,
			"a kernel or root file system by its path is the operator's: a tenant's key cannot")
	}
	open, err := s.files.openPaths(req.Kernel, req.Rootfs)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer open.close()
	req.Kernel, req.Rootfs = open.name(0), open.name(1)
	info, err := s.engine(ctx).CreateSnapshot(ctx, req, progress)
	return info, open.told(err)
}

func deriveRequest(b api.CreateSnapshotRequest) (sandbox.DeriveRequest, error) {
	switch {
	case b.Image != "" || b.Kernel != "" || b.Rootfs != "":
		return sandbox.DeriveRequest{}, apierror.New(api.CodeInvalid, "",
			"from and image, kernel or rootfs exclude each other")
	case b.MemoryMiB != 0 || b.VCPUs != 0 || b.BootWaitSecs != 0:
		return sandbox.DeriveRequest{},
			apierror.New(api.CodeInvalid, "", "memory_mib, vcpus and boot_wait_secs exclude from, which has its own")
	}
	n, err := makingNetworks(b)
	if err != nil {
		return sandbox.DeriveRequest{}, err
	}
	return sandbox.DeriveRequest{
		Network: n.later, BuildNetwork: n.build, Tap: n.tap, TapIfAllowed: n.ifAllowed,
		Tag: b.Tag, From: b.From, Exec: b.Exec, User: b.ExecUser, ExecTimeout: wire.Seconds(b.ExecTimeoutSecs), Warm: b.Warm,
		WarmTimeout: wire.Seconds(b.WarmTimeoutSecs), Labels: b.Labels,
	}, nil
}

// createRequest checks the combination of fields.
func createRequest(b api.CreateSnapshotRequest) (sandbox.CreateRequest, error) {
	switch {
	case len(b.Exec) > 0 || b.ExecUser != "" || b.ExecTimeoutSecs != 0:
		return sandbox.CreateRequest{},
			apierror.New(api.CodeInvalid, "", "exec goes with from only: name a snapshot with from, or use warm")
	case b.Image != "" && (b.Kernel != "" || b.Rootfs != ""):
		return sandbox.CreateRequest{}, apierror.New(api.CodeInvalid, "", "image and kernel/rootfs exclude each other")
	case b.Image == "" && (b.Kernel == "" || b.Rootfs == ""):
		return sandbox.CreateRequest{},
			apierror.New(api.CodeInvalid, api.ReasonImageMissing, "image, or kernel and rootfs, or from, must be given")
	}
	n, err := makingNetworks(b)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	return sandbox.CreateRequest{
		Network: n.later, BuildNetwork: n.build, Tap: n.tap, TapIfAllowed: n.ifAllowed,
		Tag: b.Tag, Image: b.Image, Kernel: b.Kernel, Rootfs: b.Rootfs,
		MemoryMiB: b.MemoryMiB, VCPUs: b.VCPUs, Warm: b.Warm,
		BootWait: time.Duration(b.BootWaitSecs) * time.Second, WarmTimeout: wire.Seconds(b.WarmTimeoutSecs),
		Labels: b.Labels,
	}, nil
}

// networks are the network policies of a snapshot: for sandboxes forked from it later, and for its
// own creation, by a policy or a tap.
type networks struct {
	later, build *netpolicy.Spec
	tap          string
	ifAllowed    bool // ignore the tap if it is not allowed
}

func makingNetworks(b api.CreateSnapshotRequest) (n networks, err error) {
	if n.later, n.tap, err = wire.NetworkOf(b.Net, b.Network); err != nil {
		return n, err
	}
	if n.build, err = wire.PolicyOf(b.BuildNet, nil); err != nil {
		return n, err
	}
	if n.tap == "" && b.Tap != nil && n.build == nil { // the original's clients always name one
		n.tap, n.ifAllowed = *b.Tap, true
	}
	return n, nil
}

func (s *snapshotRoutes) listSnapshots(ctx context.Context,
	in *routing.FilterInput) (*routing.Body[[]api.SnapshotInfo], error) {
	infos, err := s.engine(ctx).ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	out, made := make([]api.SnapshotInfo, 0, len(infos)), make(map[string]time.Time, len(infos))
	for _, info := range infos {
		out, made[info.Tag] = append(out, wire.Snapshot(info)), info.CreatedAt
	}
	if out, err = routing.Filtered(in, snapshotFilters, out, snapshotEntry(ctx, made)); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b api.SnapshotInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return routing.Answer(out), nil
}

func (s *snapshotRoutes) deleteSnapshot(ctx context.Context, in *deleteSnapshotInput) (*struct{}, error) {
	if in.Cascade && in.Force {
		return nil, apierror.New(api.CodeInvalid, "",
			"cascade and force exclude each other: cascade deletes the dependents, force keeps them")
	}
	opt := sandbox.DeleteOptions{Cascade: in.Cascade, Force: in.Force}
	return nil, s.engine(ctx).DeleteSnapshot(ctx, in.Tag, opt)
}

func (s *snapshotRoutes) snapshotInfo(ctx context.Context,
	in *routing.TagPath) (*routing.Body[api.SnapshotDetail], error) {
	info, err := s.engine(ctx).SnapshotInfo(ctx, in.Tag)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.SnapshotDetail(info)), nil
}

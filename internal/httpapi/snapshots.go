package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/sandbox"
)

// ndjson is the content type of a progress stream.
const ndjson = "application/x-ndjson"

// TagPath is the input of an operation on one snapshot.
type TagPath struct {
	Tag string `path:"tag" doc:"Name of the snapshot"`
}

type createSnapshotInput struct {
	Accept string `header:"Accept" doc:"application/x-ndjson streams the progress, a Step per line"`
	Body   api.CreateSnapshotRequest
}

type deleteSnapshotInput struct {
	TagPath
	Cascade bool `query:"cascade" doc:"Delete the snapshots built on it too"`
	Force   bool `query:"force" doc:"Delete it although others are built on it"`
}

func (s *Server) addSnapshots() {
	tags := []string{"snapshots"}
	route(s, huma.Operation{
		OperationID: "create-snapshot", Method: http.MethodPost, Path: "/v1/snapshots", Tags: tags,
		Summary:       "Boot an image, warm it up, and keep it as a snapshot; or run a program in a child of one",
		DefaultStatus: http.StatusCreated, Responses: s.createdResponses(),
		Errors: []int{400, 401, 404, 409, 500, 504, 507},
	}, s.createSnapshot)
	route(s, huma.Operation{
		OperationID: "list-snapshots", Method: http.MethodGet, Path: "/v1/snapshots", Tags: tags,
		Summary: "List the snapshots",
	}, s.listSnapshots)
	route(s, huma.Operation{
		OperationID: "delete-snapshot", Method: http.MethodDelete, Path: "/v1/snapshots/{tag}", Tags: tags,
		Summary: "Delete a snapshot", DefaultStatus: http.StatusNoContent, Errors: []int{400, 401, 404, 409},
	}, s.deleteSnapshot)
	route(s, huma.Operation{
		OperationID: "snapshot-info", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/info", Tags: tags,
		Summary: "Describe a snapshot, its size and its lineage", Errors: []int{400, 401, 404},
	}, s.snapshotInfo)
	route(s, huma.Operation{
		OperationID: "verify-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/verify", Tags: tags,
		Summary: "Read all of a snapshot and compare it with its digests", Errors: []int{400, 401, 404, 409},
	}, s.verifySnapshot)
}

// createdResponses describes what answerCreated sends.
func (s *Server) createdResponses() map[string]*huma.Response {
	created := s.jsonResponse("Created", api.SnapshotInfo{})
	created.Content[ndjson] = &huma.MediaType{Schema: s.schemaOf(api.Step{})}
	return map[string]*huma.Response{"201": created}
}

func (s *Server) createSnapshot(ctx context.Context, in *createSnapshotInput) (*huma.StreamResponse, error) {
	note(ctx).snapshot, note(ctx).image = in.Body.Tag, in.Body.Image
	create, err := s.creator(in.Body)
	if err != nil {
		return nil, err
	}
	return s.answerCreated(ctx, in.Accept, create)
}

// answerCreated makes a snapshot and writes the answer by hand, since it may be a stream.
func (s *Server) answerCreated(ctx context.Context, accept string, create creator) (*huma.StreamResponse, error) {
	if accepts(accept, ndjson) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { s.streamSnapshot(hc, create) }}, nil
	}
	info, err := create(ctx, func(sandbox.Step) {})
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		writeJSON(w, http.StatusCreated, wireSnapshot(info))
	}}, nil
}

// creator makes a snapshot, of whatever, telling its steps.
type creator func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error)

// creator is what a request asks for: a snapshot of an image, or on top of another.
func (s *Server) creator(b api.CreateSnapshotRequest) (creator, error) {
	if b.From == "" {
		req, err := createRequest(b)
		return func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
			if req.Image != "" {
				return s.engine.CreateSnapshot(ctx, req, progress)
			}
			return s.createFromPaths(ctx, req, progress)
		}, err
	}
	req, err := deriveRequest(b)
	return func(ctx context.Context, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
		return s.engine.DeriveSnapshot(ctx, req, progress)
	}, err
}

// createFromPaths boots a kernel and a root file system of the daemon's host.
func (s *Server) createFromPaths(ctx context.Context, req sandbox.CreateRequest, progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	open, err := s.guestFiles.openPaths(req.Kernel, req.Rootfs)
	if err != nil {
		return sandbox.SnapshotInfo{}, err
	}
	defer open.close()
	req.Kernel, req.Rootfs = open.name(0), open.name(1)
	info, err := s.engine.CreateSnapshot(ctx, req, progress)
	return info, open.told(err)
}

func deriveRequest(b api.CreateSnapshotRequest) (sandbox.DeriveRequest, error) {
	switch {
	case b.Image != "" || b.Kernel != "" || b.Rootfs != "":
		return sandbox.DeriveRequest{}, fail(api.CodeInvalid, "", "from and image, kernel or rootfs exclude each other")
	case b.MemoryMiB != 0 || b.VCPUs != 0 || b.BootWaitSecs != 0:
		return sandbox.DeriveRequest{}, fail(api.CodeInvalid, "", "memory_mib, vcpus and boot_wait_secs do not go with from, whose shape they are")
	}
	return sandbox.DeriveRequest{
		Tag: b.Tag, From: b.From, Exec: b.Exec, User: b.ExecUser, ExecTimeout: seconds(b.ExecTimeoutSecs), Warm: b.Warm,
	}, nil
}

// createRequest checks what the fields must be to each other.
func createRequest(b api.CreateSnapshotRequest) (sandbox.CreateRequest, error) {
	switch {
	case len(b.Exec) > 0 || b.ExecUser != "" || b.ExecTimeoutSecs != 0:
		return sandbox.CreateRequest{}, fail(api.CodeInvalid, "", "exec goes with from only: name a snapshot with from, or use warm")
	case b.Image != "" && (b.Kernel != "" || b.Rootfs != ""):
		return sandbox.CreateRequest{}, fail(api.CodeInvalid, "", "image and kernel/rootfs exclude each other")
	case b.Image == "" && (b.Kernel == "" || b.Rootfs == ""):
		return sandbox.CreateRequest{}, fail(api.CodeInvalid, api.ReasonImageMissing, "image, or kernel and rootfs, or from, must be given")
	}
	return sandbox.CreateRequest{
		Tag: b.Tag, Image: b.Image, Kernel: b.Kernel, Rootfs: b.Rootfs,
		MemoryMiB: b.MemoryMiB, VCPUs: b.VCPUs, Warm: b.Warm,
		BootWait: time.Duration(b.BootWaitSecs) * time.Second,
	}, nil
}

// streamSnapshot sends a line per step. The status line is sent with the first
// of them, so that a request which fails at once has its plain error status.
func (s *Server) streamSnapshot(hc huma.Context, create creator) {
	r, w := humago.Unwrap(hc)
	out := &lineStream{w: w, flush: http.NewResponseController(w).Flush}
	info, err := create(r.Context(), func(step sandbox.Step) { out.send(wireStep(step)) })
	switch {
	case err == nil:
		wire := wireSnapshot(info)
		out.send(api.Step{Snapshot: &wire})
	case out.started():
		out.send(api.Step{Error: s.failed(r.Context(), err).wire()})
	default:
		s.writeFailure(w, s.failed(r.Context(), err))
	}
}

// lineStream writes JSON lines that leave at once.
type lineStream struct {
	mu    sync.Mutex // guards the stream: progress may come from several goroutines
	w     http.ResponseWriter
	flush func() error
	begun bool
}

func (l *lineStream) started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

func (l *lineStream) send(step api.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", ndjson)
		l.w.WriteHeader(http.StatusCreated)
	}
	// A client that went away ends the request's context; nobody reads this.
	_ = json.NewEncoder(l.w).Encode(step)
	_ = l.flush()
}

func (s *Server) listSnapshots(ctx context.Context, _ *none) (*body[[]api.SnapshotInfo], error) {
	infos, err := s.engine.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.SnapshotInfo, 0, len(infos))
	for _, info := range infos {
		out = append(out, wireSnapshot(info))
	}
	slices.SortFunc(out, func(a, b api.SnapshotInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return &body[[]api.SnapshotInfo]{out}, nil
}

func (s *Server) deleteSnapshot(ctx context.Context, in *deleteSnapshotInput) (*struct{}, error) {
	if in.Cascade && in.Force {
		return nil, fail(api.CodeInvalid, "", "cascade and force exclude each other: one deletes the dependents, the other leaves them")
	}
	opt := sandbox.DeleteOptions{Cascade: in.Cascade, Force: in.Force}
	return nil, s.engine.DeleteSnapshot(ctx, in.Tag, opt)
}

func (s *Server) snapshotInfo(ctx context.Context, in *TagPath) (*body[api.SnapshotDetail], error) {
	info, err := s.engine.SnapshotInfo(ctx, in.Tag)
	if err != nil {
		return nil, err
	}
	return &body[api.SnapshotDetail]{wireSnapshotDetail(info)}, nil
}

func (s *Server) verifySnapshot(ctx context.Context, in *TagPath) (*body[api.VerifyResult], error) {
	report, err := s.engine.VerifySnapshot(ctx, in.Tag)
	if err != nil {
		f := *failureOf(err)
		if f.Code == api.CodeNotRestorable { // verify is what they have just done
			f.Reason, f.Details = api.ReasonVerifyFailed, map[string]string{"tag": in.Tag}
		}
		return nil, &f
	}
	return &body[api.VerifyResult]{wireVerify(report)}, nil
}

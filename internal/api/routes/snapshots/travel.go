package snapshots

import (
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/store/hub"
)

// maxSnapshotBytes limits an upload. In practice the file system's free space is the limit.
const maxSnapshotBytes = 1 << 40

// travelRoutes send and receive snapshots.
type travelRoutes struct {
	engine  routing.Part[roles.Snapshots]
	secrets func() []string // may be nil
}

func (s *travelRoutes) add(rt *routing.Router) {
	tags := []string{"snapshots"}
	rt.RawRoute(huma.Operation{
		OperationID: "export-snapshot", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/export", Tags: tags,
		Summary: "A snapshot as an OCI layout in a tar",
		Description: "If the daemon cannot complete the stream, its last file is " + hub.FailureFile + " with the reason. " +
			"A snapshot that contains the access token of an existing sandbox is refused.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The layout", Content: map[string]*huma.MediaType{
				"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
			},
		}},
		Errors: []int{400, 401, 404, 409, 507},
	}, s.exportSnapshot)
	rt.RawRoute(huma.Operation{
		OperationID: "import-snapshot", Method: http.MethodPut, Path: "/v1/snapshots/{tag}", Tags: tags,
		Summary: "Make a snapshot from a stream of its manifest, its configuration and its blobs",
		Description: "The stream is described in docs/inside/formats/hub.md. The daemon compares every byte with its " +
			"digest. It refuses snapshots of other formats and processors.",
		Parameters: []*huma.Param{{Name: "check", In: "query", Schema: &huma.Schema{Type: "boolean"},
			Description: "Only judge the stream, which may end after the VM's state"}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}},
		Responses: map[string]*huma.Response{
			"201": rt.JSONResponse("Created", api.SnapshotInfo{}), "204": {Description: "The snapshot can run here"},
		},
		Errors: []int{400, 401, 409, 507},
	}, s.importSnapshot)
}

// begun sets the type of an answer at its first byte, so that an earlier error has its status.
type begun struct {
	http.ResponseWriter
	any bool
}

func (b *begun) Write(p []byte) (int, error) {
	if !b.any {
		b.any = true
		b.Header().Set("Content-Type", "application/x-tar")
	}
	return b.ResponseWriter.Write(p)
}

func (s *travelRoutes) exportSnapshot(w http.ResponseWriter, r *http.Request) error {
	req := sandbox.ExportRequest{Tag: r.PathValue("tag")}
	if s.secrets != nil {
		req.Secrets = s.secrets()
	}
	out := &begun{ResponseWriter: w}
	err := s.engine(r.Context()).ExportSnapshot(r.Context(), req, out)
	if err == nil || !out.any {
		return err
	}
	hub.WriteFailure(out, err)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
}

func (s *travelRoutes) importSnapshot(w http.ResponseWriter, r *http.Request) error {
	if ct := r.Header.Get("Content-Type"); ct != "" && !respond.Accepts(ct, "application/x-tar") {
		return apierror.New(api.CodeMediaType, "",
			"a snapshot cannot be read from %s: send application/x-tar", ellipsis.Clip(ct, 80))
	}
	req := sandbox.ImportRequest{Tag: r.PathValue("tag")}
	if q := r.URL.Query().Get("check"); q != "" {
		var err error
		if req.Check, err = strconv.ParseBool(q); err != nil {
			return apierror.New(api.CodeInvalid, "", "check %q: want true or false", ellipsis.Clip(q, 80))
		}
	}
	info, err := s.engine(r.Context()).ImportSnapshot(r.Context(), req, http.MaxBytesReader(w, r.Body, maxSnapshotBytes))
	if err != nil {
		return err
	}
	if req.Check {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	respond.JSON(w, http.StatusCreated, wire.Snapshot(info))
	return nil
}

package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/store/hub"
)

// Limits of the service to other daemons.
const (
	// mostReaders is the number of blobs sent at the same time. Each has an encoder and a chunk in memory.
	mostReaders = 8
	// readerWait is the time that a request waits for its turn.
	readerWait = 10 * time.Second
	// mostCopies is the number of snapshots copied from peers at the same time.
	mostCopies = 4
)

// artifactRoutes send snapshots to other daemons, and copy them from there.
type artifactRoutes struct {
	engine  routing.Part[roles.Snapshots]
	tenants publisher
	secrets func() []string // may be nil
	e2b     Carried         // may be nil
	peers   *peers.Client   // nil: copies are refused
	served  func(bytes int64)
	readers chan struct{}
	copies  chan struct{}

	mu      sync.Mutex
	running map[string]chan struct{} // copies by tenant and tag; closed at the end
}

// Carried finds the secret that another API has about a sandbox. records.Store implements it.
type Carried interface {
	Carried(id string) (facts []byte, secret string, err error)
}

// publisher lets all tenants fork a snapshot.
type publisher func(ctx context.Context, tag string) (sandbox.SnapshotInfo, error)

func newArtifactRoutes(f Routes) *artifactRoutes {
	publish := func(ctx context.Context, tag string) (sandbox.SnapshotInfo, error) { return f.Publish(ctx, tag, true) }
	return &artifactRoutes{engine: f.View.Snapshots, tenants: publish, secrets: f.Secrets, e2b: f.E2B, peers: f.Peers,
		served: f.Sent, readers: make(chan struct{}, mostReaders), copies: make(chan struct{}, mostCopies),
		running: map[string]chan struct{}{}}
}

func (s *artifactRoutes) add(rt *routing.Router) {
	tags := []string{"snapshots"}
	tenant := &huma.Param{Name: "tenant", In: "query", Schema: &huma.Schema{Type: "string"},
		Description: "Find only what this tenant can fork; for keys of the operator"}
	sends := func(mediaType, description string) map[string]*huma.Response {
		return map[string]*huma.Response{"200": {Description: description, Content: map[string]*huma.MediaType{
			mediaType: {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}}
	}
	rt.RawRoute(huma.Operation{
		OperationID: "snapshot-artifact", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/artifact", Tags: tags,
		Summary: "The manifest of a snapshot, for another daemon",
		Description: "An OCI manifest, as in registries. The first time, the daemon reads the whole snapshot for it. " +
			"A snapshot that contains the access token of an existing sandbox is refused.",
		Parameters: []*huma.Param{tenant},
		Responses:  sends(hub.ManifestType, "The manifest"), Errors: []int{400, 401, 403, 404, 409, 503},
	}, s.manifest)
	blob := sends("application/octet-stream", "The blob")
	blob["206"] = &huma.Response{Description: "A part of it", Content: blob["200"].Content}
	rt.RawRoute(huma.Operation{
		OperationID: "snapshot-blob", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/artifact/{digest}", Tags: tags,
		Summary: "A blob of a snapshot, or one range of it, for another daemon",
		Parameters: []*huma.Param{tenant, {Name: "Range", In: "header", Schema: &huma.Schema{Type: "string"},
			Description: "One range of bytes"}},
		Responses: blob, Errors: []int{400, 401, 403, 404, 409, 503},
	}, s.blob)
	routing.Route(rt, huma.Operation{
		OperationID: "copy-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{tag}/copy", Tags: tags,
		Summary: "Copy a snapshot from another daemon",
		Description: "The daemon reads the snapshot from the first peer that has it, and continues at another one if that " +
			"fails. It compares every byte with its digest. The copy has the owner that the snapshot has at the peer.",
		DefaultStatus: http.StatusCreated, Errors: []int{400, 401, 403, 404, 409, 501, 503, 507},
	}, s.copy)
}

// open opens a snapshot in the view of the request's tenant.
func (s *artifactRoutes) open(r *http.Request) (ctx context.Context, b sandbox.Blobs, err error) {
	ctx = r.Context()
	if tenant := r.URL.Query().Get("tenant"); tenant != "" {
		who := principal.From(ctx)
		switch {
		case !keys.IsTenant(tenant):
			return ctx, nil, apierror.New(api.CodeInvalid, "", "tenant %q: want 1 to 24 small letters, digits or _",
				ellipsis.Clip(tenant, 80))
		case !who.Sees(tenant):
			return ctx, nil, apierror.New(api.CodeForbidden, api.ReasonOperatorOnly, "a tenant's key is for its tenant only")
		}
		who.Tenant = tenant
		ctx = principal.With(ctx, who)
	}
	req := sandbox.ExportRequest{Tag: r.PathValue("tag")}
	if s.secrets != nil {
		req.Secrets = withoutOwn(s.secrets(), s.e2b, req.Tag)
	}
	b, err = s.engine(ctx).OpenBlobs(ctx, req)
	return ctx, b, err
}

// withoutOwn removes the token of the sandbox that is paused in a snapshot, because the token goes along to the daemon
// that takes the sandbox.
func withoutOwn(secrets []string, e2b Carried, tag string) []string {
	id := sandbox.PausedIn(tag)
	if id == "" || e2b == nil {
		return secrets
	}
	_, own, err := e2b.Carried(id)
	if err != nil || own == "" {
		return secrets
	}
	return slices.DeleteFunc(slices.Clone(secrets), func(s string) bool { return s == own })
}

// turn waits until the request can be served.
func (s *artifactRoutes) turn(ctx context.Context) (done func(), err error) {
	timer := time.NewTimer(readerWait)
	defer timer.Stop()
	select {
	case s.readers <- struct{}{}:
		return func() { <-s.readers }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, apierror.New(api.CodeBusy, "", "the daemon sends %d blobs of snapshots already", mostReaders)
	}
}

func (s *artifactRoutes) manifest(w http.ResponseWriter, r *http.Request) error {
	done, err := s.turn(r.Context())
	if err != nil {
		return err
	}
	defer done()
	ctx, b, err := s.open(r)
	if err != nil {
		return err
	}
	defer b.Close()
	brief, err := s.engine(ctx).SnapshotBrief(r.PathValue("tag"))
	if err != nil {
		return err
	}
	info, err := s.engine(ctx).SnapshotInfo(ctx, brief.Tag)
	if err != nil {
		return err
	}
	raw := b.Manifest()
	sum := sha256.Sum256(raw)
	h := w.Header()
	h.Set("Content-Type", hub.ManifestType)
	h.Set("Docker-Content-Digest", "sha256:"+hex.EncodeToString(sum[:]))
	h.Set(api.HeaderSnapshotTag, brief.Tag)
	if brief.Owner != "" && principal.From(r.Context()).Sees(brief.Owner) {
		h.Set(api.HeaderSnapshotOwner, brief.Owner)
	}
	if info.Public {
		h.Set(api.HeaderSnapshotPublic, "true")
	}
	_, err = w.Write(raw) // #nosec G705 -- it has a media type that browsers do not render
	s.served(int64(len(raw)))
	return err
}

func (s *artifactRoutes) blob(w http.ResponseWriter, r *http.Request) error {
	if strings.Contains(r.Header.Get("Range"), ",") {
		return apierror.New(api.CodeInvalid, "", "want one range of bytes")
	}
	done, err := s.turn(r.Context())
	if err != nil {
		return err
	}
	defer done()
	_, b, err := s.open(r)
	if err != nil {
		return err
	}
	defer b.Close()
	digest := r.PathValue("digest")
	content := b.Blob(digest)
	if content == nil {
		return apierror.New(api.CodeNotFound, "", "snapshot %s has no blob %s", r.PathValue("tag"), digest)
	}
	defer content.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", `"`+digest+`"`)
	out := &counting{ReadSeeker: content}
	http.ServeContent(w, r, "", time.Time{}, out)
	s.served(out.n)
	if out.err != nil && !errors.Is(out.err, io.EOF) {
		panic(http.ErrAbortHandler) // the status is sent: reset the connection, so that the client does not see a normal end
	}
	return nil
}

// counting counts the bytes that are read.
type counting struct {
	io.ReadSeeker
	n   int64
	err error // of the last read
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

type copyInput struct {
	routing.TagPath
	Body api.CopySnapshotRequest
}

// copy copies a snapshot. Requests for the same snapshot wait for the first one.
func (s *artifactRoutes) copy(ctx context.Context, in *copyInput) (*routing.Body[api.SnapshotInfo], error) {
	tenant := principal.From(ctx).Tenant
	end, err := s.begin(ctx, tenant+"/"+in.Tag)
	if err != nil {
		return nil, err
	}
	defer end()
	if b, err := s.engine(ctx).SnapshotBrief(in.Tag); err == nil {
		return nil, apierror.New(api.CodeConflict, api.ReasonTagTaken, "snapshot %s is here already", b.Tag)
	}
	if s.peers == nil {
		return nil, apierror.New(api.CodeUnsupported, "",
			"this daemon copies no snapshots from others: its operator has not allowed peers")
	}
	from, err := s.peers.Open(ctx, in.Body.Peers, in.Tag, tenant)
	if err != nil {
		return nil, err
	}
	as, err := receiver(ctx, in.Tag, from)
	if err != nil {
		return nil, err
	}
	var info sandbox.SnapshotInfo
	err = from.Receive(func(r io.Reader) error {
		var err error
		info, err = s.engine(as).ImportSnapshot(as, sandbox.ImportRequest{Tag: from.Tag, Owner: from.Owner}, r)
		return err
	})
	if err == nil && from.Public {
		info, err = s.tenants(principal.With(ctx, principal.Principal{Name: "peer"}), info.Tag)
	}
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.Snapshot(info)), nil
}

// begin waits for a copy of the same name to end, and registers this one.
func (s *artifactRoutes) begin(ctx context.Context, name string) (end func(), err error) {
	for {
		s.mu.Lock()
		other := s.running[name]
		if other == nil {
			mine := make(chan struct{})
			s.running[name] = mine
			s.mu.Unlock()
			select {
			case s.copies <- struct{}{}:
				return func() { s.end(name, mine); <-s.copies }, nil
			default:
				s.end(name, mine)
				return nil, apierror.New(api.CodeBusy, "", "the daemon copies %d snapshots already", mostCopies)
			}
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *artifactRoutes) end(name string, mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, name)
	close(mine)
}

// receiver judges what a peer says about a snapshot, and returns the context in which it is received: the tenant's own
// with its quotas, a public one as the operator's. A peer's word is never taken for another tenant or tag.
func receiver(ctx context.Context, asked string, from *peers.Snapshot) (context.Context, error) {
	who := principal.From(ctx)
	wrong := apierror.New(api.CodeConflict, "", "the peer has another snapshot under the tag %s", asked)
	if from.Owner != "" && (!keys.IsTenant(from.Owner) || !strings.HasPrefix(from.Tag, from.Owner+"-")) {
		return nil, wrong
	}
	switch {
	case who.Operator():
		if from.Tag != asked {
			return nil, wrong
		}
		return ctx, nil
	case from.Owner == who.Tenant:
		if from.Tag != asked && from.Tag != who.Tenant+"-"+asked {
			return nil, wrong
		}
		return ctx, nil
	case from.Public && from.Tag == asked && !strings.HasPrefix(asked, who.Tenant+"-"):
		return principal.With(ctx, principal.Principal{Name: "peer"}), nil
	}
	return nil, wrong
}

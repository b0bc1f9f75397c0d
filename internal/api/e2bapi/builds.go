package e2bapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/build/archive"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// builds serves the routes for templates that clients describe step by step.
type builds struct{ h *Handler }

// uploadLimits limit the unpacked content of an uploaded archive.
var uploadLimits = archive.Limits{Bytes: 8 << 30, Entries: 250_000}

// newBuilder returns nil if builds are disabled.
func newBuilder(h *Handler) *build.Builder {
	if h.opt.Builds == nil {
		return nil
	}
	cfg := build.Config{Engine: views{h}, Store: h.opt.Builds, Base: h.snapshotOf, Archive: uploadLimits,
		Registry: h.opt.Registry,
		Network:  &netpolicy.Spec{Default: netpolicy.Public}, Now: h.opt.Now, Log: h.opt.Log}
	if h.opt.TuneBuilds != nil {
		h.opt.TuneBuilds(&cfg)
	}
	return build.New(cfg)
}

// views is the engine as the owner of a build may see it, by the principal of each call's context.
type views struct{ h *Handler }

func (v views) of(ctx context.Context) Engine { return v.h.opt.View(ctx) }

func (v views) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	return v.of(ctx).Fork(ctx, req)
}

func (v views) Kill(ctx context.Context, id string) error { return v.of(ctx).Kill(ctx, id) }

func (v views) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	return v.of(ctx).Branch(ctx, req)
}

func (v views) CreateSnapshot(ctx context.Context, req sandbox.CreateRequest,
	progress func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	return v.of(ctx).CreateSnapshot(ctx, req, progress)
}

func (v views) SnapshotInfo(ctx context.Context, tag string) (sandbox.SnapshotInfo, error) {
	return v.of(ctx).SnapshotInfo(ctx, tag)
}

func (v views) DeleteSnapshot(ctx context.Context, tag string, opt sandbox.DeleteOptions) error {
	return v.of(ctx).DeleteSnapshot(ctx, tag, opt)
}

func (v views) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	return v.of(ctx).DialAgent(ctx, id)
}

// able wraps routes that need a Builder.
func (bs builds) able(f func(call) (answer, error)) func(call) (answer, error) {
	if bs.h.builder != nil {
		return f
	}
	return func(call) (answer, error) { return answer{}, notYet("building templates") }
}

// request is POST /v3/templates. The build begins when its files are uploaded and its steps are
// sent.
func (bs builds) request(c call) (answer, error) {
	var req struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"` // from clients before v3
		Tags     []string `json:"tags"`
		CPUs     int      `json:"cpuCount"`
		MemoryMB int      `json:"memoryMB"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Name == "" {
		req.Name = req.Alias
	}
	t, b, err := bs.h.builder.Request(c.who.Tenant, req.Name, req.Tags, req.CPUs, req.MemoryMB)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusAccepted, struct {
		Template string   `json:"templateID"`
		Build    string   `json:"buildID"`
		Public   bool     `json:"public"`
		Aliases  []string `json:"aliases"`
		Names    []string `json:"names"`
		Tags     []string `json:"tags"`
	}{t.ID, b.ID, false, []string{t.Name}, []string{templates.Namespace + "/" + t.Name}, b.Tags}}, nil
}

// start is POST /v2/templates/{id}/builds/{build}.
func (bs builds) start(c call) (answer, error) {
	var req build.Request
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	err := bs.h.builder.Start(c.ctx, c.who.Tenant, c.PathValue("id"), c.PathValue("build"), req)
	return answer{status: http.StatusAccepted}, err
}

// find returns the build of a request. Another tenant's build is not found.
func (bs builds) find(c call) (build.Template, build.Build, error) {
	t, err := bs.h.opt.Builds.Template(c.who.Tenant, c.PathValue("id"))
	if err != nil {
		return t, build.Build{}, err
	}
	b, ok := t.Build(c.PathValue("build"))
	if !ok {
		err = failf(http.StatusNotFound, "build %q not found", sandbox.Clip(c.PathValue("build")))
	}
	return t, b, err
}

// mostEntries limits the log entries of one answer. Clients repeat the request until no entries are
// left.
const mostEntries = 100

// status is GET /templates/{id}/builds/{build}/status.
func (bs builds) status(c call) (answer, error) {
	q := c.URL.Query()
	offset, err := natural(q, "logsOffset", 0)
	if err != nil {
		return answer{}, err
	}
	limit, err := natural(q, "limit", mostEntries)
	if err != nil {
		return answer{}, err
	}
	// Read the status before the log. Clients then ask again for entries that follow the end.
	t, b, err := bs.find(c)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, struct {
		Template string        `json:"templateID"`
		Build    string        `json:"buildID"`
		Status   build.Status  `json:"status"`
		Logs     []string      `json:"logs"`
		Entries  []build.Entry `json:"logEntries"`
		Reason   *build.Reason `json:"reason,omitempty"`
	}{t.ID, b.ID, b.Status, []string{}, bs.h.builder.Log(b.ID, offset, min(limit, mostEntries)), b.Reason}}, nil
}

// logs is GET /templates/{id}/builds/{build}/logs, which the CLI uses.
func (bs builds) logs(c call) (answer, error) {
	_, b, err := bs.find(c)
	if err != nil {
		return answer{}, err
	}
	q := c.URL.Query()
	limit, err := natural(q, "limit", mostEntries)
	if err != nil {
		return answer{}, err
	}
	cursor, err := natural(q, "cursor", 0) // in milliseconds
	if err != nil {
		return answer{}, err
	}
	all := bs.h.builder.Log(b.ID, 0, 1<<20)
	all = slices.DeleteFunc(all, func(e build.Entry) bool { return cursor > 0 && e.Time.UnixMilli() < int64(cursor) })
	if q.Get("direction") == "backward" {
		slices.Reverse(all)
	}
	return answer{http.StatusOK, struct {
		Logs []build.Entry `json:"logs"`
	}{all[:min(len(all), limit)]}}, nil
}

// natural parses a number of a query.
func natural(q url.Values, name string, def int) (int, error) {
	if q.Get(name) == "" {
		return def, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 0 {
		return 0, invalidf("%s %q: want a number that is not negative", name, sandbox.Clip(q.Get(name)))
	}
	return n, nil
}

// uploadLink is GET /templates/{id}/files/{hash}. It returns whether the files of a COPY are
// stored, and a URL for their upload.
func (bs builds) uploadLink(c call) (answer, error) {
	t, err := bs.h.opt.Builds.Template(c.who.Tenant, c.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	hash := c.PathValue("hash")
	scheme := "http"
	if c.TLS != nil || c.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	link := url.URL{Scheme: scheme, Host: c.Host, Path: "/templates/" + t.ID + "/files/" + hash,
		RawQuery: bs.h.builder.Link(t.ID, c.who.Tenant, c.who.KeyID, hash)}
	return answer{http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{bs.h.opt.Builds.Uploaded(c.who.Tenant, hash, bs.h.opt.Now()), link.String()}}, nil
}

// upload is PUT of an upload link. The link is the only credential.
func (bs builds) upload(w http.ResponseWriter, r *http.Request) {
	if err := bs.takeUpload(r); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (bs builds) takeUpload(r *http.Request) error {
	if bs.h.builder == nil {
		return notYet("building templates")
	}
	id, hash, q := r.PathValue("id"), r.PathValue("hash"), r.URL.Query()
	owner, ok := bs.h.opt.Builds.OwnerOf(id)
	err := bs.h.builder.CheckLink(id, owner, q.Get("key"), hash, q.Get("expires"), q.Get("signature"))
	if err != nil || !ok {
		return failf(http.StatusForbidden, "the upload link is not valid, or has expired")
	}
	switch {
	case r.ContentLength < 0:
		return failf(http.StatusLengthRequired, "an upload needs a Content-Length")
	case r.ContentLength > build.MaxUpload:
		return failf(http.StatusRequestEntityTooLarge, "the archive has more than %d bytes", int64(build.MaxUpload))
	}
	err = bs.h.opt.Builds.Upload(r.Context(), owner, hash, r.ContentLength, r.Body, uploadLimits,
		bs.mayUpload(r.Context(), owner, q.Get("key")))
	if silent := iodeadline.Silence(r.Context()); err != nil && silent != nil {
		return failf(http.StatusRequestTimeout, "%v", silent)
	}
	var broken *build.ReadError
	if errors.As(err, &broken) {
		return invalidf("%v", err)
	}
	return err
}

// uploadRoom is a view that limits uploads by the life of the key and its disk quota.
type uploadRoom interface {
	UploadRoom(ctx context.Context) error
}

// mayUpload returns a check of whether the key of an upload link may still upload.
func (bs builds) mayUpload(ctx context.Context, owner, key string) func() error {
	ctx = principal.With(ctx, principal.Principal{KeyID: key, Tenant: owner})
	room, ok := bs.h.opt.View(ctx).(uploadRoom)
	if !ok {
		return func() error { return nil }
	}
	return func() error { return room.UploadRoom(ctx) }
}

// uploadSizes counts uploads for quotas. Its store is nil if builds are disabled.
type uploadSizes struct{ store *build.Store }

// HeldBytes returns the size of a tenant's uploads in bytes. They count against its disk quota.
func (u uploadSizes) HeldBytes(tenant string) int64 {
	if u.store == nil {
		return 0
	}
	return u.store.HeldBytes(tenant)
}

// assignTags is POST /templates/tags.
func (bs builds) assignTags(c call) (answer, error) {
	var req struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	b, tags, err := bs.h.opt.Builds.AssignTags(c.who.Tenant, req.Target, req.Tags, bs.h.opt.Now())
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusCreated, struct {
		Build string   `json:"buildID"`
		Tags  []string `json:"tags"`
	}{b.ID, tags}}, nil
}

// removeTags is DELETE /templates/tags.
func (bs builds) removeTags(c call) (answer, error) {
	var req struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, bs.h.opt.Builds.RemoveTags(c.who.Tenant, req.Name, req.Tags)
}

// template returns a built template. It returns false if there is none, or if builds are disabled.
func (bs builds) template(owner, name string) (build.Template, bool) {
	if bs.h.builder == nil {
		return build.Template{}, false
	}
	t, err := bs.h.opt.Builds.Template(owner, name)
	return t, err == nil
}

// delete deletes a built template.
func (bs builds) delete(c call, t build.Template) (answer, error) {
	if _, tag, ok := strings.Cut(c.PathValue("id"), ":"); ok && tag != build.DefaultTag {
		return answer{}, invalidf("%q is a tag of template '%s': remove it from the template's tags",
			sandbox.Clip(tag), t.Name)
	}
	err := bs.h.builder.Delete(c.ctx, c.who.Tenant, t.ID)
	if errors.Is(err, sandbox.ErrConflict) {
		err = invalidf("%s", err.Error())
	}
	return answer{status: http.StatusNoContent}, err
}

// shownBuilt describes a built template by its newest ready build, or by its newest build if none
// is ready.
func (bs builds) shownBuilt(c call, t build.Template) templateInfo {
	out := templateInfo{ID: t.ID, Aliases: []string{t.Name}, Names: []string{templates.Namespace + "/" + t.Name},
		CPUs: 1, Created: t.Created.UTC(), Updated: t.Created.UTC(), Builds: len(t.Builds), EnvdVersion: envdVersion,
		Status: string(build.Waiting)}
	var best build.Build
	for _, b := range t.Builds {
		if best.ID == "" || b.Status == build.Ready || best.Status != build.Ready {
			best = b
		}
	}
	if best.ID == "" {
		return out
	}
	out.Build, out.Status, out.Updated = best.ID, string(best.Status), best.Requested.UTC()
	if s, err := c.engine.SnapshotInfo(c.ctx, best.Snapshot); best.Snapshot != "" && err == nil {
		out.CPUs, out.MemoryMB, out.DiskMB = max(s.Shape.VCPUs, 1), s.Shape.MemoryMiB, int(s.DiskLogicalBytes>>20)
	}
	return out
}

// tagsOf returns the tags of a built template, newest first.
func tagsOf(t build.Template) []templateTag {
	out := []templateTag{}
	for tag, a := range t.Tags {
		out = append(out, templateTag{tag, a.Build, a.At.UTC()})
	}
	slices.SortFunc(out, func(a, b templateTag) int {
		if n := b.Created.Compare(a.Created); n != 0 {
			return n
		}
		return strings.Compare(a.Tag, b.Tag)
	})
	return out
}

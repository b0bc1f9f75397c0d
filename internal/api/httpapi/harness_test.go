package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/metrics"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/privatenets"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/volumes"
	"github.com/forkd/forkd/internal/domain/workspace"
	layerstore "github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/volume"
	"github.com/forkd/forkd/internal/testing/secretstest"
)

const token = "0123456789abcdef0123456789abcdef"

// bench is a server over the fake engine with one snapshot, "py".
type bench struct {
	t       testing.TB
	engine  *engine
	images  *fakeengine.Images
	server  *httpapi.Server
	timings *metrics.Timings
	keys    *keys.Store
	secrets *secrets.Store
	weights map[string]int // of tenants, as the engine received them
	log     *bytes.Buffer
	audit   *bytes.Buffer
	h       http.Handler
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchWith(t, func(*httpapi.Options) {})
}

// newBenchWith is newBench with changed options.
func newBenchWith(t testing.TB, change func(*httpapi.Options)) *bench {
	t.Helper()
	images := fakeengine.NewImages("python-numpy", "broken")
	b := &bench{t: t, engine: &engine{}, images: images, timings: metrics.NewTimings(), audit: &bytes.Buffer{},
		weights: map[string]int{}}
	b.log = &bytes.Buffer{}
	dir := t.TempDir()
	b.secrets = secretstest.Open(t, dir)
	b.fill()
	var err error
	if b.keys, err = keys.Open(keys.Config{Path: filepath.Join(dir, "keys.json")}); err != nil {
		t.Fatal(err)
	}
	published, err := tenancy.OpenPublished(filepath.Join(dir, "published.json"))
	if err != nil {
		t.Fatal(err)
	}
	applied := func(tenant string, weight int) error {
		b.weights[tenant] = weight
		return nil
	}
	weights, err := tenancy.OpenWeights(filepath.Join(dir, "tenants.json"), applied)
	if err != nil {
		t.Fatal(err)
	}
	workspaces, err := workspace.Open(filepath.Join(dir, "workspaces.json"), func() time.Time { return b.engine.Now })
	if err != nil {
		t.Fatal(err)
	}
	opt := httpapi.Options{
		Engine: fakeengine.Roles(b.engine), Drain: b.engine.Drain, Images: images, Version: api.VersionInfo{Version: "1.2.3"},
		Audit: httpapi.NewAudit(b.audit, func() time.Time { return b.engine.Now }), Timings: b.timings,
		Keys: b.keys, Published: published, Weights: weights, Workspaces: workspaces,
		SecretStore: b.secrets,
		Log:         slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	opt.Volumes = openVolumes(t, dir)
	b.engine.Volumes = opt.Volumes.Store
	if opt.Networks, err = privatenets.Open(filepath.Join(dir, "networks.json"), time.Now); err != nil {
		t.Fatal(err)
	}
	b.engine.Networks = opt.Networks
	change(&opt)
	b.server = httpapi.New(opt)
	b.h = b.server.Handler(auth.Access{Token: token, Keys: b.keys})
	return b
}

// openVolumes opens a store of volumes.
func openVolumes(t testing.TB, dir string) volumes.Tenants {
	t.Helper()
	layers, err := layerstore.Open(filepath.Join(dir, "layers"), layerstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := volume.Open(volume.Config{Dir: filepath.Join(dir, "volumes"), Pins: layers, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return volumes.Tenants{Store: store}
}

// engine is a replaceable fake. Creating a new server takes 30 ms.
type engine struct{ *fakeengine.Engine }

// fill gives the server an engine with one snapshot.
func (b *bench) fill() {
	b.t.Helper()
	b.engine.Engine = fakeengine.New(b.images)
	b.engine.Secrets = secrets.Source{Store: b.secrets}
	b.t.Cleanup(b.engine.Close)
	_, err := b.engine.CreateSnapshot(b.t.Context(), sandbox.CreateRequest{Tag: "py", Image: "python-numpy"}, func(sandbox.Step) {})
	if err != nil {
		b.t.Fatal(err)
	}
}

// anew returns the same server over a new engine, for one test.
func (b *bench) anew(t testing.TB) *bench {
	t.Helper()
	other := *b
	other.t = t
	networks := b.engine.Networks
	other.fill()
	other.engine.Networks = networks
	return &other
}

// do sends a request with the token and returns the answer.
func (b *bench) do(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

// into checks the status and decodes the body.
func into[T any](t testing.TB, w *httptest.ResponseRecorder, status int) T {
	t.Helper()
	var v T
	if w.Code != status {
		t.Fatalf("status is %d, want %d; body: %s", w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("decode %q: %v", w.Body, err)
	}
	return v
}

// wantError checks that an answer is an error in the documented form.
func wantError(t testing.TB, w *httptest.ResponseRecorder, code api.Code) api.Error {
	t.Helper()
	if w.Code != code.Status() {
		t.Errorf("status is %d, want %d of %s; body: %s", w.Code, code.Status(), code, w.Body)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type of an error is %q", ct)
	}
	dec := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	dec.DisallowUnknownFields()
	var e api.Error
	if err := dec.Decode(&e); err != nil {
		t.Fatalf("error body %q: %v", w.Body, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("error body %q has more than one value", w.Body)
	}
	if e.Code != code || e.Message == "" {
		t.Errorf("error is %+v, want code %s", e, code)
	}
	return e
}

func (b *bench) fork(n string) []api.SandboxInfo {
	b.t.Helper()
	return into[[]api.SandboxInfo](b.t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":`+n+`}`), 201)
}

package e2bapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/e2btest"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/tenancy"
)

const apiKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// clock is a time that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type bench struct {
	t      testing.TB
	engine *e2btest.Engine
	store  *records.Store
	clock  *clock
	h      *e2bapi.Handler
	server *httptest.Server
	stop   func() // of its Run, if a test runs it
}

func authenticate(r *http.Request) (context.Context, error) {
	switch key := r.Header.Get("X-Api-Key"); key {
	case apiKey:
		return r.Context(), nil
	case "tenant_a", "tenant_b", "tenant":
		return principal.With(r.Context(), principal.Principal{Name: key, KeyID: "k-" + key, Tenant: key,
			Scopes: principal.All}), nil
	}
	return nil, errors.New("the key is wrong")
}

// native is the engine in the form for the native API.
type native struct{ *e2btest.Engine }

func (n native) Pause(ctx context.Context, id string, _ sandbox.PauseOptions) (sandbox.Info, error) {
	if err := n.Engine.Pause(ctx, id, false); err != nil {
		return sandbox.Info{}, err
	}
	return n.Get(id)
}

func (n native) Resume(ctx context.Context, id string) (sandbox.Info, error) {
	if err := n.Engine.Resume(ctx, id); err != nil {
		return sandbox.Info{}, err
	}
	return n.Get(id)
}

func (n native) SetLife(ctx context.Context, id string, l sandbox.Life) (sandbox.Info, error) {
	return n.Engine.Engine.SetLife(ctx, id, l)
}

func newBench(t testing.TB, change ...func(*e2bapi.Options)) *bench {
	t.Helper()
	b := &bench{t: t, engine: e2btest.New(t, "base", "broken"), clock: &clock{at: time.Now()}}
	var err error
	if b.store, _, err = records.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	tenants := tenancy.New(fakeengine.Roles(native{b.engine}), tenancy.Config{})
	opt := e2bapi.Options{
		Engine: b.engine, Records: b.store, Lives: b.engine, Authenticate: authenticate,
		View:   func(ctx context.Context) e2bapi.Engine { return e2bapi.EngineFor(tenants.For(ctx)) },
		Domain: ingress.DefaultDomain, Now: b.clock.now,
		Ports: portsOf(b.engine),
	}
	for _, f := range change {
		f(&opt)
	}
	b.h = e2bapi.New(opt)
	b.server = httptest.NewServer(e2btest.Serve(b.h))
	t.Cleanup(b.server.Close)
	return b
}

// portsOf serves ports of an engine's sandboxes.
func portsOf(e *e2btest.Engine) *ingress.Handler {
	return ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: e, Guard: e,
		Wake: func(ctx context.Context, id string, _ error) (bool, error) {
			info, err := e.Get(id)
			if err != nil || info.PID != 0 {
				return false, nil
			}
			return e.Wake(ctx, id) == nil, nil
		}})
}

type answer struct {
	*http.Response
	body string
}

// do sends a request with the operator's key, unless headers have another. Headers are pairs of
// name and value.
func (b *bench) do(method, path, body string, headers ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, b.server.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("X-API-KEY", apiKey)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := b.server.Client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp, string(all)}
}

// want checks a status and decodes the body.
func want[T any](t testing.TB, a answer, status int) T {
	t.Helper()
	var v T
	if a.StatusCode != status {
		t.Fatalf("%s %s: %s, want %d: %s", a.Request.Method, a.Request.URL.Path, a.Status, status, a.body)
	}
	if a.body == "" {
		return v
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

type errorBody struct {
	Code    int
	Message string
	Word    string `json:"error_code"`
}

func wantError(t testing.TB, a answer, status int, words ...string) {
	t.Helper()
	e := want[errorBody](t, a, status)
	if e.Code != status || e.Message == "" {
		t.Errorf("the body is %s", a.body)
	}
	for _, w := range words {
		if !strings.Contains(a.body, w) {
			t.Errorf("%s does not say %q", a.body, w)
		}
	}
}

type created struct {
	TemplateID, SandboxID, ClientID, EnvdVersion, EnvdAccessToken string
	TrafficAccessToken, Domain                                    *string
}

func (b *bench) create(body string) created {
	b.t.Helper()
	return want[created](b.t, b.do("POST", "/v2/sandboxes", body), 201)
}

// envd sends a request to a sandbox's agent.
func (b *bench) envd(s created, method, path, body string, headers ...string) answer {
	b.t.Helper()
	all := append([]string{"E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", "49983", "X-Access-Token", s.EnvdAccessToken},
		headers...)
	return b.do(method, path, body, all...)
}

func (b *bench) record(s created) records.Record {
	b.t.Helper()
	r, ok := b.store.Get(sandbox.CanonicalID(s.SandboxID))
	if !ok {
		b.t.Fatalf("%s has no record", s.SandboxID)
	}
	return r
}

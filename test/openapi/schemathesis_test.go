//go:build schemathesis

package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/events"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/tenancy"
	"github.com/forkd/forkd/internal/domain/workspace"
)

const token = "0123456789abcdef0123456789abcdef"

// planted is part of the names of all of acme's objects.
const planted = "planted7"

// daemon is a server with an operator and two tenants: acme has objects, evil has only keys.
type daemon struct {
	t        *testing.T
	url      string
	engine   *fakeengine.Engine
	keys     *keys.Store
	evilKeys map[string]bool

	names    map[string][]string     // names of existing objects, by path parameter
	theirs   []string                // the ones of acme
	routes   *http.ServeMux          // finds a request's operation
	statuses map[string]map[int]bool // by operation

	mu       sync.Mutex // guards the fields below
	requests int
	strange  map[string]bool // reported statuses
	wrong    []string        // wrong answers
}

// crowd is the maximum number of sandboxes: each request for a sandbox reads lists, and the reader
// is slow.
const crowd = 30

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	images := fakeengine.NewImages("python-numpy", "broken")
	d := &daemon{t: t, engine: fakeengine.New(images), evilKeys: map[string]bool{},
		routes: http.NewServeMux(), names: map[string][]string{"name": {"python-numpy"}}, statuses: map[string]map[int]bool{}, strange: map[string]bool{}}
	d.engine.Limit = crowd
	t.Cleanup(d.engine.Close)
	dir := t.TempDir()
	var err error
	if d.keys, err = keys.Open(keys.Config{Path: filepath.Join(dir, "keys.json")}); err != nil {
		t.Fatal(err)
	}
	published, err := tenancy.OpenPublished(filepath.Join(dir, "published.json"))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := tenancy.OpenWeights(filepath.Join(dir, "tenants.json"), func(string, int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	book, err := workspace.Open(filepath.Join(dir, "workspaces.json"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(audit.Config{Path: filepath.Join(dir, "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close(time.Second) })
	server := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(d.engine), Images: images, Keys: d.keys, Published: published, Weights: weights,
		Workspaces: book, Audit: log, AuditFile: log.Path(), Events: events.New(0, 0, time.Now),
		Version: api.VersionInfo{Version: "1.2.3"}})
	d.documented(server)
	s := httptest.NewServer(d.watch(server.Handler(auth.Access{Token: token, Keys: d.keys})))
	t.Cleanup(s.Close)
	d.url = s.URL
	return d
}

// key makes a key and returns its text.
func (d *daemon) key(tenant string, scopes principal.Scopes, q keys.Quotas) string {
	d.t.Helper()
	_, text, err := d.keys.Create(keys.Spec{Name: fmt.Sprintf("k%d", scopes), Tenant: tenant, Scopes: scopes, Quotas: q})
	if err != nil {
		d.t.Fatal(err)
	}
	return text
}

// watch checks all answers for internal errors and for data that evil must not see.
func (d *daemon) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &tee{ResponseWriter: w, status: 200}
		next.ServeHTTP(rec, r)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.requests++
		d.engine.FinishAll() // otherwise snapshots would never finish, and the next request might wait
		shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		about := func(name string) bool { return strings.Contains(r.URL.Path, name) }
		if d.evilKeys[shown] && rec.status < 400 && slices.ContainsFunc(d.theirs, about) {
			d.wrong = append(d.wrong, fmt.Sprintf("evil may %s %s: %d", r.Method, r.RequestURI, rec.status))
		}
		if d.evilKeys[shown] && strings.Contains(rec.body.String(), planted) && !strings.Contains(r.RequestURI, planted) {
			d.wrong = append(d.wrong, fmt.Sprintf("evil is told of acme's by %s %s: %.300s", r.Method, r.RequestURI,
				rec.body.String()))
		}
		_, op := d.routes.Handler(r)
		d.judge(op, rec.status, rec.body.String())
	})
}

// anywhere lists statuses that no route has to document: they are sent before routing.
var anywhere = []int{400, 401, 403, 405, 413, 429}

// judge checks one answer. The caller must hold mu.
func (d *daemon) judge(op string, status int, text string) {
	known := d.statuses[op]
	if status == 500 || known != nil && !known[status] && !slices.Contains(anywhere, status) {
		what := fmt.Sprintf("%s: %d", op, status)
		if !d.strange[what] {
			d.strange[what] = true
			d.wrong = append(d.wrong, fmt.Sprintf("%s, which is not documented: %.300s", what, text))
		}
	}
}

// documented records the statuses of each operation from the document.
func (d *daemon) documented(server *httpapi.Server) {
	d.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}
	b, err := server.OpenAPI()
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all := map[int]bool{}
			for status := range op.Responses {
				n, _ := strconv.Atoi(status) // 0 for the default
				all[n] = true
			}
			name := strings.ToUpper(method) + " " + path
			d.routes.Handle(name, http.NotFoundHandler())
			d.statuses[name] = all
		}
	}
}

// tee keeps the beginning of an answer.
type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (t *tee) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(b []byte) (int, error) {
	if t.body.Len() < 1<<20 {
		t.body.Write(b)
	}
	return t.ResponseWriter.Write(b)
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (d *daemon) post(auth, path, body string) []byte {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+auth)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusCreated {
		d.t.Fatalf("%s: %s %s", path, resp.Status, b)
	}
	return b
}

// make makes a snapshot and sandboxes of it, and returns their names.
func (d *daemon) make(auth, tag string) (names []string) {
	d.t.Helper()
	var snap api.SnapshotInfo
	var sbs []api.SandboxInfo
	err := json.Unmarshal(d.post(auth, "/v1/snapshots", `{"tag":"`+tag+`","image":"python-numpy"}`), &snap)
	if err == nil {
		err = json.Unmarshal(d.post(auth, "/v1/sandboxes", `{"snapshot_tag":"`+tag+`","n":3}`), &sbs)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	names = []string{snap.Tag}
	for _, of := range []string{"tag", "other"} {
		d.names[of] = append(d.names[of], snap.Tag)
	}
	for _, sb := range sbs {
		names, d.names["id"] = append(names, sb.ID), append(d.names["id"], sb.ID)
	}
	return names
}

// Operations to leave out: streams, which do not end, and operations that end the key in use.
const (
	streams = "events|connect-port-.*|agent-.*"
	ownKeys = "revoke-key|rotate-key"
)

// patience bounds the whole run of one key.
const patience = 20 * time.Minute

func TestSchemathesis(t *testing.T) {
	program := os.Getenv("FORKD_SCHEMATHESIS")
	if program == "" {
		t.Fatal("FORKD_SCHEMATHESIS names no program: scripts/schemathesis.sh installs it and runs this")
	}
	examples := os.Getenv("FORKD_SCHEMATHESIS_EXAMPLES")
	if examples == "" {
		examples = "30"
	}
	for _, who := range []struct {
		name string
		key  func(*daemon) string
		not  string // operations to leave out
	}{
		{"operator", func(*daemon) string { return token }, streams},
		{"tenant", func(d *daemon) string {
			return d.key("evil", principal.All, keys.Quotas{Sandboxes: 8, ForksPerMinute: 20})
		}, streams + "|" + ownKeys},
		{"reader", func(d *daemon) string { return d.key("evil", principal.Read, keys.Quotas{}) }, streams},
	} {
		t.Run(who.name, func(t *testing.T) {
			d := newDaemon(t) // a separate daemon: the operator deletes objects of the others
			text := who.key(d)
			d.evilKeys[text] = text != token
			d.theirs = d.make(d.key("acme", principal.All, keys.Quotas{}), planted)
			if text == token {
				d.make(text, "own")
			} else {
				d.make(d.key("evil", principal.Fork|principal.Read, keys.Quotas{}), "own")
			}
			d.try(program, examples, text, who.not)
		})
	}
}

// try makes schemathesis send its requests with a key.
func (d *daemon) try(program, examples, text, not string) {
	t := d.t
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	hooks, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, "run", d.url+"/openapi.json", "--url", d.url,
		"--header", "Authorization: Bearer "+text, "--exclude-operation-id-regex", "^("+not+")$",
		"--checks", "status_code_conformance,content_type_conformance,response_schema_conformance",
		"--max-examples", examples, "--request-timeout", "20", "--continue-on-failure", "--no-color",
		"--suppress-health-check", "all")
	cmd.Dir = t.TempDir() // it writes files to its directory
	cmd.Args = append(cmd.Args, strings.Fields(os.Getenv("FORKD_SCHEMATHESIS_ARGS"))...)
	names, err := json.Marshal(d.names)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "SCHEMATHESIS_HOOKS=hooks", "PYTHONPATH="+hooks, "FORKD_TRY_NAMES="+string(names))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // unbuffered, because it takes minutes
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.Logf("%d requests", d.requests)
	for _, w := range d.wrong {
		t.Error(w)
	}
}

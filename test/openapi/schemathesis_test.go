//go:build schemathesis

package openapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/keys"
	"github.com/forkd/forkd/internal/principal"
	"github.com/forkd/forkd/internal/tenancy"
)

const token = "0123456789abcdef0123456789abcdef"

// planted is in the names of all that is acme's.
const planted = "planted7"

// daemon is a server with an operator and two tenants: acme has things, evil has a key.
type daemon struct {
	t        *testing.T
	url      string
	keys     *keys.Store
	evilKeys map[string]bool

	mu    sync.Mutex
	wrong []string // what evil was told of acme
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, evilKeys: map[string]bool{}}
	images := fakeengine.NewImages("python-numpy", "broken")
	engine := fakeengine.New(images)
	t.Cleanup(engine.Close)
	dir := t.TempDir()
	var err error
	if d.keys, err = keys.Open(keys.Config{Path: filepath.Join(dir, "keys.json")}); err != nil {
		t.Fatal(err)
	}
	published, err := tenancy.OpenPublished(filepath.Join(dir, "published.json"))
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.New(httpapi.Options{Engine: engine, Images: images, Keys: d.keys, Published: published,
		Version: api.VersionInfo{Version: "1.2.3"}})
	s := httptest.NewServer(d.watch(server.Handler(httpapi.Access{Token: token, Keys: d.keys})))
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

// watch reads along: what fails inside, and what evil is told.
func (d *daemon) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &tee{ResponseWriter: w, status: 200}
		next.ServeHTTP(rec, r)
		d.mu.Lock()
		defer d.mu.Unlock()
		shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if d.evilKeys[shown] && strings.Contains(rec.body.String(), planted) && !strings.Contains(r.RequestURI, planted) {
			d.wrong = append(d.wrong, fmt.Sprintf("%s %s: %.300s", r.Method, r.RequestURI, rec.body.String()))
		}
		if rec.status >= 500 && rec.status != 501 && rec.status != 503 {
			d.t.Logf("%s %.60s: %d: %.300s", r.Method, r.URL.Path, rec.status, rec.body.String())
		}
	})
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

func (d *daemon) post(auth, path, body string) {
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
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		d.t.Fatalf("%s: %s %s", path, resp.Status, b)
	}
}

// streams do not end: they are no matter for a program that waits for answers.
const streams = "/events$|/network/log$|/console$|/connect$|/agent/"

func TestSchemathesis(t *testing.T) {
	program := os.Getenv("FORKD_SCHEMATHESIS")
	if program == "" {
		t.Fatal("FORKD_SCHEMATHESIS names no program: scripts/schemathesis.sh installs it and runs this")
	}
	examples := os.Getenv("FORKD_SCHEMATHESIS_EXAMPLES")
	if examples == "" {
		examples = "30"
	}
	d := newDaemon(t)
	acme := d.key("acme", principal.All, keys.Quotas{Sandboxes: 200})
	evil := d.key("evil", principal.All, keys.Quotas{Sandboxes: 5, ForksPerMinute: 10})
	reader := d.key("evil", principal.Read, keys.Quotas{})
	d.evilKeys[evil], d.evilKeys[reader] = true, true
	d.post(acme, "/v1/snapshots", `{"tag":"`+planted+`","image":"python-numpy"}`)
	d.post(acme, "/v1/sandboxes", `{"snapshot_tag":"`+planted+`","n":3}`)
	for name, text := range map[string]string{"operator": token, "tenant": evil, "reader": reader} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, "run", d.url+"/openapi.json", "--url", d.url,
				"--header", "Authorization: Bearer "+text, "--exclude-path-regex", streams,
				"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
				"--max-examples", examples, "--request-timeout", "20", "--continue-on-failure", "--no-color",
				"--suppress-health-check", "all")
			cmd.Dir = t.TempDir() // it keeps files beside itself
			cmd.Args = append(cmd.Args, strings.Fields(os.Getenv("FORKD_SCHEMATHESIS_ARGS"))...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // as it comes: it takes minutes
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.wrong {
		t.Errorf("evil was told of acme's: %s", w)
	}
}

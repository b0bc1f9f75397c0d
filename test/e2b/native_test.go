package e2b

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/e2bapi"
	"github.com/forkd/forkd/internal/e2bapi/build"
	"github.com/forkd/forkd/internal/e2bapi/e2btest"
	"github.com/forkd/forkd/internal/e2bapi/records"
	"github.com/forkd/forkd/internal/ingress"
)

const apiKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// cache is where scripts/e2b-sdks.sh leaves the packages.
func cache(t *testing.T, parts ...string) string {
	t.Helper()
	dir := os.Getenv("FORKD_E2B_SDKS")
	if dir == "" {
		dir = filepath.Join("..", "..", ".cache", "e2b")
	}
	path, err := filepath.Abs(filepath.Join(append([]string{dir}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing: scripts/e2b-sdks.sh installs it", path)
	}
	return path
}

// native is a server of E2B's API without VMs.
func native(t *testing.T) string {
	t.Helper()
	engine := e2btest.New(t, "base", "code-interpreter-v1")
	store, _, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := e2bapi.New(e2bapi.Options{
		Engine: engine, Records: store, Builds: made, Lives: engine,
		TuneBuilds: func(c *build.Config) { c.ReadyEvery = 20 * time.Millisecond }, Domain: ingress.DefaultDomain,
		Ports: ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: engine, Guard: engine}),
		Authenticate: func(r *http.Request) (context.Context, error) {
			if r.Header.Get("X-Api-Key") != apiKey {
				return nil, errors.New("the key is wrong")
			}
			return r.Context(), nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s := httptest.NewServer(e2btest.Serve(h))
	t.Cleanup(s.Close)
	return s.URL
}

// run runs a program of testdata and shows what it printed.
func run(t *testing.T, url string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+apiKey, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url,
		"E2B_TEST_TEMPLATE=base", "E2B_TEST_DIR="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func TestPythonOverAgentsOnThisHost(t *testing.T) {
	for _, version := range pythonVersions {
		t.Run(version, func(t *testing.T) {
			python := filepath.Join(cache(t, "python-"+version), "bin", "python")
			url := native(t)
			programs := []string{"sync.py", "async.py"}
			if version == newestPython && os.Getuid() == 0 { // steps are root's in a guest that is this host
				programs = append(programs, "template.py")
			}
			for _, program := range programs {
				t.Run(program, func(t *testing.T) { run(t, url, nil, python, filepath.Join("testdata", program)) })
			}
		})
	}
}

func TestJavaScriptOverAgentsOnThisHost(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Logf("there is no npm, which is no package of make deps: %v", err)
		return
	}
	for _, version := range nodeVersions {
		t.Run(version, func(t *testing.T) {
			dir := cache(t, "node-"+version)
			programs := []string{"sdk.mjs"}
			if version == newestNode && os.Getuid() == 0 {
				programs = append(programs, "template.mjs")
			}
			for _, program := range programs {
				t.Run(program, func(t *testing.T) { runNode(t, dir, program) })
			}
		})
	}
}

// runNode runs a program where the packages lie: modules are found from there.
func runNode(t *testing.T, dir, name string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, filepath.Base(t.TempDir())+"-"+name)
	if err := os.WriteFile(program, b, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	run(t, native(t), nil, "node", program)
}

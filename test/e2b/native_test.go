package e2b

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/api/e2bapi/e2btest"
	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/api/tlscert"
	"github.com/forkd/forkd/internal/domain/volumes"
	layerstore "github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/volume"
	"github.com/forkd/forkd/internal/testing/secretstest"
)

const apiKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// cache returns a path in the directory where scripts/e2b-sdks.sh installs the packages.
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

// native starts a server of the E2B API without VMs.
func native(t *testing.T) string { return nativeOf(t, "base", "code-interpreter-v1") }

// bare returns the variable with the URL of a server without images.
func bare(t *testing.T) []string { return []string{"E2B_TEST_BARE=" + nativeOf(t)} }

func nativeOf(t *testing.T, images ...string) string {
	t.Helper()
	s := httptest.NewServer(handler(t, images...))
	t.Cleanup(s.Close)
	return s.URL
}

func handler(t *testing.T, images ...string) http.Handler {
	t.Helper()
	return handlerWith(t, func(*build.Config) {}, images...)
}

func handlerWith(t *testing.T, tune func(*build.Config), images ...string) http.Handler {
	t.Helper()
	engine := e2btest.New(t, images...)
	store, _, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	layers, err := layerstore.Open(t.TempDir(), layerstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	engine.Volumes, err = volume.Open(volume.Config{Dir: t.TempDir(), Pins: layers, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := e2bapi.New(e2bapi.Options{
		Secrets: secretstest.Open(t, t.TempDir()),
		Volumes: volumes.Tenants{Store: engine.Volumes},
		Engine:  engine, Records: store, Builds: made, Lives: engine,
		TuneBuilds: func(c *build.Config) {
			c.ReadyEvery = 20 * time.Millisecond
			tune(c)
		},
		Domain: ingress.DefaultDomain,
		Ports:  ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: engine, Guard: engine}),
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
	return e2btest.Serve(h)
}

// run runs a program of testdata and logs its output.
func run(t *testing.T, url string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // long, because a slow machine is no failure
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
			newest := version == newestPython
			if newest {
				programs = append(programs, "rest.py") // older versions lack parts of it
			}
			if newest && os.Getuid() == 0 { // steps run as root, and the guest is this host
				programs = append(programs, "template.py")
			}
			for _, program := range programs {
				path := filepath.Join("testdata", program)
				t.Run(program, func(t *testing.T) { run(t, url, bare(t), python, path) })
				if newest && (program == "sync.py" || program == "rest.py") {
					t.Run("asynchronous "+program, func(t *testing.T) { run(t, url, []string{"E2B_TEST_ASYNC=1"}, python, path) })
				}
			}
		})
	}
}

func TestJavaScriptOverAgentsOnThisHost(t *testing.T) {
	if !hasNPM(t) {
		return
	}
	for _, version := range nodeVersions {
		t.Run(version, func(t *testing.T) { run(t, native(t), nil, "node", module(t, version, "sdk.mjs")) })
		if version != newestNode {
			continue
		}
		t.Run(version+" rest", func(t *testing.T) { run(t, native(t), nil, "node", module(t, version, "rest.mjs")) })
		if os.Getuid() == 0 { // steps run as root, and the guest is this host
			t.Run(version+" template", func(t *testing.T) {
				run(t, native(t), bare(t), "node", module(t, version, "template.mjs"))
			})
		}
	}
}

// The packages use HTTP/2 if a server over TLS offers it. They trust a certificate made by forkd
// serve through their language's environment variables.
func TestPackagesOverTLS(t *testing.T) {
	cert, key, err := tlscert.Made(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files, err := tlscert.Open(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	config, err := files.Config("")
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler(t, "base", "code-interpreter-v1"), TLSConfig: config}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	url := "https://" + l.Addr().String()
	python := filepath.Join(cache(t, "python-"+newestPython), "bin", "python")
	for _, program := range []string{"sync.py", "async.py"} {
		t.Run(program, func(t *testing.T) {
			run(t, url, []string{"SSL_CERT_FILE=" + cert}, python, filepath.Join("testdata", program))
		})
	}
	if hasNPM(t) {
		t.Run("sdk.mjs", func(t *testing.T) {
			run(t, url, []string{"NODE_EXTRA_CA_CERTS=" + cert}, "node", module(t, newestNode, "sdk.mjs"))
		})
	}
}

// hasNPM reports whether the packages for Node can be installed.
func hasNPM(t *testing.T) bool {
	t.Helper()
	_, err := exec.LookPath("npm")
	if err != nil {
		t.Logf("there is no npm, which is no package of make deps: %v", err)
	}
	return err == nil
}

// module copies a program next to a version of the package: Node searches for modules from the
// program's directory.
func module(t *testing.T, version, program string) string {
	t.Helper()
	dir := cache(t, "node-"+version)
	b, err := os.ReadFile(filepath.Join("testdata", program))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "*-"+program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

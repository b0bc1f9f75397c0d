package e2b

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/containers"
	"github.com/forkd/forkd/test/contract"
	"github.com/forkd/forkd/test/dockerfile"
	"github.com/forkd/forkd/test/harness"
	"github.com/forkd/forkd/test/mcp"
	"github.com/forkd/forkd/test/pages"
	"github.com/forkd/forkd/test/ssh"
)

// TestOverVMs runs the same programs, and the programs that need VMs, against the daemon of a
// separate machine. The packages are on this host, like a user's. The scenarios of the client
// contract share the machine.
func TestOverVMs(t *testing.T) {
	m := harness.StartMachine(t, "-e2b")
	m.Image(t, "python-numpy", "base")
	t.Run("pages", func(t *testing.T) { pages.Suite(t, m) }) // before others leave snapshots
	t.Run("python", func(t *testing.T) { pythons(t, m) })
	t.Run("node", func(t *testing.T) { nodes(t, m) })
	t.Run("check", func(t *testing.T) { checks(t, m) })
	t.Run("contract", func(t *testing.T) {
		contract.Run(t, contract.Daemon{URL: m.URL, Token: m.Token, Parent: "base", Short: true})
	})
	t.Run("mcp", func(t *testing.T) {
		kvmtest.Drawn(t)
		mcp.Clients(t, m, "base")
	})
	t.Run("forkd's SDKs", func(t *testing.T) {
		d := contract.Daemon{URL: m.URL, Token: m.Token, Parent: "base"}
		if harness.Soaking() { // contract.Run covers the same calls
			contract.PythonSuite(t, d, "test_live.py", "trees or asynchronous or ended")
		}
		contract.PythonSuite(t, d, "test_docs.py", "page")
		contract.TypeScriptSuite(t, d, "docs.test.mjs")
	})
	t.Run("integrations", func(t *testing.T) {
		kvmtest.Drawn(t)
		integrations(t, m)
	})
	t.Run("examples", func(t *testing.T) {
		kvmtest.Drawn(t)
		examples(t, m)
	})
	t.Run("ssh", func(t *testing.T) { ssh.Suite(t, m, "base") })
	t.Run("dockerfile", func(t *testing.T) { dockerfile.Suite(t, m, "python-numpy") })
	t.Run("kills", func(t *testing.T) {
		kvmtest.Drawn(t)
		kills(t, m)
	})
	t.Run("restart", func(t *testing.T) {
		kvmtest.Drawn(t)
		restarts(t, m)
	})
}

// TestImagesOverVMs makes templates and sandboxes of container images. The native tests have a short form of both.
func TestImagesOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-e2b")
	m.Image(t, "python-numpy", "base")
	t.Run("registries", func(t *testing.T) { registries(t, m) })
	t.Run("containers", func(t *testing.T) { containers.Suite(t, m) })
}

// bun is the npm package with bun's program for any x86-64.
const bun = "@oven/bun-linux-x64-baseline@1.4.5"

// TestBunOverVMs builds a template with bun. No image of forkd has bun, and it is too large to
// fetch for each `make test`.
func TestBunOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	if !hasNPM(t) {
		return
	}
	dir := t.TempDir()
	for _, line := range []string{"npm pack --silent " + bun, "tar --strip-components=2 -xzf *.tgz package/bin/bun", "rm *.tgz"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	m := harness.StartMachine(t, "-e2b")
	m.Image(t, "base", "base")
	run(t, m.E2B["E2B_API_URL"], env(m), filepath.Join(cache(t, "python-"+newestPython), "bin", "python"),
		filepath.Join("testdata", "bunvm.py"), dir)
}

func pythons(t *testing.T, m *harness.Machine) {
	newest := pythonVersions[len(pythonVersions)-1]
	for _, version := range pythonVersions {
		python := filepath.Join(cache(t, "python-"+version), "bin", "python")
		programs := []string{"async.py"} // the native tests cover the others with older versions
		if version == newest {
			programs = append(programs, "vm.py", "rest.py")
		}
		if harness.Soaking() && (version == newest || version == pythonVersions[0]) {
			programs = append(programs, "sync.py")
		}
		if harness.Soaking() && version == newest { // installs packages by apt and pip, for minutes
			programs = append(programs, "templatevm.py")
		}
		for _, program := range programs {
			t.Run(version+" "+program, func(t *testing.T) {
				run(t, m.E2B["E2B_API_URL"], env(m, "E2B_TEST_FLAKY="+flaky(t, m.E2B["E2B_API_URL"])),
					python, filepath.Join("testdata", program))
			})
		}
	}
}

func nodes(t *testing.T, m *harness.Machine) {
	if !hasNPM(t) {
		return
	}
	for i, version := range nodeVersions {
		programs := []string{"sdk.mjs"}
		if i == len(nodeVersions)-1 {
			if harness.Soaking() { // vm.py and dockerfile.Suite do the same
				programs = append(programs, "vm.mjs", "templatevm.mjs")
			}
		}
		for _, program := range programs {
			t.Run(version+" "+program, func(t *testing.T) {
				run(t, m.E2B["E2B_API_URL"], env(m), "node", module(t, version, program))
			})
		}
	}
}

// env returns the environment for run, without the address.
func env(m *harness.Machine, more ...string) []string {
	return append([]string{"E2B_API_KEY=" + m.E2B["E2B_API_KEY"], "E2B_TEST_VM=1", "E2B_TEST_DIR=/home/user/test"}, more...)
}

// flaky is a proxy that loses the first answer to a request for a sandbox. The server has made the
// sandbox, but the client gets no answer.
func flaky(t *testing.T, server string) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var lost atomic.Bool
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(resp *http.Response) error {
			made := resp.StatusCode == http.StatusCreated && strings.HasSuffix(resp.Request.URL.Path, "/sandboxes")
			if made && lost.CompareAndSwap(false, true) {
				return http.ErrAbortHandler
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = w.Write([]byte(`{"code":504,"message":"the answer was lost"}`))
		},
	})
	t.Cleanup(s.Close)
	return s.URL
}

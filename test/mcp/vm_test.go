package mcp

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// TestAllClientsOverVMs also runs the older Python client and the Inspector. test/e2b runs the
// newest clients in each make test, in its own machine.
func TestAllClientsOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-e2b")
	m.Image(t, "python-numpy", "mcp")
	t.Cleanup(func() { m.Forkd(t, "snapshot", "rm", "mcp") })
	Clients(t, m, "mcp")
	t.Run("older python", func(t *testing.T) { python(t, m, "mcp", pythonVersions()[0]) })
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skipf("there is no npm: %v", err)
	}
	dir := cache(t, "inspector-"+inspector)
	t.Run("inspector", func(t *testing.T) {
		t.Setenv("MCP_TEST_INSPECTOR", node(dir)+" "+filepath.Join(dir, "node_modules", ".bin", "mcp-inspector"))
		run(t, m, "mcp", "sh", filepath.Join(testdata, "inspector.sh"))
	})
}

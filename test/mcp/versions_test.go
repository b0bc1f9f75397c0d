package mcp

import (
	"os"
	"strings"
	"testing"
)

// Versions of the clients in the tests. The older Python package is the last of its generation, and
// has the protocol's version 2025-11-25 only.
var (
	pythonVersions = []string{"1.30.0", "2.3.0"}
	nodeSDK        = "1.32.2"
	inspector      = "2.12.0"
)

// The script installs the versions that the tests look for.
func TestTheScriptHasTheSameVersions(t *testing.T) {
	b, err := os.ReadFile("../../scripts/mcp-clients.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"for pin in " + strings.Join(pythonVersions, " ") + ";", "\nsdk=" + nodeSDK + "\n",
		"\ninspector=" + inspector + "\n"} {
		if !strings.Contains(string(b), line) {
			t.Errorf("scripts/mcp-clients.sh has no %q", line)
		}
	}
}

package mcp

import (
	"os"
	"strings"
	"testing"
)

// The script installs the versions that the tests look for.
func TestTheScriptHasTheSameVersions(t *testing.T) {
	b, err := os.ReadFile("../../scripts/mcp-clients.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"for pin in " + strings.Join(pythonVersions(), " ") + ";", "\nsdk=" + nodeSDK + "\n",
		"\ninspector=" + inspector + "\n"} {
		if !strings.Contains(string(b), line) {
			t.Errorf("scripts/mcp-clients.sh has no %q", line)
		}
	}
}

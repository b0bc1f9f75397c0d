package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
)

// TestEveryOperationHasAScenario fails for a new route without a scenario that make test runs.
func TestEveryOperationHasAScenario(t *testing.T) {
	ops, err := operations(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	for _, s := range scenarios(t) {
		if s.Only != "real" || s.Short { // make test runs it
			called = append(called, s.Calls()...)
		}
	}
	// The agent's routes forward the agent's own API, which has calls of its own.
	stands := map[string]string{"agent-get": "agent.read", "agent-post": "agent.write", "connect-port-post": "connect-port-get"}
	for op := range ops {
		want := op
		if other, ok := stands[op]; ok {
			want = other
		}
		if !slices.Contains(called, want) {
			t.Errorf("no scenario of sdk/contract calls %s", want)
		}
	}
	for _, call := range called {
		if _, ok := ops[call]; !ok && !strings.HasPrefix(call, "agent.") {
			t.Errorf("a scenario calls %s, which is not in the OpenAPI document", call)
		}
	}
}

// parent is the snapshot that the scenarios fork.
const parent = "contract-parent"

// TestOverTheFakeEngine runs every scenario through every client, each with a daemon of its own.
func TestOverTheFakeEngine(t *testing.T) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			d, err := fakedaemon.Start("python-numpy")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			url := strings.Replace(d.TCP, "tcp://", "http://", 1)
			run(t, c, Daemon{URL: url, Token: fakedaemon.Token, Parent: parent, Fake: true})
		})
	}
}

// TestPythonOverBrokenLinks runs the tests of the Python SDK that need no daemon.
func TestPythonOverBrokenLinks(t *testing.T) {
	PythonSuite(t, Daemon{}, "test_links.py", "test")
	PythonSuite(t, Daemon{}, "test_methods.py", "test")
	PythonSuite(t, Daemon{}, "test_daemon.py", "test")
}

// TestPythonIsTyped checks the Python SDK with mypy.
func TestPythonIsTyped(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), sdkPython(t), "-m", "mypy", "--strict", "--cache-dir", t.TempDir(),
		"src/forkd", "tests")
	cmd.Dir = filepath.Join("..", "..", "sdk", "python")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTypeScriptOverBrokenLinks runs the tests of the TypeScript SDK that need no daemon. One checks
// that its generated files are current.
func TestTypeScriptOverBrokenLinks(t *testing.T) {
	TypeScriptSuite(t, Daemon{}, "unit.test.mjs", "methods.test.mjs", "tree.test.mjs", "tls.test.mjs")
}

// TestOverADaemon runs the scenarios over the daemon of the environment. test/e2b runs the short
// ones over VMs.
func TestOverADaemon(t *testing.T) {
	url := os.Getenv("FORKD_CONTRACT_URL")
	if url == "" {
		return // for work on a client
	}
	Run(t, Daemon{URL: url, Token: os.Getenv("FORKD_CONTRACT_TOKEN"), Parent: parent})
}

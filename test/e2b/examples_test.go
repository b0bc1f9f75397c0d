package e2b

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/contract"
	"github.com/forkd/forkd/test/harness"
)

// examples runs the programs of examples/ in their short forms, and checks their results. No sandbox
// and no snapshot is left.
func examples(t *testing.T, m *harness.Machine) {
	before := string(m.Forkd(t, "-q", "ps")) + string(m.Forkd(t, "-q", "snapshot", "ls"))
	t.Run("treesearch", func(t *testing.T) {
		var got struct {
			Start, Best float64
			Tree        []string
			Leaves      []float64
		}
		out := example(t, m, "treesearch/search.py", "--depth", "2", "--epochs", "50", "--json")
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		// Three children of the start, and three of each of the two that were kept.
		if len(got.Tree) != 10 || len(got.Leaves) != 2 || got.Best > got.Start/2 || got.Best != min(got.Leaves[0], got.Leaves[1]) {
			t.Errorf("%+v", got)
		}
		if marked := strings.Count(strings.Join(got.Tree, "\n"), "<- best"); marked != 1 {
			t.Errorf("%d nodes are the best", marked)
		}
	})
	t.Run("dataagent", func(t *testing.T) {
		chart := filepath.Join(t.TempDir(), "chart.svg")
		out := string(example(t, m, "dataagent/agent.py", "--out", chart))
		for _, want := range []string{"ValueError", "as before the cell", "'Lagos': (1319.5, 8.55)"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %s", want, out)
			}
		}
		b, err := os.ReadFile(chart)
		if err != nil {
			t.Fatal(err)
		}
		var svg struct {
			Lines []struct {
				Points string `xml:"points,attr"`
			} `xml:"polyline"`
		}
		if err := xml.Unmarshal(b, &svg); err != nil || len(svg.Lines) != 3 || len(strings.Fields(svg.Lines[0].Points)) != 12 {
			t.Errorf("%v: %s", err, b)
		}
	})
	t.Run("mutation", func(t *testing.T) {
		kvmtest.Soak(t)
		contract.PythonSuite(t, contract.Daemon{URL: m.URL, Token: m.Token, Parent: "base"},
			filepath.Join("..", "..", "..", "examples", "mutation", "test_mutate.py"), "known")
	})
	if after := string(m.Forkd(t, "-q", "ps")) + string(m.Forkd(t, "-q", "snapshot", "ls")); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// integrations runs two suites of integrations/ with the real frameworks. `make test-integrations` runs
// all.
func integrations(t *testing.T, m *harness.Machine) {
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "integrations.sh"), "pytest-forkd", "forkd-smolagents")
	cmd.Env = append(os.Environ(), "FORKD_URL="+m.URL, "FORKD_TOKEN="+m.Token, "FORKD_TEST_SNAPSHOT=base")
	out, err := cmd.CombinedOutput()
	if got := strings.Count(string(out), ": passed: "); err != nil || got != 2 {
		t.Errorf("%d suites passed, want 2; %v: %s", got, err, out)
	}
}

// example runs a program of examples/ with forkd's Python client.
func example(t *testing.T, m *harness.Machine, name string, args ...string) []byte {
	t.Helper()
	python := filepath.Join("..", "..", ".cache", "sdk", "python", "bin", "python")
	cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("..", "..", "examples", name), "--snapshot", "base"}, args...)...)
	cmd.Env = append(os.Environ(), "FORKD_URL="+m.URL, "FORKD_TOKEN="+m.Token, "PYTHONDONTWRITEBYTECODE=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s%s", name, err, out, errs.String())
	}
	return out
}

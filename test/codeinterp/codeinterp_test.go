package codeinterp

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/images/image"
)

const recipeDir = "../../recipes/code-interpreter-v1"

// sdk returns the SDK version to test. FORKD_E2B_VERSIONS=newest selects the newest release.
func sdk() string {
	if os.Getenv("FORKD_E2B_VERSIONS") == "newest" {
		return "e2b-code-interpreter"
	}
	return "e2b-code-interpreter==2.11.5"
}

func nodeSDK() string {
	if os.Getenv("FORKD_E2B_VERSIONS") == "newest" {
		return "@e2b/code-interpreter@latest"
	}
	return "@e2b/code-interpreter@2.8.0"
}

// TestRecipe needs no network. It reads the recipe, and checks that every source file exists.
func TestRecipe(t *testing.T) {
	r := recipe(t)
	for _, f := range r.Files {
		if _, err := os.Stat(filepath.Join(recipeDir, f.Source)); err != nil {
			t.Error(err)
		}
	}
	for _, p := range r.Pip {
		if !strings.Contains(p.Value, "==") {
			t.Errorf("%s has no exact version", p.Value)
		}
	}
}

func recipe(t *testing.T) *image.Recipe {
	t.Helper()
	r, err := image.LoadRecipe(recipeDir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestProtocolAndSDK(t *testing.T) {
	if os.Getenv("FORKD_TEST_IMAGE") != "1" {
		t.Skip("FORKD_TEST_IMAGE is not 1: downloads packages of PyPI")
	}
	python := environment(t)
	dir := t.TempDir()
	t.Run("protocol", func(t *testing.T) {
		port := serve(t, python, dir, "0")
		run(t, nil, python, "testdata/protocol.py", port, dir, filepath.Join(recipeDir, "files/fork-hook.sh"))
	})
	t.Run("sdk", func(t *testing.T) {
		serve(t, python, dir, "49999") // with E2B_DEBUG the SDK calls this port
		debug := []string{"E2B_DEBUG=true", "E2B_API_KEY=e2b_" + strings.Repeat("0", 40)}
		run(t, debug, python, "testdata/sdk.py")
		if program := nodeProgram(t); program != "" {
			run(t, debug, "node", program)
		}
	})
}

// environment makes a Python environment with the recipe's packages and the SDK.
func environment(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, nil, "python3", "-m", "venv", dir)
	python := filepath.Join(dir, "bin/python")
	args := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", sdk()}
	for _, p := range recipe(t).Pip {
		args = append(args, p.Value)
	}
	run(t, nil, python, args...)
	return python
}

// nodeProgram installs the JavaScript package beside a copy of its program. Without npm it returns no path.
func nodeProgram(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Logf("there is no npm, which is no package of make deps: %v", err)
		return ""
	}
	dir := t.TempDir()
	b, err := os.ReadFile("testdata/sdk.mjs")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sdk.mjs")
	if err := os.WriteFile(program, b, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, nodeSDK())
	return program
}

// serve starts the server and returns the port it listens on.
func serve(t *testing.T, python, dir, port string) string {
	t.Helper()
	cwd := filepath.Join(dir, "home")
	if err := os.MkdirAll(cwd, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, filepath.Join(recipeDir, "files/server.py"),
		"--host", "127.0.0.1", "--port", port, "--run", dir, "--cwd", cwd)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OPENBLAS_NUM_THREADS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if got, ok := strings.CutPrefix(lines.Text(), "listening on port "); ok {
			return got
		}
	}
	t.Fatal("the server ended before it listened")
	return ""
}

func run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute) // a hundred forks on an emulated CPU
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%s %s: %v", name, args[0], err)
	}
}

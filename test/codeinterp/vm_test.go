package codeinterp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// TestOverVMs runs E2B's code interpreter over VMs of the image, which is too large for each
// `make test`: `make codeinterp` runs it. FORKD_FORKS is the number of forks of one warm interpreter.
func TestOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-ci")
	m.Image(t, "code-interpreter-v1", "code-interpreter-v1")
	dir := t.TempDir()
	run(t, nil, "python3", "-m", "venv", dir)
	python := filepath.Join(dir, "bin", "python")
	run(t, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", sdk)
	env := []string{"FORKD_FORKS=" + os.Getenv("FORKD_FORKS"),
		"PYTHONPATH=" + filepath.Join("..", "e2b", "testdata")} // what programs of E2B's clients share
	for k, v := range m.E2B {
		env = append(env, k+"="+v)
	}
	run(t, env, python, filepath.Join("testdata", "vm.py"))
}

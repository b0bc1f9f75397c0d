package codeinterp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// TestOverVMs runs E2B's code interpreter over VMs of the image. The image is too large for each
// `make test`; `make codeinterp` runs the test. FORKD_FORKS is the number of forks of one warm
// interpreter.
func TestOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-ci")
	m.Image(t, "code-interpreter-v1", "code-interpreter-v1")
	python := client(t)
	run(t, environ(m, "FORKD_FORKS="+os.Getenv("FORKD_FORKS")), python, filepath.Join("testdata", "vm.py"))
}

// TestLanguagesOverVMs runs R and Java over VMs of two images each: the language's own, and the one
// with all languages.
func TestLanguagesOverVMs(t *testing.T) {
	kvmtest.Soak(t)
	m := harness.StartMachine(t, "-ci")
	python := client(t)
	for _, of := range []struct {
		template  string
		languages []string
	}{
		{"code-interpreter-r", []string{"r"}},
		{"code-interpreter-java", []string{"java"}},
		{"code-interpreter-all", []string{"r", "java"}},
	} {
		t.Run(of.template, func(t *testing.T) {
			m.Image(t, of.template, of.template)
			for _, language := range of.languages {
				run(t, environ(m), python, filepath.Join("testdata", "languages.py"), language, of.template)
			}
		})
	}
}

// client makes a Python environment with E2B's package.
func client(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, nil, "python3", "-m", "venv", dir)
	python := filepath.Join(dir, "bin", "python")
	run(t, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", sdk())
	return python
}

// environ returns the environment of an E2B client program: the daemon's address, and the path of
// shared modules.
func environ(m *harness.Machine, more ...string) []string {
	env := append(more, "PYTHONPATH="+filepath.Join("..", "e2b", "testdata"))
	for k, v := range m.E2B {
		env = append(env, k+"="+v)
	}
	return env
}

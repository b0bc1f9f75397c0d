//go:build e2bvm

package e2b

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// TestPythonOverVMs runs the same programs against a daemon with VMs. It needs both a KVM and E2B's packages,
// and the machine of the other tests has no Python: so it is no part of `make test`.
func TestPythonOverVMs(t *testing.T) {
	kvmtest.Require(t)
	python := filepath.Join(cache(t, "python-"+pythonVersions[len(pythonVersions)-1]), "bin", "python")
	vars := variables(t, startDaemon(t))
	for _, program := range []string{"sync.py", "async.py"} {
		t.Run(program, func(t *testing.T) {
			run(t, vars["E2B_API_URL"], []string{"E2B_API_KEY=" + vars["E2B_API_KEY"], "E2B_TEST_VM=1",
				"E2B_TEST_DIR=/home/user/" + program, "E2B_TEST_SKIP=" + os.Getenv("FORKD_E2B_SKIP")},
				python, filepath.Join("testdata", program))
		})
	}
}

// startDaemon is a daemon whose template "base" is of the image with Python.
func startDaemon(t *testing.T) *harness.Daemon {
	t.Helper()
	dir, err := harness.TempDir("e2b-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := harness.New(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	d.Flags = append(d.Flags, "--listen", "tcp://127.0.0.1:0")
	if err := harness.PythonImage(t, d.Images()); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Finish(); err != nil {
			t.Error(err)
		}
	})
	req := api.CreateSnapshotRequest{Tag: "base", Image: "python-numpy"}
	if _, err := d.Client.CreateSnapshot(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// variables are what `forkd e2b env` prints.
func variables(t *testing.T, d *harness.Daemon) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), d.Forkd(), "--json", "--url", d.URL(), "e2b", "env").Output()
	if err != nil {
		t.Fatal(err)
	}
	var vars map[string]string
	if err := json.Unmarshal(out, &vars); err != nil {
		t.Fatal(err)
	}
	return vars
}

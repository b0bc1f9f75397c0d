package e2b

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// checked is the result for one client from `forkd e2b check --json`.
type checked struct {
	Client, Version, Error string
	Installed, OK          bool
}

// check runs the command in an environment with both packages, like a user's virtual environment
// and project. failed is true if a client fails.
func check(t *testing.T, url, token string, args ...string) (said []checked, errs string, failed bool) {
	t.Helper()
	python := cache(t, "python-"+newestPython, "bin")
	forkd, err := filepath.Abs(filepath.Join("..", "..", "bin", "forkd"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(forkd, append([]string{"--json", "--url", url, "--token", token, "e2b", "check"}, args...)...)
	if cmd.Dir = t.TempDir(); hasNPM(t) {
		cmd.Dir = cache(t, "node-"+newestNode)
	}
	path := python + string(filepath.ListSeparator) + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "PATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	failed = cmd.Run() != nil
	t.Logf("%s%s", out.String(), told.String())
	if out.Len() > 0 {
		if err := json.Unmarshal(out.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
	}
	return said, told.String(), failed
}

// checks runs `forkd e2b check` with a working daemon, with a wrong key, with a missing template,
// and without a daemon.
func checks(t *testing.T, m *harness.Machine) {
	versions := map[string]string{"python": newestPython, "node": newestNode, "wire": ""}
	said, errs, failed := check(t, m.URL, m.Token)
	if failed || len(said) != len(versions) {
		t.Errorf("it fails: %+v %s", said, errs)
	}
	hasNode := hasNPM(t)
	for _, c := range said {
		want := checked{Client: c.Client, Version: versions[c.Client], Installed: true, OK: true}
		if c.Client == "node" && !hasNode {
			want = checked{Client: c.Client}
		}
		if want.Version == today && c.Version != "" {
			want.Version = c.Version
		}
		if c != want {
			t.Errorf("it says %+v, want %+v", c, want)
		}
	}
	said, errs, failed = check(t, m.URL, m.Token, "--template", "none")
	if !failed || len(said) != len(versions) {
		t.Errorf("a template that is not there: it does not fail: %+v", said)
	}
	for _, c := range said {
		told := strings.Contains(c.Error, "template 'none' not found") && strings.Contains(errs, c.Client+": ")
		if c.Installed && (c.OK || !told) {
			t.Errorf("a template that is not there: it says %+v, and %s", c, errs)
		}
	}
	// An error that no client can fix is reported once.
	for _, row := range []struct{ what, url, token, says string }{
		{"a wrong key", m.URL, "wrong", "the token is wrong"},
		{"no daemon", "http://127.0.0.1:1", m.Token, "no daemon answers"},
	} {
		said, errs, failed := check(t, row.url, row.token)
		if !failed || len(said) > 0 || !strings.Contains(errs, row.says) {
			t.Errorf("%s: %+v %s", row.what, said, errs)
		}
	}
}

package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// TestSecretsOfSandboxes gives a fork a secret in its environment. It follows the secret and the taint through a
// branch, a pause, a restart of the daemon, a rotation and a removal.
func TestSecretsOfSandboxes(t *testing.T) {
	first := shared(t)
	key := filepath.Join(t.TempDir(), "key")
	if code, _, errs := first.cli("secret", "generate-key", key); code != 0 {
		t.Fatal(errs)
	}
	d := secondDaemon(t, "--secrets-key", key)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	const old, fresh = "the-old-value-of-the-secret", "the-second-value-of-the-secret"
	set := func(value string) {
		t.Helper()
		if _, err := d.c.Secrets().Set(t.Context(), "TOKEN", api.SetSecretRequest{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	env := func(id string) string {
		t.Helper()
		return strings.TrimSpace(d.sh(id, `echo "${GIVEN-absent}"`))
	}
	set(old)
	id := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag,
		Secrets: []api.SecretRef{{Name: "TOKEN", Env: "GIVEN"}}}).OK()[0].ID
	if got := env(id); got != old {
		t.Errorf("the fork has %q", got)
	}
	if got := env(d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag}).OK()[0].ID); got != "absent" {
		t.Errorf("another fork has %q", got)
	}

	n := 1
	child := d.branch(id, api.BranchRequest{Tag: "tainted", N: n}).Children[0].ID
	if got := env(child); got != "absent" {
		t.Errorf("a new program of the branch's child has %q", got)
	}
	exported := filepath.Join(t.TempDir(), "file")
	code, _, errs := d.cli("snapshot", "export", "tainted", exported)
	if code == 0 || !strings.Contains(errs, "version 1 of secret TOKEN") {
		t.Errorf("the export of a tainted snapshot: exit code %d, %s", code, errs)
	}

	d.sub("a pause, a rotation, a rollback", func(t *testing.T) {
		kvmtest.Soak(t)
		if code, _, errs := d.cli("pause", id); code != 0 {
			t.Fatal(errs)
		}
		noFileHas(t, old, d.Data, d.Run, "layers", "tainted", "paused", "snapshots")
		d.end(syscall.SIGKILL)
		d.start()
		set(fresh)
		if code, _, errs := d.cli("resume", id); code != 0 {
			t.Fatal(errs)
		}
		if got := env(id); got != fresh {
			t.Errorf("the resumed sandbox has %q", got)
		}
		if code, _, errs := d.cli("snapshot", "export", "tainted", exported); code != 0 {
			t.Errorf("the export after the rotation: %s", errs)
		}
		if code, _, errs := d.cli("rollback", id, "tainted"); code != 0 {
			t.Fatal(errs)
		}
		if got := env(id); got != fresh {
			t.Errorf("after the rollback the sandbox has %q", got)
		}
		if err := d.c.Secrets().Remove(t.Context(), "TOKEN"); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := d.cli("pause", id); code != 0 {
			t.Fatal(errs)
		}
		if code, _, errs := d.cli("resume", id); code != 0 {
			t.Fatal(errs)
		}
		if got := env(id); got != "absent" {
			t.Errorf("after the removal the resumed sandbox has %q", got)
		}
	})
	d.kill(id) // its paused state is built on the branch, which the test removes first
}

// noFileHas reports files with a text, other than those in folders of the given names: memory of guests has it.
func noFileHas(t *testing.T, text string, data, run string, except ...string) {
	t.Helper()
	for _, root := range []string{data, run} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir():
				for _, name := range except {
					if e.Name() == name {
						return fs.SkipDir
					}
				}
				return nil
			case !e.Type().IsRegular():
				return nil
			}
			b, err := os.ReadFile(path)
			if err == nil && bytes.Contains(b, []byte(text)) {
				t.Errorf("%s has the secret", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

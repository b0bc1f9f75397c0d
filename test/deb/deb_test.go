package deb

import (
	"crypto/sha256"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const root = "../.."

// build builds the package and returns its file.
func build(t *testing.T) string {
	t.Helper()
	run(t, "sh", filepath.Join(root, "scripts", "deb.sh"))
	all, err := filepath.Glob(filepath.Join(root, "dist", "forkd_*_amd64.deb"))
	if err != nil || len(all) != 1 {
		t.Fatalf("dist has %v, %v", all, err)
	}
	return all[0]
}

// run runs a program and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestPackage(t *testing.T) {
	file := build(t)
	t.Run("lintian", func(t *testing.T) {
		out := run(t, "lintian", "--allow-root", "--fail-on", "error,warning", file)
		if strings.TrimSpace(out) != "" {
			t.Error(out)
		}
	})
	dir := t.TempDir()
	run(t, "dpkg", "-x", file, dir)
	t.Run("units", func(t *testing.T) {
		for _, unit := range []string{"forkd.service", "forkd-vms.service"} {
			// The exposure is a number from 0 to 100; 30 is shown as 3.0.
			path := filepath.Join(dir, "lib", "systemd", "system", unit)
			out := run(t, "systemd-analyze", "security", "--offline=true", "--threshold=29", path)
			if strings.Contains(out, "ignoring") {
				t.Errorf("%s has settings that systemd ignores:\n%s", unit, out)
			}
		}
	})
	t.Run("configuration", func(t *testing.T) {
		b, err := os.ReadFile(filepath.Join(dir, "etc", "forkd", "config.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		// The groups and programs of the package are not on this host.
		text := strings.Replace(string(b), "\nsocket-group: forkd\n", "\nsocket-group: root\n", 1)
		config := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out := run(t, filepath.Join(dir, "usr", "lib", "forkd", "forkd"), "serve", "--config", config, "--check")
		if !strings.Contains(out, "/var/lib/forkd") {
			t.Error(out)
		}
	})
	t.Run("manual", func(t *testing.T) {
		for _, page := range []string{"forkd", "forkd-fork", "forkd-serve", "forkd-snapshot-create"} {
			if _, err := os.Stat(filepath.Join(dir, "usr", "share", "man", "man1", page+".1.gz")); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSameBytes builds the package twice.
func TestSameBytes(t *testing.T) {
	kvmtest.Soak(t)
	first := sum(t, build(t))
	if second := sum(t, build(t)); first != second {
		t.Error("the second build of the same tree has other bytes")
	}
}

func sum(t *testing.T, path string) (out [sha256.Size]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	h.Sum(out[:0])
	return out
}

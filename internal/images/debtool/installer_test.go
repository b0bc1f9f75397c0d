package debtool

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInstaller(t *testing.T) {
	prefix := t.TempDir()
	bin := filepath.Join(prefix, "bin")
	if got := installerFor(bin); got != "make deps" {
		t.Errorf("without a script: %q", got)
	}
	script := filepath.Join(prefix, "share", "forkd", "scripts", "deps.sh")
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := installerFor(bin); got != "sh "+script {
		t.Errorf("in an installation: %q", got)
	}
}

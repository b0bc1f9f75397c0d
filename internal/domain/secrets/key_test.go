package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	k, err := ReadKeyFile(path, false)
	if err != nil || k.bytes == (Key{}).bytes {
		t.Fatal(err)
	}
	if err := NewKeyFile(path); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Error("a key is replaced:", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeyFile(path, false); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Error(err)
	}
	if _, err := ReadKeyFile(path, true); err != nil { // systemd gives its credentials mode 0440
		t.Error(err)
	}
}

func TestWhatIsNoKeyFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "short": keyPrefix + "AAAA", "other": strings.Repeat("x", 60),
		"long": keyPrefix + strings.Repeat("A", 9000)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadKeyFile(path, false); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Error(name, err)
		}
	}
	if _, err := ReadKeyFile(dir, false); err == nil {
		t.Error("a directory is no key")
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "short"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeyFile(link, false); err == nil {
		t.Error("a link is followed")
	}
}

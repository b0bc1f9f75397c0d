package keyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := Read(path); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
	for text, want := range map[string]string{
		"e2b_1\n": "e2b_1", "\n e2b_1 \r\n": "e2b_1", "": "", "\n": "", "secret one": "", "secret\none": "", "sécret": "",
		"secret\x00": "", strings.Repeat("x", maxBytes+1): "", strings.Repeat("x", maxBytes): strings.Repeat("x", maxBytes),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("of %.20q: %.20q, %v", text, got, err)
		}
	}
}

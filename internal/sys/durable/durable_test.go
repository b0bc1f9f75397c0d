package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"longer than what comes", "short", ""} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := ReadFile(path, 64); err != nil || string(b) != text {
			t.Errorf("got %q, %v", b, err)
		}
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", st.Mode(), err)
	}
}

func TestReadingIsBoundedAndFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := WriteFile(path, []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadFile(path, 10); err != nil || len(b) != 10 {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := ReadFile(path, 9); err == nil || !strings.Contains(err.Error(), "over 9 bytes") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadFile(link, 64); err == nil {
		t.Error("it followed a link")
	}
	if _, err := ReadFile(path+"x", 64); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestRenameNewReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := RenameNew(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if err := RenameNew(a, b+"2"); err != nil {
		t.Error(err)
	}
}

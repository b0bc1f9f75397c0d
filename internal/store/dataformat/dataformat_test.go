package dataformat

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRaise(t *testing.T) {
	dir := t.TempDir()
	if err := Check(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
	for _, program := range []string{"0.1.0", "0.2.0"} {
		if err := Raise(dir, program); err != nil {
			t.Fatal(err)
		}
		if err := Check(dir); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if want := "{\"format\":2,\"program\":\"0.1.0\"}\n"; err != nil || string(b) != want {
		t.Errorf("the mark is %q, %v, want %q of the first program", b, err, want)
	}
}

// A directory of a newer program, and one with a damaged mark, are refused and stay as they are.
func TestRefusals(t *testing.T) {
	for name, row := range map[string]struct{ content, want string }{
		"newer":       {`{"format":3,"program":"9.1.0","more":[]}`, `forkd "9.1.0" wrote`},
		"much newer":  {`{"format":99999}`, "in format 99999, and this program knows up to 2"},
		"zero":        {`{"format":0}`, "damaged"},
		"negative":    {`{"format":-1}`, "damaged"},
		"not JSON":    {"format 1", "damaged"},
		"empty":       {"", "damaged"},
		"a long name": {`{"format":7,"program":"` + strings.Repeat("x", 3000) + `"}`, "xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			if err := os.WriteFile(path, []byte(row.content), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{Check(dir), Raise(dir, "0.1.0")} {
				if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 500 {
					t.Errorf("got %v, want %q", err, row.want)
				}
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != row.content {
				t.Errorf("the mark is now %q, %v", b, err)
			}
		})
	}
	for name, make := range map[string]func(path string) error{
		"a folder":       func(p string) error { return os.Mkdir(p, 0o700) },
		"a link":         func(p string) error { return os.Symlink("/etc/hostname", p) },
		"a large file":   func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(" ", 5000)+`{"format":1}`), 0o600) },
		"another's file": func(p string) error { return os.WriteFile(p, []byte(`{"format":1}`), 0) },
	} {
		if name == "another's file" && os.Getuid() == 0 {
			continue // root reads it
		}
		dir := t.TempDir()
		if err := make(filepath.Join(dir, FileName)); err != nil {
			t.Fatal(err)
		}
		if err := Raise(dir, "0.1.0"); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

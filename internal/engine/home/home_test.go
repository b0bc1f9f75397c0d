package home

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestADirectoryHasOneEngine(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"store", "other store"} {
		if err := os.Mkdir(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Open(at("store"), at("run"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, store, run, says string }{
		{"the same store", at("store"), at("other run"), "another daemon uses " + at("store")},
		{"the same run directory", at("other store"), at("run"), "another daemon uses " + at("run")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.store, c.run, Options{})
			if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want a conflict: %s", err, c.says)
			}
		})
	}
	h.Close()
	// The locks taken by the refused ones are free again, too.
	for _, c := range [][2]string{{"store", "other run"}, {"other store", "run"}} {
		h, err := Open(at(c[0]), at(c[1]), Options{})
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
	}
}

func TestARunDirectoryOfSomethingElseIsAConflict(t *testing.T) {
	run := t.TempDir()
	if err := os.WriteFile(filepath.Join(run, "thesis.tex"), []byte("work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.TempDir(), run, Options{}); !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("got %v, want a conflict that names what is there", err)
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const api = "../.."

func TestTheDomainsListsAreUpToDate(t *testing.T) {
	want, err := generate(api)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(api, target))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from package api: run go generate ./api", target)
	}
	for _, s := range []string{`"agent_old"`, `"no_memory"`} {
		if !strings.Contains(string(got), s) {
			t.Errorf("%s lacks %s", target, s)
		}
	}
	for _, s := range []string{"maybe_done", "connection_broken"} {
		if strings.Contains(string(got), s) {
			t.Errorf("%s has %s, which is a client's own", target, s)
		}
	}
}

func TestOtherFormsAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"no constants": "package api",
		"no type":      "package api\nconst A = \"a\"",
		"other type":   "package api\nconst A Reason = \"a\"",
		"two":          "package api\nconst A, B Code = \"a\", \"b\"",
		"no string":    "package api\nconst A Code = B",
		"no Go":        "package",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "codes.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := generate(dir); err == nil {
			t.Errorf("%s: generated %s", name, out)
		}
	}
}

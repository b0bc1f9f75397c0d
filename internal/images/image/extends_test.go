package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/debtool"
)

// recipeFolders writes recipes, each into its own directory, and returns the parent directory.
func recipeFolders(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, RecipeFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const baseRecipe = `name: base
description: the base
suite: bookworm
packages:
  - python3
  - no-such-package
files:
  - path: /opt/tool
    source: tool
env: {A: "1", B: "1"}
user: root
memory_mib: 128
disk: none
warm:
  - {language: python, code: one}
`

func TestExtends(t *testing.T) {
	dir := recipeFolders(t, map[string]string{
		"base": baseRecipe,
		"more": "name: more\nextends: ../base\npackages: [git]\nenv: {B: \"2\"}\nmemory_mib: 256\n" +
			"warm:\n  - {language: command, code: two}\nfiles:\n  - {path: /etc/motd, source: motd}\n",
		"most": "name: most\nextends: ../more/recipe.yaml\nsuite: trixie\npackages: [curl]\n",
	})
	for _, f := range []string{"base/tool", "more/motd"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := LoadRecipe(filepath.Join(dir, "most"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.packageNames(), " "); got != "python3 no-such-package git curl" {
		t.Errorf("packages: %s", got)
	}
	if r.Name != "most" || r.Description != "" || r.Suite != "trixie" || r.User != "root" || r.Workdir != "/root" ||
		r.MemoryMiB != 256 || r.diskMiB != 0 || r.Env["A"] != "1" || r.Env["B"] != "2" {
		t.Errorf("got %+v", r)
	}
	if len(r.Warm) != 2 || r.Warm[0].Code != "one" || r.Warm[1].Code != "two" {
		t.Errorf("warm: %+v", r.Warm)
	}
	files, err := r.readFiles() // each one relative to the recipe that names it
	if err != nil || string(files[0].Data) != "base/tool" || string(files[1].Data) != "more/motd" {
		t.Errorf("files: %v, %v", files, err)
	}
	err = r.blame(&debtool.Error{Tool: "apt-get", Err: errors.New("exit status 100"),
		Tail: []string{"E: Unable to locate package no-such-package"}})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "base", RecipeFile)+":6: package no-such-package") {
		t.Errorf("blamed: %v", err)
	}
}

func TestExtendsErrors(t *testing.T) {
	dir := recipeFolders(t, map[string]string{
		"base":    baseRecipe,
		"wrong":   "name: wrong\nsuite: bookworm\nuser: Not One\n",
		"ofwrong": "name: a\nextends: ../wrong\n",
		"absent":  "name: a\nextends: ../none\n",
		"loop":    "name: a\nextends: ../loop\n",
		"twice":   "name: a\nextends: ../base\nfiles:\n  - {path: /opt/tool, source: tool}\n",
	})
	for name, want := range map[string]string{
		"ofwrong": "wrong/recipe.yaml: user is",
		"absent":  "absent/recipe.yaml:2: extends: ",
		"loop":    "loop/recipe.yaml:2: extends ",
		"twice":   "twice/recipe.yaml:4: path /opt/tool is there twice",
	} {
		_, err := LoadRecipe(filepath.Join(dir, name))
		if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

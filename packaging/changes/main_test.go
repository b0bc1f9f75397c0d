package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const readme = "# Changelog fragments\n\n## Areas\n\n- Running: install, machine, daemon\n- Fork\n- Clients\n"

const changelog = `# Changelog

Releases are listed here.

## 0.2.0 (unreleased)

The second release.

### Fork

- Forks are quick ([fork](docs/use/fork.md#speed)).

## 0.1.0 (2026-01-31)

### Fork

- There are forks.
`

// write makes a tree with fragments.
func write(t *testing.T, changelog string, fragments map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "changelog"), 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"CHANGELOG.md": changelog, "changelog/README.md": readme}
	for name, text := range fragments {
		files["changelog/"+name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func read(t *testing.T, root string) *tree {
	t.Helper()
	tr, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func mustEqual(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestChangesGroupFragmentsByArea(t *testing.T) {
	root := write(t, changelog, map[string]string{
		"b.md": "area: fork\n\n" + strings.Repeat("word ", 30) + "`forkd fork -n 2` ends. \n",
		"a.md": "Area: Fork\nThe first.\n\nYou must act:\n\n    forkd act\n",
		"c.md": "area: Running\n- One\n  more.\n- Two.\n",
		"d.md": "No area.\n",
	})
	tr := read(t, root)
	got, err := tr.changes("0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, got, `# forkd 0.2.0

The second release.

## Fork

- Forks are quick ([fork](https://github.com/forkd/forkd/blob/v0.2.0/docs/use/fork.md#speed)).
- The first.

  You must act:

      forkd act
- word word word word word word word word word word word word word word word word word word word
  word word word word word word word word word word word `+"`forkd fork -n 2`"+` ends.

## Running: install, machine, daemon

- One more.
- Two.

## Other changes

- No area.
`)
	rc, err := tr.changes("0.2.0-rc.1")
	if err != nil || !strings.Contains(rc, "# forkd 0.2.0-rc.1\n\nThe second release.\n") {
		t.Errorf("a pre-release has %q, %v", rc, err)
	}
	if _, err := tr.changes("0.1.0"); err == nil || !strings.Contains(err.Error(), "is released") {
		t.Errorf("fragments for a released version: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md")); err != nil || string(b) != changelog {
		t.Error("the tree has changed")
	}
}

func TestApplyMovesFragments(t *testing.T) {
	root := write(t, changelog, map[string]string{"a.md": "area: clients\nNew.\n", "b.md": "area: Fork\nMore.\n"})
	if err := run(root, []string{"0.2.0"}, true, "2026-02-28"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, string(b), `# Changelog

Releases are listed here.

## 0.2.0 (2026-02-28)

The second release.

### Fork

- Forks are quick ([fork](docs/use/fork.md#speed)).
- More.

### Clients

- New.

## 0.1.0 (2026-01-31)

### Fork

- There are forks.
`)
	tr := read(t, root)
	if len(tr.fragments) != 0 {
		t.Errorf("fragments stayed: %v", tr.fragments)
	}
	if _, err := tr.changes("0.2.0"); err != nil {
		t.Errorf("the release made from the tag: %v", err)
	}
	if _, err := tr.apply("0.2.0", "2026-03-01"); err == nil {
		t.Error("a version was released twice")
	}
}

func TestApplyMakesASection(t *testing.T) {
	root := write(t, changelog, map[string]string{"a.md": "area: Fork\nNew.\n"})
	got, err := read(t, root).apply("0.3.0", "2026-02-28")
	if err != nil {
		t.Fatal(err)
	}
	want := "Releases are listed here.\n\n## 0.3.0 (2026-02-28)\n\n### Fork\n\n- New.\n\n## 0.2.0 (unreleased)\n"
	if !strings.Contains(got, want) {
		t.Errorf("got:\n%s", got)
	}
	if _, err := read(t, write(t, changelog, nil)).apply("0.3.0", "2026-02-28"); err == nil {
		t.Error("a section without changes")
	}
}

func TestApplyRefuses(t *testing.T) {
	root := write(t, changelog, map[string]string{"a.md": "No area.\n"})
	for version, want := range map[string]string{
		"0.2.0":      "fragments without an area: a.md",
		"0.2.0-rc.1": "pre-release",
	} {
		if _, err := read(t, root).apply(version, "2026-02-28"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "changelog", "a.md")); err != nil {
		t.Error(err)
	}
}

func TestBrokenFragments(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "empty",
		"area: Fork\n":       "empty",
		"area: Frok\nNew.\n": `unknown area "Frok"`,
		"# New\n":            "headings",
		"New:\n\n```\nx\n":   "fences",
	} {
		_, err := readTree(write(t, changelog, map[string]string{"x.md": text}))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "changelog/x.md") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestTheTreesOwnFragments(t *testing.T) {
	tr := read(t, "../..")
	if s := cut(tr.changelog, "0.1.0"); s.title == "" {
		t.Error("CHANGELOG.md has no section 0.1.0")
	} else if got := s.before + "## " + s.title + "\n\n" + s.body("###") + s.after; got != tr.changelog {
		t.Error("a section is changed by reading and writing it")
	}
}

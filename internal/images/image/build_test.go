package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/internal/images/debtool"
)

// fakeTools replaces the host's apt, mmdebstrap and mkfs.erofs.
type fakeTools struct {
	calls    []string
	versions string // of the package in apt's lists
	fail     map[string]error
}

func (f *fakeTools) run(_ context.Context, c debtool.Command) ([]byte, error) {
	tool := c.Args[0]
	if tool == "mmdebstrap" && c.Args[1] == "--unshare-helper" {
		tool = c.Args[2]
	}
	if tool == "apt-get" {
		tool += " " + c.Args[1]
	}
	f.calls = append(f.calls, tool)
	if err := f.fail[tool]; err != nil {
		return nil, err
	}
	switch tool {
	case "apt-get indextargets":
		return []byte("http://mirror.test/debian/|bookworm|main|Debian|Debian|/usr/share/keyrings/x.gpg\n" +
			"http://mirror.test/debian/|bookworm-backports|main|Debian Backports|Debian Backports|\n" +
			"http://other.test/|bookworm|stable|Other|Other|\n"), nil
	case "apt-get --simulate":
		return []byte("Inst bash (" + f.versions + " Debian:12/stable [amd64])\nConf bash (5 x)\n"), nil
	case "mmdebstrap":
		tree := c.Args[len(c.Args)-2]
		if c.OnLine != nil {
			c.OnLine("Setting up bash (5) ...")
		}
		if err := os.MkdirAll(filepath.Join(tree, "var/lib/dpkg"), 0o755); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(tree, "var/lib/dpkg/status"), []byte("Package: bash\nStatus: x\nVersion: "+f.versions+"\n\n"), 0o644)
	case "sh":
		return nil, os.WriteFile(c.Args[6], []byte("erofs of "+f.versions), 0o644)
	case "find":
		for _, arg := range c.Args {
			if filepath.IsAbs(arg) {
				if err := os.RemoveAll(arg); err != nil {
					return nil, err
				}
			}
		}
		return nil, nil
	case "apt-cache":
		return nil, &debtool.Error{Tool: "apt-cache", Err: errors.New("exit status 100"), Tail: []string{"E: No packages found"}}
	}
	return nil, errors.New("unexpected tool " + tool)
}

// testBuild returns a build with its kernel in the cache, because no kernel package fits into a unit test.
func testBuild(t *testing.T, tools *fakeTools, recipe string) BuildConfig {
	t.Helper()
	dir := t.TempDir()
	agent := filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, []byte("\x7fELF agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	return BuildConfig{
		Recipe: parse(t, recipe), Agent: agent, Store: s, Cache: filepath.Join(dir, "cache"), Run: tools.run, AptRoot: dir,
	}
}

// rootOf runs the part of a build that makes the root.
func rootOf(t *testing.T, c BuildConfig) (entry, error) {
	t.Helper()
	b, err := newBuild(c)
	if err != nil {
		t.Fatal(err)
	}
	return b.rootPart(context.Background())
}

const smallRecipe = "name: small\nsuite: bookworm\npackages:\n  - bash\n"

func TestRootIsMadeOnceAndAgainWhenAnInputChanges(t *testing.T) {
	tools := &fakeTools{versions: "5.2"}
	c := testBuild(t, tools, smallRecipe)
	built := func() bool {
		t.Helper()
		tools.calls = nil
		e, err := rootOf(t, c)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(e.dir, RootFile)); err != nil || string(b) != "erofs of "+tools.versions {
			t.Fatalf("root is %q, %v", b, err)
		}
		return slices.Contains(tools.calls, "mmdebstrap")
	}
	if !built() {
		t.Error("first build: not built")
	}
	if built() || len(tools.calls) != 0 {
		t.Errorf("nothing changed: ran %q", tools.calls)
	}
	c.Recipe = parse(t, strings.Replace(smallRecipe, "packages:", "# moved down\npackages:", 1)+"memory_mib: 512\nwarm: [{language: python, code: x}]\n")
	if built() {
		t.Error("memory, warm-up and a comment changed: built")
	}
	lists := filepath.Join(c.AptRoot, "var/lib/apt/lists")
	if err := os.MkdirAll(lists, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lists, "mirror_InRelease"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if built() || !slices.Contains(tools.calls, "apt-get --simulate") {
		t.Errorf("new lists with the same versions: ran %q", tools.calls)
	}
	tools.versions = "5.3"
	if err := os.WriteFile(filepath.Join(lists, "mirror_InRelease"), []byte("newer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !built() {
		t.Error("a new version: not built")
	}
	c.Recipe = parse(t, smallRecipe+"env: {A: b}\n")
	if !built() {
		t.Error("another environment: not built")
	}
	c.Recipe = parse(t, smallRecipe+"files: [{path: /a, content: x}]\n")
	if !built() {
		t.Error("another file: not built")
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	tail := &debtool.Error{Tool: "mmdebstrap", Err: errors.New("exit status 1"), Tail: []string{"E: the tool's own words"}}
	for tool, want := range map[string]string{
		"apt-get indextargets": "own words",
		"apt-get --simulate":   "own words",
		"mmdebstrap":           "own words",
		"sh":                   "own words",
	} {
		t.Run(tool, func(t *testing.T) {
			c := testBuild(t, &fakeTools{versions: "5", fail: map[string]error{tool: tail}}, smallRecipe)
			if _, err := Build(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			onlyNames(t, c.Store)
			if left, _ := filepath.Glob(filepath.Join(c.Cache, "*", tempPrefix+"*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if roots, _ := filepath.Glob(filepath.Join(c.Cache, kindRoot, "*")); len(roots) > 0 {
				t.Errorf("a root that was not finished: %q", roots)
			}
		})
	}
}

func TestUnknownPackageIsNamedWithItsLine(t *testing.T) {
	for _, words := range []string{"E: Unable to locate package bash", "E: Package 'bash' has no installation candidate"} {
		e := &debtool.Error{Tool: "apt-get", Err: errors.New("exit status 100"), Tail: []string{"Reading...", words}}
		c := testBuild(t, &fakeTools{fail: map[string]error{"apt-get --simulate": e}}, smallRecipe)
		_, err := Build(context.Background(), c)
		if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), "recipe.yaml:4: package bash does not exist in Debian bookworm") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNoKernelSaysWhatToDo(t *testing.T) {
	c := testBuild(t, &fakeTools{versions: "5"}, smallRecipe)
	if _, err := Build(context.Background(), c); err == nil || !strings.Contains(err.Error(), "apt-get update") {
		t.Errorf("got %v", err)
	}
	onlyNames(t, c.Store)
}

func TestAgentIsChecked(t *testing.T) {
	c := testBuild(t, &fakeTools{}, smallRecipe)
	if err := os.WriteFile(c.Agent, []byte("#!/bin/sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(context.Background(), c); err == nil || !strings.Contains(err.Error(), "not a program") {
		t.Errorf("a script: %v", err)
	}
	c.Agent += "-absent"
	if _, err := Build(context.Background(), c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestDiskFullIsAnError(t *testing.T) {
	full := &fakeTools{versions: "5", fail: map[string]error{"mmdebstrap": syscall.ENOSPC}}
	c := testBuild(t, full, smallRecipe)
	if _, err := Build(context.Background(), c); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

func TestSources(t *testing.T) {
	host := []target{
		{"http://m.test/debian/", "bookworm", "main", "Debian", "Debian", "/k.gpg"},
		{"http://m.test/debian/", "bookworm", "contrib", "Debian", "Debian", "/k.gpg"},
		{"http://m.test/debian/", "bookworm-updates", "main", "Debian", "Debian", ""},
		{"http://m.test/security/", "bookworm-security", "main", "Debian", "Debian-Security", ""},
		{"http://m.test/debian/", "bookworm-backports", "main", "Debian Backports", "Debian Backports", ""},
		{"http://else.test/", "bookworm", "main", "Else", "Else", ""},
	}
	for _, tc := range []struct {
		suite string
		want  []string
	}{
		{"bookworm", []string{"deb [signed-by=/k.gpg] http://m.test/debian/ bookworm main", "deb http://m.test/debian/ bookworm-updates main", "deb http://m.test/security/ bookworm-security main"}},
		{"trixie", []string{"deb [signed-by=/k.gpg] http://m.test/debian/ trixie main", "deb http://m.test/debian/ trixie-updates main", "deb http://m.test/security/ trixie-security main"}},
	} {
		if got, err := sourcesFor(tc.suite, host); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, %v", tc.suite, got, err)
		}
	}
	if _, err := sourcesFor("bookworm", host[4:]); err == nil {
		t.Error("a host without a Debian mirror has sources")
	}
}

func TestProgressNeverGoesBack(t *testing.T) {
	last, n := 0.0, 0
	w := bootstrapWatch{total: 2, report: func(p Progress) {
		if p.Fraction < last || p.Fraction > 1 {
			t.Errorf("%v after %v", p.Fraction, last)
		}
		last = p.Fraction
		n++
	}}
	for _, line := range []string{
		"Get:1 http://m.test/debian bookworm InRelease [151 kB]",
		"Get:4 http://m.test/debian bookworm/main amd64 Packages [8790 kB]",
		"Get:1 http://m.test/debian bookworm/main amd64 gcc-12-base amd64 12.2.0-14 [37.6 kB]",
		"Unpacking gcc-12-base:amd64 (12.2.0-14) ...",
		"Setting up gcc-12-base:amd64 (12.2.0-14) ...",
		"Get:2 http://m.test/debian bookworm/main amd64 libc6 amd64 2.36-9 [2754 kB]",
		"Unpacking libc6:amd64 (2.36-9) over (2.36-9) ...",
		"Setting up libc6:amd64 (2.36-9) ...",
		"Setting up libc6:amd64 (2.36-9) ...",
	} {
		w.line(line)
	}
	if n != 7 || last != 1 {
		t.Errorf("%d reports, last %v", n, last)
	}
}

func TestAdditionsHaveTheAgentsPart(t *testing.T) {
	r := parse(t, goodRecipe)
	b := rootBuild{recipe: r, files: []rootFile{{Path: "/etc/motd", Mode: 0o644, Data: []byte("hello")}}}
	got, err := b.additions()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"etc/forkd/fork.d/", "etc/forkd/image.json", "etc/motd", `"user": "root"`, `"A": "1"`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
}

func TestUnknownUserIsTheRecipesFault(t *testing.T) {
	e := &debtool.Error{Tool: "sh", Err: errors.New("exit status 1"), Tail: []string{"noise", "forkd: user x does not exist in the image"}}
	c := testBuild(t, &fakeTools{versions: "5", fail: map[string]error{"sh": e}}, smallRecipe)
	if _, err := Build(context.Background(), c); !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), "recipe.yaml: user x does not exist") {
		t.Errorf("got %v", err)
	}
}

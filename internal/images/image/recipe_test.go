package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodRecipe = `# a comment
name: test
description: for tests
suite: bookworm
kernel: "6.12"
packages:
  - python3
  - python3-numpy # why
files:
  - path: /etc/motd
    content: |
      hello
  - path: /opt/tool
    source: tool.sh
    mode: 0755
env:
  A: "1"
user: root
memory_mib: 128
vcpus: 2
warm:
  - language: python
    code: import numpy
`

func parse(t testing.TB, text string) *Recipe {
	t.Helper()
	r, err := ParseRecipe("dir/recipe.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecipe(t *testing.T) {
	r := parse(t, goodRecipe)
	if r.Name != "test" || r.Suite != "bookworm" || r.Kernel != "6.12" || r.MemoryMiB != 128 || r.VCPUs != 2 || r.Env["A"] != "1" {
		t.Errorf("got %+v", r)
	}
	if r.Workdir != "/root" || r.Compression != "none" {
		t.Errorf("defaults: workdir %q, compression %q", r.Workdir, r.Compression)
	}
	if p := r.Packages[1]; p != (Text{"python3-numpy", 8}) {
		t.Errorf("package is %+v", p)
	}
	if *r.Files[0].Content != "hello\n" {
		t.Errorf("content is %q", *r.Files[0].Content)
	}
	if m, err := r.Files[1].mode(); m != 0o755 || err != nil {
		t.Errorf("mode is %o, %v", m, err)
	}
	if r.Warm[0] != (Warm{"python", "import numpy"}) {
		t.Errorf("warm is %+v", r.Warm)
	}
}

func TestRecipeDefaults(t *testing.T) {
	r := parse(t, "name: x\nsuite: trixie\n")
	if r.User != "user" || r.Workdir != "/home/user" || r.MemoryMiB != 256 || r.VCPUs != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestRecipeErrorsNameFileAndLine(t *testing.T) {
	const head = "name: x\nsuite: bookworm\n"
	for _, tc := range []struct{ name, text, want string }{
		{"an unknown key", head + "pakages: [a]\n", `dir/recipe.yaml:3: unknown key "pakages"`},
		{"an unknown key of a file", head + "files:\n  - path: /a\n    contents: x\n", `dir/recipe.yaml:5: unknown key "contents"`},
		{"a key twice", head + "name: y\n", "dir/recipe.yaml:3:"},
		{"no YAML", "name: [", "dir/recipe.yaml:1:"},
		{"a list", "- a\n", "dir/recipe.yaml:1:"},
		{"a number as text", head + "memory_mib: lots\n", "dir/recipe.yaml:3:"},
		{"no name", "suite: bookworm\n", "name is \"\""},
		{"no suite", "name: x\n", "suite is missing"},
		{"a path as name", "name: ../x\nsuite: bookworm\n", "name is"},
		{"a bad suite", "name: x\nsuite: -o\n", "suite is"},
		{"a bad package", head + "packages:\n  - good\n  - --bad\n", `recipe.yaml:5: "--bad" is not the name`},
		{"a package with a version", head + "packages: [a=1]\n", "recipe.yaml:3:"},
		{"a nested package", head + "packages:\n  - [a]\n", "recipe.yaml:4:"},
		{"a relative path", head + "files:\n  - path: etc/x\n    content: a\n", `recipe.yaml:4: path is "etc/x"`},
		{"a path to above", head + "files:\n  - path: /a/../b\n    content: a\n", "recipe.yaml:4:"},
		{"a file of ours", head + "files:\n  - path: /etc/forkd/image.json\n    content: a\n", "made by forkd"},
		{"a file in /proc", head + "files:\n  - path: /proc/x\n    content: a\n", "made by forkd"},
		{"a file without content", head + "files:\n  - path: /a\n", "one of content and source"},
		{"a file with both", head + "files:\n  - path: /a\n    content: x\n    source: y\n", "one of content and source"},
		{"a source elsewhere", head + "files:\n  - path: /a\n    source: ../secret\n", "below the recipe's folder"},
		{"a path twice", head + "files:\n  - {path: /a, content: x}\n  - {path: /a, content: x}\n", "recipe.yaml:5: path /a is there twice"},
		{"a bad mode", head + "files:\n  - path: /a\n    content: x\n    mode: rwx\n", "recipe.yaml:6: mode"},
		{"a bad variable", head + "env:\n  A-B: x\n", "env has the name"},
		{"a bad user", head + "user: a b\n", "user is"},
		{"a relative workdir", head + "workdir: home\n", "workdir is"},
		{"an unknown language", head + "warm:\n  - language: cobol\n    code: x\n", "cobol"},
		{"no warm code", head + "warm:\n  - language: python\n", "0 bytes of code"},
		{"too little memory", head + "memory_mib: 1\n", "memory_mib is 1"},
		{"too many CPUs", head + "vcpus: 99\n", "vcpus is 99"},
		{"an unknown compression", head + "compression: rar\n", "compression is"},
		{"too much text", strings.Repeat("#", maxRecipe+1), "larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseRecipe("dir/recipe.yaml", []byte(tc.text))
			if !errors.Is(err, ErrRecipe) {
				t.Fatalf("got %v, want ErrRecipe", err)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("got %q, want %q in one line", err, tc.want)
			}
		})
	}
}

func TestSourcesStayInTheFolder(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "recipe")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"secret": "s", "recipe/tool": "t"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	read := func(source string) ([]rootFile, error) {
		r, err := ParseRecipe(filepath.Join(inside, RecipeFile), []byte("name: x\nsuite: bookworm\nfiles:\n  - path: /a\n    source: "+source+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return r.readFiles()
	}
	if files, err := read("tool"); err != nil || string(files[0].Data) != "t" {
		t.Errorf("tool: %v", err)
	}
	for _, bad := range []string{"link", "absent", "."} {
		if _, err := read(bad); !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), "recipe.yaml:4: source of /a") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

// The recipes shipped with forkd are valid.
func TestShippedRecipes(t *testing.T) {
	files, err := filepath.Glob("../../../recipes/*/" + RecipeFile)
	if err != nil || len(files) < 2 {
		t.Fatalf("found %d recipes, %v", len(files), err)
	}
	for _, f := range files {
		r, err := LoadRecipe(filepath.Dir(f))
		if err != nil {
			t.Error(err)
		} else if r.Name != filepath.Base(filepath.Dir(f)) {
			t.Errorf("%s has the name %s", f, r.Name)
		}
	}
}

func FuzzRecipe(f *testing.F) {
	f.Add([]byte(goodRecipe))
	f.Add([]byte("name: x\nsuite: bookworm\npackages: &a [a, *a]\n"))
	f.Add([]byte("{name: x, suite: y, files: [{path: /a, content: !!binary x}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRecipe("r", text)
		if err != nil {
			if !errors.Is(err, ErrRecipe) {
				t.Fatalf("not the recipe's fault: %v", err)
			}
			return
		}
		if !nameRE.MatchString(r.Name) || r.MemoryMiB <= 0 {
			t.Fatalf("accepted %+v", r)
		}
	})
}

func TestModulesOfARecipe(t *testing.T) {
	r := parse(t, goodRecipe+"modules: docker\n")
	if len(r.Modules) != 1 || r.Modules[0].Value != "docker" || r.packageNames()[len(r.Packages)-1] != "kmod" {
		t.Errorf("modules are %v, packages %v", r.Modules, r.packageNames())
	}
	r = parse(t, goodRecipe+"modules: [tun, nf_tables]\ndisk_dirs:\n  - /var/lib/docker\n")
	if len(r.Modules) != 2 || r.Modules[1].Value != "nf_tables" || r.guest().DiskDirs[0] != "/var/lib/docker" {
		t.Errorf("modules are %v, directories %v", r.Modules, r.guest().DiskDirs)
	}
	for text, want := range map[string]string{
		"modules: [a/b]\n":        "a/b",
		"modules: {a: b}\n":       "plain text",
		"disk_dirs: [relative]\n": "relative",
		"disk_dirs: [/]\n":        `"/"`,
		"disk_dirs: [/proc/x]\n":  "/proc/x",
		"disk_dirs: [/a/b, /a]\n": "contains the other",
	} {
		if _, err := ParseRecipe("dir/recipe.yaml", []byte(goodRecipe+text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "recipe.yaml:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLimitsOfGuests(t *testing.T) {
	r := parse(t, goodRecipe+"limits: {open_files: 262144, inotify_watches: 1048576}\n")
	if want := (GuestLimits{OpenFiles: 262144, InotifyWatches: 1048576}); r.guest().Limits != want {
		t.Errorf("limits are %+v", r.guest().Limits)
	}
	for text, want := range map[string]string{
		"limits: {open_files: 1023}\n":            "open_files is 1023, want 1024 to 1048576",
		"limits: {open_files: 1048577}\n":         "open_files is 1048577",
		"limits: {open_files: -1}\n":              "open_files is -1",
		"limits: {inotify_watches: 1}\n":          "inotify_watches is 1, want 8192 to 16777216",
		"limits: {inotify_instances: 99999999}\n": "inotify_instances is 99999999, want 128 to 65536",
		"limits: {files: 5}\n":                    "files",
		"limits: 5\n":                             "mapping is expected",
	} {
		if _, err := ParseRecipe("recipe.yaml", []byte(goodRecipe+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

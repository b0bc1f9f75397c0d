package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/debtool"
)

func TestNpmPackagesOfARecipe(t *testing.T) {
	for text, ok := range map[string]bool{
		"semver": true, "left-pad@1.3.0": true, "@types/node@^20": true, "@types/node": true, "a@>=1.2": true, "a@latest": true, "a@1.x": true,
		"": false, "--registry=http://x": false, "-g": false, "git+https://x/y": false, "./local": false, "file:../x": false, "someone/repo": false,
		"a@npm:b": false, "a@http://x": false, "../a": false, "a b": false, "A": false, "a@": false, "@a": false, "a\n-g": false,
	} {
		if npmRE.MatchString(text) != ok {
			t.Errorf("%q: want %v", text, ok)
		}
	}
	_, err := ParseRecipe("r.yaml", []byte("name: a\nsuite: bookworm\nnpm:\n  - semver\n  - x/y\n"))
	if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), `r.yaml:5: npm has "x/y"`) {
		t.Errorf("got %v", err)
	}
}

var digest = "sha512-" + strings.Repeat("A", 86) + "=="

// npmBuild returns a build in a tree with Node, where npm writes the given list.
func npmBuild(t *testing.T, lock string, err error, commands *[]debtool.Command) (*rootBuild, string) {
	t.Helper()
	tree := t.TempDir()
	for name, text := range map[string]string{"usr/bin/node": "", npmLock: lock} {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(_ context.Context, c debtool.Command) ([]byte, error) {
		*commands = append(*commands, c)
		return nil, err
	}
	r := &Recipe{path: "r.yaml", Npm: []Text{{"semver@7.6.0", 4}, {"@types/node", 5}}}
	return &rootBuild{run: run, recipe: r, progress: func(Progress) {}}, tree
}

func TestNpmsListIsKept(t *testing.T) {
	lock := `{"lockfileVersion":3,"packages":{"":{"name":"x"},"node_modules/semver":{"version":"7.6.0","integrity":"` + digest + `"},` +
		`"node_modules/@types/node":{"version":"20.1.0","integrity":"` + digest + `"},` +
		`"node_modules/a/node_modules/semver":{"version":"5.0.0","integrity":"` + digest + `"},"node_modules/a/node_modules/in":{"version":"1.0.0","inBundle":true}}}`
	var commands []debtool.Command
	b, tree := npmBuild(t, lock, nil, &commands)
	got, err := b.installNpm(t.Context(), tree)
	if want := []string{"npm:@types/node=20.1.0", "npm:in=1.0.0", "npm:semver=5.0.0", "npm:semver=7.6.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if args := commands[0].Args; !slices.Equal(args[len(args)-3:], []string{tree, "semver@7.6.0", "@types/node"}) {
		t.Errorf("asked for %q", args)
	}
	if err := os.Remove(filepath.Join(tree, "usr/bin/node")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.installNpm(t.Context(), tree); !errors.Is(err, ErrRecipe) || len(commands) != 1 {
		t.Errorf("without Node: %v", err)
	}
}

func TestNpmsListThatIsNoGood(t *testing.T) {
	for name, lock := range map[string]string{
		"no digest":           `{"packages":{"node_modules/a":{"version":"1.0.0"}}}`,
		"a weak digest":       `{"packages":{"node_modules/a":{"version":"1.0.0","integrity":"sha1-AAAA"}}}`,
		"a link":              `{"packages":{"node_modules/a":{"version":"1.0.0","link":true,"integrity":"` + digest + `"}}}`,
		"a folder":            `{"packages":{"../a":{"version":"1.0.0","integrity":"` + digest + `"}}}`,
		"a name with a path":  `{"packages":{"node_modules/../a":{"version":"1.0.0","integrity":"` + digest + `"}}}`,
		"a version with text": `{"packages":{"node_modules/a":{"version":"1\n2","integrity":"` + digest + `"}}}`,
		"nothing":             `{}`,
		"no JSON":             `{`,
	} {
		if got, err := npmPackages([]byte(lock)); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestNpmsComplaints(t *testing.T) {
	for line, want := range map[string]string{
		"npm error notarget No matching version found for semver@7.6.0.":                        "r.yaml:4: the npm registry has no version semver@7.6.0",
		"npm error 404 Not Found - GET https://registry.example/@types%2fnode - Not found":      "r.yaml:5: the npm registry has no package @types/node",
		"npm error 404  '@types/node@*' is not in this registry.":                               "r.yaml:5: the npm registry has no package @types/node",
		"npm error 404  The requested resource 'other@*' could not be found or you do not have": "r.yaml: the npm registry has no package other",
		"sh: 12: npm: not found": "apt-get install npm",
		"npm error code EINTEGRITY sha512-x integrity checksum failed when using sha512: wanted sha512-x": "EINTEGRITY",
	} {
		var commands []debtool.Command
		b, tree := npmBuild(t, "{}", &debtool.Error{Tool: "sh", Err: errors.New("exit status 1"), Tail: []string{line}}, &commands)
		if _, err := b.installNpm(t.Context(), tree); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

func FuzzNpmPackages(f *testing.F) {
	f.Add([]byte(`{"packages":{"":{},"node_modules/a":{"version":"1.0.0","integrity":"` + digest + `"}}}`))
	f.Add([]byte(`{"packages":{"node_modules/":{"version":"1"}}}`))
	f.Add([]byte(`{"packages":{"node_modules/@/":{"version":"1","inBundle":true}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := npmPackages(b)
		if err == nil && len(all) == 0 {
			t.Error("no packages and no error")
		}
		for _, p := range all {
			if strings.ContainsAny(p, "\n\x00 \"") || strings.Contains(p, "..") && !strings.Contains(p, "=") {
				t.Errorf("got %q", p)
			}
		}
	})
}

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

func TestRequirements(t *testing.T) {
	for text, ok := range map[string]bool{
		"numpy": true, "numpy==2.1.0": true, "e2b_charts": true, "uvicorn[standard]": true, "a>=1,<2": true, "a~=1.4": true,
		"": false, "-r other.txt": false, "--index-url=http://x": false, "numpy ==2": false, "git+https://x/y": false,
		"./local.whl": false, "https://x/y.whl": false, "a==": false, "a;python_version<'3'": false, "a\n-e .": false,
	} {
		if requirementRE.MatchString(text) != ok {
			t.Errorf("%q: want %v", text, ok)
		}
	}
	_, err := ParseRecipe("r.yaml", []byte("name: a\nsuite: bookworm\npip:\n  - numpy\n  - -r x\n"))
	if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), `r.yaml:5: pip has "-r x"`) {
		t.Errorf("got %v", err)
	}
	_, err = ParseRecipe("r.yaml", []byte("name: a\nsuite: bookworm\npip_no_deps: [\"-e .\"]\n"))
	if !errors.Is(err, ErrRecipe) || !strings.Contains(err.Error(), `r.yaml:3: pip_no_deps has "-e ."`) {
		t.Errorf("got %v", err)
	}
}

// pipBuild returns a build in a tree with Python 3.11, whose tools return err.
func pipBuild(t *testing.T, err error, commands *[]debtool.Command) (*rootBuild, string) {
	t.Helper()
	tree := t.TempDir()
	modules := filepath.Join(tree, "usr/local/lib/python3.11/dist-packages")
	for _, dir := range []string{"usr/bin", "usr/local/lib/python3.11/dist-packages/numpy-2.1.0.dist-info"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(modules, "e2b_charts-0.0.4.dist-info"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("python3.11", filepath.Join(tree, "usr/bin/python3")); err != nil {
		t.Fatal(err)
	}
	r := &Recipe{path: "r.yaml", Pip: []Text{{"numpy==2.1.0", 4}, {"e2b_charts", 5}}, PipNoDeps: []Text{{"weights==1", 7}}}
	run := func(_ context.Context, c debtool.Command) ([]byte, error) {
		*commands = append(*commands, c)
		return nil, err
	}
	return &rootBuild{run: run, recipe: r, progress: func(Progress) {}}, tree
}

func TestPipIsAskedForTheTreesPython(t *testing.T) {
	var commands []debtool.Command
	b, tree := pipBuild(t, nil, &commands)
	got, err := b.installPip(t.Context(), tree, []string{"bash=5.2", "libc6=2.36-9+deb12u9"})
	if want := []string{"pip:e2b_charts=0.0.4", "pip:numpy=2.1.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for i, want := range [][]string{{"numpy==2.1.0", "e2b_charts"}, {"weights==1"}} {
		args := commands[i].Args
		want = append([]string{tree, "3.11", "36"}, want...)
		if !slices.Equal(args[len(args)-len(want):], want) || slices.Contains(args, "PIP_NO_DEPS=1") != (i == 1) {
			t.Errorf("asked for %q", args)
		}
	}
}

func TestPipsComplaints(t *testing.T) {
	for line, want := range map[string]string{
		"ERROR: No matching distribution found for numpy==2.1.0":   "r.yaml:4: PyPI has no wheel of numpy==2.1.0 for Python 3.11",
		"ERROR: No matching distribution found for other (from a)": "r.yaml: PyPI has no wheel of other for Python 3.11",
		"/usr/bin/python3: No module named pip":                    "apt-get install python3-pip",
		"ERROR: something else":                                    "something else",
	} {
		var commands []debtool.Command
		b, tree := pipBuild(t, &debtool.Error{Tool: "sh", Err: errors.New("exit status 1"), Tail: []string{line}}, &commands)
		if _, err := b.installPip(t.Context(), tree, []string{"libc6=2.36-9"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	var commands []debtool.Command
	b, tree := pipBuild(t, nil, &commands)
	if err := os.Remove(filepath.Join(tree, "usr/bin/python3")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.installPip(t.Context(), tree, nil); !errors.Is(err, ErrRecipe) || len(commands) != 0 {
		t.Errorf("without Python: %v after %d commands", err, len(commands))
	}
}

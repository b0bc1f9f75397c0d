package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wings are the folders of internal, with the wings each may import. docs/architecture.md has the reasons.
var wings = map[string][]string{
	"leaf":    {},
	"sys":     {"leaf"},
	"confine": {"leaf", "sys"},
	"guest":   {"leaf", "sys"},
	"net":     {"leaf", "sys", "confine"},
	"store":   {"leaf", "sys", "net"},
	"vm":      {"leaf", "sys", "confine", "net", "store"},
	"images":  {"leaf", "sys", "store", "vm"},
	"domain":  {"leaf", "sys", "guest", "net", "store"},
	"engine":  {"leaf", "sys", "confine", "guest", "net", "store", "vm", "images", "domain"},
	"machine": {"leaf", "sys", "confine", "guest", "vm", "images"},
	"api":     {"leaf", "sys", "guest", "net", "store", "domain"},
	"kube":    {"leaf", "domain"},
}

// wingOf returns the wing of a package, or an empty string.
func wingOf(name string) string {
	rest, inside := strings.CutPrefix(name, "internal/")
	if !inside {
		return ""
	}
	wing, _, _ := strings.Cut(rest, "/")
	return wing
}

func TestWingsImportDownwardsOnly(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		wing := wingOf(p.name())
		if wing == "" || wing == "testing" || isOneOf(p.name(), testHelpers) {
			continue
		}
		seen[wing] = true
		below, known := wings[wing]
		if !known {
			t.Errorf("%s is in no wing: name the wing here, and in docs/architecture.md", p.name())
			continue
		}
		for _, imp := range p.Imports {
			if other := wingOf(short(imp)); other != "" && other != wing && !slices.Contains(below, other) {
				t.Errorf("%s imports %s, but the wing %s may only import %v", p.name(), short(imp), wing, below)
			}
		}
	}
	for wing := range wings {
		if !seen[wing] {
			t.Errorf("the wing %s has no package", wing)
		}
	}
}

// The table of a wing's README has one row for each package directly below the wing.
func TestReadmesOfWingsListTheirPackages(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9]+)`")
	for wing := range wings {
		dir := filepath.Join("..", "..", "internal", wing)
		text, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, e := range entries {
			if e.IsDir() && e.Name() != "testdata" {
				want = append(want, e.Name())
			}
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			got = append(got, m[1])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("internal/%s/README.md lists %v, want %v", wing, got, want)
		}
	}
}

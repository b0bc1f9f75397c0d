package e2b

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// method is a row of the table in docs/use/e2b.md.
type method struct {
	names map[string]string // by language
	bad   string            // the expected failure, or the fact that it cannot fail
	by    string            // languages with programs that call it
}

// TestEveryMethodIsInTheTable compares the table in docs/use/e2b.md with the methods of the
// installed packages, and the table's entries on programs with the programs. It detects new methods
// of a release.
func TestEveryMethodIsInTheTable(t *testing.T) {
	rows := table(t)
	python := filepath.Join(cache(t, "python-"+newestPython), "bin", "python")
	compare(t, rows, "Python", "*.py", exec.Command(python, filepath.Join("testdata", "public.py")))
	if hasNPM(t) {
		program := module(t, newestNode, "public.mjs")
		compare(t, rows, "JavaScript", "*.mjs", exec.Command("node", program))
	}
}

func compare(t *testing.T, rows []method, language, programs string, list *exec.Cmd) {
	t.Helper()
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	there := strings.Fields(string(out))
	text := sources(t, programs)
	var named []string
	for _, r := range rows {
		name := r.names[language]
		if name == "" {
			continue
		}
		named = append(named, name)
		if r.bad == "" {
			t.Errorf("%s of %s: docs/use/e2b.md has no bad case of it, nor says that there is none", name, language)
		}
		if !slices.Contains(there, name) {
			t.Errorf("%s has no %s, which docs/use/e2b.md names", language, name)
		}
		where := text
		if strings.HasPrefix(name, "Template.") {
			where = sources(t, "template*"+filepath.Ext(programs))
		}
		if says := strings.Contains(r.by, language); says != calls(where, name) {
			t.Errorf("%s of %s: docs/use/e2b.md says that a program calls it: %v", name, language, says)
		}
	}
	for _, name := range there {
		if !slices.Contains(named, name) {
			t.Errorf("docs/use/e2b.md does not name %s of %s", name, language)
		}
	}
}

// calls searches for a method as programs write it: on its class, on a part of a sandbox, or on an
// object with any name. A template's methods are chained.
func calls(text, name string) bool {
	class, of, _ := strings.Cut(name, ".")
	switch class {
	case "commands", "files", "pty", "git", "Secret":
		class = `\b` + class
	case "Volume": // the programs' variable is named volume
		class = `\b[Vv]olume`
	default:
		class = ""
	}
	return regexp.MustCompile(class + `\.` + of + `\b`).MatchString(text)
}

// sources returns the programs in one language, without the programs that list methods.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range paths {
		if strings.HasPrefix(filepath.Base(p), "public.") {
			continue
		}
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// table reads the rows.
func table(t *testing.T) []method {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "use", "e2b.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "## Every method\n")
	if !ok {
		t.Fatal("docs/use/e2b.md has no table of methods")
	}
	var rows []method
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 7 || !strings.Contains(line, "`") {
			continue
		}
		name := func(cell string) string { return strings.Trim(cell, " `") }
		rows = append(rows, method{map[string]string{"Python": name(cells[1]), "JavaScript": name(cells[2])},
			strings.TrimSpace(cells[3]), cells[4]})
	}
	return rows
}

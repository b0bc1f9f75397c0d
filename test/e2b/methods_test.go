package e2b

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write the table of docs/use/e2b.md")

// method is a row of testdata/methods.yaml, which describes the fields.
type method struct {
	Python, JavaScript, Only, Package string
	State, Note, Bad                  string
	Tests                             []string
}

func (m method) name(language string) string {
	if language == "Python" {
		return m.Python
	}
	return m.JavaScript
}

// served reports whether a server takes part in a method.
func (m method) served() bool { return m.State == "works" || m.State == "partly" || m.State == "not" }

func methods(t *testing.T) []method {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "methods.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []method
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestEveryMethodIsInTheTable holds testdata/methods.yaml against the installed packages. It detects new methods and
// classes of a release.
func TestEveryMethodIsInTheTable(t *testing.T) {
	rows := methods(t)
	t.Run("Python", func(t *testing.T) {
		python := filepath.Join(cache(t, "python-"+newestPython), "bin", "python")
		comparePython(t, rows, listed(t, exec.Command(python, filepath.Join("testdata", "public.py"))))
	})
	t.Run("JavaScript", func(t *testing.T) {
		if !hasNPM(t) {
			return
		}
		url := native(t)
		cmd := exec.Command("node", module(t, newestNode, "public.mjs"))
		cmd.Env = append(os.Environ(), "E2B_API_KEY="+apiKey, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url,
			"E2B_TEST_TEMPLATE=base")
		compare(t, rows, "JavaScript", listed(t, cmd))
	})
}

func listed(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// comparePython also compares the halves of the package.
func comparePython(t *testing.T, rows []method, lines []string) {
	t.Helper()
	halves := map[string][]string{}
	var names []string
	for _, line := range lines {
		half, name, _ := strings.Cut(line, " ")
		halves[name] = append(halves[name], half)
		names = append(names, name)
	}
	for _, r := range rows {
		want := []string{"async", "sync"}
		if r.Only != "" {
			want = []string{r.Only}
		}
		if got := slices.Sorted(slices.Values(halves[r.Python])); r.Python != "" && !slices.Equal(got, want) {
			t.Errorf("%s is in %v of the package, and methods.yaml says %v", r.Python, got, want)
		}
	}
	slices.Sort(names)
	compare(t, rows, "Python", slices.Compact(names))
}

func compare(t *testing.T, rows []method, language string, there []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		name := r.name(language)
		if name == "" {
			continue
		}
		if seen[name] {
			t.Errorf("%s of %s has two rows", name, language)
		}
		if seen[name] = true; !slices.Contains(there, name) {
			t.Errorf("%s has no %s any more, which has a row in testdata/methods.yaml", language, name)
		}
	}
	for _, name := range there {
		if !seen[name] {
			t.Errorf("%s of %s has no row in testdata/methods.yaml", name, language)
		}
	}
}

// TestRowsAreProved checks rows by themselves, and against the programs they name.
func TestRowsAreProved(t *testing.T) {
	states := []string{"works", "partly", "not", "untried", "local"}
	for _, r := range methods(t) {
		name := r.Python + "|" + r.JavaScript
		if !slices.Contains(states, r.State) {
			t.Errorf("%s: state %q, want one of %v", name, r.State, states)
		}
		if needs := r.State == "partly" || r.State == "not" || r.State == "untried"; needs != (r.Note != "") {
			t.Errorf("%s: state %s and note %q: partly, not and untried need one", name, r.State, r.Note)
		}
		if r.served() && r.Bad == "" {
			t.Errorf("%s has no bad case, and no sentence about the lack of one", name)
		}
		for language, extension := range map[string]string{"Python": ".py", "JavaScript": ".mjs"} {
			proved(t, r, language, extension)
		}
	}
}

func proved(t *testing.T, r method, language, extension string) {
	t.Helper()
	name, some := r.name(language), false
	for _, program := range r.Tests {
		if filepath.Ext(program) != extension {
			continue
		}
		some = true
		if !calls(source(t, program), name) {
			t.Errorf("%s does not call %s", program, name)
		}
	}
	if r.served() && name != "" && !some {
		t.Errorf("%s of %s is called by no program", name, language)
	}
}

// source returns a program. The programs of the code interpreter are those of test/codeinterp.
func source(t *testing.T, program string) string {
	t.Helper()
	path := filepath.Join("testdata", program)
	if of, ok := strings.CutPrefix(program, "codeinterp/"); ok {
		path = filepath.Join("..", "codeinterp", "testdata", of)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// calls searches for a method as programs write it: on its class, on a part of a sandbox, or on an
// object with any name. A template's methods are chained.
func calls(text, name string) bool {
	class, of, isMethod := strings.Cut(name, ".")
	if !isMethod {
		return regexp.MustCompile(`\b` + name + `\b`).MatchString(text)
	}
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

// Lines around the table of the page.
const (
	tableBegins = "<!-- written by go test ./test/e2b -run TestThePageShowsTheTable -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

func TestThePageShowsTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "use", "e2b.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		t.Fatal("docs/use/e2b.md has no place for the table of methods")
	}
	page := before + tableBegins + shown(methods(t)) + tableEnds + after
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if page != string(b) {
		t.Error("docs/use/e2b.md does not show testdata/methods.yaml: run this test with -update")
	}
}

// shown returns the page's tables: one of the methods that a server takes part in, and a list of the local ones.
func shown(rows []method) string {
	var served, local strings.Builder
	for _, r := range rows {
		if r.State == "local" {
			fmt.Fprintf(&local, "| %s | %s |\n", code(r.Python), code(r.JavaScript))
			continue
		}
		python := code(r.Python)
		if r.Only != "" {
			python += " (" + r.Only + ")"
		}
		state := r.State
		if r.Note != "" {
			state += ": " + r.Note
		}
		fmt.Fprintf(&served, "| %s | %s | %s | %s | %s |\n", python, code(r.JavaScript), state, r.Bad, strings.Join(r.Tests, " "))
	}
	count := map[string]int{}
	for _, r := range rows {
		count[r.State]++
	}
	return fmt.Sprintf("%d rows: %d work, %d partly, %d not, %d untried, %d local.\n\n", len(rows), count["works"],
		count["partly"], count["not"], count["untried"], count["local"]) +
		"| Python | JavaScript | state | bad case | called by |\n| --- | --- | --- | --- | --- |\n" + served.String() +
		"\nLocal:\n\n| Python | JavaScript |\n| --- | --- |\n" + local.String()
}

func code(name string) string {
	if name == "" {
		return ""
	}
	return "`" + name + "`"
}

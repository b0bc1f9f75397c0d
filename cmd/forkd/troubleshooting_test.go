//go:build linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

const troubleshooting = "../../docs/operate/troubleshooting.md"

var (
	codeHeading = regexp.MustCompile(`(?m)^### (\S+)$`)
	reasonRow   = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| `([^`]+)` \\| (.+) \\|$")
	printed     = regexp.MustCompile(`(?m)^(?:forkd: |\{"error":")(.+?)(?:",.*)?$`)
	printedHint = regexp.MustCompile(`(?m)^  hint: (.+)$`)
)

// The page has a section for each code and a row for each reason, and no others.
func TestTroubleshootingHasEachCodeAndReason(t *testing.T) {
	sections, codes := sectionsOfErrors(t), []string{}
	for _, row := range api.Codes() {
		codes = append(codes, string(row.Code))
	}
	sameNames(t, "codes", slices.Collect(maps.Keys(sections)), codes)
	var rows, reasons []string
	for code, text := range sections {
		for _, part := range []string{"```console\n$ ", "\n**Cause:** ", "\n**Cure:** "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the section lacks %q", code, strings.TrimSpace(part))
			}
		}
		if !printed.MatchString(text) {
			t.Errorf("%s: the section shows no message", code)
		}
		for _, m := range reasonRow.FindAllStringSubmatch(text, -1) {
			rows = append(rows, m[1])
		}
		if all := strings.Count(text, "\n| `"); all != len(reasonRow.FindAllString(text, -1)) {
			t.Errorf("%s: a row of its table is not `reason`, `message`, cure", code)
		}
	}
	for _, row := range api.Reasons() {
		reasons = append(reasons, string(row.Reason))
	}
	sameNames(t, "reasons", rows, reasons)
}

func sameNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: the page has no %s: describe message, cause and cure", what, name)
		}
	}
	for i, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s: the page has %s, which does not exist", what, name)
		}
		if i > 0 && got[i-1] == name {
			t.Errorf("%s: the page has %s twice", what, name)
		}
	}
}

// Messages on the page are texts of the programs, and hints are those of the table of errors.
func TestTroubleshootingHasRealMessages(t *testing.T) {
	table, err := os.ReadFile("../../api/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	known := formats(t)
	page := strings.ReplaceAll(string(table), `\"`, `"`)
	for code, text := range sectionsOfErrors(t) {
		for _, m := range slices.Concat(printed.FindAllStringSubmatch(text, -1), reasonRow.FindAllStringSubmatch(text, -1)) {
			message := m[1]
			if len(m) > 2 {
				message = m[2]
			}
			if !slices.ContainsFunc(known, func(f format) bool { return f.is(message) }) {
				t.Errorf("%s: no program has the message %q", code, message)
			}
		}
		for _, m := range printedHint.FindAllStringSubmatch(text, -1) {
			isOwn := slices.ContainsFunc(known, func(f format) bool { return f.is(m[1]) })
			if !isOwn && !strings.Contains(page, m[1]) {
				t.Errorf("%s: no error has the hint %q", code, m[1])
			}
		}
	}
}

func sectionsOfErrors(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(troubleshooting)
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(b), "\n## Errors\n")
	if !ok {
		t.Fatal("the page has no section Errors")
	}
	sections := map[string]string{}
	at := codeHeading.FindAllStringSubmatchIndex(page, -1)
	for i, a := range at {
		end := len(page)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		if name := page[a[2]:a[3]]; sections[name] == "" {
			sections[name] = page[a[1]:end]
		} else {
			t.Errorf("two sections %s", name)
		}
	}
	return sections
}

// format is a text of a program: its constant parts, in order. Details stand between them.
type format []string

var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]|%%|\{[a-z]+\}`)

// is reports whether a message has the format. The constant parts must be a third of the message, or 20
// characters. An
// ellipsis in the message stands for the rest.
func (f format) is(message string) bool {
	message, _, cut := strings.Cut(message, "…")
	rest, found := message, 0
	for _, part := range f {
		_, after, ok := strings.Cut(rest, part)
		if !ok && cut { // the rest of the format is under the ellipsis
			found += overlap(rest, part)
			break
		}
		if !ok {
			return false
		}
		rest, found = after, found+len(part)
	}
	return found >= 20 || found >= 8 && 3*found >= len(message)
}

// overlap returns the length of the longest end of a text with which part begins.
func overlap(text, part string) int {
	for n := min(len(text), len(part)); n > 0; n-- {
		if strings.HasSuffix(text, part[:n]) {
			return n
		}
	}
	return 0
}

// formats returns the texts of the programs.
func formats(t *testing.T) (all []format) {
	t.Helper()
	for _, folder := range []string{"client", "cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, ok := constant(e)
				if !ok {
					return true
				}
				var f format
				for _, part := range verb.Split(text, -1) {
					if strings.TrimSpace(part) != "" {
						f = append(f, part)
					}
				}
				if len(f) > 0 {
					all = append(all, f)
				}
				return false
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// constant returns the text of a literal, or of a sum of literals.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok := constant(e.X)
		b, ok2 := constant(e.Y)
		return a + b, ok && ok2 && e.Op == token.ADD
	}
	return "", false
}

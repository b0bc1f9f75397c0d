package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayAdvise are packages whose texts name commands or flags, with the reason.
var mayAdvise = map[string]string{
	"internal/machine/hostcap":     "`forkd doctor` prints what it says, line by line",
	"internal/guest/agent/forkcmd": "it is a command itself, of guests; the flags are its own",
	"internal/sys/rundir":          "the text in the directory's marker file begins with the program's name",
}

// aFlag is one in a sentence; a text that begins with one is an argument of a program.
var aFlag = regexp.MustCompile(`[^-\w]--[a-z]`)

// What to do about an error depends on who asks: a CLI's words are in cmd/internal/hints,
// and the domain, its API and the client give a code and a reason.
func TestTheDomainPrintsNoCommands(t *testing.T) {
	command := regexp.MustCompile(`\bforkd(-bench)? (` + strings.Join(commands(t), "|") + `)\b`)
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !isOneOf(s.pkg.name(), []string{"internal", "api", "client"}) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !command.MatchString(text) && !aFlag.MatchString(text) {
				return true
			}
			if _, may := mayAdvise[s.pkg.name()]; may {
				used[s.pkg.name()] = true
				return true
			}
			t.Errorf("%s/%s: %q names a command or a flag of the CLI: give the error a reason, and the reason a row in cmd/internal/hints",
				s.pkg.name(), s.name, text)
			return true
		})
	}
	for name := range mayAdvise {
		if !used[name] {
			t.Errorf("%s names no command any more", name)
		}
	}
}

// commands are forkd's, by the files that have them.
func commands(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../cmd/forkd/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the CLI's files: %v, %v", files, err)
	}
	use := regexp.MustCompile(`Use:\s+"([a-z-]+)`)
	var all []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllStringSubmatch(string(b), -1) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) < 20 {
		t.Fatalf("the CLI's commands are %q", all)
	}
	return all
}

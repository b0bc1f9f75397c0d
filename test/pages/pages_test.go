package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// otherLanguages are those of blocks without commands for a shell. Blocks of python.md and
// typescript.md are run by the tests of the SDKs.
var otherLanguages = []string{"python", "js", "ts", "yaml", "json", "text"}

// TestEveryBlockOfCommandsRuns fails for commands in a block that Suite does not run, unless notRun
// has the reason. It also fails for entries of notRun without a block.
func TestEveryBlockOfCommandsRuns(t *testing.T) {
	used := make([]bool, len(notRun))
	for _, name := range files(t) {
		page := filepath.Base(name)
		for _, b := range blocks(read(t, name)) {
			if b.language != sh {
				checkBlock(t, page, b)
				continue
			}
			i := slices.IndexFunc(notRun, func(e exception) bool {
				return e.page == page && strings.HasPrefix(b.first(), e.first)
			})
			switch {
			case i < 0:
				t.Errorf("%s, line %d: the block is not run, and notRun has no reason", page, b.line)
			case used[i]:
				t.Errorf("%s, line %d: the reason is already that of another block", page, b.line)
			default:
				used[i] = true
			}
		}
	}
	for i, e := range notRun {
		if !used[i] {
			t.Errorf("%s has no sh block that begins with %q: remove it from notRun", e.page, e.first)
		}
		if len(strings.Fields(e.reason)) < 3 {
			t.Errorf("%s: %q is no reason", e.page, e.reason)
		}
	}
}

// checkBlock fails for a block whose commands nobody runs.
func checkBlock(t *testing.T, page string, b block) {
	t.Helper()
	switch {
	case b.language == console:
	case b.indented && page == "python.md" && strings.HasPrefix(b.first(), ">>> "): // sdk/python/tests/test_docs.py
	case b.indented:
		t.Errorf("%s, line %d: an indented block. Use a fence with a language: console is run", page, b.line)
	case !slices.Contains(otherLanguages, b.language):
		t.Errorf("%s, line %d: the language %q is none of console, sh, %s", page, b.line, b.language,
			strings.Join(otherLanguages, ", "))
	default:
		for _, line := range b.lines {
			if strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "forkd ") {
				t.Errorf("%s, line %d: a command in a block of %s: %q", page, b.line, b.language, line)
			}
		}
	}
}

// TestPagesHaveCommands fails for a page with an unusable console block, and if most commands are lost.
func TestPagesHaveCommands(t *testing.T) {
	total := 0
	for _, name := range files(t) {
		list, err := commands(read(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		total += len(list)
	}
	if total < 80 {
		t.Errorf("the pages have %d commands", total)
	}
}

// TestOverADaemon runs the pages over the daemon of the environment, for work on them. test/e2b
// runs them over VMs in each make test. FORKD_PAGES names the pages.
func TestOverADaemon(t *testing.T) {
	url := os.Getenv("FORKD_PAGES_URL")
	if url == "" {
		return
	}
	Suite(t, &harness.Machine{URL: url, Token: os.Getenv("FORKD_PAGES_TOKEN")}, strings.Fields(os.Getenv("FORKD_PAGES"))...)
}

func TestMatch(t *testing.T) {
	const a, b = "sb-aaaaaaaaaaaaaaaa", "sb-bbbbbbbbbbbbbbbb"
	for name, c := range map[string]struct {
		want, got string
		ok        bool
	}{
		"times differ":        {"ID  READY\n" + a + "  1.9 s", "ID   READY\n" + b + "  12 ms", true},
		"values differ":       {"10", "11", false},
		"another line":        {"10", "10\n11", false},
		"a missing line":      {"10\n11", "10", false},
		"another sandbox":     {a + "\n" + a, b + "\n" + a, false},
		"an ID in a host":     {a + "\nsbaaaaaaaaaaaaaaaa", b + "\nsbbbbbbbbbbbbbbbbb", true},
		"lines left out":      {"1\n...\n9", "1\n2\n3\n9", true},
		"no line left out":    {"1\n...\n9", "1\n9", true},
		"the end is missing":  {"1\n...\n9", "1\n2", false},
		"text left out":       {"a … z", "a b c z", true},
		"text before differs": {"a … z", "b c z", false},
		"no output":           {"", "", true},
		"unexpected output":   {"", "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := match(c.want, c.got, newIDs()); (err == nil) != c.ok {
				t.Errorf("%v, want a match: %v", err, c.ok)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	list, err := commands("```console\n$ a \\\n  b\nout\n$ c\nforkd: no\n```\n\n    $ indented\n\n```sh\n$ d\n```\n")
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if c := list[0]; c.run != "a \\\n  b" || c.output != "out\n" || c.line != 2 || c.lines != 2 {
		t.Errorf("the first is %+v", c)
	}
	if c := list[1]; c.run != "c" || c.line != 5 || c.output != "forkd: no\n" {
		t.Errorf("the second is %+v", c)
	}
	if _, err := commands("```console\nout\n```\n"); err == nil {
		t.Error("output without a command is no error")
	}
}

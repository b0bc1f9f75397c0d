package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// budget limits a kind of words that make text hard to read, per 1000 words. The limits are between the rates of
// well-kept projects and twice those.
type budget struct {
	name  string
	words *regexp.Regexp
	limit float64
}

var budgets = []budget{
	{"that", regexp.MustCompile(`(?i)\bthat\b`), 13},
	{"what", regexp.MustCompile(`(?i)\bwhat\b`), 1.5},
	{"those", regexp.MustCompile(`(?i)\bthose\b`), 0.8},
	{"nobody, nothing, nowhere, none", regexp.MustCompile(`(?i)\b(nobody|nothing|nowhere|none)\b`), 1},
	{"which", regexp.MustCompile(`(?i)\bwhich\b`), 4},
	{"is told, tells", regexp.MustCompile(`(?i)\b(is|are|was|be) told\b|\btells?\b`), 0.5},
	{"lest, hence, whose and the like", regexp.MustCompile(`(?i)\b(lest|hence|thereof|whoever|whose|wherever)\b`), 0.6},
}

// longestSentence is the number of words that 90 % of the sentences of documents have at most.
const longestSentence = 30

var (
	aWord     = regexp.MustCompile(`[A-Za-z]+(?:'[a-z]+)?`)
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	indented  = regexp.MustCompile(`(?m)^(    |\t).*$`)
	quoted    = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
	tableRow  = regexp.MustCompile(`(?m)^\|.*$`)
	endOf     = regexp.MustCompile(`[.!?:]\s+`)
)

func TestProseIsWithinBudget(t *testing.T) {
	docs := allDocs(t)
	for name, text := range map[string]string{"comments": allComments(t), "documents": docs} {
		words := float64(len(aWord.FindAllString(text, -1)))
		for _, b := range budgets {
			if rate := 1000 * float64(len(b.words.FindAllString(text, -1))) / words; rate > b.limit {
				t.Errorf("%s: %q %.1f times in 1000 words, want at most %.1f: write a noun, name the actor, or cut",
					name, b.name, rate, b.limit)
			}
		}
	}
	if got := ninetyPercent(docs); got > longestSentence {
		t.Errorf("documents: 10 %% of the sentences have more than %d words, want at most %d", got, longestSentence)
	}
}

// ninetyPercent returns the number of words that 90 % of the sentences have at most. Tables are left out.
func ninetyPercent(docs string) int {
	var lengths []int
	for _, s := range endOf.Split(tableRow.ReplaceAllString(docs, " "), -1) {
		if n := len(aWord.FindAllString(s, -1)); n > 2 {
			lengths = append(lengths, n)
		}
	}
	if len(lengths) == 0 {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)*9/10]
}

// allComments returns the comments of all Go files that are not generated, tests included.
func allComments(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	each(t, ".go", func(path string) {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			return
		}
		for _, c := range f.Comments {
			text.WriteString(c.Text())
		}
	}, "api", "client", "cmd", "internal", "test")
	return text.String()
}

// allDocs returns the documents without code and links.
func allDocs(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	read := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := indented.ReplaceAllString(codeBlock.ReplaceAllString(string(b), " "), " ")
		text.WriteString(quoted.ReplaceAllString(s, " ") + "\n")
	}
	each(t, ".md", read, "docs")
	for _, name := range []string{"README.md", "SECURITY.md", "CONTRIBUTING.md"} {
		read(filepath.Join("..", "..", name))
	}
	return text.String()
}

// each calls do for the files with the suffix below the folders of the module.
func each(t *testing.T, suffix string, do func(path string), folders ...string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if !d.IsDir() && strings.HasSuffix(path, suffix) {
				do(path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNinetyPercent(t *testing.T) {
	if got := ninetyPercent("One two three. Four five six seven.\n| a table has many many words in a row |\n"); got != 4 {
		t.Errorf("got %d, want 4", got)
	}
}

// maxREADME is the limit of the README's lines.
const maxREADME = 150

func TestTheREADMEIsShort(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n > maxREADME {
		t.Errorf("README.md has %d lines, at most %d", n, maxREADME)
	}
}

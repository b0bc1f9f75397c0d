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

// budget limits a kind of words that make text hard to read. Rates are per 1000 words. The limit of documents is
// between the rates of well-kept projects and twice those.
type budget struct {
	name           string
	words          *regexp.Regexp
	docs, comments float64 // the limits; one of comments above that of documents may only be lowered
}

var budgets = []budget{
	{"that", regexp.MustCompile(`(?i)\bthat\b`), 13, 26},
	{"what", regexp.MustCompile(`(?i)\bwhat\b`), 1.5, 15},
	{"those", regexp.MustCompile(`(?i)\bthose\b`), 0.8, 2.5},
	{"nobody, nothing, nowhere, none", regexp.MustCompile(`(?i)\b(nobody|nothing|nowhere|none)\b`), 1, 7.2},
	{"which", regexp.MustCompile(`(?i)\bwhich\b`), 4, 5},
	{"is told, tells", regexp.MustCompile(`(?i)\b(is|are|was|be) told\b|\btells?\b`), 0.5, 3},
	{"lest, hence, whose and the like", regexp.MustCompile(`(?i)\b(lest|hence|thereof|whoever|whose|wherever)\b`), 0.6, 3},
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
	comments, docs := allComments(t), allDocs(t)
	for _, b := range budgets {
		for _, text := range []struct {
			name, text string
			limit      float64
		}{{"comments", comments, b.comments}, {"documents", docs, b.docs}} {
			rate := 1000 * float64(len(b.words.FindAllString(text.text, -1))) / float64(len(aWord.FindAllString(text.text, -1)))
			if rate > text.limit {
				t.Errorf("%s: %q %.1f times in 1000 words, want at most %.1f: write a noun, name the actor, or cut",
					text.name, b.name, rate, text.limit)
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

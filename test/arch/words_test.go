package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// goneWord is a word that docs/glossary.md has another for.
type goneWord struct {
	words   string   // as they follow each other in an identifier, lowercase
	instead string   // the glossary's
	only    []string // below these directories; else everywhere
	except  []string // below these the word means something else
}

var goneWords = []goneWord{
	{words: "own file", instead: "overlay file"},
	{words: "own files", instead: "overlay files"},
	{words: "own page", instead: "private dirty page"},
	{words: "own pages", instead: "private dirty pages"},
	{words: "own dir", instead: "overlay directory"},
	{words: "next own", instead: "new overlays"},
	{words: "hot", instead: "working set"},
	{words: "rehearse", instead: "record the working set, or prewarm"},
	{words: "rehearsal", instead: "record the working set, or prewarm"},
	{words: "shelf", instead: "bucket"},
	{words: "shelves", instead: "buckets"},
	{words: "spoil", instead: "mark unusable; in tests damage, or inject a fault"},
	{words: "spoiled", instead: "unusable; in tests damaged, or faulty"},
	{words: "spoilt", instead: "unusable; in tests damaged, or faulty"},
	{words: "lack", instead: "reserve a slot"},
	{words: "lacking", instead: "reserve a slot"},
	{words: "miss", instead: "release a slot", only: []string{"internal/engine"}},
	{words: "box", instead: "sandbox"},
	{words: "boxes", instead: "sandboxes"},
	{words: "persona", instead: "identity"},
	{words: "birth", instead: "child"},
	{words: "births", instead: "children"},
	{words: "kid", instead: "child"},
	{words: "kids", instead: "children"},
	{words: "born", instead: "child that is added"},
	{words: "unborn", instead: "child that is dropped"},
	{words: "forking", instead: "forkOp"},
	{words: "branching", instead: "branchOp"},
	{words: "capturing", instead: "captureOp"},
	{words: "hold", instead: "pin; of a capture: stop-and-copy"},
	{words: "holds", instead: "pins"},
	{words: "release", instead: "unpin", only: []string{"internal/store/layer", "internal/store/snapshot"}},
	{words: "rotate", instead: "switch the overlay", except: keyAndLogFiles},
	{words: "rotated", instead: "switched", except: []string{"internal/machine/appliance"}},
	{words: "rotations", instead: "overlay generation"},
	{words: "went on", instead: "after the capture"},
	{words: "line locked", instead: "ancestry", only: []string{"internal/api/httpapi", "internal/api/routes"}},
	{words: "disk line", instead: "disk"},
	{words: "seal", instead: "hash", except: memfdFiles},
	{words: "seals", instead: "hashes", except: memfdFiles},
	{words: "sealed", instead: "hashed", except: memfdFiles},
	{words: "sealing", instead: "hashing", except: memfdFiles},
	{words: "spent", instead: "frozen", except: []string{"test/conformance"}}, // time is spent
	{words: "kept", instead: "retired", only: []string{"internal/store/snapshot", "internal/engine/catalog"}},
	{words: "witness", instead: "probe child"},
	{words: "loud", instead: "logging"},
}

// keyAndLogFiles are where logs are rotated, or keys.
var keyAndLogFiles = []string{"internal/machine/appliance", "internal/domain/keys", "internal/domain/idtoken", "internal/api/httpapi", "internal/api/routes/tenants", "internal/api/routing", "api", "client", "cmd/forkd",
	"test/contract"}

// memfdFiles are where files are sealed as memfd_create(2) has it, texts as crypto/cipher has it, or logs as
// journalctl(1) has it.
var memfdFiles = []string{"internal/domain/audit", "cmd/forkd", "internal/domain/secrets", "internal/vm/vmctl/wire", "internal/vm/startgate", "internal/net/netd/control"}

// One word for one thing: what a word was before the glossary is no name any more.
func TestWordsThatAreGone(t *testing.T) {
	for _, path := range goFiles(t) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			continue
		}
		told := map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || told[id.Name] || isTestName(path, id.Name) || isOfTheKernel(id.Name) {
				return true
			}
			told[id.Name] = true
			if w := goneIn(path, id.Name); w != nil {
				t.Errorf("%s: %s has %q in it: docs/glossary.md has %q", path, id.Name, w.words, w.instead)
			}
			return true
		})
	}
}

// isTestName tells sentences, in which a word may be plain English.
func isTestName(path, name string) bool {
	return strings.HasSuffix(path, "_test.go") &&
		(strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Benchmark"))
}

// isOfTheKernel tells constants as C has them.
func isOfTheKernel(name string) bool {
	return strings.Contains(name, "_") && name == strings.ToUpper(name)
}

func goneIn(path, name string) *goneWord {
	have := wordsOf(name)
	for i, w := range goneWords {
		if w.only != nil && !isOneOf(path, w.only) || isOneOf(path, w.except) {
			continue
		}
		want := strings.Fields(w.words)
		for at := 0; at+len(want) <= len(have); at++ {
			if slices.Equal(have[at:at+len(want)], want) {
				return &goneWords[i]
			}
		}
	}
	return nil
}

// wordsOf splits an identifier where a capital begins a word, in lowercase.
func wordsOf(name string) []string {
	var words []string
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && !beginsWord(runes, i) {
			continue
		}
		if w := strings.ToLower(strings.Trim(string(runes[start:i]), "_0123456789")); w != "" {
			words = append(words, w)
		}
		start = i
	}
	return words
}

// beginsWord is also true of the last capital before a small letter: HTTPServer is two words.
func beginsWord(r []rune, i int) bool {
	if r[i] == '_' {
		return true
	}
	if !unicode.IsUpper(r[i]) {
		return false
	}
	return !unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1])
}

func TestWordsOfIdentifiers(t *testing.T) {
	for name, want := range map[string]string{
		"HotSet": "hot set", "snapshotOf": "snapshot of", "HTTPServer": "http server", "OpWriteHot": "op write hot",
		"box": "box", "sandboxID": "sandbox id", "box2": "box", "with_hot": "with hot",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s has the words %q, want %q", name, got, want)
		}
	}
}

// goFiles are all of the module, tests included, by their paths from its root.
func goFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !d.IsDir() {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(path), "../../"))
		}
		return err
	})
	if err != nil || len(all) < 100 {
		t.Fatalf("found %d Go files, %v", len(all), err)
	}
	return all
}

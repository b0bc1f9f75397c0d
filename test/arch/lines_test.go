package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// longestLine of code, in characters; a tab is one.
const longestLine = 120

// notReflowed are directories whose own files may have longer lines yet.
var notReflowed = []string{
	"internal/engine", "internal/engine/catalog", "internal/httpapi", "internal/vmm/live", // types are being split there
}

func TestLinesOfCodeAreShort(t *testing.T) {
	isReflowed := func(name string) bool {
		for _, dir := range notReflowed {
			if name == dir {
				return false
			}
		}
		return true
	}
	for _, s := range sources(t) {
		if !isReflowed(s.pkg.name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.pkg.Dir, s.name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			if n := utf8.RuneCountInString(line); n > longestLine && !mayBeLong(line) {
				t.Errorf("%s/%s:%d has %d characters, the house has %d", s.pkg.name(), s.name, i+1, n, longestLine)
			}
		}
	}
}

// mayBeLong tells what would not be easier to read in pieces: comments, rows of tables and
// of texts, raw strings (struct tags, too), addresses.
func mayBeLong(line string) bool {
	text := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(text, "//"), strings.Contains(text, "`"), strings.Contains(text, "://"):
		return true
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, `"`) && strings.HasSuffix(text, "},"): // a table's row
		return true
	}
	// a line of a text, as it is printed
	return strings.HasSuffix(text, `\n" +`) || strings.HasSuffix(text, `\n",`)
}

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

func TestLinesOfCodeAreShort(t *testing.T) {
	for _, s := range sources(t) {
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

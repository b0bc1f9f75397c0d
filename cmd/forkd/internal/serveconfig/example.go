package serveconfig

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Setting is a line of an example that is in use.
type Setting struct {
	Key   string
	Value string // as YAML
	Why   string // replaces the flag's own text; may be empty
}

// WriteExample writes a documented file. It has each flag that is not hidden or excluded, below the
// title that titleOf returns for it. Settings in use are the given ones; all others are comments
// with their defaults.
func WriteExample(w io.Writer, flags *pflag.FlagSet, titleOf func(*pflag.Flag) string, use []Setting,
	excluded ...string) error {
	var b strings.Builder
	b.WriteString("# Configuration of the forkd daemon.\n#\n" +
		"# Each key is a flag of `forkd serve` without the dashes. Lines that begin with # show the defaults.\n" +
		"# A key of flags that may be repeated takes a list. Unknown keys are errors.\n" +
		"# Check a change with: forkd serve --config FILE --check\n")
	var titles []string
	byTitle := map[string][]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || slices.Contains(excluded, f.Name) {
			return
		}
		title := titleOf(f)
		if byTitle[title] == nil {
			titles = append(titles, title)
		}
		byTitle[title] = append(byTitle[title], f)
	})
	for _, title := range titles {
		fmt.Fprintf(&b, "\n# %s\n# %s\n", title, strings.Repeat("-", len(title)))
		for _, f := range byTitle[title] {
			writeSetting(&b, f, use)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSetting(b *strings.Builder, f *pflag.Flag, use []Setting) {
	argument, usage := pflag.UnquoteUsage(f)
	usage = strings.ToUpper(usage[:1]) + usage[1:] + "."
	at := slices.IndexFunc(use, func(s Setting) bool { return s.Key == f.Name })
	if at >= 0 && use[at].Why != "" {
		usage = use[at].Why
	}
	b.WriteString("\n")
	for _, line := range wrap(usage, 96) {
		b.WriteString("# " + line + "\n")
	}
	if at >= 0 {
		fmt.Fprintf(b, "%s: %s\n", f.Name, use[at].Value)
		return
	}
	fmt.Fprintf(b, "#%s: %s\n", f.Name, standIn(f, argument))
}

// standIn returns a flag's default as YAML, or the name of its argument if it has none.
func standIn(f *pflag.Flag, argument string) string {
	switch _, list := f.Value.(pflag.SliceValue); {
	case list:
		return "[" + argument + "]"
	case f.DefValue == "":
		return argument
	}
	return f.DefValue
}

// wrap breaks a text into lines of at most width columns.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

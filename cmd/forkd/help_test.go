//go:build linux

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// dialect matches words that test/arch limits in comments and documents. A flag's usage has none of
// them: a noun is shorter. "none" is a value of flags.
var (
	dialect     = regexp.MustCompile(`(?i)\b(what|those|nobody|nothing|nowhere|is told|tells?|lest|hence|thereof|whoever|whose|wherever)\b`)
	flagDialect = regexp.MustCompile(`(?i)\b(that|which)\b`)
)

// eachCommand calls do for the commands of forkd, hidden ones included.
func eachCommand(do func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpCmd()
		cmd.InitDefaultHelpFlag()
		do(cmd)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRoot(new(app)))
}

// helpText returns the output of a command's --help.
func helpText(t *testing.T, cmd *cobra.Command) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Help(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestHelpFitsTheScreen(t *testing.T) {
	const most, pointer = 100, "Run `forkd help flags` for the flags of all commands, such as --json and --url.\n"
	n := 0
	eachCommand(func(cmd *cobra.Command) {
		n++
		text := helpText(t, cmd)
		for line := range strings.Lines(text) {
			if w := utf8.RuneCountInString(strings.TrimRight(line, "\n")); w > most {
				t.Errorf("%s: a line of %d columns, want at most %d: %s", cmd.CommandPath(), w, most, line)
			}
		}
		if cmd.Name() != "flags" && !strings.HasSuffix(text, pointer) {
			t.Errorf("%s: the help does not end with the pointer to `forkd help flags`", cmd.CommandPath())
		}
		if got := dialect.FindString(cmd.Short + "\n" + cmd.Long); got != "" {
			t.Errorf("%s: the help has the word %q: write a noun", cmd.CommandPath(), got)
		}
	})
	if n < 60 {
		t.Errorf("%d commands", n)
	}
}

func TestUsageOfFlags(t *testing.T) {
	n := 0
	eachCommand(func(cmd *cobra.Command) {
		check := func(f *pflag.Flag) {
			n++
			first, _ := utf8.DecodeRuneInString(f.Usage)
			if !unicode.IsLower(first) {
				t.Errorf("%s --%s: usage %q, want a lowercase letter first", cmd.CommandPath(), f.Name, f.Usage)
			}
			if got := dialect.FindString(f.Usage) + flagDialect.FindString(f.Usage); got != "" {
				t.Errorf("%s --%s: usage has the word %q: write a noun", cmd.CommandPath(), f.Name, got)
			}
			named := strings.Count(f.Usage, "`") == 2
			if wants := f.Value.Type() != "bool"; wants != named {
				t.Errorf("%s --%s: usage %q: the argument's name in backquotes: %t, want %t",
					cmd.CommandPath(), f.Name, f.Usage, named, wants)
			}
		}
		cmd.LocalFlags().VisitAll(check)
	})
	if n < 250 {
		t.Errorf("%d flags", n)
	}
}

// Flags of all commands are listed once, in `forkd help flags`.
func TestGlobalFlagsAreATopic(t *testing.T) {
	root := newRoot(new(app))
	topic, _, err := root.Find([]string{"flags"})
	if err != nil {
		t.Fatal(err)
	}
	text := helpText(t, topic)
	fork, _, _ := root.Find([]string{"fork"})
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(text, "--"+f.Name) {
			t.Errorf("the topic lacks --%s", f.Name)
		}
		if f.Name != "json" && f.Name != "url" && strings.Contains(helpText(t, fork), "--"+f.Name+" ") {
			t.Errorf("the help of fork has --%s", f.Name)
		}
	})
	if strings.Contains(text, "Usage:") {
		t.Errorf("the topic has a usage: %s", text)
	}
}

func TestSectionsKeepTheirOrder(t *testing.T) {
	cmd := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}}
	section(cmd.Flags(), "Second", func(f *pflag.FlagSet) { f.Bool("b", false, "second") })
	section(cmd.Flags(), "First", func(f *pflag.FlagSet) { f.Bool("a", false, "first") })
	cmd.Flags().Bool("z", false, "plain")
	cmd.SetUsageFunc(printUsage)
	text := cmd.UsageString()
	plain, second, first := strings.Index(text, "--z"), strings.Index(text, "Second:"), strings.Index(text, "First:")
	if plain < 0 || plain > second || second > first {
		t.Errorf("got\n%s", text)
	}
}

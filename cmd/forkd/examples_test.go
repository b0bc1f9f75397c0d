//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// words splits a line like a shell, as far as the examples need: quotes, and the end at a comment,
// a pipe or a redirection. A line of another program has no words.
func words(line string) (out []string) {
	var word strings.Builder
	var quote rune
	begun := false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ':
			if begun {
				if w := word.String(); w == "|" || w == ">" || w == "<" || w == "#" || w == "&&" || w == "&" {
					return out
				}
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	return out
}

// Each example in a command's help is a valid command line: command, flags and arguments.
func TestExamplesAreTaken(t *testing.T) {
	n := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			args := words(strings.TrimSpace(line))
			if len(args) == 0 || args[0] != "forkd" {
				continue
			}
			n++
			root := newRoot(new(app)) // flags keep their values
			found, rest, err := root.Find(args[1:])
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil && !found.DisableFlagParsing {
				err = found.ValidateArgs(found.Flags().Args())
			}
			if err == nil {
				err = found.ValidateFlagGroups()
			}
			if err == nil {
				err = found.ValidateRequiredFlags()
			}
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(newRoot(new(app)))
	if n < 50 {
		t.Errorf("%d examples", n)
	}
}

// A flag with an empty value is refused, unless empty is a valid choice.
func TestFlagsWithoutAValue(t *testing.T) {
	for line, want := range map[string]string{
		"serve --domain=": "", "serve --data=": "data", "serve --cors-origin=": "cors-origin", "fork py --net=": "net",
		"fork py --deny=": "deny", "fork py --env= --net none": "env", "fork py --net none": "", "events --kind=": "kind",
	} {
		found, rest, err := newRoot(new(app)).Find(strings.Fields(line))
		if err == nil {
			err = found.ParseFlags(rest)
		}
		if got := emptyFlag(found); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", line, got, err, want)
		}
	}
}

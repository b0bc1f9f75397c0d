package main

import (
	"strings"
	"testing"
)

func TestCommandLinesAreShort(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":              {nil, ""},
		"short":             {[]string{"python3", "-"}, "python3 -"},
		"as long as it may": {[]string{strings.Repeat("é", 80)}, strings.Repeat("é", 80)},
		"a program":         {[]string{"python3", "-c", strings.Repeat("é", 4000)}, "python3 -c " + strings.Repeat("é", 68) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shortArgs(c.args); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

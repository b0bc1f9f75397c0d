//go:build linux

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page describes the --json output of each command, or lists it as a command without JSON. Each
// command accepts the flag.
func TestEveryCommandTakesJSON(t *testing.T) {
	page, err := os.ReadFile("../../docs/inside/formats/json-output.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "No JSON form have")
	without, _, ok := strings.Cut(after, "\n\n")
	if !ok {
		t.Fatal("the page does not say which commands have no JSON form")
	}
	root := newRoot(&app{})
	for _, cmd := range leaves(root) {
		name := strings.TrimPrefix(cmd.CommandPath(), "forkd ")
		if cmd.Hidden || name == "help" || !cmd.Runnable() {
			continue
		}
		flag := cmd.Flag("json")
		if flag == nil || flag != root.PersistentFlags().Lookup("json") {
			t.Errorf("%s has no --json, or one of its own", name)
		}
		with := regexp.MustCompile("`(forkd )?" + name + "( [a-z-]+)? --json`").Match(page)
		exempt := strings.Contains(without, "`"+name+"`")
		if with == exempt {
			t.Errorf("%s: the page has a row: %v, and says that there is no JSON form: %v", name, with, exempt)
		}
		if refused := slices.Contains(withoutJSON(), name); refused != exempt {
			t.Errorf("%s: --format is refused: %v, and the page says that there is no JSON form: %v", name, refused, exempt)
		}
	}
}

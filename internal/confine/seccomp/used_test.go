//go:build linux

package seccomp_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// unused begins the comment of a call that is kept although the test suites did not make it.
const unused = "unused: "

// Every call in a list is needed: a test suite has made it (lists/used.txt; docs/inside/vmm.md explains how to
// generate it), or its comment explains why it is kept.
func TestEveryCallWasMadeOrSaysWhyItStays(t *testing.T) {
	used := madeCalls(t)
	for _, filter := range []string{"vm", "vcpu", "net"} {
		list, err := os.ReadFile("lists/" + filter + ".list")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(list)) {
			rule, why, _ := strings.Cut(line, "#")
			for _, call := range callsOf(rule) {
				switch stays := strings.Contains(why, unused); {
				case !used[filter+" "+call] && !stays:
					t.Errorf("%s.list: no suite made %s, and nothing says why it stays", filter, call)
				case used[filter+" "+call] && stays && len(callsOf(rule)) == 1:
					t.Errorf("%s.list: %s is said to be unused, and a suite made it", filter, call)
				}
			}
		}
	}
}

// madeCalls returns the lines of lists/used.txt: a filter and an allowed call.
func madeCalls(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("lists/used.txt")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			used[strings.Join(words, " ")] = true
		}
	}
	return used
}

// callsOf returns the calls allowed by a line; each ioctl request counts separately. Calls that fail, or are
// killed because of their arguments, do not count.
func callsOf(rule string) (calls []string) {
	words := strings.Fields(rule)
	switch {
	case len(words) == 0 || words[0] == "default" || slices.Contains(words, "->"):
		return nil
	case words[0] == "ioctl":
		for _, request := range words[3:] {
			calls = append(calls, "ioctl "+request)
		}
		return calls
	}
	return words[:1]
}

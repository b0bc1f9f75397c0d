//go:build linux

package seccomp_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// unused begins the comment of a call that stays although the suites did not make it.
const unused = "unused: "

// A list has no call without a need: each is one that a suite made (lists/used.txt, which
// docs/inside/vmm.md says how to make), or says why it stays.
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

// madeCalls are the lines of lists/used.txt: a filter, and a call that it left.
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

// callsOf are the calls that a line leaves: of ioctl each request is one. A call that fails, or is killed for
// its arguments, is none.
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

package arch

import (
	"strings"
	"testing"
)

// nounsMayImport are the packages of the module that the vocabulary of the daemon may import beside leaves, each with
// its reason.
var nounsMayImport = map[string]string{
	"internal/net/netpolicy": "a policy is a noun with its rules: the package is values only, which TestVerdictsArePure " +
		"holds, and a second type for each of its own would have to be converted at every use",
}

// Every part of the daemon imports the vocabulary, and depends on all that the vocabulary imports.
func TestNounsImportLeavesOnly(t *testing.T) {
	const nouns = "internal/domain/sandbox"
	found, used := false, map[string]bool{}
	for _, p := range packages(t) {
		if p.name() != nouns {
			continue
		}
		found = true
		for _, imp := range p.Imports {
			name := short(imp)
			_, may := nounsMayImport[name]
			used[name] = true
			switch own := strings.HasPrefix(imp, module); {
			case own && !may && wingOf(name) != "leaf":
				t.Errorf("%s imports %s: a type that both need is a leaf's", nouns, name)
			case !own && strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				t.Errorf("%s imports %s, which is not of the standard library", nouns, imp)
			}
		}
	}
	if !found {
		t.Errorf("%s is not there", nouns)
	}
	for name, reason := range nounsMayImport {
		if !used[name] {
			t.Errorf("%s does not import %s and needs no exception (%s)", nouns, name, reason)
		}
	}
}

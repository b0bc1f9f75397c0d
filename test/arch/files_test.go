package arch

import (
	"maps"
	"slices"
	"testing"
)

// mostFiles is the number of files a package may have, without tests. A larger one holds several ideas.
const mostFiles = 40

// large are the packages with more files, each with its number of files today and the reason. The number may fall, but
// not grow.
var large = map[string]struct {
	files  int
	reason string
}{
	"client":             {50, "the whole API as one public package: a file per group of routes"},
	"internal/engine/op": {56, "a file per operation, which share the sandbox's turn and the undo of steps"},
}

// filePerCommand are packages that grow by a file for each command of the CLI.
var filePerCommand = []string{"cmd/forkd"}

func TestPackagesHaveFewFiles(t *testing.T) {
	files := map[string]int{}
	for _, p := range packages(t) {
		files[p.name()] = len(p.GoFiles)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		n, exception := files[name], large[name]
		switch {
		case slices.Contains(filePerCommand, name):
		case exception.files == 0 && n > mostFiles:
			t.Errorf("%s has %d files, want at most %d: cut it where few names cross", name, n, mostFiles)
		case n > exception.files && exception.files > 0:
			t.Errorf("%s has %d files, want at most %d: put the new file into a package of its own", name, n, exception.files)
		case n < exception.files:
			t.Errorf("%s has only %d files: lower its number from %d", name, n, exception.files)
		}
	}
	for name, e := range large {
		if files[name] <= mostFiles {
			t.Errorf("%s has %d files and needs no exception (%s)", name, files[name], e.reason)
		}
	}
}

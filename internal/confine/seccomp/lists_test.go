//go:build linux

package seccomp_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp/compile"
)

var update = flag.Bool("update", false, "compile the lists")

// The embedded programs match the lists. To update them: go test ./internal/confine/seccomp -update.
func TestProgramsAreUpToDate(t *testing.T) {
	lists, err := filepath.Glob("lists/*.list")
	if err != nil || len(lists) != 4 {
		t.Fatalf("there are %d lists, %v", len(lists), err)
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := compile.Program(text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		compiled := strings.TrimSuffix(path, ".list") + ".bpf"
		if *update {
			if err := os.WriteFile(compiled, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(compiled); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the list says: -update makes it (%v)", compiled, err)
		}
		t.Logf("%s: %d instructions", path, len(want)/8)
	}
}

// Each call, or each group of calls, in a list has a reason.
func TestEveryListSaysWhy(t *testing.T) {
	lists, _ := filepath.Glob("lists/*.list")
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "\n\n") {
			if !strings.Contains(block, "#") {
				t.Errorf("%s: nothing says why:\n%s", path, block)
			}
		}
	}
}

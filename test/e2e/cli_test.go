package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs command lines as a user types them. $PARENT is the shared parent. A script kills
// its sandboxes.
func TestScripts(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, kv := range d.env() {
				k, v, _ := strings.Cut(kv, "=")
				env.Setenv(k, v)
			}
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PARENT", parentTag)
			env.Setenv("SMALL", small)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  expectCode,
			"fork":  forkInto,
			"bytes": randomFile,
		},
	})
}

// expectCode implements code N PROGRAM ARG...: it runs a program and compares its exit code.
// Example: code 3 forkd kill sb-none.
func expectCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG...")
	}
	const script = `want=$1; shift; "$@"; got=$?; [ "$got" = "$want" ] || { echo "exit code is $got, want $want" >&2; exit 1; }`
	if err := ts.Exec("sh", append([]string{"-c", script, "sh"}, args...)...); err != nil {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// forkInto implements fork NAME TAG: it forks one child and sets a variable to its ID.
func forkInto(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fork NAME TAG")
	}
	ts.Check(ts.Exec("forkd", "fork", "-q", args[1]))
	id := strings.TrimSpace(ts.ReadFile("stdout"))
	ts.Setenv(args[0], id)
	ts.Defer(func() { _ = ts.Exec("forkd", "kill", id) })
}

// randomFile implements bytes FILE COUNT NAME: it writes a file of COUNT random bytes and sets a
// variable to its SHA-256.
func randomFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: bytes FILE COUNT NAME")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.Create(filepath.Join(ts.Getenv("WORK"), args[0]))
	ts.Check(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8([32]byte{1}), n)
	ts.Check(err)
	ts.Setenv(args[2], hex.EncodeToString(h.Sum(nil)))
}

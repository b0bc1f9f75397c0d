// Package clitest runs test scripts for forkd and forkd-bench. The scripts run the real program
// against the real HTTP server over the fake engine. Each script has its own daemon. The caller
// adds commands to the built-in command code.
package clitest

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/internal/api/httpapi/fakedaemon"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
)

// Token is the daemon's token.
const Token = fakedaemon.Token

// Program is the program that scripts test.
type Program struct {
	Name string // name of its command in scripts
	// Images are the daemon's images.
	Images []string
	// SetUp is called for each script, with its daemon.
	SetUp func(*testscript.Env, Daemon) error
	// Commands are additional commands of scripts.
	Commands map[string]func(*testscript.TestScript, bool, []string)
	// Update rewrites the expected files of the scripts.
	Update bool
}

// Daemon is a script's daemon.
type Daemon struct {
	Engine *fakeengine.Engine // fake engine behind both addresses
	Unix   string             // URL of its socket, which needs no token
	TCP    string             // URL
}

// Run runs the scripts in testdata/script.
func (p Program) Run(t *testing.T) {
	commands := map[string]func(*testscript.TestScript, bool, []string){"code": p.expectCode}
	for name, c := range p.Commands {
		commands[name] = c
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       p.Update,
		Setup:               p.setUp,
		Cmds:                commands,
	})
}

func (p Program) setUp(env *testscript.Env) error {
	d, err := serve(env, p.Images)
	if err != nil {
		return err
	}
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
	return p.SetUp(env, d)
}

// serve starts a daemon that ends with the script.
func serve(env *testscript.Env, names []string) (Daemon, error) {
	d, err := fakedaemon.Start(names...)
	if err != nil {
		return Daemon{}, err
	}
	env.Setenv("AUDIT_LOG", d.AuditLog)
	env.Defer(d.Close)
	return Daemon{d.Engine, d.Unix, d.TCP}, nil
}

// expectCode runs the program and compares its exit code: code 3 forkd kill sb-none.
func (p Program) expectCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != p.Name {
		ts.Fatalf("usage: code N %s ARG...", p.Name)
	}
	// testscript has no access to exit codes, so a shell turns them into text.
	const compare = `want=$1; shift; "$@"; got=$?; [ "$got" = "$want" ] || { echo "exit code is $got, want $want" >&2; exit 1; }`
	if err := ts.Exec("sh", append([]string{"-c", compare, "sh"}, args...)...); err != nil {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

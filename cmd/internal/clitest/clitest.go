// Package clitest runs test scripts for forkd and forkd-bench. The scripts run the real program
// against the real HTTP server over the fake engine. Each script has its own daemon. The caller
// adds commands to the built-in command code. The trap: the socket is outside the script's work
// directory, because the directory's path may be too long for a socket.
package clitest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/tenancy"
)

// Token is the daemon's token.
const Token = "0123456789abcdef0123456789abcdef"

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
	images := fakeengine.NewImages(names...)
	engine := fakeengine.New(images)
	dir, err := os.MkdirTemp("", "forkd-cli-") // short, for the socket
	if err != nil {
		return Daemon{}, err
	}
	record, err := audit.Open(audit.Config{Path: filepath.Join(dir, "audit.log")})
	if err != nil {
		return Daemon{}, err
	}
	env.Setenv("AUDIT_LOG", record.Path())
	store, err := keys.Open(keys.Config{Path: filepath.Join(dir, "keys.json")})
	if err != nil {
		return Daemon{}, err
	}
	published, err := tenancy.OpenPublished(filepath.Join(dir, "published.json"))
	if err != nil {
		return Daemon{}, err
	}
	weights, err := tenancy.OpenWeights(filepath.Join(dir, "tenants.json"), func(string, int) error { return nil })
	if err != nil {
		return Daemon{}, err
	}
	server := httpapi.New(httpapi.Options{Engine: engine, Images: images, Audit: record,
		AuditFile: record.Path(), Keys: store, Published: published, Weights: weights,
		Version: api.VersionInfo{Version: "1.2.3", Domain: "forkd.localhost"}})
	var listeners []httpapi.Listener
	for _, address := range []string{"unix://" + filepath.Join(dir, "s"), "tcp://127.0.0.1:0"} {
		l, err := httpapi.Binding{Token: Token, Keys: store}.Listen(context.Background(), address)
		if err != nil {
			return Daemon{}, err
		}
		listeners = append(listeners, l)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx, listeners, 100*time.Millisecond)
	}()
	env.Defer(func() {
		stop()
		<-ended
		engine.Close()
		_ = record.Close(time.Minute)
		os.RemoveAll(dir)
	})
	return Daemon{engine, listeners[0].URL, listeners[1].URL}, nil
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

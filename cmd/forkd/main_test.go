//go:build linux

package main

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/sandbox"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forkd": main})
}

// TestScripts runs the real CLI against the real HTTP server; behind it is the
// fake engine. Each script has a daemon of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      expectCode,
			"fake":      changeEngine,
			"interrupt": interruptCommand,
		},
	})
}

const testToken = "0123456789abcdef0123456789abcdef"

type engineKey struct{}

func setUp(env *testscript.Env) error {
	images := fakeengine.NewImages("python-numpy", "broken")
	engine := fakeengine.New(images)
	server := httpapi.New(httpapi.Options{Engine: engine, Images: images, Version: api.VersionInfo{Version: "1.2.3"}})
	// Outside of the work directory, whose path may be too long for a socket.
	dir, err := os.MkdirTemp("", "forkd-cli-")
	if err != nil {
		return err
	}
	var listeners []httpapi.Listener
	for _, address := range []string{"unix://" + filepath.Join(dir, "s"), "tcp://127.0.0.1:0"} {
		l, err := httpapi.Listen(context.Background(), address, testToken)
		if err != nil {
			return err
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
		os.RemoveAll(dir)
	})
	env.Values[engineKey{}] = engine
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
	env.Setenv("FORKD_URL", listeners[0].URL)
	env.Setenv("TCP", listeners[1].URL)
	env.Setenv("TOKEN", testToken)
	env.Setenv("FORKD_TOKEN", "")
	return nil
}

// expectCode runs forkd and compares its exit code: code 3 forkd kill sb-none.
func expectCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "forkd" {
		ts.Fatalf("usage: code N forkd ARG...")
	}
	// The script's own sh -c would hide nothing here; testscript has no access to
	// exit codes, so a shell turns them into text.
	err := ts.Exec("sh", append([]string{"-c", `want=$1; shift; "$@"; got=$?; [ "$got" = "$want" ] || { echo "exit code is $got, want $want" >&2; exit 1; }`, "sh"}, args...)...)
	if err != nil {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// changeEngine makes things happen that no command can: fake limit N, fake fail
// ID REASON, fake torn TAG, fake damaged TAG, fake changed TAG, fake parent TAG CHILD, fake
// branches N, fake finish TAG.
func changeEngine(ts *testscript.TestScript, _ bool, args []string) {
	engine := ts.Value(engineKey{}).(*fakeengine.Engine)
	switch args[0] {
	case "limit":
		engine.Limit = int(args[1][0] - '0')
	case "branches":
		engine.BranchLimit = int(args[1][0] - '0')
	case "finish":
		engine.Finish(args[1])
	case "fail":
		engine.Fail(args[1], args[2])
	case "torn":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotFailed, Warning: "memory: file is missing", CreatedAt: engine.Now})
	case "damaged":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Warning: "damaged", CreatedAt: engine.Now})
	case "changed":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Warning: "changed", CreatedAt: engine.Now})
	case "parent":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Dependents: []string{args[2]}, CreatedAt: engine.Now})
	default:
		ts.Fatalf("unknown: fake %s", args[0])
	}
}

// interruptCommand runs forkd until a fork of it waits, presses Ctrl-C, and checks
// that the exit code is 130: interrupt forkd ARG... Its output is in the files out
// and err.
func interruptCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[0] != "forkd" {
		ts.Fatalf("usage: interrupt forkd ARG...")
	}
	engine := ts.Value(engineKey{}).(*fakeengine.Engine)
	ts.Check(ts.Exec("sh", "-c", "command -v forkd"))
	cmd := exec.Command(strings.TrimSpace(ts.ReadFile("stdout")), args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "FORKD_URL", "FORKD_TOKEN", "XDG_RUNTIME_DIR", "PATH"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := os.Create(ts.MkAbs("out"))
	ts.Check(err)
	defer out.Close()
	errs, err := os.Create(ts.MkAbs("err"))
	ts.Check(err)
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	ts.Check(cmd.Start())
	for end := time.Now().Add(time.Minute); engine.Waiting.Load() == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		ts.Fatalf("exit code is %d, want 130; %s", code, ts.ReadFile("err"))
	}
}

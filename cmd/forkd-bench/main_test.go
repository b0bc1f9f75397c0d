package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/httpapi"
	"github.com/forkd/forkd/internal/httpapi/fakeengine"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forkd-bench": main})
}

// TestScripts runs the real program against the real HTTP server; behind it is the
// fake engine. Each script has a daemon of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": expectCode, "snapshot": makeSnapshot, "fork": fork, "branches": limitBranches, "left": expectLeft,
		},
	})
}

const testToken = "0123456789abcdef0123456789abcdef"

type (
	engineKey struct{}
	clientKey struct{}
)

func setUp(env *testscript.Env) error {
	images := fakeengine.NewImages("python-numpy")
	engine := fakeengine.New(images)
	server := httpapi.New(httpapi.Options{Engine: engine, Images: images, Version: api.VersionInfo{Version: "1.2.3"}})
	dir, err := os.MkdirTemp("", "forkd-bench-") // short, for the socket
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
	c, err := client.New(client.Options{URL: listeners[0].URL})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx, listeners, 100*time.Millisecond)
	}()
	env.Defer(func() {
		c.Close()
		stop()
		<-ended
		engine.Close()
		os.RemoveAll(dir)
	})
	env.Values[engineKey{}], env.Values[clientKey{}] = engine, c
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
	env.Setenv("SOCKET", listeners[0].URL)
	env.Setenv("FORKD_URL", listeners[1].URL) // whose host is not known
	env.Setenv("FORKD_TOKEN", testToken)
	return nil
}

// expectCode runs the program and compares its exit code: code 3 forkd-bench fork none.
func expectCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "forkd-bench" {
		ts.Fatalf("usage: code N forkd-bench ARG...")
	}
	const compare = `want=$1; shift; "$@"; got=$?; [ "$got" = "$want" ] || { echo "exit code is $got, want $want" >&2; exit 1; }`
	if err := ts.Exec("sh", append([]string{"-c", compare, "sh"}, args...)...); err != nil {
		ts.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
}

// makeSnapshot makes snapshots: snapshot TAG...
func makeSnapshot(ts *testscript.TestScript, _ bool, tags []string) {
	for _, tag := range tags {
		_, err := ts.Value(clientKey{}).(*client.Client).CreateSnapshot(context.Background(), api.CreateSnapshotRequest{Tag: tag, Image: "python-numpy"}, nil)
		ts.Check(err)
	}
}

// fork forks one sandbox of each tag: fork TAG...
func fork(ts *testscript.TestScript, _ bool, tags []string) {
	for _, tag := range tags {
		_, err := ts.Value(clientKey{}).(*client.Client).Fork(context.Background(), api.CreateSandboxesRequest{SnapshotTag: tag})
		ts.Check(err)
	}
}

// limitBranches bounds how many branches there may be at once: branches N.
func limitBranches(ts *testscript.TestScript, _ bool, args []string) {
	ts.Value(engineKey{}).(*fakeengine.Engine).BranchLimit = int(args[0][0] - '0')
}

// expectLeft compares the snapshots that there are, and that no sandbox is: left TAG...
func expectLeft(ts *testscript.TestScript, _ bool, want []string) {
	c := ts.Value(clientKey{}).(*client.Client)
	list, err := c.ListSnapshots(context.Background())
	ts.Check(err)
	var tags []string
	for _, s := range list {
		tags = append(tags, s.Tag)
	}
	sandboxes, err := c.ListSandboxes(context.Background())
	ts.Check(err)
	if !slices.Equal(tags, want) || len(sandboxes) > 0 {
		ts.Fatalf("there are the snapshots %q and %d sandboxes, want %q and none", tags, len(sandboxes), want)
	}
}

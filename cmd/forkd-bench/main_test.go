package main

import (
	"context"
	"flag"
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/clitest"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"forkd-bench": main})
}

func TestScripts(t *testing.T) {
	clitest.Program{
		Name: "forkd-bench", Images: []string{"python-numpy"}, SetUp: setUp, Update: *update,
		Commands: map[string]func(*testscript.TestScript, bool, []string){
			"snapshot": makeSnapshot, "fork": fork, "branches": limitBranches, "left": expectLeft,
		},
	}.Run(t)
}

type (
	engineKey struct{}
	clientKey struct{}
)

func setUp(env *testscript.Env, d clitest.Daemon) error {
	c, err := client.New(client.Options{URL: d.Unix})
	if err != nil {
		return err
	}
	env.Defer(func() { c.Close() })
	env.Values[engineKey{}], env.Values[clientKey{}] = d.Engine, c
	env.Setenv("SOCKET", d.Unix)
	env.Setenv("FORKD_URL", d.TCP) // its host is unknown
	env.Setenv("FORKD_TOKEN", clitest.Token)
	return nil
}

// makeSnapshot implements the script command snapshot TAG...: it makes snapshots.
func makeSnapshot(ts *testscript.TestScript, _ bool, tags []string) {
	for _, tag := range tags {
		_, err := ts.Value(clientKey{}).(*client.Client).CreateSnapshot(context.Background(), api.CreateSnapshotRequest{Tag: tag, Image: "python-numpy"}, nil)
		ts.Check(err)
	}
}

// fork implements fork TAG...: it forks one sandbox of each tag.
func fork(ts *testscript.TestScript, _ bool, tags []string) {
	for _, tag := range tags {
		_, err := ts.Value(clientKey{}).(*client.Client).Fork(context.Background(), api.CreateSandboxesRequest{SnapshotTag: tag})
		ts.Check(err)
	}
}

// limitBranches implements branches N: it limits the number of concurrent branches.
func limitBranches(ts *testscript.TestScript, _ bool, args []string) {
	ts.Value(engineKey{}).(*fakeengine.Engine).BranchLimit = int(args[0][0] - '0')
}

// expectLeft implements left TAG...: it compares the list of snapshots, and checks for leftover
// sandboxes.
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

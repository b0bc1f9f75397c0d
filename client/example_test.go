package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
)

// serveExample starts a daemon with the snapshot "pyagent" and points FORKD_URL at it. The examples
// then read like programs for a real daemon.
func serveExample() (stop func()) {
	images := fakeengine.NewImages("python-numpy")
	engine := fakeengine.New(images)
	ctx, cancel := context.WithCancel(context.Background())
	l, err := listen.Listen(ctx, "tcp://127.0.0.1:0", token)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), Images: images}).Run(ctx, []listen.Listener{l}, 0)
	}()
	os.Setenv("FORKD_URL", l.URL)
	os.Setenv("FORKD_TOKEN", token)
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateSnapshot(ctx, api.CreateSnapshotRequest{Tag: "pyagent", Image: "python-numpy"}, nil); err != nil {
		log.Fatal(err)
	}
	return func() {
		os.Unsetenv("FORKD_URL")
		os.Unsetenv("FORKD_TOKEN")
		cancel()
		<-ended
		engine.Close()
	}
}

// Fork three children of a snapshot, run a program in one, and end them.
func Example() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{}) // the daemon of FORKD_URL
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	three := 3
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent", N: &three})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(res.OK()), "children")
	for _, sb := range res.OK() {
		defer c.Kill(ctx, sb.ID)
	}
	out, err := c.Exec(ctx, res.OK()[0].ID, api.ExecRequest{Args: []string{"echo", "hello"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("exit code %d: %s", out.ExitCode, out.Stdout)
	// Output:
	// 3 children
	// exit code 0: hello
}

// Run code in the interpreter warmed before the fork.
func ExampleClient_Eval() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := c.Eval(ctx, res.Sandboxes[0].ID, api.EvalRequest{Code: "6 * 7"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*answer.Result)
	// Output: 42
}

// Stream a program's input and output.
func ExampleClient_ExecStream() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	status, err := c.ExecStream(ctx, res.Sandboxes[0].ID, client.ExecOptions{
		Args: []string{"cat"}, Stdin: strings.NewReader("one\ntwo\n"), Stdout: os.Stdout,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Status)
	// Output:
	// one
	// two
	// exit status 0
}

// Branch a running sandbox: it keeps running, and a child starts from its current state.
func ExampleClient_Branch() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	branch, err := c.Branch(ctx, res.Sandboxes[0].ID, api.BranchRequest{Tag: "tried", N: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(branch.Tag, *branch.ParentTag, len(branch.Children))
	// Output: tried pyagent 2
}

// Try three ways in branches, keep the one with the best score, and continue with it under the first
// sandbox's id.
func ExampleKeep() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	first := res.Sandboxes[0].ID
	branch, err := c.Branch(ctx, first, api.BranchRequest{Tag: "ways", N: 3})
	if err != nil {
		log.Fatal(err)
	}
	for i, child := range branch.Children {
		score := strings.NewReader(fmt.Sprint(10 * i))
		if err := c.Upload(ctx, child.ID, "/tmp/score", "", score); err != nil {
			log.Fatal(err)
		}
	}
	kept, err := client.Keep(ctx, c, api.KeepRequest{Of: "ways", Best: 1, File: "/tmp/score"})
	if err != nil {
		log.Fatal(err)
	}
	best := kept.Sandboxes[0]
	fmt.Println("the best has", *best.Score, "and", kept.Ended, "ended")
	promoted, err := client.Promote(ctx, c, best.ID, api.PromoteRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("it has the place of the first:", promoted.Sandbox.ID == first)
	// Output:
	// the best has 20 and 2 ended
	// it has the place of the first: true
}

// Merge the files that a sibling has changed, and take its version of a conflict.
func ExampleMerge() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	branch, err := c.Branch(ctx, res.Sandboxes[0].ID, api.BranchRequest{Tag: "both", N: 2})
	if err != nil {
		log.Fatal(err)
	}
	ours, theirs := branch.Children[0].ID, branch.Children[1].ID
	for _, id := range []string{ours, theirs} {
		if err := c.Upload(ctx, id, "/srv/name", "", strings.NewReader("of "+id)); err != nil {
			log.Fatal(err)
		}
	}
	merged, err := client.Merge(ctx, c, ours, api.MergeRequest{Theirs: theirs})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(merged.Applied, merged.Conflicts[0].Text)
	merged, err = client.Merge(ctx, c, ours, api.MergeRequest{Theirs: theirs, Resolve: api.MergeTheirs})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(merged.Applied, merged.Changes[0].Action, merged.Changes[0].Path)
	// Output:
	// false CONFLICT (add/add): /srv/name: different files
	// true modified /srv/name
}

// Pause a sandbox, so that it uses no memory, and resume it where it was.
func ExampleLife_Pause() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	life, id := client.Life{Client: c}, res.Sandboxes[0].ID
	paused, err := life.Pause(ctx, id, api.PauseRequest{})
	if err != nil {
		log.Fatal(err)
	}
	resumed, err := life.Resume(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(paused.Status, resumed.Status, resumed.ID == id)
	// Output: paused running true
}

// Roll a sandbox back to a moment of its own past.
func ExampleClient_Rollback() {
	defer serveExample()()
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: "pyagent"})
	if err != nil {
		log.Fatal(err)
	}
	id := res.Sandboxes[0].ID
	if _, err := c.Branch(ctx, id, api.BranchRequest{Tag: "before"}); err != nil {
		log.Fatal(err)
	}
	sb, err := c.Rollback(ctx, id, "before")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sb.Status, sb.RolledBackTo)
	// Output: running before
}

// Branch on the code of an error, not on its text.
func ExampleError() {
	defer serveExample()()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Fork(context.Background(), api.CreateSandboxesRequest{SnapshotTag: "nothing"})
	var e *client.Error
	if errors.As(err, &e) && e.Code == api.CodeNotFound {
		fmt.Println("no such snapshot; exit code", e.Code.Exit())
	}
	// Output: no such snapshot; exit code 3
}

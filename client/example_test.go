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
)

// serveExample starts a daemon with the snapshot "pyagent" and points FORKD_URL at it. The examples
// then read like programs for a real daemon.
func serveExample() (stop func()) {
	images := fakeengine.NewImages("python-numpy")
	engine := fakeengine.New(images)
	ctx, cancel := context.WithCancel(context.Background())
	l, err := httpapi.Listen(ctx, "tcp://127.0.0.1:0", token)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = httpapi.New(httpapi.Options{Engine: engine, Images: images}).Run(ctx, []httpapi.Listener{l}, 0)
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

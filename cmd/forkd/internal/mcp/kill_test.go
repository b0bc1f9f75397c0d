package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/client"
)

// serverOf makes the test binary a server of the daemon at that URL.
const serverOf = "FORKD_TEST_MCP_SERVER_OF"

func TestMain(m *testing.M) {
	url := os.Getenv(serverOf)
	if url == "" {
		os.Exit(m.Run())
	}
	s, err := New(Options{
		Connect: func(context.Context) (*client.Client, error) { return client.New(client.Options{URL: url}) },
		Lease:   MinLease, Idle: time.Hour, OutputBytes: DefaultOutputBytes, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = s.ServeStdio(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process starts a server as a process of its own, as MCP clients do.
func (d *fake) process(t *testing.T) (*user, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverOf+"="+d.url)
	cmd.Stderr = os.Stderr
	u := &user{t: t, told: make(chan *sdk.ProgressNotificationParams, 1000)}
	var err error
	u.ClientSession, err = newClient(u.told).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u, cmd
}

func TestAKilledServerLeavesNoSandboxes(t *testing.T) {
	d := startFake(t)
	u, cmd := d.process(t)
	id := u.one()
	kept := ok[spawned](u, "spawn_sandboxes", map[string]any{"snapshot_tag": "py", "keep": true}).Sandboxes[0].ID
	time.Sleep(MinLease + time.Second) // elapses: the first lease
	ok[sandboxInfo](u, "get_sandbox", map[string]any{"sandbox_id": id})
	if err := cmd.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	u.Close()
	c := d.client(t)
	eventually(t, "the sandbox ends with its lease", func() bool {
		_, err := c.Sandbox(t.Context(), id)
		return client.IsNotFound(err)
	})
	if _, err := c.Sandbox(t.Context(), kept); err != nil {
		t.Errorf("the kept sandbox: %v", err)
	}
}

func TestACleanEndKillsAtOnce(t *testing.T) {
	d := startFake(t)
	u, cmd := d.process(t)
	u.one()
	if err := u.Close(); err != nil { // closes its input and waits
		t.Error(err)
	}
	if !cmd.ProcessState.Success() {
		t.Errorf("the server ended with %v", cmd.ProcessState)
	}
	if left := d.engine.List(); len(left) != 0 {
		t.Errorf("left are %d sandboxes", len(left))
	}
}

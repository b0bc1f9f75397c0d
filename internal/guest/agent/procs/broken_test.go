package procs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agentproto/process"
)

// TestACommandInASandboxThatLostItsShell starts a missing program, before and after the shell is
// removed.
func TestACommandInASandboxThatLostItsShell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	table := NewTable(nil, nil, &defaults.Record{}, t.Logf)
	start := func() error {
		r := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/no/such/program"}})
		r.Header().Set("Authorization", "Basic cm9vdDo=") // root
		return table.Start(context.Background(), r, nil)
	}
	table.shell = newShell(path)
	if err := start(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("with a shell: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	err := start()
	if connect.CodeOf(err) != connect.CodeDataLoss || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("without it: %v", err)
	}
	table.shell = newShell(path) // an image without a shell
	if err := start(); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("an image without one: %v", err)
	}
}

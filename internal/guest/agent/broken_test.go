package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// A sandbox that its user broke has one class of errors, for programs and for code.
func TestABrokenSandbox(t *testing.T) {
	needPython(t)
	shell := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(shell, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	b := startAgent(t, func(c *agent.Config) { c.SystemFiles = []string{shell} })
	b.eval(t, "1", 0)
	exec := func() error {
		_, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"/no/such/program"}})
		return err
	}
	wantCode(t, exec(), connect.CodeInvalidArgument)
	if err := os.Remove(shell); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"true"}}); err != nil {
		t.Errorf("a program that still starts: %v", err)
	}
	if got := b.eval(t, "1+1", 0).GetResult(); got != "2" {
		t.Errorf("the running interpreter answers %q", got)
	}
	err := exec()
	wantCode(t, err, connect.CodeDataLoss)
	if !strings.Contains(err.Error(), shell) {
		t.Errorf("the error is %v", err)
	}
}

// Code that needs a new interpreter has the same class, if the interpreter cannot start any more.
func TestABrokenInterpreter(t *testing.T) {
	dir := t.TempDir()
	shell, image := filepath.Join(dir, "sh"), filepath.Join(dir, "image.json")
	for name, text := range map[string]string{shell: "", image: `{"env":{"PATH":"/nowhere"}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := startAgent(t, func(c *agent.Config) { c.SystemFiles, c.ImageFile = []string{shell}, image })
	eval := func() error {
		_, err := b.Eval(t.Context(), &agentv1.EvalRequest{Code: "1"})
		return err
	}
	wantCode(t, eval(), connect.CodeFailedPrecondition) // an image without one
	if err := os.Remove(shell); err != nil {
		t.Fatal(err)
	}
	wantCode(t, eval(), connect.CodeDataLoss)
}

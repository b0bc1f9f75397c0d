package mcp

import (
	"strings"
	"testing"
)

func TestASandboxFromSpawnToKill(t *testing.T) {
	u := startFake(t).connect(t, nil)
	if got := u.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the version is %s", got)
	}
	id := u.one()
	ran := ok[executed](u, "exec_command", map[string]any{"sandbox_id": id, "args": []string{"echo", "hi"}})
	if ran.Stdout != "hi\n" || ran.ExitCode != 0 {
		t.Errorf("exec_command returned %+v", ran)
	}
	if e := ok[evaluated](u, "eval_code", map[string]any{"sandbox_id": id, "code": "6*7"}); e.Result == nil || *e.Result != "42" {
		t.Errorf("eval_code returned %+v", e)
	}
	if l := ok[struct{ Sandboxes []sandboxInfo }](u, "list_sandboxes", nil); len(l.Sandboxes) != 1 || !l.Sandboxes[0].EndsWith {
		t.Errorf("list_sandboxes returned %+v", l)
	}
	ok[any](u, "kill_sandbox", map[string]any{"sandbox_id": id})
	if text, code := u.fails("get_sandbox", map[string]any{"sandbox_id": id}); code != "not_found" || !strings.Contains(text, "list_sandboxes") {
		t.Errorf("get_sandbox returned %s, %s", code, text)
	}
}

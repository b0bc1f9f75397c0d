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

// A model finds its sandboxes by their labels.
func TestLabels(t *testing.T) {
	u := startFake(t).connect(t, nil)
	type list struct{ Sandboxes []sandboxInfo }
	made := ok[list](u, "spawn_sandboxes", map[string]any{"snapshot_tag": "py", "labels": map[string]string{"job": "7"}})
	u.one()
	found := ok[list](u, "list_sandboxes", map[string]any{"labels": map[string]string{"job": "7"}})
	if len(found.Sandboxes) != 1 || found.Sandboxes[0].ID != made.Sandboxes[0].ID || found.Sandboxes[0].Labels["job"] != "7" {
		t.Errorf("found %+v", found)
	}
	if _, code := u.fails("spawn_sandboxes", map[string]any{"snapshot_tag": "py", "labels": map[string]string{"a b": ""}}); code != "invalid_request" {
		t.Errorf("a bad label: %s", code)
	}
}

// A promoted sandbox and those that were not kept leave the session.
func TestTimelines(t *testing.T) {
	u := startFake(t).connect(t, nil)
	parent := u.one()
	got := ok[struct{ Sandboxes []sandboxInfo }](u, "branch_sandbox", map[string]any{"sandbox_id": parent, "n": 3})
	if len(got.Sandboxes) != 3 {
		t.Fatalf("branch_sandbox returned %+v", got)
	}
	ids := []string{got.Sandboxes[0].ID, got.Sandboxes[1].ID, got.Sandboxes[2].ID}
	for i, id := range ids {
		ok[any](u, "write_file", map[string]any{"sandbox_id": id, "path": "/tmp/score", "content": string(rune('1' + i))})
	}
	best := map[string]any{"sandbox_ids": ids, "best": 1, "file": "/tmp/score"}
	kept := ok[keepOut](u, "keep_best", best)
	if kept.Kept != 1 || kept.Ended != 2 || kept.Sandboxes[0].ID != ids[2] || kept.Sandboxes[0].Outcome != "kept" {
		t.Fatalf("keep_best returned %+v", kept)
	}
	if l := ok[struct{ Sandboxes []sandboxInfo }](u, "list_sandboxes", nil); len(l.Sandboxes) != 2 {
		t.Errorf("the sandboxes are %+v", l)
	}
	merged := ok[mergeOut](u, "merge_sandbox", map[string]any{"sandbox_id": parent, "theirs": ids[2], "dry_run": true})
	if merged.Applied || merged.Changes == nil || merged.Base == "" {
		t.Errorf("merge_sandbox returned %+v", merged)
	}
	if text, code := u.fails("merge_sandbox", map[string]any{"sandbox_id": parent, "theirs": ids[2], "resolve": "mine"}); code != "invalid_request" {
		t.Errorf("merge_sandbox returned %s, %s", text, code)
	}
	p := ok[promoteOut](u, "promote_sandbox", map[string]any{"sandbox_id": ids[2]})
	if p.Sandbox.ID != parent || p.PromotedFrom != ids[2] || p.KeptIn == "" || !p.Sandbox.EndsWith {
		t.Errorf("promote_sandbox returned %+v", p)
	}
	ok[any](u, "delete_snapshot", map[string]any{"tag": p.KeptIn}) // the session made it
	if text, code := u.fails("promote_sandbox", map[string]any{"sandbox_id": ids[2]}); code != "not_found" {
		t.Errorf("promote_sandbox returned %s, %s", text, code)
	}
}

package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/client"
)

func TestTwoSessionsHaveTheirOwnSandboxes(t *testing.T) {
	d := startFake(t)
	a, b := d.connect(t, nil), d.connect(t, nil)
	mine, other := a.one(), b.one()
	if got := ok[sandboxInfo](a, "get_sandbox", map[string]any{"sandbox_id": other}); got.OfSession || got.EndsWith {
		t.Errorf("the other session's sandbox is %+v", got)
	}
	if _, code := a.fails("keep_sandbox", map[string]any{"sandbox_id": other}); code != "invalid_request" {
		t.Errorf("a sandbox of another session was not refused: %s", code)
	}
	a.end()
	c := d.client(t)
	if _, err := c.Sandbox(t.Context(), mine); !client.IsNotFound(err) {
		t.Errorf("a session's sandbox after its end: %v", err)
	}
	if _, err := c.Sandbox(t.Context(), other); err != nil {
		t.Errorf("the other session's sandbox: %v", err)
	}
}

func TestLimits(t *testing.T) {
	u := startFake(t).connect(t, func(o *Options) { o.MaxSandboxes = 2; o.MaxLifetime = time.Hour })
	text, code := u.fails("spawn_sandboxes", map[string]any{"snapshot_tag": "py", "n": 3})
	if code != "quota_exceeded" || !strings.Contains(text, "at most 2") {
		t.Errorf("beyond the limit: %s, %s", code, text)
	}
	id := u.one()
	branched := ok[branched](u, "branch_sandbox", map[string]any{"sandbox_id": id, "n": 2})
	if branched.Snapshot.Tag == "" || len(branched.Sandboxes) != 0 || len(branched.Failed) != 1 || branched.Note == "" {
		t.Errorf("a branch with children beyond the limit is %+v", branched)
	}
	got := ok[kept](u, "keep_sandbox", map[string]any{"sandbox_id": id})
	if left := time.Until(time.Unix(*got.DeadlineUnix, 0)); left > time.Hour {
		t.Errorf("a kept sandbox has %s left", left)
	}
	for _, args := range []map[string]any{
		{"snapshot_tag": "py", "n": 1001}, {"snapshot_tag": "py", "n": -1}, {"snapshot_tag": "../x"}, {"snapshot_tag": "py", "ttl_secs": 0.5},
		{"snapshot_tag": "py", "ttl_secs": 1e300}, {"snapshot_tag": "py", "network": "all"}, {}, {"snapshot_tag": 7}, {"snapshot_tag": "py", "x": 1},
	} {
		u.fails("spawn_sandboxes", args)
	}
	ok[spawned](u, "spawn_sandboxes", map[string]any{"snapshot_tag": "py", "ttl_secs": nil, "network": nil})
}

func TestReadOnlyAndToolsNarrow(t *testing.T) {
	d := startFake(t)
	list := func(u *user) (names []string) {
		all, err := u.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range all.Tools {
			names = append(names, tool.Name)
			if u.InitializeResult() != nil && tool.OutputSchema == nil {
				t.Errorf("%s has no output schema", tool.Name)
			}
		}
		return names
	}
	if got := list(d.connect(t, nil)); len(got) != len(Tools()) {
		t.Errorf("%d tools, want %d", len(got), len(Tools()))
	}
	u := d.connect(t, func(o *Options) { o.ReadOnly = true })
	for _, name := range list(u) {
		for _, verb := range []string{"spawn", "kill", "exec", "eval", "write", "set_", "expose", "create", "delete",
			"keep", "promote", "merge", "pause", "resume"} {
			if strings.HasPrefix(name, verb) {
				t.Errorf("a server that only reads has %s", name)
			}
		}
	}
	if _, err := u.CallTool(t.Context(), &sdk.CallToolParams{Name: "spawn_sandboxes"}); err == nil {
		t.Error("a tool that is left out was called")
	}
	u = d.connect(t, func(o *Options) { o.Tools = []string{"list_snapshots"} })
	if got := list(u); len(got) != 1 || got[0] != "list_snapshots" {
		t.Errorf("the tools are %q", got)
	}
	if _, err := New(Options{Tools: []string{"bogus"}}); err == nil {
		t.Error("an unknown tool was taken")
	}
}

func TestLongAndBinaryOutput(t *testing.T) {
	u := startFake(t).connect(t, func(o *Options) { o.OutputBytes = 1000 })
	id := u.one()
	got := ok[executed](u, "exec_command", map[string]any{"sandbox_id": id, "args": []string{"spam", "131072"}})
	if len(got.Stdout) > 1100 || len(got.Notes) != 1 || !strings.Contains(got.Stdout, "130072 bytes left out") {
		t.Fatalf("%d bytes, notes %q", len(got.Stdout), got.Notes)
	}
	uri := got.Notes[0][strings.Index(got.Notes[0], "forkd://"):]
	uri = strings.Fields(uri)[0]
	if whole := u.read(t, uri).Text; whole != strings.Repeat("x", 131072) {
		t.Errorf("the resource has %d bytes", len(whole))
	}
	if part := u.read(t, uri+"?offset=131070&limit=9").Text; part != "xx" {
		t.Errorf("the part is %q", part)
	}
	if end := u.read(t, uri+"?offset=999999"); end.Text != "" || end.Blob == nil {
		t.Errorf("beyond the end there is %+v", end)
	}
	got = ok[executed](u, "exec_command", map[string]any{"sandbox_id": id, "args": []string{"bytes"}})
	if got.Stdout != "\uFFFDa" || len(got.Notes) != 1 {
		t.Errorf("binary output is %q, %q", got.Stdout, got.Notes)
	}
	e := ok[evaluated](u, "eval_code", map[string]any{"sandbox_id": id, "code": "flood"})
	if len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "1048576 bytes") {
		t.Errorf("dropped output has the notes %q", e.Notes)
	}
}

func (u *user) read(t *testing.T, uri string) *sdk.ResourceContents {
	t.Helper()
	res, err := u.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	return res.Contents[0]
}

func TestFiles(t *testing.T) {
	u := startFake(t).connect(t, func(o *Options) { o.OutputBytes = 256 })
	id := u.one()
	data := bytes.Repeat([]byte{0, 255, 'a'}, 100)
	ok[written](u, "write_file", map[string]any{"sandbox_id": id, "path": "/tmp/ä b", "content_base64": base64.StdEncoding.EncodeToString(data)})
	var all []byte
	for offset := int64(0); ; {
		c := ok[content](u, "read_file", map[string]any{"sandbox_id": id, "path": "/tmp/ä b", "offset": offset})
		b, err := base64.StdEncoding.DecodeString(*c.ContentBase64)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, b...); c.NextOffset == nil {
			break
		}
		offset = *c.NextOffset
	}
	if !bytes.Equal(all, data) {
		t.Errorf("the parts are %d bytes, want %d", len(all), len(data))
	}
	if got := u.read(t, "forkd://sandbox/"+id+"/file/tmp/%C3%A4%20b"); !bytes.Equal(got.Blob, data) {
		t.Errorf("the resource is %+v", got)
	}
	// a character across the limit is not cut
	ok[written](u, "write_file", map[string]any{"sandbox_id": id, "path": "/tmp/t", "content": strings.Repeat("€", 100)})
	c := ok[content](u, "read_file", map[string]any{"sandbox_id": id, "path": "/tmp/t"})
	if c.Content == nil || c.Bytes != 255 || *c.NextOffset != 255 || *c.SizeBytes != 300 {
		t.Errorf("the part is %+v", c)
	}
	if c := ok[content](u, "read_file", map[string]any{"sandbox_id": id, "path": "/tmp/t", "offset": -3}); *c.Content != "€" || c.NextOffset != nil {
		t.Errorf("the end is %+v", c)
	}
	if c := ok[content](u, "read_file", map[string]any{"sandbox_id": id, "path": "/tmp/t", "offset": 5000}); c.Bytes != 0 || *c.SizeBytes != 300 {
		t.Errorf("beyond the end is %+v", c)
	}
	l := ok[files](u, "list_files", map[string]any{"sandbox_id": id, "path": "/tmp"})
	if len(l.Entries) != 2 {
		t.Errorf("list_files returned %+v", l)
	}
	for _, args := range []map[string]any{{"path": "/a"}, {"path": "/a", "content": "x", "content_base64": "eA=="}, {"path": "/a", "content_base64": "?"}} {
		args["sandbox_id"] = id
		if _, code := u.fails("write_file", args); code != "invalid_request" {
			t.Errorf("%v: %s", args, code)
		}
	}
	if _, err := u.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "forkd://sandbox/" + id + "/file/none"}); err == nil {
		t.Error("a missing file was read")
	}
}

func TestWaitForText(t *testing.T) {
	u := startFake(t).connect(t, nil)
	id := u.one()
	go func() {
		for _, text := range []string{"starting\n" + strings.Repeat("x", 100000), "new start"} {
			time.Sleep(50 * time.Millisecond) // elapses: a look at the file as it is
			u.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: map[string]any{"sandbox_id": id, "path": "/tmp/log", "content": text}})
		}
		u.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: map[string]any{"sandbox_id": id, "path": "/tmp/log", "content": "new start: READY"}})
	}()
	got := ok[waited](u, "wait_for_text", map[string]any{"sandbox_id": id, "path": "/tmp/log", "marker": "t: READY", "poll_interval_ms": 10, "timeout_secs": 20})
	if !got.Found || !strings.HasSuffix(got.LastExcerpt, "READY") {
		t.Errorf("wait_for_text returned %+v", got)
	}
	got = ok[waited](u, "wait_for_text", map[string]any{"sandbox_id": id, "path": "/none", "marker": "x", "timeout_secs": 0.05})
	if got.Found {
		t.Error("a missing file has the text")
	}
	u.fails("wait_for_text", map[string]any{"sandbox_id": "sb-none", "path": "/x", "marker": "x", "timeout_secs": 9})
	u.fails("wait_for_text", map[string]any{"sandbox_id": id, "path": "/x", "marker": ""})
}

func TestACancelReachesTheDaemon(t *testing.T) {
	u := startFake(t).connect(t, nil)
	id := u.one()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := u.CallTool(ctx, &sdk.CallToolParams{Name: "exec_command", Arguments: map[string]any{"sandbox_id": id, "args": []string{"wait"}}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
	if got := ok[executed](u, "exec_command", map[string]any{"sandbox_id": id, "args": []string{"echo", "on"}}); got.Stdout != "on\n" {
		t.Errorf("the session after it: %+v", got)
	}
}

func TestAGoneDaemonIsAnErrorOfTheTool(t *testing.T) {
	d := startFake(t)
	u := d.connect(t, nil)
	id := u.one()
	d.stop()
	text, code := u.fails("exec_command", map[string]any{"sandbox_id": id, "args": []string{"echo"}})
	if code != "unreachable" || !strings.Contains(text, "no daemon answers") {
		t.Errorf("%s: %s", code, text)
	}
	if _, err := u.ListTools(t.Context(), nil); err != nil {
		t.Errorf("the session after it: %v", err)
	}
}

func TestProgress(t *testing.T) {
	u := startFake(t).connect(t, nil)
	p := &sdk.CallToolParams{Name: "create_snapshot", Arguments: map[string]any{"tag": "new", "image": "python-numpy"}}
	p.SetProgressToken("here")
	if res, err := u.CallTool(t.Context(), p); err != nil || res.IsError {
		t.Fatalf("%v, %+v", err, res)
	}
	select {
	case got := <-u.told:
		if got.ProgressToken != "here" || got.Message == "" {
			t.Errorf("the report is %+v", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("there was no report")
	}
	ok[any](u, "delete_snapshot", map[string]any{"tag": "new"})
	if _, code := u.fails("delete_snapshot", map[string]any{"tag": "py"}); code != "forbidden" {
		t.Errorf("a snapshot of others: %s", code)
	}
	if text, code := u.fails("create_snapshot", map[string]any{"tag": "b", "image": "broken"}); code != "boot_failed" {
		t.Errorf("%s: %s", code, text)
	}
}

func TestPromptsTakeArgumentsAsText(t *testing.T) {
	u := startFake(t).connect(t, nil)
	res, err := u.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "try_ways", Arguments: map[string]string{"task": "{ways} {snapshot_tag}"}})
	if err != nil {
		t.Fatal(err)
	}
	if text := res.Messages[0].Content.(*sdk.TextContent).Text; !strings.Contains(text, "Task: {ways} {snapshot_tag}\n") {
		t.Errorf("the prompt is %s", text)
	}
	for _, args := range []map[string]string{nil, {"task": strings.Repeat("x", maxArgument+1)}} {
		if _, err := u.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "try_ways", Arguments: args}); err == nil {
			t.Error("a prompt without its argument was made")
		}
	}
}

func TestCompletion(t *testing.T) {
	u := startFake(t).connect(t, nil)
	res, err := u.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "try_ways"},
		Argument: sdk.CompleteParamsArgument{Name: "snapshot_tag", Value: "p"}})
	if err != nil || len(res.Completion.Values) != 1 || res.Completion.Values[0] != "py" {
		t.Errorf("%+v, %v", res, err)
	}
}

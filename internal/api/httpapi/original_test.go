package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// spoken is a request of the original's clients with the expected answer. Each row comes from
// docs/use/original.md, which lists the original's routes, or from the SDKs on PyPI and npm, at the
// place named in cites.
type spoken struct {
	cites              string
	method, path, body string
	status             int
	fields             string // of the answer, or of the first of a list; a "?" after a name: may be absent
	want               string // text in the answer
}

// The fields of the original's answers. Our answers have more.
const (
	sandboxFields  = "id snapshot_tag netns guest_addr created_at_unix pid memory_limit_mib"
	snapshotFields = "tag dir created_at_unix branched_from? pause_ms? status? bootable warning?"
	detailFields   = "tag dir created_at_unix? memory_logical_bytes memory_physical_bytes vmstate_bytes parent_tag? " +
		"parent_content_hash? chain_depth ancestors dependents"
	branchFields    = "tag dir created_at_unix branched_from pause_ms status"
	execFields      = "stdout stderr exit_code"
	evalFields      = "result error exit_code"
	workspaceFields = "id name source_snapshot_tag current_state_tag? status live_sandbox_id? created_at_unix last_active_unix"
)

const sb1 = "/v1/sandboxes/sb-00000001-0001"

// conversation lists requests in order. Later requests use objects made by earlier ones.
var conversation = []spoken{
	{"GET /healthz, without authentication", "GET", "/healthz", "", 200, "ok", "true"},
	{"GET /version", "GET", "/version", "", 200, "version api", `"v1"`},
	{"GET /metrics", "GET", "/metrics", "", 200, "", "forkd_snapshots"},
	{"Controller.list_snapshots", "GET", "/v1/snapshots", "", 200, snapshotFields, `"py"`},
	{"MCP create_snapshot: bad tag", "POST", "/v1/snapshots", `{"tag":"../x","kernel":"/k","rootfs":"/r","rw":false,"boot_wait_secs":10}`, 400, "error", "tag"},
	{"MCP create_snapshot: boot_wait_secs at most 60", "POST", "/v1/snapshots", `{"tag":"x","kernel":"/k","rootfs":"/r","rw":true,"tap":null,"boot_wait_secs":61}`, 400, "error", "boot_wait_secs"},
	{"POST /v1/snapshots: 409 exists", "POST", "/v1/snapshots", `{"tag":"py","image":"python-numpy"}`, 409, "error", "py"},
	{"POST /v1/snapshots, 500 boot failed", "POST", "/v1/snapshots", `{"tag":"x","image":"broken"}`, 500, "error", "Kernel panic"},

	{"Controller.spawn_sandboxes", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2,"per_child_netns":true,"memory_limit_mib":256,"prewarm":true,"live_fork":true,"hugepages":true}`, 201, sandboxFields, "sb-00000001-0002"},
	{"MCP spawn_sandboxes", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1,"per_child_netns":false,"memory_limit_mib":256,"prewarm":false}`, 201, sandboxFields, ""},
	{"n at least 1", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":0}`, 400, "error", "n"},
	{"n at most 1000", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1001}`, 400, "error", "n"},
	{"snapshot_tag is checked", "POST", "/v1/sandboxes", `{"snapshot_tag":"../../etc","n":1}`, 400, "error", "snapshot_tag"},
	{"POST /v1/sandboxes: 404 no such tag", "POST", "/v1/sandboxes", `{"snapshot_tag":"ghost","n":1}`, 404, "error", "ghost"},
	{"POST /v1/sandboxes: 409 not restorable, naming the file", "POST", "/v1/sandboxes", `{"snapshot_tag":"torn","n":1}`, 409, "error", "memory"},
	{"Controller.list_sandboxes", "GET", "/v1/sandboxes", "", 200, sandboxFields, "sb-00000001-0001"},
	{"Controller.get_sandbox", "GET", sb1, "", 200, sandboxFields, `"py"`},
	{"GET /v1/sandboxes/{id}: 404", "GET", "/v1/sandboxes/sb-0-0000", "", 404, "error", "sb-0-0000"},

	{"Controller.ping_sandbox, without a body", "POST", sb1 + "/ping", "", 200, "pong pid numpy_version?", "true"},
	{"Controller.exec_command", "POST", sb1 + "/exec", `{"args":["echo","hi"],"timeout_secs":30}`, 200, execFields, `"hi\n"`},
	{"exec of no sandbox", "POST", "/v1/sandboxes/sb-0-0000/exec", `{"args":["true"],"timeout_secs":30}`, 404, "error", "sb-0-0000"},
	{"Controller.eval_code", "POST", sb1 + "/eval", `{"code":"6*7"}`, 200, evalFields, `"result":"42","error":null`},
	{"eval_code that raises: the error is in the answer", "POST", sb1 + "/eval", `{"code":"raise"}`, 200, evalFields, "RuntimeError"},

	{"Controller.branch_sandbox with no arguments", "POST", sb1 + "/branch", `{}`, 201, branchFields, `"branch-sb-00000001-0001-`},
	{"branch_sandbox(mode=live)", "POST", sb1 + "/branch", `{"tag":"live-1","mode":"live"}`, 201, branchFields, `"live-1"`},
	{"branch_sandbox(mode=full)", "POST", sb1 + "/branch", `{"tag":"full-1","mode":"full"}`, 201, branchFields, `"status":"ready"`},
	{"branchSandbox({diff: true})", "POST", sb1 + "/branch", `{"tag":"diff-1","diff":true}`, 201, branchFields, `"branched_from":"sb-00000001-0001"`},
	{"branchSandbox({measure_diff: true})", "POST", sb1 + "/branch", `{"tag":"meas-1","measure_diff":true}`, 201, branchFields, ""},
	{"the older live", "POST", sb1 + "/branch", `{"tag":"live-2","live":true,"wait":true}`, 201, branchFields, ""},
	{"diff is false by default, and may be sent", "POST", sb1 + "/branch", `{"tag":"both-1","mode":"diff","diff":false,"live":false}`, 201, branchFields, ""},
	{"branch_sandbox(mode=live, wait=False)", "POST", sb1 + "/branch", `{"tag":"later-1","mode":"live","wait":false}`, 201, branchFields, `"writing"`},
	{"mode and the older diff: 400", "POST", sb1 + "/branch", `{"mode":"live","diff":true}`, 400, "error", "mode"},
	{"mode and the older live: 400", "POST", sb1 + "/branch", `{"mode":"full","live":true}`, 400, "error", "mode"},
	{"a mode that is none", "POST", sb1 + "/branch", `{"mode":"quick"}`, 400, "error", "mode"},
	{"branch with a bad tag", "POST", sb1 + "/branch", `{"tag":"a/b"}`, 400, "error", "tag"},
	{"branch: 409 tag exists", "POST", sb1 + "/branch", `{"tag":"live-1","mode":"live"}`, 409, "error", "live-1"},
	{"branch: 404", "POST", "/v1/sandboxes/sb-0-0000/branch", `{"tag":"x"}`, 404, "error", "sb-0-0000"},

	{"GET /v1/snapshots/{tag}/info", "GET", "/v1/snapshots/live-1/info", "", 200, detailFields, `"ancestors":["py"]`},
	{"info: 404", "GET", "/v1/snapshots/ghost/info", "", 404, "error", "ghost"},
	{"POST compact", "POST", "/v1/snapshots/live-1/compact", `{"to":"flat-1"}`, 201, snapshotFields, `"flat-1"`},
	{"compact: 400 same tag", "POST", "/v1/snapshots/live-1/compact", `{"to":"live-1"}`, 400, "error", "live-1"},
	{"compact: 409 to exists", "POST", "/v1/snapshots/live-1/compact", `{"to":"flat-1"}`, 409, "error", "exists"},
	{"DELETE /v1/snapshots/{tag}: 409 names every dependent", "DELETE", "/v1/snapshots/py", "", 409, "error", "live-1"},
	{"delete: cascade and force: 400", "DELETE", "/v1/snapshots/py?cascade=true&force=true", "", 400, "error", "exclude"},
	{"Controller.delete_snapshot", "DELETE", "/v1/snapshots/flat-1", "", 204, "", ""},
	{"delete_snapshot: 404", "DELETE", "/v1/snapshots/flat-1", "", 404, "error", "flat-1"},
	{"delete_snapshot with a path in it", "DELETE", "/v1/snapshots/..%2F..%2Fetc", "", 400, "error", ""},

	{"POST /v1/workspaces", "POST", "/v1/workspaces", `{"name":"desk","snapshot_tag":"py","per_child_netns":false,"memory_limit_mib":null}`, 201, workspaceFields, `"status":"running"`},
	{"workspaces: a bad name", "POST", "/v1/workspaces", `{"name":"a b","snapshot_tag":"py"}`, 400, "error", "name"},
	{"workspaces: 409 exists", "POST", "/v1/workspaces", `{"name":"desk","snapshot_tag":"py"}`, 409, "error", "desk"},
	{"GET /v1/workspaces", "GET", "/v1/workspaces", "", 200, workspaceFields, `"desk"`},
	{"GET /v1/workspaces/{name}", "GET", "/v1/workspaces/desk", "", 200, workspaceFields, `"source_snapshot_tag":"py"`},
	{"workspace resume: one that runs", "POST", "/v1/workspaces/desk/resume", "", 400, "error", "running"},
	{"workspace suspend", "POST", "/v1/workspaces/desk/suspend", `{"diff":true}`, 200, workspaceFields, `"status":"suspended"`},
	{"workspace suspend: one that does not run", "POST", "/v1/workspaces/desk/suspend", `{}`, 400, "error", "suspended"},
	{"workspace resume", "POST", "/v1/workspaces/desk/resume", "", 200, workspaceFields, `"status":"running","live_sandbox_id":"sb-`},
	{"DELETE /v1/workspaces/{name}", "DELETE", "/v1/workspaces/desk", "", 204, "", ""},
	{"workspaces: 404", "DELETE", "/v1/workspaces/desk", "", 404, "error", "desk"},

	{"Controller.kill_sandbox", "DELETE", sb1, "", 204, "", ""},
	{"kill_sandbox: 404", "DELETE", sb1, "", 404, "error", "sb-00000001-0001"},
}

func TestTheOriginalsClientsAreAnswered(t *testing.T) {
	b := newBench(t)
	b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "torn", Status: sandbox.SnapshotFailed, Warning: "memory is cut short"})
	for _, x := range conversation {
		t.Run(x.cites, func(t *testing.T) {
			r := httptest.NewRequest(x.method, x.path, strings.NewReader(x.body))
			if x.path != "/healthz" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			if x.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			w := httptest.NewRecorder()
			b.h.ServeHTTP(w, r)
			if w.Code != x.status {
				t.Fatalf("status %d, want %d: %s", w.Code, x.status, w.Body)
			}
			if !strings.Contains(w.Body.String(), x.want) {
				t.Errorf("the answer has no %s: %s", x.want, w.Body)
			}
			x.check(t, w)
		})
	}
}

// check looks for the original's fields. Its clients accept an empty 204 answer.
func (x spoken) check(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code == http.StatusNoContent && w.Body.Len() > 0 {
		t.Errorf("204 has a body: %s", w.Body)
	}
	if x.fields == "" {
		return
	}
	got := first(t, w.Body.Bytes())
	have := slices.Sorted(maps.Keys(got))
	for name := range strings.FieldsSeq(x.fields) {
		name, optional := strings.CutSuffix(name, "?")
		if _, ok := got[name]; !ok && !optional {
			t.Errorf("the answer has no %s: %s", name, have)
		}
	}
	if text, ok := got["error"].(string); w.Code >= 400 && (!ok || text == "") {
		t.Errorf("error is %v", got["error"])
	}
}

// first returns an answer's object, or the first object of its list.
func first(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if all, ok := v.([]any); ok && len(all) > 0 {
		v = all[0]
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("the answer is %s", b)
	}
	return m
}

// The original answers requests without its token with 401 and a body in the same form.
func TestTheOriginalsClientsWithoutAToken(t *testing.T) {
	b := newBench(t)
	for _, x := range conversation {
		if x.path == "/healthz" {
			continue
		}
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, httptest.NewRequest(x.method, x.path, strings.NewReader(x.body)))
		if w.Code != 401 || first(t, w.Body.Bytes())["error"] == "" {
			t.Errorf("%s: %d %s", x.cites, w.Code, w.Body)
		}
	}
}

// A workspace with a failed sandbox gets a new sandbox, and the old one is removed.
func TestAWorkspaceOfASandboxThatEnded(t *testing.T) {
	b := newBench(t)
	do := func(method, path, body string, status int) map[string]any {
		t.Helper()
		return into[map[string]any](t, b.do(method, path, body), status)
	}
	made := do("POST", "/v1/workspaces", `{"name":"desk","snapshot_tag":"py","memory_limit_mib":512}`, 201)
	b.engine.Fail(fmt.Sprint(made["live_sandbox_id"]), "the kernel panicked")
	if got := do("GET", "/v1/workspaces/desk", "", 200); got["status"] != "stale" || got["live_sandbox_id"] != nil {
		t.Errorf("got %v", got)
	}
	got := do("POST", "/v1/workspaces/desk/resume", "", 200)
	if got["status"] != "running" || got["live_sandbox_id"] == made["live_sandbox_id"] || got["id"] != made["id"] {
		t.Errorf("got %v, made as %v", got, made)
	}
	if all := into[[]map[string]any](t, b.do("GET", "/v1/sandboxes", ""), 200); len(all) != 1 ||
		all[0]["id"] != got["live_sandbox_id"] || all[0]["memory_limit_mib"] != 512.0 {
		t.Errorf("sandboxes are %v", all)
	}
}

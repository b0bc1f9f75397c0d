package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

func TestOriginalFieldsOfASandbox(t *testing.T) {
	b := newBench(t)
	got := into[[]map[string]any](t, b.do("POST", "/v1/sandboxes",
		`{"snapshot_tag":"py","n":2,"per_child_netns":false,"memory_limit_mib":null,"live_fork":true,"prewarm":true,"hugepages":true}`), 201)
	if len(got) != 2 {
		t.Fatalf("got %d children", len(got))
	}
	want := map[string]any{
		"id": "sb-00000001-0001", "snapshot_tag": "py", "netns": nil, "guest_addr": "192.0.0.2", "created_at_unix": 1767323045.0,
		"pid": 1001.0, "memory_limit_mib": nil, "status": "running", "index": 1.0, "hostname": "sb-00000001-0001",
	}
	for k, v := range want {
		if have, ok := got[0][k]; !ok || have != v {
			t.Errorf("%s is %v, want %v", k, have, v)
		}
	}
}

func TestLimitsAreAskedForAndTold(t *testing.T) {
	b := newBench(t)
	const limits = `"memory_limit_mib":512,"cpus":0.5,"cpu_weight":50,"disk_read_limit_mib":10,"disk_write_limit_mib":20,` +
		`"disk_limit_mib":30,"net_rate_mib":5,"guest_fork":true,"tree_memory_limit_mib":1024,"tree_cpus":2,"tree_pids":99,"tree_disk_limit_mib":120,"tree_net_rate_mib":11`
	forked := into[[]api.SandboxInfo](t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":2,`+limits+`}`), 201)
	listed := into[[]api.SandboxInfo](t, b.do("GET", "/v1/sandboxes", ""), 200)
	for _, sb := range append(forked, listed...) {
		want := api.SandboxLimits{CPUs: 0.5, CPUWeight: 50, DiskReadLimitMiB: 10, DiskWriteLimitMiB: 20, DiskLimitMiB: 30, NetRateMiB: 5,
			TreeMemoryLimitMiB: 1024, TreeCPUs: 2, TreePIDs: 99, TreeDiskLimitMiB: 120, TreeNetRateMiB: 11}
		if sb.MemoryLimitMiB == nil || *sb.MemoryLimitMiB != 512 || sb.SandboxLimits != want || sb.Warning != "" {
			t.Errorf("got %+v", sb)
		}
	}
	if u := listed[0].Use; u == nil || u.MemoryBytes != 40<<20 || u.MemoryPeakBytes != 50<<20 || u.CPUMS == 0 || u.Threads != 9 ||
		u.NetInBytes != 7 || u.NetOutBytes != 5 || u.NetLimitBytes != 5<<20 {
		t.Errorf("use is %+v", u)
	}
	for _, bad := range []string{`"cpu_weight":10001`, `"cpus":-1`, `"memory_limit_mib":-1`, `"net_rate_mib":-1`, `"tree_net_rate_mib":-1`, `"tree_net_rate_mib":1048577`} {
		if w := b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py",`+bad+`}`); w.Code != 400 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
}

func TestForkReportsEveryChild(t *testing.T) {
	b := newBench(t)
	b.engine.Limit = 3
	w := b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":5}`)
	got := into[[]api.SandboxInfo](t, w, 201)
	if len(got) != 5 {
		t.Fatalf("got %d entries, want 5", len(got))
	}
	for i, sb := range got {
		if failed := i >= 3; failed != (sb.Status == api.SandboxFailed) || failed != (sb.Code == api.CodeNoMemory) || failed != (sb.ID == "") {
			t.Errorf("child %d is %+v", i+1, sb)
		}
		if sb.Index != i+1 {
			t.Errorf("entry %d has index %d", i, sb.Index)
		}
	}
	for _, h := range []string{api.HeaderPoolReady, api.HeaderArmedWall, api.HeaderReadyWall} {
		if w.Header().Get(h) == "" {
			t.Errorf("header %s is not there", h)
		}
	}
	wantError(t, b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), api.CodeNoMemory)
}

func TestBadRequests(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "torn", Status: sandbox.SnapshotFailed, Warning: "memory is cut short"})
	b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "base", Status: sandbox.SnapshotReady, Dependents: []string{"leaf"}})
	for _, c := range []struct {
		name, method, path, body string
		code                     api.Code
		text                     string
	}{
		{"tag with a path in it", "POST", "/v1/snapshots", `{"tag":"../x","image":"python-numpy"}`, api.CodeInvalid, "../x"},
		{"no tag", "POST", "/v1/snapshots", `{"image":"python-numpy"}`, api.CodeInvalid, "tag"},
		{"nothing to boot", "POST", "/v1/snapshots", `{"tag":"x"}`, api.CodeInvalid, "image"},
		{"two things to boot", "POST", "/v1/snapshots", `{"tag":"x","image":"i","kernel":"/k","rootfs":"/r"}`, api.CodeInvalid, "exclude"},
		{"boot wait too long", "POST", "/v1/snapshots", `{"tag":"x","image":"i","boot_wait_secs":61}`, api.CodeInvalid, "boot_wait_secs"},
		{"a large number", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","ttl_secs":3599996400}`, api.CodeInvalid, "ttl_secs is 3599996400: "},
		{"unknown image", "POST", "/v1/snapshots", `{"tag":"x","image":"nope"}`, api.CodeNotFound, "nope"},
		{"tag exists", "POST", "/v1/snapshots", `{"tag":"py","image":"python-numpy"}`, api.CodeConflict, "py"},
		{"boot fails", "POST", "/v1/snapshots", `{"tag":"x","image":"broken"}`, api.CodeBootFailed, "Kernel panic"},
		{"not JSON", "POST", "/v1/snapshots", `{"tag":`, api.CodeInvalid, ""},
		{"empty body", "POST", "/v1/snapshots", ``, api.CodeInvalid, ""},
		{"a list", "POST", "/v1/snapshots", `[]`, api.CodeInvalid, ""},
		{"null", "POST", "/v1/snapshots", `null`, api.CodeInvalid, ""},
		{"fork of an unknown tag", "POST", "/v1/sandboxes", `{"snapshot_tag":"nope"}`, api.CodeNotFound, "nope"},
		{"fork of a torn snapshot", "POST", "/v1/sandboxes", `{"snapshot_tag":"torn"}`, api.CodeNotRestorable, "memory"},
		{"fork of none", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":0}`, api.CodeInvalid, "n"},
		{"fork of too many", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1001}`, api.CodeInvalid, "n"},
		{"fork of a fraction", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":1.5}`, api.CodeInvalid, "n"},
		{"fork of a word", "POST", "/v1/sandboxes", `{"snapshot_tag":"py","n":"two"}`, api.CodeInvalid, "n"},
		{"exec without args", "POST", "/v1/sandboxes/" + id + "/exec", `{}`, api.CodeInvalid, "args"},
		{"exec of nothing", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":[]}`, api.CodeInvalid, "args"},
		{"exec of null", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":null}`, api.CodeInvalid, "args"},
		{"exec of an empty name", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":[""]}`, api.CodeInvalid, "args"},
		{"exec of a missing program", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":["nope"]}`, api.CodeInvalid, "nope"},
		{"exec with a negative limit", "POST", "/v1/sandboxes/" + id + "/exec", `{"args":["echo"],"timeout_secs":-1}`, api.CodeInvalid, "timeout_secs"},
		{"unknown sandbox", "POST", "/v1/sandboxes/sb-none/ping", ``, api.CodeNotFound, "sb-none"},
		{"kill of an unknown sandbox", "DELETE", "/v1/sandboxes/sb-none", ``, api.CodeNotFound, "sb-none"},
		{"delete with dependents", "DELETE", "/v1/snapshots/base", ``, api.CodeConflict, "leaf"},
		{"delete with both options", "DELETE", "/v1/snapshots/base?cascade=true&force=true", ``, api.CodeInvalid, "exclude"},
		{"delete with a bad option", "DELETE", "/v1/snapshots/base?cascade=perhaps", ``, api.CodeInvalid, "cascade"},
		{"compact to nothing", "POST", "/v1/snapshots/py/compact", `{}`, api.CodeInvalid, "to"},
		{"compact to itself", "POST", "/v1/snapshots/py/compact", `{"to":"py"}`, api.CodeInvalid, "itself"},
		{"compact to a bad tag", "POST", "/v1/snapshots/py/compact", `{"to":"../x"}`, api.CodeInvalid, "letters"},
		{"compact what is not there", "POST", "/v1/snapshots/none/compact", `{"to":"x"}`, api.CodeNotFound, "none"},
		{"collect with no boolean", "POST", "/v1/store/gc", `{"dry_run":"yes"}`, api.CodeInvalid, "dry_run"},
		{"pool of a negative size", "PUT", "/v1/snapshots/py/pool", `{"size":-1}`, api.CodeInvalid, "size"},
		{"pool of an unknown tag", "PUT", "/v1/snapshots/nope/pool", `{"size":1}`, api.CodeNotFound, "nope"},
		{"image with a wrong digest", "PUT", "/v1/images/new", `x`, api.CodeInvalid, "digest"},
		{"agent of an unknown sandbox", "GET", "/v1/sandboxes/sb-none/agent/health", ``, api.CodeNotFound, "sb-none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := b.do(c.method, c.path, c.body)
			if c.name == "image with a wrong digest" {
				r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set(api.HeaderDigest, "sha256:"+strings.Repeat("0", 64))
				w = httptest.NewRecorder()
				b.h.ServeHTTP(w, r)
			}
			if e := wantError(t, w, c.code); !strings.Contains(e.Message, c.text) {
				t.Errorf("message %q does not have %q", e.Message, c.text)
			}
		})
	}
}

func TestBodyOverTheLimit(t *testing.T) {
	b := newBench(t)
	body := `{"tag":"x","image":"python-numpy","warm":"` + strings.Repeat("x", api.MaxBodyBytes) + `"}`
	wantError(t, b.do("POST", "/v1/snapshots", body), api.CodeTooLarge)
}

func TestOutputThatIsNoText(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	got := into[api.ExecResponse](t, b.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["bytes"]}`), 200)
	if got.Stdout != "\ufffd\ufffda" || string(got.StdoutRaw) != "\xff\xfea" || got.StderrRaw != nil {
		t.Errorf("got %+v", got)
	}
	got = into[api.ExecResponse](t, b.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep"],"timeout_secs":0.1}`), 200)
	if !got.TimedOut || got.ExitCode != 124 {
		t.Errorf("a program at its limit gives %+v", got)
	}
}

func TestEvalKeepsTheOriginalsNulls(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	got := into[map[string]any](t, b.do("POST", "/v1/sandboxes/"+id+"/eval", `{"code":"6*7"}`), 200)
	if got["result"] != "42" || got["error"] != nil || got["exit_code"] != 0.0 {
		t.Errorf("got %v", got)
	}
	got = into[map[string]any](t, b.do("POST", "/v1/sandboxes/"+id+"/eval", `{"code":"raise"}`), 200)
	if got["result"] != nil || !strings.Contains(fmt.Sprint(got["error"]), "RuntimeError") || got["exit_code"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

func TestSnapshotProgressIsALinePerStep(t *testing.T) {
	b := newBench(t)
	send := func(path, body string) []api.Step {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Accept", "application/x-ndjson")
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		if w.Code != 201 || w.Header().Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
		}
		var steps []api.Step
		for line := range strings.Lines(w.Body.String()) {
			var s api.Step
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			steps = append(steps, s)
		}
		return steps
	}
	steps := send("/v1/snapshots", `{"tag":"new","image":"python-numpy"}`)
	if last := steps[len(steps)-1]; len(steps) != 9 || last.Snapshot == nil || last.Snapshot.Tag != "new" || !last.Snapshot.Bootable {
		t.Errorf("got %d steps, the last %+v", len(steps), last)
	}
	steps = send("/v1/snapshots", `{"tag":"other","image":"broken"}`)
	if last := steps[len(steps)-1]; last.Error == nil || last.Error.Code != api.CodeBootFailed {
		t.Errorf("the last step of a failed boot is %+v", last)
	}
	steps = send("/v1/snapshots/new/compact", `{"to":"flat"}`)
	if last := steps[len(steps)-1]; len(steps) != 7 || last.Snapshot == nil || last.Snapshot.Tag != "flat" {
		t.Errorf("got %d steps of a compaction, the last %+v", len(steps), last)
	}
	if want := (api.Step{Step: "memory", Bytes: 64 << 20, Total: 256 << 20}); steps[1] != want {
		t.Errorf("a step that is under way is %+v, want %+v", steps[1], want)
	}
}

func TestVerifyTellsTheDamage(t *testing.T) {
	b := newBench(t)
	b.engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "flipped", Status: sandbox.SnapshotReady, Warning: "damaged"})
	if got := into[api.VerifyResult](t, b.do("POST", "/v1/snapshots/py/verify", ""), 200); !got.OK || got.Damaged == nil {
		t.Errorf("got %+v", got)
	}
	if got := into[api.VerifyResult](t, b.do("POST", "/v1/snapshots/flipped/verify", ""), 200); got.OK || len(got.Damaged) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestCompactAndCollect(t *testing.T) {
	b := newBench(t)
	if got := into[api.SnapshotInfo](t, b.do("POST", "/v1/snapshots/py/compact", `{"to":"flat"}`), 201); got.Tag != "flat" || got.ParentTag != nil {
		t.Errorf("got %+v", got)
	}
	wantError(t, b.do("POST", "/v1/snapshots/py/compact", `{"to":"flat"}`), api.CodeConflict)
	for i, c := range []struct {
		body   string
		layers int
		dry    bool
	}{{`{"dry_run":true}`, 1, true}, {"", 1, false}, {"{}", 0, false}} {
		got := into[api.CollectResult](t, b.do("POST", "/v1/store/gc", c.body), 200)
		if got.Layers == nil || len(got.Layers) != c.layers || got.DryRun != c.dry {
			t.Errorf("%d: got %+v", i, got)
		}
	}
}

func TestEmptyListsAreNotNull(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/v1/sandboxes", "/v1/pools"} {
		if got := strings.TrimSpace(b.do("GET", path, "").Body.String()); got != "[]" {
			t.Errorf("%s is %s", path, got)
		}
	}
	if got := b.do("GET", "/v1/snapshots/py/info", "").Body.String(); strings.Contains(got, "null") {
		t.Errorf("info has a null: %s", got)
	}
}

func TestAuditLine(t *testing.T) {
	b := newBench(t)
	b.fork("2")
	b.do("POST", "/v1/sandboxes/sb-00000001-0002/ping", "")
	b.do("DELETE", "/v1/snapshots/nope", "")
	lines := strings.Split(strings.TrimSpace(b.audit.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("got %d lines: %s", len(lines), b.audit)
	}
	for i, want := range []map[string]any{
		{"time": "2026-01-02T03:04:05Z", "method": "POST", "path": "/v1/sandboxes", "status": 201.0, "snapshot": "py", "count": 2.0, "principal": "token"},
		{"path": "/v1/sandboxes/sb-00000001-0002/ping", "status": 200.0, "sandbox": "sb-00000001-0002"},
		{"status": 404.0, "snapshot": "nope", "error": "snapshot nope not found"},
	} {
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		if _, ok := got["latency_us"]; !ok {
			t.Errorf("line %d has no latency: %s", i, lines[i])
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, got[k], v)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	b := newBench(t)
	b.fork("3")
	for _, err := range []error{nil, errors.New("no memory"), nil} {
		b.timings.Observe(sandbox.OpRestore, time.Millisecond, err)
	}
	b.timings.Observe(sandbox.OpBoot, time.Second, nil)
	text := b.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{
		"forkd_snapshots 1\n", "forkd_sandboxes_active 3\n", `forkd_build_info{version="1.2.3"} 1`,
		"forkd_fork_seconds_count 1\n", `forkd_fork_children_total{result="ok"} 3`, "forkd_exec_seconds_count 0",
		"forkd_restore_seconds_count 2\n", "forkd_identity_seconds_count 0\n",
		"go_goroutines", `route="/v1/sandboxes"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics have no %q", want)
		}
	}
}

// panicking is an engine with a bug.
type panicking struct{ fakeengine.Flat }

func (panicking) Ping(context.Context, string) (sandbox.Pong, error) { panic("a bug") }

func TestPanicIsAnAnswer(t *testing.T) {
	b := newBench(t)
	b.h = httpapi.New(httpapi.Options{Engine: fakeengine.Roles(panicking{b.engine})}).Handler(auth.Access{Token: token})
	wantError(t, b.do("POST", "/v1/sandboxes/sb-1/ping", ""), api.CodeInternal)
}

// jsonRoute is an operation that reads JSON, with an existing sandbox and snapshot.
type jsonRoute struct {
	method, path string
	fields       []string
}

// jsonRoutes returns the JSON operations of the document, so that new ones are included.
func (b *bench) jsonRoutes() []jsonRoute {
	b.t.Helper()
	doc := b.document()
	var all []jsonRoute
	doc.each(func(method, path string, op operation) {
		if op.RequestBody == nil {
			return
		}
		body, ok := op.RequestBody.Content["application/json"]
		if !ok {
			return
		}
		name := strings.TrimPrefix(body.Schema.Ref, "#/components/schemas/")
		fields := slices.Sorted(maps.Keys(doc.Components.Schemas[name].Properties))
		if len(fields) == 0 {
			b.t.Errorf("%s %s: the body's schema %q has no fields", method, path, body.Schema.Ref)
		}
		there := strings.ReplaceAll(path, "{id}", "sb-00000001-0001")
		all = append(all, jsonRoute{method, concrete(there), fields})
	})
	if len(all) < 6 {
		b.t.Errorf("only %d routes read JSON", len(all))
	}
	return all
}

// seeds returns bodies that are nearly right, or empty: each field with each kind of value.
func (r jsonRoute) seeds() []string {
	out := []string{``, `{}`, `null`, `[]`, `"x"`, "\xff\x00", `{"`, `{"tag":{"a":[1,2,{}]}}`, strings.Repeat("[", 10000),
		`{"tag":"x","image":"python-numpy"}`, `{"snapshot_tag":"py","n":2}`, `{"args":["echo","a"],"timeout_secs":1e300}`,
		`{"args":["cat"],"stdin":"x"}`, `{"code":"1"}`, `{"tag":"x","mode":"diff","n":2}`, `{"max_pause_ms":1e-300,"wait":false}`}
	for _, field := range r.fields {
		for _, v := range []string{`null`, `true`, `-1`, `0`, `1.5`, `1e400`, `9223372036854775808`, `""`, `"py"`, `"../x"`, `"\u0000"`, `[]`, `[null]`, `{}`, `{"a":1}`} {
			out = append(out, fmt.Sprintf("{%q:%s}", field, v))
		}
	}
	return out
}

// FuzzBodies sends garbage to every route that reads JSON. The answer may be an error, but never a
// 5xx, and always in the documented form.
func FuzzBodies(f *testing.F) {
	server := newBench(f)
	routes := server.jsonRoutes()
	for i, r := range routes {
		for _, s := range r.seeds() {
			f.Add(uint8(i), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		b := server.anew(t)
		b.fork("1")
		r := routes[int(which)%len(routes)]
		w := b.do(r.method, r.path, string(body))
		if w.Code >= 500 && !strings.Contains(w.Body.String(), string(api.CodeBootFailed)) &&
			!strings.Contains(w.Body.String(), string(api.ReasonColdPause)) {
			t.Fatalf("%s %s: status %d for %q: %s", r.method, r.path, w.Code, body, w.Body)
		}
		if w.Code >= 400 {
			wantError(t, w, api.CodeOf(w.Code))
		}
	})
}

// TestAVerificationTellsHowFarItIs checks the progress lines and the result of a verification. An
// error has its own status.
func TestAVerificationTellsHowFarItIs(t *testing.T) {
	b := newBench(t)
	ask := func(tag string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v1/snapshots/"+tag+"/verify", nil)
		r.Header.Set("Accept", "application/x-ndjson")
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		return w
	}
	w := ask("py")
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" || len(lines) != 2 {
		t.Fatalf("got %d, %q", w.Code, w.Body)
	}
	var first, last api.Step
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &first), json.Unmarshal([]byte(lines[1]), &last)); err != nil {
		t.Fatal(err)
	}
	if first.Step != "verify" || first.Total == 0 || first.Bytes != first.Total/2 || last.Verify == nil || !last.Verify.OK {
		t.Errorf("got %+v, %+v", first, last)
	}
	wantError(t, ask("none"), api.CodeNotFound)
}

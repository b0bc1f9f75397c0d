package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

func (b *bench) branch(id, body string) api.BranchResult {
	b.t.Helper()
	return into[api.BranchResult](b.t, b.do("POST", "/v1/sandboxes/"+id+"/branch", body), 201)
}

func TestOriginalFieldsOfABranch(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for _, c := range []struct {
		name, body string
		want       map[string]any
	}{
		{"tag and mode", `{"tag":"mid","mode":"diff","wait":true,"measure_diff":true}`,
			map[string]any{"tag": "mid", "branched_from": id, "pause_ms": 8.0, "status": "ready", "bootable": true, "dir": "/var/lib/forkd/snapshots/mid"}},
		{"the older diff", `{"tag":"older","diff":true}`, map[string]any{"pause_ms": 8.0, "mechanism": "none", "rounds": 0.0}},
		{"no diff", `{"tag":"none","diff":false}`, map[string]any{"pause_ms": 1.5}},
		{"nulls", `{"tag":null,"mode":null,"diff":null,"wait":null}`, map[string]any{"tag": "branch-" + id + "-1", "pause_ms": 1.5}},
		{"nothing", ``, map[string]any{"tag": "branch-" + id + "-2"}},
		{"an empty object", `{}`, map[string]any{"tag": "branch-" + id + "-3", "parent_tag": "py"}},
		{"full", `{"tag":"flat","mode":"full"}`, map[string]any{"tag": "flat", "parent_tag": nil, "bytes_written": float64(90 << 20)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			got := into[map[string]any](t, b.do("POST", "/v1/sandboxes/"+id+"/branch", c.body), 201)
			for k, v := range c.want {
				if got[k] != v {
					t.Errorf("%s is %v, want %v", k, got[k], v)
				}
			}
		})
	}
}

func TestBranchTellsWhatItTook(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	got := b.branch(id, `{"tag":"mid","mode":"live","max_pause_ms":1.5}`)
	if got.Mechanism != "wp-async" || got.Rounds != 2 || got.BytesWritten != 3<<20 || got.PausedBytes != 64<<10 || got.TotalMS != 40 || got.Children != nil {
		t.Errorf("got %+v", got)
	}
	info := into[api.SnapshotDetail](t, b.do("GET", "/v1/snapshots/mid/info", ""), 200)
	if *info.ParentTag != "py" || *info.BranchedFrom != id || info.ChainDepth != 1 || fmt.Sprint(info.Ancestors) != "[py]" {
		t.Errorf("the snapshot is %+v", info)
	}
	if e := wantError(t, b.do("DELETE", "/v1/snapshots/py", ""), api.CodeConflict); !strings.Contains(e.Message, "mid") {
		t.Errorf("the parent's delete says %q", e.Message)
	}
	text := b.do("GET", "/metrics", "").Body.String()
	if !strings.Contains(text, "forkd_branch_pause_seconds_count 1\n") {
		t.Error("metrics have no pause")
	}
}

func TestBranchForksChildren(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	b.engine.Limit = 3
	got := b.branch(id, `{"tag":"mid","n":3}`)
	if len(got.Children) != 3 || got.ReadyWallMS != 6 || got.ArmedWallMS != 3 {
		t.Fatalf("got %+v", got)
	}
	for i, sb := range got.Children {
		if failed := i >= 2; failed != (sb.Status == api.SandboxFailed) || failed != (sb.Code == api.CodeNoMemory) || sb.SnapshotTag != "mid" || sb.Index != i+1 {
			t.Errorf("child %d is %+v", i+1, sb)
		}
	}
	// The snapshot exists although no child can be made.
	got = b.branch(id, `{"tag":"more","n":2}`)
	if len(got.Children) != 2 || got.Children[0].Error == "" || got.Status != api.SnapshotReady {
		t.Errorf("got %+v", got)
	}
	// A branch of a branch of a branch.
	b.engine.Limit = 100
	for depth := 1; depth <= 3; depth++ {
		got = b.branch(id, fmt.Sprintf(`{"tag":"deep%d","n":1}`, depth))
		id = got.Children[0].ID
	}
	info := into[api.SnapshotDetail](t, b.do("GET", "/v1/snapshots/deep3/info", ""), 200)
	if fmt.Sprint(info.Ancestors) != "[py deep1 deep2]" || info.ChainDepth != 3 {
		t.Errorf("ancestors are %v", info.Ancestors)
	}
}

func TestBranchThatNobodyWaitsFor(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	if got := b.branch(id, `{"tag":"mid","wait":false}`); got.Status != api.SnapshotWriting || got.Bootable || *got.PauseMS != 1.5 {
		t.Errorf("got %+v", got)
	}
	forked := make(chan int)
	go func() { forked <- b.do("POST", "/v1/sandboxes", `{"snapshot_tag":"mid"}`).Code }()
	select {
	case code := <-forked:
		t.Errorf("a fork did not wait, status %d", code)
	case <-time.After(20 * time.Millisecond):
	}
	b.engine.Finish("mid")
	if code := <-forked; code != 201 {
		t.Errorf("the fork's status is %d", code)
	}
}

func TestBranchesThatCannotBe(t *testing.T) {
	b := newBench(t)
	sbs := b.fork("2")
	id, dead := sbs[0].ID, sbs[1].ID
	b.engine.Fail(dead, "the guest powered off")
	for _, c := range []struct {
		name, id, body string
		code           api.Code
		text           string
	}{
		{"unknown sandbox", "sb-none", `{}`, api.CodeNotFound, "sb-none"},
		{"dead sandbox", dead, `{}`, api.CodeGuestGone, "powered off"},
		{"tag exists", id, `{"tag":"py"}`, api.CodeConflict, "py"},
		{"tag with a path in it", id, `{"tag":"../x"}`, api.CodeInvalid, "../x"},
		{"empty tag", id, `{"tag":""}`, api.CodeInvalid, "tag"},
		{"unknown mode", id, `{"mode":"quick"}`, api.CodeInvalid, "mode"},
		{"mode and diff", id, `{"mode":"diff","diff":true}`, api.CodeInvalid, "exclude"},
		{"children without waiting", id, `{"n":1,"wait":false}`, api.CodeInvalid, "exclude"},
		{"too many children", id, `{"n":1001}`, api.CodeInvalid, "n"},
		{"fewer than no children", id, `{"n":-1}`, api.CodeInvalid, "n"},
		{"negative pause", id, `{"max_pause_ms":-1}`, api.CodeInvalid, "max_pause_ms"},
		{"endless pause", id, `{"max_pause_ms":1e300}`, api.CodeInvalid, "max_pause_ms"},
		{"pause that cannot be kept", id, `{"mode":"diff","max_pause_ms":5}`, api.CodeConflict, "8ms"},
		{"a list", id, `[]`, api.CodeInvalid, ""},
		{"not JSON", id, `{"tag":`, api.CodeInvalid, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := b.do("POST", "/v1/sandboxes/"+c.id+"/branch", c.body)
			if e := wantError(t, w, c.code); !strings.Contains(e.Message, c.text) {
				t.Errorf("message %q does not have %q", e.Message, c.text)
			}
			if w.Header().Get("Retry-After") != "" {
				t.Error("a retry would be no use, and is asked for")
			}
		})
	}
	if list := into[[]api.SnapshotInfo](t, b.do("GET", "/v1/snapshots", ""), 200); len(list) != 1 {
		t.Errorf("there are %d snapshots", len(list))
	}
}

func TestTooManyBranchesAtOnce(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for i := range b.engine.BranchLimit {
		b.branch(id, fmt.Sprintf(`{"tag":"b%d","wait":false}`, i))
	}
	w := b.do("POST", "/v1/sandboxes/"+id+"/branch", `{}`)
	if e := wantError(t, w, api.CodeBusy); e.Reason != "" || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("status %d, headers %v, error %+v", w.Code, w.Header(), e)
	}
	b.engine.Finish("b0")
	b.branch(id, `{}`)
}

func TestABranchIsAudited(t *testing.T) {
	b := newBench(t)
	b.branch(b.fork("1")[0].ID, `{"n":2}`)
	lines := strings.Split(strings.TrimSpace(b.audit.String()), "\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil {
		t.Fatal(err)
	}
	if got["sandbox"] != "sb-00000001-0001" || got["snapshot"] != "branch-sb-00000001-0001-1" || got["count"] != 2.0 {
		t.Errorf("the line is %v", got)
	}
}

// Every answer documented as busy has the header.
func TestRetryAfterIsDocumented(t *testing.T) {
	doc := newBench(t).do("GET", "/openapi.json", "").Body.String()
	if !strings.Contains(doc, "Retry-After") {
		t.Error("the document does not have Retry-After")
	}
}

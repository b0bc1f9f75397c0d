package httpapi_test

import (
	"testing"

	"github.com/forkd/forkd/api"
)

func TestReceipts(t *testing.T) {
	b := newBench(t)
	sbs := b.fork("2")
	id := sbs[1].ID
	b.branch(id, `{"tag":"mid"}`)
	r := into[api.Receipt](t, b.do("GET", "/v1/sandboxes/"+id+"/receipt", ""), 200)
	if r.Op != api.ReceiptFork || r.Sandbox != id || r.Parent.Tag != "py" || r.Parent.Layers[0].Digest != "sha256:0b" || r.TookMS != 4 ||
		!r.VM.Pooled || r.VM.MapMS != 0.2 || r.Identity.Index != 2 || r.Identity.EntropyBytes != 64 {
		t.Errorf("got %+v", r)
	}
	if g := r.Guest; !g.KernelReseeded || g.ClockStepMS != 90_000 || len(g.Steps) != 3 || len(g.Interpreters[0].Reseeded) != 3 || g.Hooks[0].Name != "10-keys" {
		t.Errorf("the guest's answer: %+v", g)
	}
	r = into[api.Receipt](t, b.do("GET", "/v1/snapshots/mid/receipt", ""), 200)
	if r.Op != api.ReceiptBranch || r.Sandbox != id || r.Snapshot != "mid" || r.Capture.PauseMS != 1.5 || r.Guest != nil || len(r.Steps) != 2 {
		t.Errorf("got %+v", r)
	}
	into[api.SandboxInfo](t, b.do("POST", "/v1/sandboxes/"+id+"/rollback", `{"snapshot_tag":"mid"}`), 200)
	if w := b.do("DELETE", "/v1/sandboxes/"+id, ""); w.Code != 204 {
		t.Errorf("delete: %d", w.Code)
	}
	r = into[api.Receipt](t, b.do("GET", "/v1/sandboxes/"+id+"/receipt", ""), 200)
	if r.Op != api.ReceiptRollback || r.Before != "py" {
		t.Errorf("got %+v", r)
	}
	for query, want := range map[string]int{
		"": 4, "?sandbox=" + id: 2, "?snapshot=mid": 1, "?op=fork": 2, "?limit=1": 1, "?sandbox=nobody": 0, "?sandbox=" + id + "&op=rollback": 1,
	} {
		if got := into[[]api.Receipt](t, b.do("GET", "/v1/receipts"+query, ""), 200); len(got) != want || got == nil {
			t.Errorf("%q finds %d, want %d", query, len(got), want)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?op=sell", "?sandbox=a&snapshot=b"} {
		wantError(t, b.do("GET", "/v1/receipts"+query, ""), api.CodeInvalid)
	}
	wantError(t, b.do("GET", "/v1/sandboxes/nobody/receipt", ""), api.CodeNotFound)
	wantError(t, b.do("GET", "/v1/snapshots/nobody/receipt", ""), api.CodeNotFound)
}

func TestRollback(t *testing.T) {
	b := newBench(t)
	sb := b.fork("1")[0]
	path := "/v1/sandboxes/" + sb.ID + "/rollback"
	got := into[api.SandboxInfo](t, b.do("POST", path, `{"snapshot_tag":"py"}`), 200)
	if got.ID != sb.ID || got.RolledBackTo != "py" || *got.PID == *sb.PID || got.SnapshotTag != "py" {
		t.Errorf("got %+v", got)
	}
	for _, body := range []string{``, `{}`, `{"snapshot_tag":""}`, `{"snapshot_tag":"../x"}`, `{"snapshot_tag":7}`, `[]`} {
		wantError(t, b.do("POST", path, body), api.CodeInvalid)
	}
	wantError(t, b.do("POST", path, `{"snapshot_tag":"nothing"}`), api.CodeNotFound)
	wantError(t, b.do("POST", "/v1/sandboxes/nobody/rollback", `{"snapshot_tag":"py"}`), api.CodeNotFound)
}

package httpapi_test

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

func TestPromote(t *testing.T) {
	b := newBench(t)
	above := b.fork("1")[0].ID
	child := b.branch(above, `{"tag":"mid","n":1}`).Children[0].ID
	for _, body := range []string{`{"parent":"sell"}`, `{"parent":"kill","tag":"x"}`, `{"place":"../x"}`, `{"tag":"a b"}`} {
		wantError(t, b.do("POST", "/v1/sandboxes/"+child+"/promote", body), api.CodeInvalid)
	}
	if e := wantError(t, b.do("POST", "/v1/sandboxes/"+above+"/promote", ""), api.CodeConflict); e.Reason != api.ReasonNoPlace {
		t.Errorf("got %+v", e)
	}
	res := into[api.PromoteResult](t, b.do("POST", "/v1/sandboxes/"+child+"/promote", ""), 200)
	if res.Sandbox.ID != above || res.PromotedFrom != child || res.Sandbox.PromotedFrom != child || res.KeptIn == "" {
		t.Errorf("got %+v", res)
	}
	wantError(t, b.do("GET", "/v1/sandboxes/"+child, ""), api.CodeNotFound)
	if log := b.audit.String(); !strings.Contains(log, `"sandbox.promote"`) || !strings.Contains(log, `"object":"`+above+`"`) {
		t.Errorf("the audit log does not name the place: %s", log)
	}
}

// A tenant promotes its own sandboxes, and a tag is its own.
func TestTenantsPromoteTheirOwn(t *testing.T) {
	b := newTenants(t)
	branch := into[api.BranchResult](t, b.as(b.acme, "POST", "/v1/sandboxes/"+b.sandbox+"/branch", `{"tag":"mid","n":1}`), 201)
	path := "/v1/sandboxes/" + branch.Children[0].ID + "/promote"
	wantError(t, b.as(b.evil, "POST", path, ""), api.CodeNotFound)
	other := into[[]api.SandboxInfo](t, b.as(b.evil, "POST", "/v1/sandboxes", `{"snapshot_tag":"py"}`), 201)[0].ID
	wantError(t, b.as(b.acme, "POST", path, `{"place":"`+other+`"}`), api.CodeNotFound)
	res := into[api.PromoteResult](t, b.as(b.acme, "POST", path, `{"tag":"old"}`), 200)
	if res.Sandbox.ID != b.sandbox || res.KeptIn != "acme-old" || res.Sandbox.Owner != "acme" {
		t.Errorf("got %+v", res)
	}
}

// A public snapshot that was branched from the operator's sandbox names no sandbox to a tenant.
func TestAPromotionNamesNoSandboxOfOthers(t *testing.T) {
	b := newTenants(t)
	above := b.fork("1")[0].ID
	b.branch(above, `{"tag":"shared"}`)
	into[api.SnapshotInfo](t, b.do("PUT", "/v1/snapshots/shared/public", `{"public":true}`), 200)
	child := into[[]api.SandboxInfo](t, b.as(b.acme, "POST", "/v1/sandboxes", `{"snapshot_tag":"shared"}`), 201)[0].ID
	w := b.as(b.acme, "POST", "/v1/sandboxes/"+child+"/promote", "")
	if e := wantError(t, w, api.CodeConflict); e.Reason != api.ReasonNoPlace || strings.Contains(e.Message, above) {
		t.Errorf("got %+v", e)
	}
	wantError(t, b.as(b.acme, "POST", "/v1/sandboxes/"+child+"/promote", `{"place":"`+above+`"}`), api.CodeNotFound)
}
